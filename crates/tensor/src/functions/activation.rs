//! Activation functions: input of any shape; the output has the same shape.
//!
//! Values and gradients are PyTorch's, also at kinks: the gradient of [`relu`] at 0 is 0. A function is finite wherever
//! its limit is finite: no intermediate overflows for large or infinite `x`, forward or in the gradient. NaN stays NaN.
//! The methods of [`AnyTensor`](crate::AnyTensor) with the same names return errors instead of panicking.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::{Tensor, activation};
//!
//! let x = Tensor::<Flex, 1>::from_data([-1.0, 0.0, f32::INFINITY], &Default::default());
//! assert_eq!(activation::relu(x.clone()).into_data().to_vec::<f32>(), [0.0, 0.0, f32::INFINITY]);
//! assert_eq!(activation::sigmoid(x).into_data().to_vec::<f32>()[1..], [0.5, 1.0]);
//! ```

use crate::functions::table::{functions, typed};
use crate::{Axis, Backend, Tensor};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: Backend, const D: usize>(x: Tensor<B, D> $(, $argument: $ty)*) -> Tensor<B, D> {
            x.map(|any| any.$name($($argument),*))
        }
    )*};
}

activations! {
    /// Applies the rectified linear unit, `max(x, 0)`. The gradient at 0 is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.relu.html)
    relu();

    /// Applies ReLU6, `min(max(x, 0), 6)`. The gradient at 0 and 6 is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.relu6.html)
    relu6();

    /// Applies hard tanh, `min(max(x, min), max)`; PyTorch's defaults are -1 and 1. The gradient at both bounds is 0.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([-3.0f32, 0.5, 3.0], &Default::default());
    /// assert_eq!(activation::hardtanh(x, -1.0, 1.0).into_data().to_vec::<f32>(), [-1.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// When `min > max`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardtanh.html)
    hardtanh(min: f64, max: f64);

    /// Applies tanh-shrink, `x - tanh(x)`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanhshrink.html)
    tanhshrink();

    /// Applies leaky ReLU: `x` where positive, `slope * x` elsewhere; PyTorch's default is 0.01. The gradient at 0 is
    /// the slope.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([-2.0f32, 2.0], &Default::default());
    /// assert_eq!(activation::leaky_relu(x, 0.5).into_data().to_vec::<f32>(), [-1.0, 2.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.leaky_relu.html)
    leaky_relu(slope: f64);

    /// Applies the Gaussian error linear unit, `x Φ(x) = x (1 + erf(x / √2)) / 2`, where Φ is the standard normal
    /// cumulative distribution function ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html)
    gelu();

    /// Applies the `tanh` approximation of [`gelu`]: `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html)
    #[doc(alias = "gelu")]
    gelu_approximate();

    /// Applies the logistic sigmoid, `1 / (1 + exp(-x))`, with full relative accuracy at both ends.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.sigmoid.html)
    sigmoid();

    /// Applies log-sigmoid, `ln(sigmoid(x))`, without overflow.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.logsigmoid.html)
    #[doc(alias = "logsigmoid")]
    log_sigmoid();

    /// Applies hard sigmoid, `min(max(alpha x + beta, 0), 1)`. PyTorch's function has `alpha = 1/6` and `beta = 0.5`;
    /// ONNX's defaults are 0.2 and 0.5. The gradient at the kinks is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardsigmoid.html),
    /// [ONNX](https://onnx.ai/onnx/operators/onnx__HardSigmoid.html)
    #[doc(alias = "hardsigmoid")]
    hard_sigmoid(alpha: f64, beta: f64);

    /// Applies SiLU (swish), `x sigmoid(x)` ([Ramachandran et al. 2017](https://arxiv.org/abs/1710.05941)).
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.silu.html)
    #[doc(alias = "swish")]
    silu();

    /// Applies hard swish, `x min(max(x + 3, 0), 6) / 6` ([Howard et al. 2019](https://arxiv.org/abs/1905.02244)). The
    /// gradient is 0 at -3 and 1 at 3.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardswish.html)
    #[doc(alias = "hardswish")]
    hard_swish();

    /// Applies Mish, `x tanh(ln(1 + exp(x)))` ([Misra 2019](https://arxiv.org/abs/1908.08681)).
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mish.html)
    mish();

    /// Applies softplus, `ln(1 + exp(beta x)) / beta`, a smooth ReLU, without overflow. PyTorch's function is
    /// [`softplus_with_threshold`] with threshold 20; they differ by less than 2.1e-9 / beta.
    ///
    /// # Panics
    /// When `beta` is 0 or not finite.
    softplus(beta: f64);

    /// Applies [`softplus`] where `beta x` is at most `threshold`, and the identity elsewhere; PyTorch's defaults are 1
    /// and 20.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([3.0f32], &Default::default());
    /// assert_eq!(activation::softplus_with_threshold(x, 1.0, 2.0).into_data().to_vec::<f32>(), [3.0]);
    /// ```
    ///
    /// # Panics
    /// When `beta` is 0 or not finite.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softplus.html)
    softplus_with_threshold(beta: f64, threshold: f64);

    /// Applies the exponential linear unit: `x` where positive, `alpha (exp(x) - 1)` elsewhere ([Clevert et al.
    /// 2015](https://arxiv.org/abs/1511.07289)). The gradient at 0 is `alpha`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.elu.html)
    elu(alpha: f64);

    /// Applies the continuously differentiable ELU: `x` where positive, `alpha (exp(x / alpha) - 1)` elsewhere ([Barron
    /// 2017](https://arxiv.org/abs/1704.07483)); PyTorch's default is 1.
    ///
    /// # Panics
    /// When `alpha` is 0.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.celu.html)
    celu(alpha: f64);

    /// Applies the scaled ELU: `scale x` where positive, `scale alpha (exp(x) - 1)` elsewhere. The constants keep mean
    /// 0 and variance 1 through layers ([Klambauer et al. 2017](https://arxiv.org/abs/1706.02515)).
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.selu.html)
    selu();

    /// Applies thresholded ReLU: `x` where greater than `alpha`, 0 elsewhere.
    ///
    /// [ONNX](https://onnx.ai/onnx/operators/onnx__ThresholdedRelu.html)
    thresholded_relu(alpha: f64);

    /// Applies a threshold: `x` where greater than `threshold`, `value` elsewhere. The gradient at the threshold is 0.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([0.5f32, 1.0, 2.0], &Default::default());
    /// assert_eq!(activation::threshold(x, 1.0, -7.0).into_data().to_vec::<f32>(), [-7.0, -7.0, 2.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.threshold.html)
    threshold(threshold: f64, value: f64);

    /// Applies softsign, `x / (1 + |x|)`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softsign.html)
    softsign();

    /// Applies hard shrinkage: `x` where `|x| > lambda`, 0 elsewhere; PyTorch's default is 0.5.
    ///
    /// # Panics
    /// When `lambda` is negative.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hardshrink.html)
    #[doc(alias = "hardshrink")]
    hard_shrink(lambda: f64);

    /// Applies soft shrinkage: moves `x` towards 0 by `lambda`, 0 where `|x| <= lambda`; PyTorch's default is 0.5.
    ///
    /// # Panics
    /// When `lambda` is negative.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softshrink.html)
    #[doc(alias = "softshrink")]
    soft_shrink(lambda: f64);

    /// Applies shrinkage with a bias: `x - bias` where `x > lambda`, `x + bias` where `x < -lambda`, 0 between.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([-3.0f32, 0.5, 3.0], &Default::default());
    /// assert_eq!(activation::shrink(x, 1.0, 0.5).into_data().to_vec::<f32>(), [-2.5, 0.0, 2.5]);
    /// ```
    ///
    /// # Panics
    /// When `lambda` is negative.
    ///
    /// [ONNX](https://onnx.ai/onnx/operators/onnx__Shrink.html)
    shrink(lambda: f64, bias: f64);

    /// Applies randomized leaky ReLU ([Xu et al. 2015](https://arxiv.org/abs/1505.00853)). In training, elements that
    /// are not positive are multiplied by slopes drawn from `[lower, upper)`. Otherwise it is [`leaky_relu`] with the
    /// mean of the bounds. PyTorch's defaults are 1/8 and 1/3. Training uses the next key of the device.
    ///
    /// # Panics
    /// When `lower > upper`, or one is not finite.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rrelu.html)
    rrelu(lower: f64, upper: f64, training: bool);

    /// Applies softmax along an axis, `exp(x) / Σ exp(x)`. The maximum is subtracted first to prevent overflow; `-inf`
    /// becomes 0.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[1e4f32, 1e4], [0.0, f32::NEG_INFINITY]], &Default::default());
    /// assert_eq!(activation::softmax(x, -1).into_data().to_vec::<f32>(), [0.5, 0.5, 1.0, 0.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html)
    softmax(axis: impl Into<Axis>);

    /// Applies log-softmax along an axis: the logarithm of [`softmax`], computed without forming it.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.log_softmax.html)
    log_softmax(axis: impl Into<Axis>);

    /// Applies softmin along an axis: the [`softmax`] of `-x`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmin.html)
    softmin(axis: impl Into<Axis>);

    /// Applies softmax with an added 1 in the denominator, `exp(x) / (1 + Σ exp(x))`, along an axis, so that all
    /// outputs may be near 0 ([Miller 2023](https://www.evanmiller.org/attention-is-off-by-one.html)).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([0.0f32, 0.0, -1e9], &Default::default());
    /// let y = activation::quiet_softmax(x, 0).into_data().to_vec::<f32>();
    /// assert!(y[0] == y[1] && (y[0] - 1.0 / 3.0).abs() < 1e-6 && y[2] == 0.0);
    /// ```
    quiet_softmax(axis: impl Into<Axis>);

    /// Draws a differentiable (relaxed) sample of the categorical distribution whose unnormalised log-probabilities
    /// (logits) are along an axis: the [`softmax`] of `(x + Gumbel noise) / temperature` ([Jang et al.
    /// 2016](https://arxiv.org/abs/1611.01144)). With `hard` the value is one-hot and the gradient that of the relaxed
    /// sample (straight-through). Uses the next key of the device.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 2>::zeros([4, 3], &Default::default());
    /// let y = activation::gumbel_softmax(x, 1.0, true, 1);
    /// assert_eq!(y.sum_dim(1).into_data().to_vec::<f32>(), [1.0; 4]);
    /// ```
    ///
    /// # Panics
    /// When the temperature is not positive and finite, or the axis is empty with `hard`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gumbel_softmax.html)
    gumbel_softmax(temperature: f64, hard: bool, axis: impl Into<Axis>);

    /// Applies the gated linear unit, `a sigmoid(b)`, where `a` is the first half of an axis and `b` the second
    /// ([Dauphin et al. 2016](https://arxiv.org/abs/1612.08083)). The axis becomes half as long.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([6.0f32, 0.0], &Default::default());
    /// assert_eq!(activation::glu(x, 0).into_data().to_vec::<f32>(), [3.0]);
    /// ```
    ///
    /// # Panics
    /// When the length of the axis is odd.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.glu.html)
    glu(axis: impl Into<Axis>);

    /// Applies `a relu(b)` to the halves of an axis, in the order of [`glu`] ([Shazeer
    /// 2020](https://arxiv.org/abs/2002.05202)).
    ///
    /// # Panics
    /// When the length of the axis is odd.
    reglu(axis: impl Into<Axis>);

    /// Applies `a gelu(b)` to the halves of an axis, in the order of [`glu`] ([Shazeer
    /// 2020](https://arxiv.org/abs/2002.05202)).
    ///
    /// # Panics
    /// When the length of the axis is odd.
    geglu(axis: impl Into<Axis>);

    /// Applies `a silu(b)` to the halves of an axis, in the order of [`glu`] ([Shazeer
    /// 2020](https://arxiv.org/abs/2002.05202)). For models that store the gate in the first half, swap the halves.
    ///
    /// # Panics
    /// When the length of the axis is odd.
    swiglu(axis: impl Into<Axis>);
}

functions! {
    typed;

    /// Applies [`leaky_relu`] with a learned slope ([He et al. 2015](https://arxiv.org/abs/1502.01852)). The weight is
    /// `[1]`, or `[channels]` for `x` `[batch, channels, ..]`. The gradient at 0 is the slope.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, activation};
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[-2.0f32, -2.0]], &Default::default());
    /// let weight = Tensor::<Flex, 1>::from_data([0.5f32, 0.25], &Default::default());
    /// assert_eq!(activation::prelu(x, weight).into_data().to_vec::<f32>(), [-1.0, -0.5]);
    /// ```
    ///
    /// # Panics
    /// When the weight has another shape.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.prelu.html)
    pub fn prelu[B: Backend, const D: usize](x: Tensor<B, D>, weight: Tensor<B, 1> as any) -> Tensor<B, D>;
}

/// Applies the hyperbolic tangent: [`Tensor::tanh`].
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.tanh.html)
#[track_caller]
pub fn tanh<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    x.tanh()
}
