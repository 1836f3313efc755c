//! Normalisation layers.

use crate::any::BatchNormOptions;
use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{Backend, Tensor};

/// Applies layer normalisation ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)): normalises the last axis to mean 0
/// and variance 1, then scales and shifts. Weight and bias are `[dim]`. `AnyTensor::layer_norm` normalises several
/// trailing axes.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, module};
///
/// let x = Tensor::<Flex, 1>::from_data([1.0f32, 3.0], &Default::default());
/// let y = module::layer_norm(x, None, None, 0.0);
/// assert_eq!(y.into_data().to_vec::<f32>(), [-1.0, 1.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.layer_norm.html)
///
/// # Panics
/// When weight or bias is not `[dim]`.
#[track_caller]
pub fn layer_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    x.map(|any| any.layer_norm(1, weight.map(Tensor::into_any), bias.map(Tensor::into_any), epsilon))
}

/// Applies RMS normalisation ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)): divides the last axis by
/// the root of its mean square, then scales. The weight is `[dim]`. `AnyTensor::rms_norm` normalises several trailing
/// axes.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html)
///
/// # Panics
/// When the weight is not `[dim]`.
#[track_caller]
pub fn rms_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    x.map(|any| any.rms_norm(1, weight.map(Tensor::into_any), epsilon))
}

functions! {
    typed;

    /// Applies group normalisation ([Wu and He 2018](https://arxiv.org/abs/1803.08494)): normalises each of `groups` groups
    /// of channels of each example of `[batch, channels, ..]` to mean 0 and variance 1, then scales and shifts each
    /// channel. Weight and bias are `[channels]`.
    ///
    /// # Panics
    /// When the number of channels is not a multiple of `groups`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.group_norm.html)
    pub fn group_norm[B: Backend, const D: usize](
        x: Tensor<B, D>,
        groups: usize,
        weight: Option<Tensor<B, 1>> as anys,
        bias: Option<Tensor<B, 1>> as anys,
        epsilon: f64,
    ) -> Tensor<B, D>;

    /// Applies instance normalisation ([Ulyanov et al. 2016](https://arxiv.org/abs/1607.08022)): normalises each channel of
    /// each example of `[batch, channels, space..]`, then scales and shifts it. Weight and bias are `[channels]`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.instance_norm.html)
    ///
    /// # Panics
    /// With fewer than three axes, or when weight or bias is not `[channels]`.
    pub fn instance_norm[B: Backend, const D: usize](
        x: Tensor<B, D>,
        weight: Option<Tensor<B, 1>> as anys,
        bias: Option<Tensor<B, 1>> as anys,
        epsilon: f64,
    ) -> Tensor<B, D>;
}

/// Applies batch normalisation ([Ioffe and Szegedy 2015](https://arxiv.org/abs/1502.03167)): normalises each channel of
/// `[batch, channels, ..]` over all examples, then scales and shifts it. Weight, bias and statistics are `[channels]`.
///
/// In training, it normalises by mean and variance of the batch, with gradients through both. It returns the new
/// running statistics: `momentum` of the batch's (its variance unbiased), plus `1 - momentum` of the old ones.
/// Otherwise it normalises by the running statistics and returns them unchanged.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::module::{self, BatchNormOptions};
///
/// let x = Tensor::<Flex, 2>::from_data([[1.0f32], [3.0]], &Default::default());
/// let options = BatchNormOptions { training: true, epsilon: 0.0, ..Default::default() };
/// let zeros = Tensor::<Flex, 1>::zeros([1], &Default::default());
/// let (y, running) = module::batch_norm(x, Some((zeros.clone(), zeros)), None, None, options);
/// assert_eq!(y.into_data().to_vec::<f32>(), [-1.0, 1.0]);
/// assert_eq!(running.unwrap().1.into_data().to_vec::<f32>(), [0.2]);
/// ```
///
/// # Panics
/// When training on a single element per channel, or not training without running statistics.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.batch_norm.html)
#[track_caller]
#[allow(clippy::type_complexity, reason = "a pair in and a pair out")]
pub fn batch_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    running: Option<(Tensor<B, 1>, Tensor<B, 1>)>,
    weight: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
    options: BatchNormOptions,
) -> (Tensor<B, D>, Option<(Tensor<B, 1>, Tensor<B, 1>)>) {
    let running = running.map(|(mean, variance)| (mean.into_any(), variance.into_any()));
    let (weight, bias) = (weight.map(Tensor::into_any), bias.map(Tensor::into_any));
    let (y, running) = ok(x.into_any().batch_norm(running, weight, bias, options));
    let running = running.map(|(mean, variance)| (Tensor::from_any(mean), Tensor::from_any(variance)));
    (Tensor::from_any(y), running)
}

/// Stores `x` in the precision of `like`: a mixed-precision layer (`Autocast`) stores it in 16 bits if it stores `like`
/// in 16 bits. This halves the memory of a tensor computed in `f32` from 16-bit inputs and read by 16-bit ops. Without
/// such a layer, and for dtypes other than `f32`, it returns `x` unchanged. The gradient passes to `x` unchanged.
///
/// ```
/// use kiln_backends::{Autocast, Flex};
/// use kiln_tensor::{Tensor, module};
///
/// let x = Tensor::<Autocast<Flex>, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
/// let product = x.clone().matmul(x);
/// // `exp` gives `f32`; nothing that a program sees changes but the rounding.
/// let y = module::match_precision((-product.clone()).exp(), &product);
/// assert_eq!(y.dtype(), kiln_tensor::DType::F32);
/// ```
///
/// # Panics
/// When the dtypes differ.
#[track_caller]
pub fn match_precision<B: Backend, const D: usize, const D2: usize>(
    x: Tensor<B, D>,
    like: &Tensor<B, D2>,
) -> Tensor<B, D> {
    x.map(|any| any.match_precision(like.as_any()))
}

functions! {
    typed;

    /// Computes the biased variance around a known mean, along the axes where `mean` has length 1. `mean` must be the mean
    /// of `x`: the gradient relies on it and flows to `x` only.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 3.0], [2.0, 8.0]], &Default::default());
    /// let variance = module::variance_about(x.clone(), x.mean_dims([1]));
    /// assert_eq!(variance.into_data().to_vec::<f32>(), [1.0, 9.0]);
    /// ```
    ///
    /// # Panics
    /// When a length of the mean is neither that of `x` nor 1.
    pub fn variance_about[B: Backend, const D: usize](
        x: Tensor<B, D>,
        mean: Tensor<B, D> as any,
    ) -> Tensor<B, D>;

    /// Applies local response normalisation, `x / (k + alpha mean(x²))^beta`, where the mean is over `size` adjacent
    /// channels, zeros beyond the ends ([Krizhevsky et al.
    /// 2012](https://papers.nips.cc/paper/2012/hash/c399862d3b9d6b76c8436e924a68c45b-Abstract.html)). PyTorch's defaults
    /// are `alpha` 1e-4, `beta` 0.75 and `k` 1.
    ///
    /// # Panics
    /// When the size is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.local_response_norm.html)
    pub fn local_response_norm[B: Backend, const D: usize](
        x: Tensor<B, D>,
        size: usize,
        alpha: f64,
        beta: f64,
        k: f64,
    ) -> Tensor<B, D>;
}
