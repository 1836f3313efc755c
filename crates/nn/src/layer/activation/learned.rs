//! Leaky ReLU with learned and with random slopes.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Mode, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, activation};

/// Settings of a [`PRelu`] layer.
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct PReluConfig {
    /// Number of slopes: 1, or the number of channels. Default: 1.
    #[config(default = 1)]
    pub num_parameters: usize,
    /// The initial slope. Default: 0.25.
    #[config(default = 0.25)]
    pub alpha: f64,
}

/// Leaky ReLU with learned slopes (PReLU): `x` for `x > 0`, `weight x` for `x ≤ 0`
/// ([He et al. 2015](https://arxiv.org/abs/1502.01852)).
#[derive(Module, Clone, Debug)]
pub struct PRelu<B: Backend = Dyn> {
    /// `[1]` or `[channels]`; initialized to `alpha`.
    pub weight: Param<Tensor<B, 1>>,
}

impl PReluConfig {
    /// Returns the layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PRelu<B> {
        let slopes = Initializer::Constant { value: self.alpha };
        PRelu { weight: slopes.init([self.num_parameters], device) }
    }
}

impl<B: Backend> PRelu<B> {
    /// Applies the function to `[batch, channels, ..]`; the output has the same shape. With one slope the input has
    /// any shape.
    ///
    /// # Panics
    /// When there are several slopes, and not as many as channels.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        activation::prelu(x, self.weight.val())
    }
}

/// Settings of an [`RRelu`] layer.
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct RReluConfig {
    /// The least slope. Default: 1/8.
    #[config(default = 0.125)]
    pub lower: f64,
    /// The greatest slope. Default: 1/3.
    #[config(default = 1.0 / 3.0)]
    pub upper: f64,
}

/// Leaky ReLU with random slopes (RReLU): `x` for `x > 0`, `slope x` for `x ≤ 0`
/// ([Xu et al. 2015](https://arxiv.org/abs/1505.00853)).
///
/// In training [mode](Mode) the slope of each element is drawn uniformly from `lower .. upper`, from the device's
/// random stream ([`Backend::seed`]). In evaluation mode it is the mean of both.
#[derive(Module, Clone, Debug)]
pub struct RRelu {
    /// The least slope.
    pub lower: f64,
    /// The greatest slope.
    pub upper: f64,
    /// Whether slopes are random.
    pub mode: Mode,
}

impl RReluConfig {
    /// Returns the layer.
    ///
    /// # Panics
    /// When `lower > upper`, or one is not finite.
    #[track_caller]
    pub fn init(&self) -> RRelu {
        let (lower, upper) = (self.lower, self.upper);
        assert!(
            lower <= upper && lower.is_finite() && upper.is_finite(),
            "[rrelu] the slopes from {lower} to {upper} are not a range"
        );
        RRelu { lower, upper, mode: Mode::Auto }
    }
}

impl RRelu {
    /// Applies the function to each element. The input has any shape; the output has the same shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let training = self.mode.is_training(x.engine_stack());
        activation::rrelu(x, self.lower, self.upper, training)
    }
}

forward_modules! {
    PRelu<B>;
    RRelu;
}
