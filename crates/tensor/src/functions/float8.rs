//! 8-bit floats (FP8): half the memory of 16-bit floats, and twice the speed on GPUs with FP8 tensor cores.
//!
//! The bits are plain `u8` tensors, which can be moved and stored like any tensor; [`encode`] and [`decode`] convert
//! them. Since 8 bits have little range, a [`Float8Tensor`] has a scale too ([`quantize`], [`dequantize`]).
//! [`matmul_quantized`] multiplies such tensors as they are: weights for inference are quantised once. [`matmul`]
//! accepts floats, quantises both, and computes its gradients with 8-bit floats too. It is for training, with
//! [`Float8::E4M3`] for weights and activations and [`Float8::E5M2`] for gradients ([Micikevicius et al.
//! 2022](https://arxiv.org/abs/2209.05433)).
//!
//! GPUs of compute capability 8.9 or above multiply the bytes in their tensor cores by cuBLASLt. Other engines decode
//! them and multiply in `f32`: the same values, without the gain in speed.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::Tensor;
//! use kiln_tensor::float8::{self, Float8};
//!
//! let x = Tensor::<Flex, 2>::from_data([[1.0f32, -3.5], [0.0, 7.0]], &Default::default());
//! let q = float8::quantize(x.clone(), Float8::E4M3);
//! assert_eq!(q.scale.to_data()?.to_vec::<f32>(), [7.0 / 448.0]);
//! let y: Tensor<Flex, 2> = float8::matmul_quantized(q.clone(), q);
//! assert_eq!(y.into_data().to_vec::<f32>(), [1.0, -28.0, 0.0, 49.0]);
//! let z = float8::matmul(x.clone(), x);
//! assert_eq!(z.into_data().to_vec::<f32>(), [1.0, -28.0, 0.0, 49.0]);
//! # Ok::<(), kiln_tensor::Error>(())
//! ```

pub use crate::any::Float8Tensor;
pub use kiln_ir::Float8;

use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{AnyTensor, Backend, Tensor};

/// Rounds to 8-bit floats, ties to even, and returns their bits as `u8`. A value out of range becomes infinite in
/// [`E5M2`](Float8::E5M2), and the greatest value in [`E4M3`](Float8::E4M3), which has no infinities, as in PyTorch.
/// The bits have no gradient.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::float8::{self, Float8};
///
/// let x = Tensor::<Flex, 1>::from_data([1.0f32, 0.3, -448.0], &Default::default());
/// let bits = float8::encode(x, Float8::E4M3);
/// assert_eq!(bits.to_data()?.to_vec::<u8>(), [0x38, 0x2a, 0xfe]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[track_caller]
pub fn encode<B: Backend, const D: usize>(x: Tensor<B, D>, format: Float8) -> AnyTensor {
    ok(x.into_any().encode_float8(format))
}

/// Decodes the bits of 8-bit floats to floats.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::float8::{self, Float8};
///
/// let x = Tensor::<Flex, 1>::from_data([1.0f32, 0.3], &Default::default());
/// let y: Tensor<Flex, 1> = float8::decode(float8::encode(x, Float8::E5M2), Float8::E5M2);
/// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 0.3125]);
/// ```
///
/// # Panics
/// When the tensor is not `u8`, or does not have `D` axes.
#[track_caller]
pub fn decode<B: Backend, const D: usize>(bits: AnyTensor, format: Float8) -> Tensor<B, D> {
    let dtype = bits.stack().float_dtype();
    Tensor::from_any(ok(bits.decode_float8(format, dtype)))
}

/// Quantises to 8-bit floats with one scale, which maps the tensor's greatest magnitude to the format's greatest value.
/// The scale of an all-zero tensor is 1; if an element is NaN, all results are NaN.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::float8::{self, Float8};
///
/// let x = Tensor::<Flex, 1>::from_data([-896.0f32, 2.0], &Default::default());
/// let q = float8::quantize(x, Float8::E4M3);
/// assert_eq!(q.bits.to_data()?.to_vec::<u8>(), [0xfe, 0x38]);
/// assert_eq!(q.scale.to_data()?.to_vec::<f32>(), [2.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[track_caller]
pub fn quantize<B: Backend, const D: usize>(x: Tensor<B, D>, format: Float8) -> Float8Tensor {
    ok(x.into_any().quantize_float8(format))
}

