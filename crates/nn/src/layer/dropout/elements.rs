//! Dropout of elements.

use super::{check_probability, mask, scaled};
use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module};
use kiln_tensor::{Backend, Tensor};

/// Settings of a [`Dropout`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct DropoutConfig {
    /// The probability of setting an element to zero, from 0 to 1.
    pub prob: f64,
}

/// Dropout: sets each element to zero with probability `prob` and multiplies the others by `1 / (1 - prob)`
/// ([Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html)).
///
/// It is active in training [mode](Mode): by default on backends with automatic differentiation (in any of their
/// layers), and the identity on other backends. Random values come from the device's random stream ([`Backend::seed`]).
#[derive(Module, Clone, Debug)]
pub struct Dropout {
    /// The probability of setting an element to zero.
    pub prob: f64,
    /// Whether dropout is active.
    pub mode: Mode,
}

impl DropoutConfig {
    /// Returns the layer.
    ///
    /// # Panics
    /// When `prob` is not between 0 and 1.
    #[track_caller]
    pub fn init(&self) -> Dropout {
        check_probability("dropout", self.prob);
        Dropout { prob: self.prob, mode: Mode::Auto }
    }
}

impl Dropout {
    /// Applies dropout to each element. The input has any shape; the output has the same shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.prob == 0.0 || !self.mode.is_training(x.engine_stack()) {
            return x;
        }
        let keep = 1.0 - self.prob;
        let scale = if keep > 0.0 { 1.0 / keep } else { 0.0 };
        let mask = mask(&x, D, keep) * scale;
        scaled(x, mask)
    }
}

forward_modules! {
    Dropout;
}
