//! Quantisation to integers with scales and zero points.
//!
//! [`compute_range`] finds the range of a tensor, and [`compute_q_params`] derives scales and zero points from it: for
//! the whole tensor, for each channel, or for each block ([`QuantScheme`]). [`quantize()`] and [`dequantize`] apply
//! them; [`quantize_dynamic`] runs all steps at once. [`fake_quantize`] rounds in the same way and passes gradients,
//! for quantisation-aware training. A [`Quantized`] consists of plain tensors, which can be moved and stored like any
//! other.
//!
//! `q = round(x / scale) + zero`, clamped to the dtype's range, ties to even, and `x ≈ (q - zero) scale`: the affine
//! quantisation of [Jacob et al. 2017](https://arxiv.org/abs/1712.05877), as
//! [ONNX](https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html) and
//! [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.quantize_per_tensor.html) define it.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::Tensor;
//! use kiln_tensor::quantize::{self, QuantScheme};
//!
//! let x = Tensor::<Flex, 1>::from_data([-1.0f32, 0.0, 1.27], &Default::default());
//! let q = quantize::quantize_dynamic(x, &QuantScheme::default());
//! assert_eq!(q.values.to_data()?.to_vec::<i8>(), [-100, 0, 127]);
//! let y: Tensor<Flex, 1> = quantize::dequantize(q);
//! assert!((y.into_data().to_vec::<f32>()[0] + 1.0).abs() < 1e-6);
//! # Ok::<(), kiln_tensor::Error>(())
//! ```

pub use crate::any::{QuantGranularity, QuantMode, QuantParams, QuantRange, QuantScheme, Quantized};
use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{Backend, DType, Tensor};

/// Computes the minimum and maximum of each group that shares a scale (min-max calibration). Both have the rank of the
/// tensor and one entry per scale. NaN if an element of the group is NaN.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::quantize::{self, QuantGranularity, QuantScheme};
///
/// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 2.0], [3.0, 5.0]], &Default::default());
/// let scheme = QuantScheme { granularity: QuantGranularity::Channel(0), ..Default::default() };
/// let range = quantize::compute_range(x, &scheme);
/// assert_eq!(range.max.into_data()?.to_vec::<f32>(), [2.0, 5.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Panics
/// When the scheme does not match the shape of the tensor, or the tensor is empty.
#[track_caller]
pub fn compute_range<B: Backend, const D: usize>(x: Tensor<B, D>, scheme: &QuantScheme) -> QuantRange {
    ok(x.into_any().quant_range(scheme))
}

/// Computes scales and zero points that cover a range, widened to include 0, which is always exactly representable.
/// Symmetric: the scale is the greatest magnitude over the greatest integer. Asymmetric: the scale is
/// `(max - min) / steps`, and the zero point is the integer nearest to `-min / scale` above the least integer. The
/// scale of an all-zero group is 1.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::quantize::{self, QuantMode, QuantScheme};
/// use kiln_tensor::{DType, Tensor};
///
/// let x = Tensor::<Flex, 1>::from_data([0.0f32, 255.0], &Default::default());
/// let scheme = QuantScheme { dtype: DType::U8, mode: QuantMode::Asymmetric, ..Default::default() };
/// let params = quantize::compute_q_params(quantize::compute_range(x, &scheme), &scheme);
/// assert_eq!(params.scale.into_data()?.to_vec::<f32>(), [1.0]);
/// assert_eq!(params.zero.unwrap().into_data()?.to_vec::<u8>(), [0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Panics
/// When minimum and maximum differ in shape, or the scheme does not match.
#[track_caller]
pub fn compute_q_params(range: QuantRange, scheme: &QuantScheme) -> QuantParams {
    ok(range.params(scheme))
}

/// Quantises a tensor to integers of a dtype (`i8`, `u8`, `i16`, `u16` or `i32`) with the given scales and zero points.
/// Each length of the scales divides that of the tensor. Values beyond the dtype's range saturate; NaN becomes the
/// integer 0. There is no gradient; see [`fake_quantize`].
///
/// # Panics
/// When the scales do not match the tensor, or the dtype is not supported.
#[track_caller]
pub fn quantize<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    params: &QuantParams,
    dtype: DType,
) -> Quantized {
    ok(x.into_any().quantize(params, dtype))
}

/// Quantises by the parameters of the tensor's own range: [`compute_range`], [`compute_q_params`] and [`quantize()`].
///
/// # Panics
/// When the scheme does not match the shape of the tensor, or the tensor is empty.
#[track_caller]
pub fn quantize_dynamic<B: Backend, const D: usize>(x: Tensor<B, D>, scheme: &QuantScheme) -> Quantized {
    ok(x.into_any().quantize_dynamic(scheme))
}

/// Dequantises to floats: `(q - zero) scale`, in the dtype of the scale. The gradient flows to the scale.
///
/// # Panics
/// When the rank is not `D`.
#[track_caller]
pub fn dequantize<B: Backend, const D: usize>(x: Quantized) -> Tensor<B, D> {
    Tensor::from_any(ok(x.dequantize()))
}

functions! {
    typed;

    /// Applies fake quantisation: [`quantize()`], then [`dequantize`]. The gradient passes unchanged where the tensor is
    /// within the integers' range, and is 0 beyond (straight-through estimator, [Bengio et al.
    /// 2013](https://arxiv.org/abs/1308.3432)).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::quantize::{self, QuantScheme};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Autodiff<Flex>, 1>::from_data([0.3f32, 1.0, 2.0], &device).require_grad();
    /// let scheme = QuantScheme::default();
    /// let limit = Tensor::<Autodiff<Flex>, 1>::from_data([1.27f32], &device);
    /// let params = quantize::compute_q_params(quantize::compute_range(limit, &scheme), &scheme);
    /// let y = quantize::fake_quantize(x.clone(), &params, &scheme);
    /// assert!((y.to_data().to_vec::<f32>()[2] - 1.27).abs() < 1e-6);
    /// let gradient = x.grad(&y.sum().backward()).unwrap();
    /// assert_eq!(gradient.into_data().to_vec::<f32>(), [1.0, 1.0, 0.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.fake_quantize_per_tensor_affine.html)
    ///
    /// # Panics
    /// When the scales or the scheme do not match the tensor.
    pub fn fake_quantize[B: Backend, const D: usize](
        x: Tensor<B, D>,
        params: &QuantParams,
        scheme: &QuantScheme,
    ) -> Tensor<B, D>;
}

/// Computes the matmul of two quantised matrices, `[.., m, k] x [.., k, n] -> [.., m, n]`, in the dtype of the scales.
/// 8-bit integers whose scales are constant along `k` are multiplied and summed as integers, exactly; others are
/// converted to floats first.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::quantize::{self, QuantScheme};
///
/// let x = Tensor::<Flex, 2>::from_data([[1.27f32, 0.0], [0.0, 1.27]], &Default::default());
/// let q = quantize::quantize_dynamic(x, &QuantScheme::default());
/// let y: Tensor<Flex, 2> = quantize::matmul(q.clone(), q);
/// assert!((y.into_data().to_vec::<f32>()[0] - 1.27 * 1.27).abs() < 1e-5);
/// ```
///
/// # Panics
/// When the shapes are incompatible, or the rank is not `D`.
#[track_caller]
pub fn matmul<B: Backend, const D: usize>(a: Quantized, b: Quantized) -> Tensor<B, D> {
    Tensor::from_any(ok(a.matmul(b)))
}
