//! Slices: read and replaced.

use crate::{AnyTensor, Axis, Error, Number, Result, SliceArg, SliceArgs};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Op, SliceAxis, UpdateMode};

impl AnyTensor {
    /// Slices each axis by a strided range that is already resolved.
    ///
    /// # Errors
    /// When there is not one range for each axis, a step is 0, or a range leaves its axis.
    pub fn slice_axes(self, slices: Vec<SliceAxis>) -> Result<AnyTensor> {
        self.apply(&Op::Slice(slices))
    }

    /// Slices one axis by a strided range that is already resolved.
    ///
    /// # Errors
    /// When the axis is out of range, the step is 0, or the range leaves the axis.
    pub fn slice_axis(self, axis: impl Into<Axis>, slice: SliceAxis) -> Result<AnyTensor> {
        let axis = axis.into().of("slice", self.ty())?;
        let mut slices: Vec<SliceAxis> = self.shape().iter().map(|&len| SliceAxis::all(len)).collect();
        slices[axis] = slice;
        self.slice_axes(slices)
    }

    /// Slices each axis by a range; with fewer ranges than axes, the remaining axes are whole. See
    /// [`Tensor::slice`](crate::Tensor::slice).
    ///
    /// # Errors
    /// When there are more ranges than axes, a step is 0, or a range starts beyond its axis.
    #[doc(alias = "getitem")]
    pub fn slice(self, ranges: impl SliceArgs) -> Result<AnyTensor> {
        let slices = self.resolve_slices("slice", ranges.ranges().as_ref())?;
        self.slice_axes(slices)
    }

    fn resolve_slices(&self, op: &str, ranges: &[SliceArg]) -> Result<Vec<SliceAxis>> {
        let shape = self.shape();
        if ranges.len() > shape.rank() {
            let problem = format!("{} ranges for {} axes", ranges.len(), shape.rank());
            return Err(Error::type_error(op, problem, &[self.ty().into()])
                .hint("pass at most one range for each axis; other axes are selected whole"));
        }
        let range = |axis: usize| ranges.get(axis).copied().unwrap_or(SliceArg::FULL);
        shape.iter().enumerate().map(|(axis, &length)| range(axis).resolve(axis, length)).collect()
    }

    /// Slices one axis by a range. See [`Tensor::slice_dim`](crate::Tensor::slice_dim).
    ///
    /// # Errors
    /// When the axis is out of range, the step is 0, or the range starts beyond the axis.
    pub fn slice_dim(self, axis: impl Into<Axis>, range: impl Into<SliceArg>) -> Result<AnyTensor> {
        let axis = axis.into().of("slice_dim", self.ty())?;
        let slice = range.into().resolve(axis, self.shape()[axis])?;
        self.slice_axis(axis, slice)
    }

    /// Replaces a slice; the values broadcast to it. See [`Tensor::slice_assign`](crate::Tensor::slice_assign).
    ///
    /// # Errors
    /// As [`slice`](AnyTensor::slice), and when the values differ in dtype or do not broadcast to the slice.
    #[doc(alias = "slice_scatter")]
    #[doc(alias = "index_put")]
    pub fn slice_assign(self, ranges: impl SliceArgs, values: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("slice_assign", &values)?;
        let slices = self.resolve_slices("slice_assign", ranges.ranges().as_ref())?;
        let shape: crate::Shape = slices.iter().map(|slice| slice.len).collect();
        if kiln_ir::infer::broadcast_shapes(values.shape(), &shape) != Some(shape) {
            let problem = format!("the values do not broadcast to the range, {shape}");
            let types = [self.ty().into(), values.ty().into()];
            return Err(Error::type_error("slice_assign", problem, &types).hint(
                "aligned at the last axis, the lengths of the values must be those of the range, or 1",
            ));
        }
        let values = values.expand(shape)?;
        self.apply_with(&Op::SliceUpdate { slices, mode: UpdateMode::Set }, [values.into_value().into()])
    }

    /// Fills a slice with a scalar. See [`Tensor::slice_fill`](crate::Tensor::slice_fill).
    ///
    /// # Errors
    /// As [`slice`](AnyTensor::slice), and when the number is not a value of the dtype.
    pub fn slice_fill(self, ranges: impl SliceArgs, x: impl Number) -> Result<AnyTensor> {
        let value = AnyTensor::full(self.ty().with_shape([]), x, self.stack())?;
        self.slice_assign(ranges, value)
    }

    /// Returns `length` elements of an axis, from `start`. See [`Tensor::narrow`](crate::Tensor::narrow).
    ///
    /// # Errors
    /// When the axis is out of range, or the elements leave it.
    pub fn narrow(self, axis: impl Into<Axis>, start: usize, length: usize) -> Result<AnyTensor> {
        let part = self.slice_axis(axis, SliceAxis { start, len: length, step: 1 });
        part.map_err(|error| error.in_op("narrow"))
    }

    /// Selects the slice at one index of an axis, which is removed. See
    /// [`Tensor::select_dim`](crate::Tensor::select_dim).
    ///
    /// # Errors
    /// When the axis or the index is out of range.
    #[doc(alias = "select")]
    pub fn select_dim(self, axis: impl Into<Axis>, index: i64) -> Result<AnyTensor> {
        let axis = axis.into().of("select_dim", self.ty())?;
        let length = self.shape()[axis];
        let place = if index < 0 { index + length as i64 } else { index };
        if !(0..length as i64).contains(&place) {
            let problem = format!("index {index} is out of range for axis {axis} of length {length}");
            return Err(Error::type_error("select_dim", problem, &[self.ty().into()])
                .hint("indices range from 0 to the length less 1; negative ones count from the end"));
        }
        self.narrow(axis, place as usize, 1)?.without_axes("select_dim", &[axis])
    }

    /// Extracts sliding windows along an axis, as a new last axis. See [`Tensor::unfold`](crate::Tensor::unfold).
    ///
    /// # Errors
    /// When the axis is out of range, `size` or `step` is 0, or the axis is shorter than a window.
    pub fn unfold(self, axis: impl Into<Axis>, size: usize, step: usize) -> Result<AnyTensor> {
        let axis = axis.into().of("unfold", self.ty())?;
        self.apply(&Op::Windows { axis, size, step, dilation: 1 })
    }
}
