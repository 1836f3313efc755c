//! The same elements in another shape or order.

use crate::{AnyTensor, Number, Result, Shape, SliceArg};
use alloc::vec::Vec;
use kiln_ir::{Axes, MAX_RANK, Op, Operand, PadAxis, SliceAxis};
use smallvec::SmallVec;

impl AnyTensor {
    /// Another shape.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<AnyTensor> {
        let shape = shape.into();
        if *self.shape() == shape { Ok(self) } else { self.apply(&Op::Reshape(shape)) }
    }

    /// Repeats axes of length 1 and adds axes in front.
    pub fn expand(self, shape: impl Into<Shape>) -> Result<AnyTensor> {
        let shape = shape.into();
        if *self.shape() == shape { Ok(self) } else { self.apply(&Op::Broadcast(shape)) }
    }

    /// Axes in another order.
    pub fn permute(self, axes: &[usize]) -> Result<AnyTensor> {
        self.check_axes("permute", axes)?;
        self.apply(&Op::Permute(Axes::new(axes)))
    }

    /// Exchanges two axes.
    pub fn swap_dims(self, a: usize, b: usize) -> Result<AnyTensor> {
        self.check_axes("swap_dims", &[a, b])?;
        let mut axes: SmallVec<[usize; MAX_RANK]> = (0..self.shape().rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// A strided range of each axis.
    pub fn slice_axes(self, slices: Vec<SliceAxis>) -> Result<AnyTensor> {
        self.apply(&Op::Slice(slices))
    }

    /// A strided range of one axis.
    pub fn slice_axis(self, axis: usize, slice: SliceAxis) -> Result<AnyTensor> {
        self.check_axes("slice", &[axis])?;
        let mut slices: Vec<SliceAxis> = self.shape().iter().map(|&len| SliceAxis::all(len)).collect();
        slices[axis] = slice;
        self.slice_axes(slices)
    }

    /// Elements of some axes in reverse order.
    pub fn flip(self, axes: &[usize]) -> Result<AnyTensor> {
        self.check_axes("flip", axes)?;
        let range = |(axis, &len): (usize, &usize)| match axes.contains(&axis) {
            true => SliceAxis { start: len.saturating_sub(1), len, step: -1 },
            false => SliceAxis::all(len),
        };
        let slices = self.shape().iter().enumerate().map(range).collect();
        self.slice_axes(slices)
    }

    /// Puts a number around the elements.
    pub fn pad_axes(self, pads: Vec<PadAxis>, x: impl Number) -> Result<AnyTensor> {
        self.apply_with(&Op::Pad(pads), [Operand::Scalar(x.scalar())])
    }

    /// A range of each axis; fewer ranges than axes leave the last axes whole.
    pub fn slice(self, ranges: &[SliceArg]) -> Result<AnyTensor> {
        let shape = *self.shape();
        let range = |axis: usize| ranges.get(axis).copied().unwrap_or(SliceArg::FULL);
        let slices = (0..shape.rank().max(ranges.len())).map(|axis| match shape.get(axis) {
            Some(&length) => range(axis).resolve(axis, length),
            None => Err(kiln_ir::Error::type_error("slice", "more ranges than axes", &[self.ty().into()])),
        });
        let slices = slices.collect::<Result<Vec<SliceAxis>>>()?;
        self.slice_axes(slices)
    }
}