/// Dequantises to floats.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::float8::{self, Float8};
///
/// let x = Tensor::<Flex, 1>::from_data([-896.0f32, 2.0], &Default::default());
/// let y: Tensor<Flex, 1> = float8::dequantize(float8::quantize(x, Float8::E4M3));
/// assert_eq!(y.into_data().to_vec::<f32>(), [-896.0, 2.0]);
/// ```
///
/// # Panics
/// When the tensor does not have `D` axes.
#[track_caller]
pub fn dequantize<B: Backend, const D: usize>(q: Float8Tensor) -> Tensor<B, D> {
    let dtype = q.bits.stack().float_dtype();
    Tensor::from_any(ok(q.dequantize(dtype)))
}

/// Computes the matmul of 8-bit floats, `[.., m, k] x [.., k, n] -> [.., m, n]`, with `f32` accumulation and scaling.
/// The batch axes must be equal. The gradient flows to the scales.
///
/// A GPU reads the bytes in place if rows of `a` and columns of `b` are contiguous: a weight `[out, in]` is
/// [transposed](Float8Tensor::transpose) without a copy. Other layouts are copied first. Two E5M2 operands are decoded.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::float8::{self, Float8};
///
/// let device = Default::default();
/// let x = float8::quantize(Tensor::<Flex, 2>::from_data([[3.5f32, 7.0]], &device), Float8::E4M3);
/// let weight = float8::quantize(Tensor::<Flex, 2>::from_data([[3.5f32, 7.0], [1.75, 7.0]], &device), Float8::E4M3);
/// let y: Tensor<Flex, 2> = float8::matmul_quantized(x, weight.transpose()?);
/// assert_eq!(y.into_data().to_vec::<f32>(), [61.25, 55.125]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Panics
/// When the shapes are incompatible.
#[track_caller]
pub fn matmul_quantized<B: Backend, const D: usize>(a: Float8Tensor, b: Float8Tensor) -> Tensor<B, D> {
    let dtype = a.bits.stack().float_dtype();
    Tensor::from_any(ok(a.matmul(b, dtype)))
}

functions! {
    typed;

    /// Computes the matmul of two float tensors in 8-bit floats, `[.., m, k] x [.., k, n] -> [.., m, n]`; the batch axes
    /// broadcast. Both operands are [quantised](quantize) in E4M3. The gradients are 8-bit matmuls too, with the output
    /// gradient in E5M2.
    ///
    /// The cost is accuracy: an operand keeps 4 significant bits. A matmul of random matrices has an error of about 4 % of
    /// the spread of its elements. A non-finite operand or gradient makes all elements NaN.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::float8;
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 2.0]], &Default::default());
    /// let y = float8::matmul(x.clone(), x.transpose());
    /// assert_eq!(y.into_data().to_vec::<f32>(), [5.0]);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible.
    pub fn matmul[B: Backend, const D: usize](
        a: Tensor<B, D>,
        b: Tensor<B, D> as any,
    ) -> Tensor<B, D> = matmul_float8;

    /// Computes `x · weightᵀ + bias` with an 8-bit [`matmul`]: `x` is `[.., in]`, weight `[out, in]`, bias `[out]`; the
    /// result is `[.., out]`. The bias is not quantised.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, float8};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([3.5f32, 7.0], &Default::default());
    /// let weight = Tensor::<Flex, 2>::from_data([[7.0f32, 1.75]], &Default::default());
    /// assert_eq!(float8::linear(x, weight, None).into_data().to_vec::<f32>(), [36.75]);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible.
    pub fn linear[B: Backend, const D: usize](
        x: Tensor<B, D>,
        weight: Tensor<B, 2> as any,
        bias: Option<Tensor<B, 1>> as anys,
    ) -> Tensor<B, D> = linear_float8;
}
