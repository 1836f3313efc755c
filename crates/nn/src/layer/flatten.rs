//! Flattening.

use crate::{ForwardModule, Module};
use kiln_tensor::{Backend, Tensor};

/// Flattens neighbouring dimensions into one.
#[derive(Module, Clone, Debug)]
pub struct Flatten {
    /// The first dimension to flatten, counted from 0.
    pub start: usize,
    /// The last dimension to flatten, inclusive.
    pub end: usize,
}

impl Flatten {
    /// Returns a layer that flattens the dimensions `start..=end`.
    pub fn new(start: usize, end: usize) -> Flatten {
        Flatten { start, end }
    }

    /// Flattens the dimensions: with `start` 1 and `end` 3, `[2, 3, 4, 5]` becomes `[2, 60]`.
    ///
    /// # Panics
    /// When a dimension is out of range, `start` is greater than `end`, or `D2` is not the rank of the output.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize, const D2: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D2> {
        x.flatten(self.start, self.end)
    }
}

/// Flattens to rank 2, as between the convolutions and the linear layers of a classifier.
impl<B: Backend, const D: usize> ForwardModule<Tensor<B, D>> for Flatten {
    type Output = Tensor<B, 2>;

    /// # Panics
    /// When a dimension is out of range, or the output does not have rank 2.
    #[track_caller]
    fn forward(&self, x: Tensor<B, D>) -> Tensor<B, 2> {
        Flatten::forward(self, x)
    }
}
