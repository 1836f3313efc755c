//! Splits of an axis.

use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;
use alloc::vec::Vec;

/// The maximum number of parts of an axis that has fewer elements, so that some are empty.
const MAX_EMPTY_PARTS: usize = 1 << 16;

impl AnyTensor {
    /// Splits an axis into parts of one length; the last may be shorter. See [`Tensor::split`](crate::Tensor::split).
    ///
    /// # Errors
    /// When the axis is out of range, or `length` is 0.
    pub fn split(self, length: usize, axis: impl Into<Axis>) -> Result<Vec<AnyTensor>> {
        let axis = axis.into().of("split", self.ty())?;
        if length == 0 {
            return Err(self.bad_split("split", "the length of parts must be at least 1"));
        }
        self.split_axis(length, axis)
    }

    fn split_axis(self, length: usize, axis: usize) -> Result<Vec<AnyTensor>> {
        let total = self.shape()[axis];
        if total == 0 {
            return Ok(Vec::from([self]));
        }
        let part = |start: usize| self.clone().narrow(axis, start, length.min(total - start));
        (0..total).step_by(length).map(part).collect()
    }

    /// Splits an axis into parts of these lengths. See [`Tensor::split_with_sizes`](crate::Tensor::split_with_sizes).
    ///
    /// # Errors
    /// When the axis is out of range, or the lengths do not add up to its length.
    #[doc(alias = "split")]
    pub fn split_with_sizes(self, lengths: &[usize], axis: impl Into<Axis>) -> Result<Vec<AnyTensor>> {
        let axis = axis.into().of("split_with_sizes", self.ty())?;
        let total = self.shape()[axis];
        let sum = lengths.iter().fold(0usize, |sum, &length| sum.saturating_add(length));
        if sum != total {
            let problem = format!("the lengths {lengths:?} add up to {sum}, axis {axis} has {total}");
            return Err(self.bad_split("split_with_sizes", &problem));
        }
        let mut start = 0;
        let part = |&length: &usize| {
            let part = self.clone().narrow(axis, start, length);
            start += length;
            part
        };
        lengths.iter().map(part).collect()
    }

    /// Splits an axis into at most `count` parts of equal length; the last may be shorter. See
    /// [`Tensor::chunk`](crate::Tensor::chunk).
    ///
    /// # Errors
    /// When the axis is out of range, or `count` is 0.
    pub fn chunk(self, count: usize, axis: impl Into<Axis>) -> Result<Vec<AnyTensor>> {
        let axis = axis.into().of("chunk", self.ty())?;
        if count == 0 {
            return Err(self.bad_split("chunk", "the number of parts must be at least 1"));
        }
        let length = self.shape()[axis].div_ceil(count).max(1);
        self.split_axis(length, axis)
    }

    /// Splits an axis into exactly `count` parts, whose lengths differ by at most 1. See
    /// [`Tensor::tensor_split`](crate::Tensor::tensor_split).
    ///
    /// # Errors
    /// When the axis is out of range, or `count` is 0 or above both 2¹⁶ and the length of the axis.
    pub fn tensor_split(self, count: usize, axis: impl Into<Axis>) -> Result<Vec<AnyTensor>> {
        let axis = axis.into().of("tensor_split", self.ty())?;
        if count == 0 {
            return Err(self.bad_split("tensor_split", "the number of parts must be at least 1"));
        }
        let length = self.shape()[axis];
        if count > length.max(MAX_EMPTY_PARTS) {
            let problem = format!("{count} parts are too many for the {length} elements of axis {axis}");
            return Err(self.bad_split("tensor_split", &problem));
        }
        let (each, longer) = (length / count, length % count);
        let lengths: Vec<usize> = (0..count).map(|part| each + usize::from(part < longer)).collect();
        self.split_with_sizes(&lengths, axis)
    }

    /// Splits an axis before each of these indices. See [`Tensor::tensor_split_at`](crate::Tensor::tensor_split_at).
    ///
    /// # Errors
    /// When the axis is out of range.
    #[doc(alias = "tensor_split")]
    #[doc(alias = "array_split")]
    pub fn tensor_split_at(self, places: &[i64], axis: impl Into<Axis>) -> Result<Vec<AnyTensor>> {
        let axis = axis.into().of("tensor_split_at", self.ty())?;
        let total = self.shape()[axis] as i64;
        let place = |&x: &i64| if x < 0 { (x + total).max(0) } else { x.min(total) };
        let ends = places.iter().map(place).chain([total]);
        let starts = core::iter::once(0).chain(places.iter().map(place));
        let part = |(start, end): (i64, i64)| {
            self.clone().narrow(axis, start as usize, (end - start).max(0) as usize)
        };
        starts.zip(ends).map(part).collect()
    }

    /// Returns the slices of an axis, which is removed. See [`Tensor::unbind`](crate::Tensor::unbind).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn unbind(self, axis: impl Into<Axis>) -> Result<Vec<AnyTensor>> {
        let axis = axis.into().of("unbind", self.ty())?;
        let part = |place| self.clone().narrow(axis, place, 1)?.without_axes("unbind", &[axis]);
        (0..self.shape()[axis]).map(part).collect()
    }

    fn bad_split(&self, op: &str, problem: &str) -> Error {
        Error::type_error(op, problem, &[self.ty().into()]).hint(
            "`split` expects the length of a part, `chunk` and `tensor_split` the number of parts, `split_with_sizes` all lengths",
        )
    }
}
