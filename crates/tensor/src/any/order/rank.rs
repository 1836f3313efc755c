//! Order statistics: kth value, median and mode.

use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;
use kiln_ir::{Binary, Comparison, Extremum, Reduction, SliceAxis};

impl AnyTensor {
    /// Returns the `k`th least element along an axis, counted from 1, and its index. See
    /// [`Tensor::kthvalue`](crate::Tensor::kthvalue).
    ///
    /// # Errors
    /// When the axis is out of range, or `k` is not from 1 to its length.
    pub fn kthvalue(self, k: usize, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        let axis = axis.into().of("kthvalue", self.ty())?;
        let length = self.shape()[axis];
        if k == 0 || k > length {
            let problem = format!("k is {k}, but counts from 1 to the {length} elements of axis {axis}");
            return Err(
                Error::type_error("kthvalue", problem, &[self.ty().into()]).hint("1 is the least element")
            );
        }
        let (values, index) = self.topk_smallest_with_indices(k, axis)?;
        let last = SliceAxis { start: k - 1, len: 1, step: 1 };
        Ok((values.slice_axis(axis, last)?, index.slice_axis(axis, last)?))
    }

    /// Returns the median along an axis. See [`Tensor::median`](crate::Tensor::median).
    ///
    /// # Errors
    /// When the axis is out of range or empty.
    pub fn median(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.middle("median", axis.into(), Missing::Spreads)?.0)
    }

    /// Returns the median along an axis, and its index. See
    /// [`Tensor::median_with_indices`](crate::Tensor::median_with_indices).
    ///
    /// # Errors
    /// As [`median`](AnyTensor::median).
    pub fn median_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.middle("median_with_indices", axis.into(), Missing::Spreads)
    }

    /// Computes the median along an axis, ignoring NaN. See [`Tensor::nanmedian`](crate::Tensor::nanmedian).
    ///
    /// # Errors
    /// As [`median`](AnyTensor::median).
    pub fn nanmedian(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.middle("nanmedian", axis.into(), Missing::Skipped)?.0)
    }

    /// Computes the median along an axis, ignoring NaN, and its index. See
    /// [`Tensor::nanmedian_with_indices`](crate::Tensor::nanmedian_with_indices).
    ///
    /// # Errors
    /// As [`median`](AnyTensor::median).
    pub fn nanmedian_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.middle("nanmedian_with_indices", axis.into(), Missing::Skipped)
    }

    fn middle(self, op: &str, axis: Axis, missing: Missing) -> Result<(AnyTensor, AnyTensor)> {
        let axis = axis.of(op, self.ty())?;
        self.not_empty(op, axis)?;
        let length = self.shape()[axis];
        if !self.dtype().is_float() {
            return self.kthvalue(length.div_ceil(2), axis);
        }
        let numbers = self.count_numbers(axis)?;
        let (values, index) = self.sort_with_indices(axis)?;
        // NaN is sorted to the end, so the index of the first NaN is the number of other elements.
        let place = match missing {
            Missing::Skipped => {
                let middle = numbers.binary_scalar(Binary::Sub, 1)?.binary_scalar(Binary::Div, 2)?;
                middle.binary_scalar(Binary::Max, 0)?
            }
            Missing::Spreads => {
                let complete = numbers.clone().compare_scalar(Comparison::Eq, length)?;
                complete.if_else_number((length - 1) / 2, numbers)?
            }
        };
        Ok((values.gather(axis, place.clone())?, index.gather(axis, place)?))
    }

    /// Counts the elements along an axis that are not NaN.
    pub(super) fn count_numbers(&self, axis: usize) -> Result<AnyTensor> {
        let numbers = self.clone().compare(Comparison::Eq, self.clone())?;
        numbers.cast(self.stack().int_dtype())?.reduce(Reduction::Sum, &[axis])
    }

    /// Returns an error if an axis is empty while the result is not.
    pub(super) fn not_empty(&self, op: &str, axis: usize) -> Result<()> {
        if self.shape()[axis] == 0 {
            let problem = format!("axis {axis} is empty");
            return Err(Error::type_error(op, problem, &[self.ty().into()]));
        }
        Ok(())
    }

    /// Returns the most frequent element along an axis, and its index. See [`Tensor::mode`](crate::Tensor::mode).
    ///
    /// # Errors
    /// As [`median`](AnyTensor::median).
    pub fn mode(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        let axis = axis.into().of("mode", self.ty())?;
        self.not_empty("mode", axis)?;
        let (values, index) = self.sort_with_indices(axis)?;
        let places = AnyTensor::iota(*index.ty(), axis, index.stack())?;
        // The number of equal elements before each one in its run: its index minus the index of the run's start.
        let starts = values.clone().run_starts(axis)?;
        let nowhere = AnyTensor::zeros(*index.ty(), index.stack())?;
        let start = starts.if_else(places.clone(), nowhere)?.scan(Reduction::Max, axis)?;
        let longest = places.binary(Binary::Sub, start)?.arg_reduce(Extremum::Max, axis)?;
        Ok((values.gather(axis, longest.clone())?, index.gather(axis, longest)?))
    }

    /// Returns the mask of elements that differ from the previous one along an axis; the first counts as different.
    pub(crate) fn run_starts(self, axis: usize) -> Result<AnyTensor> {
        let length = self.shape()[axis];
        let first = AnyTensor::ones(
            self.ty().with_dtype(kiln_ir::DType::Bool).with_shape(self.shape().with(axis, length.min(1))),
            self.stack(),
        )?;
        let earlier = self.clone().narrow(axis, 0, length.saturating_sub(1))?;
        let later = self.narrow(axis, length.min(1), length.saturating_sub(1))?;
        AnyTensor::cat([first, later.compare(Comparison::Ne, earlier)?].into(), axis)
    }
}

/// The handling of NaN in a median.
#[derive(Clone, Copy)]
enum Missing {
    /// The median is NaN.
    Spreads,
    /// NaN is ignored.
    Skipped,
}
