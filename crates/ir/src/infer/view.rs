//! Inference rules of views and data movement.

use super::Rule;
use crate::{Axes, OperandType, PadAxis, Result, ResultTypes, Shape, SliceAxis, TensorType};
use alloc::format;
use smallvec::smallvec;

impl Rule<'_> {
    pub(super) fn reshape(&self, shape: &Shape) -> Result<ResultTypes> {
        let ty = self.only()?;
        let result = self.sized(*shape, ty.dtype)?;
        // The number of elements of a type that is too large is not known.
        if self.checks_size && result.num_elements() != ty.num_elements() {
            let (from, to) = (ty.num_elements(), result.num_elements());
            return Err(self
                .error(format!("{from} elements do not fill shape {shape} of {to}"))
                .hint("the lengths of the new shape must multiply to the number of elements"));
        }
        Ok(smallvec![result])
    }

    pub(super) fn permute(&self, axes: &Axes) -> Result<ResultTypes> {
        let ty = self.only()?;
        let is_permutation = axes.len() == ty.rank() && (0..ty.rank()).all(|axis| axes.contains(axis));
        if !is_permutation {
            let problem = format!("{axes:?} is not a permutation of {} axes", ty.rank());
            return Err(self.error(problem).hint("name each axis exactly once"));
        }
        Ok(smallvec![ty.with_shape(axes.iter().map(|axis| ty.shape[axis]).collect::<Shape>())])
    }

    pub(super) fn broadcast(&self, shape: &Shape) -> Result<ResultTypes> {
        let ty = self.only()?;
        if super::broadcast_shapes(&ty.shape, shape) != Some(*shape) {
            return Err(self
                .error(format!("does not broadcast to {shape}"))
                .hint("aligned at the last axis, each length must be equal or 1"));
        }
        Ok(smallvec![self.sized(*shape, ty.dtype)?])
    }

    pub(super) fn slice(&self, slices: &[SliceAxis]) -> Result<ResultTypes> {
        let ty = self.only()?;
        Ok(smallvec![self.sliced(ty, slices)?])
    }

    /// The type of a slice of `ty`.
    pub(super) fn sliced(&self, ty: &TensorType, slices: &[SliceAxis]) -> Result<TensorType> {
        if slices.len() != ty.rank() {
            return Err(self
                .error(format!("{} ranges for {} axes", slices.len(), ty.rank()))
                .hint("pass one range for each axis; `..` selects all of it"));
        }
        for (axis, slice) in slices.iter().enumerate() {
            self.slice_in_bounds(axis, slice, ty.shape[axis])?;
        }
        Ok(ty.with_shape(slices.iter().map(|slice| slice.len).collect::<Shape>()))
    }

    fn slice_in_bounds(&self, axis: usize, slice: &SliceAxis, length: usize) -> Result<()> {
        if slice.step == 0 {
            return Err(self
                .error(format!("the step along axis {axis} is 0"))
                .hint("a step of 1 selects every element, -1 reverses"));
        }
        if slice.len == 0 && slice.start <= length {
            return Ok(());
        }
        let steps = slice.len.saturating_sub(1) as i128;
        let last = slice.start as i128 + steps * slice.step as i128;
        if slice.len > 0 && slice.start < length && (0..length as i128).contains(&last) {
            return Ok(());
        }
        let SliceAxis { start, len, step } = slice;
        Err(self
            .error(format!("{len} elements from {start} by {step} leave axis {axis} of length {length}"))
            .hint(format!("all elements must be among 0 to {}", length.saturating_sub(1))))
    }

    pub(super) fn pad(&self, pads: &[PadAxis]) -> Result<ResultTypes> {
        let ty = self.tensor(0)?;
        match self.inputs[1] {
            OperandType::Scalar(scalar) => self.scalar_fits(scalar, ty.dtype)?,
            OperandType::Tensor(_) => return Err(self.error("the padding must be a number")),
        }
        if pads.len() != ty.rank() {
            return Err(self.error(format!("{} pads for {} axes", pads.len(), ty.rank())));
        }
        let length = |(&pad, &length): (&PadAxis, &usize)| {
            let between = pad.interior.saturating_mul(length.saturating_sub(1));
            [pad.low, pad.high, between].into_iter().fold(length, usize::saturating_add)
        };
        let shape = pads.iter().zip(ty.shape.iter()).map(length).collect::<Shape>();
        Ok(smallvec![self.sized(shape, ty.dtype)?])
    }

    pub(super) fn concat(&self, axis: usize) -> Result<ResultTypes> {
        let first = self.tensor(0)?;
        self.axis(axis, first)?;
        let mut length = 0usize;
        for place in 0..self.inputs.len() {
            let ty = self.tensor(place)?;
            self.same_dtype(first, ty)?;
            if ty.rank() != first.rank() || ty.shape.with(axis, 0) != first.shape.with(axis, 0) {
                return Err(self
                    .error(format!("shapes differ outside axis {axis}"))
                    .hint("all operands must agree in every axis but the one they are joined along"));
            }
            length = length.saturating_add(ty.shape[axis]);
        }
        Ok(smallvec![self.sized(first.shape.with(axis, length), first.dtype)?])
    }

    pub(super) fn windows(
        &self,
        axis: usize,
        size: usize,
        step: usize,
        dilation: usize,
    ) -> Result<ResultTypes> {
        let ty = self.only()?;
        self.axis(axis, ty)?;
        self.rank_fits(ty.rank() + 1)?;
        let count = self.window_count(ty.shape[axis], size, step, dilation, axis)?;
        let shape = ty.shape.with(axis, count).inserted(ty.rank(), size);
        Ok(smallvec![self.sized(shape, ty.dtype)?])
    }

    /// The number of windows along an axis of that (padded) length.
    pub(super) fn window_count(
        &self,
        length: usize,
        size: usize,
        step: usize,
        dilation: usize,
        axis: usize,
    ) -> Result<usize> {
        if size == 0 || step == 0 || dilation == 0 {
            return Err(self
                .error(format!("window, step and dilation along axis {axis} must be at least 1"))
                .hint("a window of 1 selects single elements, a step of 1 every position"));
        }
        let reach = dilation.saturating_mul(size - 1).saturating_add(1);
        match length.checked_sub(reach) {
            Some(rest) => Ok(rest / step + 1),
            None => Err(self
                .error(format!("a window that spans {reach} does not fit axis {axis} of length {length}"))
                .hint("lengths here include padding: pad more, or use a smaller window or dilation")),
        }
    }
}
