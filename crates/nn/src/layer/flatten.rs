//! Flattening and unflattening.

use crate::{ForwardModule, Module};
use alloc::vec::Vec;
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

/// Splits one dimension into several: the reverse of [`Flatten`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::Unflatten;
/// use kiln_tensor::Tensor;
///
/// let x = Tensor::<Flex, 2>::zeros([2, 60], &Default::default());
/// let y: Tensor<Flex, 4> = Unflatten::new(1, [3, 4, 5]).forward(x);
/// assert_eq!(y.dims(), [2, 3, 4, 5]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct Unflatten {
    /// The dimension to split, counted from 0.
    pub dim: usize,
    /// The lengths that it is split into. One may be -1: it is computed from the others.
    #[module(attribute)]
    pub lengths: Vec<i64>,
}

impl Unflatten {
    /// Returns a layer that splits dimension `dim` into these lengths. One may be -1: it is computed from the others.
    pub fn new(dim: usize, lengths: impl Into<Vec<i64>>) -> Unflatten {
        Unflatten { dim, lengths: lengths.into() }
    }

    /// Splits the dimension.
    ///
    /// # Panics
    /// When the dimension is out of range or does not split into the lengths, or `D2` is not the rank of the output.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize, const D2: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D2> {
        x.unflatten(self.dim, &self.lengths)
    }
}

/// Splits the second dimension of a matrix into channels, height and width, as between the linear layers and the
/// convolutions of a decoder.
impl<B: Backend> ForwardModule<Tensor<B, 2>> for Unflatten {
    type Output = Tensor<B, 4>;

    /// # Panics
    /// When the dimension does not split into the lengths, or the output does not have rank 4.
    #[track_caller]
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 4> {
        Unflatten::forward(self, x)
    }
}
