//! Inference rules of reductions and sorting.

use super::Rule;
use crate::{Axes, DType, Reduction, Result, ResultTypes, Shape, TensorType};
use alloc::format;
use smallvec::smallvec;

impl Rule<'_> {
    pub(super) fn reduce(&self, reduction: Reduction, axes: &Axes) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.reducible(reduction, ty)?;
        if !axes.iter().is_sorted_by(|a, b| a < b) {
            return Err(self
                .error(format!("the axes {axes:?} are not ascending and distinct"))
                .hint("name each axis once, in ascending order"));
        }
        for axis in axes.iter() {
            self.axis(axis, ty)?;
        }
        let length = |(axis, &length): (usize, &usize)| if axes.contains(axis) { 1 } else { length };
        Ok(smallvec![ty.with_shape(ty.shape.iter().enumerate().map(length).collect::<Shape>())])
    }

    fn reducible(&self, reduction: Reduction, ty: &TensorType) -> Result<()> {
        match reduction {
            Reduction::Sum | Reduction::Prod => self.number(ty),
            Reduction::Min | Reduction::Max => Ok(()),
        }
    }

    pub(super) fn arg_reduce(&self, axis: usize, index: DType) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.axis(axis, ty)?;
        self.holds_indices(index, ty, axis..axis + 1)?;
        if ty.shape[axis] == 0 && ty.shape.with(axis, 1).num_elements() != 0 {
            return Err(self
                .error(format!("axis {axis} is empty, so it has no extreme element"))
                .hint("check for an empty axis first"));
        }
        Ok(smallvec![TensorType::new(ty.shape.with(axis, 1), index)])
    }

    pub(super) fn scan(&self, reduction: Reduction, axis: usize) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.reducible(reduction, ty)?;
        self.axis(axis, ty)?;
        Ok(smallvec![*ty])
    }

    pub(super) fn sort(&self, axis: usize, index: DType) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.axis(axis, ty)?;
        self.holds_indices(index, ty, axis..axis + 1)?;
        Ok(smallvec![*ty, ty.with_dtype(index)])
    }

    pub(super) fn topk(&self, axis: usize, k: usize, index: DType) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.axis(axis, ty)?;
        self.holds_indices(index, ty, axis..axis + 1)?;
        if k > ty.shape[axis] {
            return Err(self
                .error(format!("k is {k}, but axis {axis} has {} elements", ty.shape[axis]))
                .hint("use at most the length of the axis: `k.min(length)`"));
        }
        let shape = ty.shape.with(axis, k);
        Ok(smallvec![ty.with_shape(shape), TensorType::new(shape, index)])
    }
}
