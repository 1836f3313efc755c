//! Many to one.

use crate::{AnyTensor, Result};
use kiln_ir::{Axes, Binary, Extremum, MAX_RANK, Op, Reduction};
use smallvec::SmallVec;

impl AnyTensor {
    /// Combines all elements along axes (in any order), which stay with length 1.
    pub fn reduce(self, reduction: Reduction, axes: &[usize]) -> Result<AnyTensor> {
        if axes.is_empty() {
            return Ok(self);
        }
        self.check_axes("reduce", axes)?;
        let mut axes: SmallVec<[usize; MAX_RANK]> = axes.iter().copied().collect();
        axes.sort_unstable();
        self.apply(&Op::Reduce { reduction, axes: Axes::new(&axes) })
    }

    /// Combines all elements into a tensor of shape `[1]`.
    pub fn reduce_all(self, reduction: Reduction) -> Result<AnyTensor> {
        let axes: SmallVec<[usize; MAX_RANK]> = (0..self.shape().rank()).collect();
        self.reduce(reduction, &axes)?.reshape([1])
    }

    /// The mean along axes, which stay with length 1.
    pub fn mean_over(self, axes: &[usize]) -> Result<AnyTensor> {
        self.check_axes("mean", axes)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        self.reduce(Reduction::Sum, axes)?.binary_scalar(Binary::Div, count)
    }

    /// Where along an axis the extreme element is.
    pub fn arg_reduce(self, extremum: Extremum, axis: usize) -> Result<AnyTensor> {
        let index = self.stack.int_dtype();
        self.apply(&Op::ArgReduce { extremum, axis, index })
    }

    /// Running reduction along an axis.
    pub fn scan(self, reduction: Reduction, axis: usize) -> Result<AnyTensor> {
        self.apply(&Op::Scan { reduction, axis, reverse: false, exclusive: false })
    }

    /// The sum of all elements, of shape `[1]`.
    pub fn sum(self) -> Result<AnyTensor> {
        self.reduce_all(Reduction::Sum)
    }

    /// Where the greatest along an axis is; the axis stays with length 1.
    pub fn argmax(self, axis: usize) -> Result<AnyTensor> {
        self.arg_reduce(Extremum::Max, axis)
    }
}
