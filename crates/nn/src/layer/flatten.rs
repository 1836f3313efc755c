//! Flattening.

use crate::Module;
use kiln_tensor::{Backend, Tensor};

/// Joins neighbouring axes into one.
#[derive(Module, Clone, Debug)]
pub struct Flatten {
    /// The first axis joined.
    pub start: usize,
    /// The last axis joined.
    pub end: usize,
}

impl Flatten {
    /// Joins the axes `start` to `end`, both included.
    pub fn new(start: usize, end: usize) -> Flatten {
        Flatten { start, end }
    }

    /// `[2, 3, 4, 5]` to `[2, 60]` for the axes 1 to 3.
    ///
    /// # Panics
    /// When an axis is out of range, or `D2` is not the number of axes left.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize, const D2: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D2> {
        x.flatten(self.start, self.end)
    }
}
