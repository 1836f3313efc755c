//! Activation functions.

use crate::{Backend, Bool, Tensor};
use core::f64::consts::{FRAC_1_SQRT_2, PI};
use kiln_ir::Op;

/// `max(x, 0)`. The gradient at 0 is 0.
#[track_caller]
pub fn relu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    x.clamp_min(0.0)
}

/// `x` where positive, `slope * x` elsewhere.
#[track_caller]
pub fn leaky_relu<B: Backend, const D: usize>(x: Tensor<B, D>, slope: f64) -> Tensor<B, D> {
    let negative: Tensor<B, D, Bool> = x.clone().lower_equal_elem(0.0);
    x.clone().mask_where(negative, x * slope)
}

/// `x Φ(x)` with the distribution function of the normal distribution, `x (1 + erf(x / √2)) / 2`
/// ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
#[track_caller]
pub fn gelu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let phi = ((&x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    x * phi
}

/// The approximation of [`gelu`] by `tanh`: `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`.
#[track_caller]
pub fn gelu_approximate<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let cubic = &x + x.clone().powi_scalar(3) * 0.044715;
    let gate = ((cubic * libm::sqrt(2.0 / PI)).tanh() + 1.0) * 0.5;
    x * gate
}

/// `1 / (1 + exp(-x))`, through `tanh` so that nothing overflows.
#[track_caller]
pub fn sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    ((x * 0.5).tanh() + 1.0) * 0.5
}

/// `ln(sigmoid(x))`, without overflow.
#[track_caller]
pub fn log_sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    -softplus(-x, 1.0)
}

/// `x sigmoid(x)`, also called swish.
#[track_caller]
pub fn silu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    sigmoid(x.clone()) * x
}

/// Hyperbolic tangent.
#[track_caller]
pub fn tanh<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    x.tanh()
}

/// `ln(1 + exp(beta x)) / beta`, without overflow: `max(x, 0) + ln(1 + exp(-beta |x|)) / beta`.
#[track_caller]
pub fn softplus<B: Backend, const D: usize>(x: Tensor<B, D>, beta: f64) -> Tensor<B, D> {
    let log = (-(x.clone().abs() * beta)).exp().log1p() / beta;
    // Half the sum of x and |x| is max(x, 0), with the right gradient at 0 together with the logarithm's.
    (x.clone() + x.abs()) * 0.5 + log
}

/// `x` where positive, `alpha (exp(x) - 1)` elsewhere.
#[track_caller]
pub fn elu<B: Backend, const D: usize>(x: Tensor<B, D>, alpha: f64) -> Tensor<B, D> {
    let negative: Tensor<B, D, Bool> = x.clone().lower_elem(0.0);
    // The exponential of positive numbers is not used: cutting them keeps it, and its gradient, finite.
    let below = x.clone().clamp_max(0.0).expm1() * alpha;
    x.mask_where(negative, below)
}

/// `exp(x) / sum(exp(x))` along an axis.
#[track_caller]
pub fn softmax<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
    x.map(|any| any.apply(&Op::Softmax { axis, log: false }))
}

/// The logarithm of [`softmax`], computed without it.
#[track_caller]
pub fn log_softmax<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
    x.map(|any| any.apply(&Op::Softmax { axis, log: true }))
}
