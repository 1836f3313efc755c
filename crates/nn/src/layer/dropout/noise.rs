//! Noise.

use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module};
use kiln_tensor::{Backend, Distribution, Tensor};

/// Settings of a [`GaussianNoise`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GaussianNoiseConfig {
    /// The standard deviation of the noise.
    pub std: f64,
}

/// Gaussian noise: adds normal random numbers with mean 0 to each element, for regularisation.
///
/// It is active in training [mode](Mode), and the identity in evaluation mode. Random values come from the device's
/// random stream ([`Backend::seed`]).
#[derive(Module, Clone, Debug)]
pub struct GaussianNoise {
    /// The standard deviation of the noise.
    pub std: f64,
    /// Whether noise is added.
    pub mode: Mode,
}

impl GaussianNoiseConfig {
    /// Returns the layer.
    ///
    /// # Panics
    /// When `std` is negative or not finite.
    #[track_caller]
    pub fn init(&self) -> GaussianNoise {
        let std = self.std;
        assert!(std >= 0.0 && std.is_finite(), "[gaussian_noise] the standard deviation is {std}");
        GaussianNoise { std, mode: Mode::Auto }
    }
}

impl GaussianNoise {
    /// Adds noise to each element. The input has any shape; the output has the same shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.std == 0.0 || !self.mode.is_training(x.engine_stack()) {
            return x;
        }
        let noise = x.random_like(Distribution::Normal(0.0, self.std));
        x + noise
    }
}

forward_modules! {
    GaussianNoise;
}
