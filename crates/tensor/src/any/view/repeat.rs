//! Repetition.

use super::super::data::check_table;
use crate::{AnyTensor, Axis, Error, Result, TensorData};
use alloc::format;
use alloc::vec::Vec;

impl AnyTensor {
    /// Repeats the tensor along each axis by the given counts. See [`Tensor::repeat`](crate::Tensor::repeat).
    ///
    /// # Errors
    /// When there is not one count for each axis.
    #[doc(alias = "tile")]
    pub fn repeat(self, times: &[usize]) -> Result<AnyTensor> {
        if times.len() != self.rank() {
            let problem = format!("{} counts for {} axes", times.len(), self.rank());
            return Err(Error::type_error("repeat", problem, &[self.ty().into()])
                .hint("`tile` accepts more or fewer counts than axes"));
        }
        times.iter().enumerate().try_fold(self, |any, (axis, &times)| any.repeat_dim(axis, times))
    }

    /// Repeats the tensor along one axis. See [`Tensor::repeat_dim`](crate::Tensor::repeat_dim).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn repeat_dim(self, axis: impl Into<Axis>, times: usize) -> Result<AnyTensor> {
        let axis = axis.into().of("repeat_dim", self.ty())?;
        self.repeat_axis(axis, axis, times)
    }

    /// Repeats an axis, with the copies at axis `place`: before the axis the whole axis repeats, after it each element
    /// repeats.
    fn repeat_axis(self, axis: usize, place: usize, times: usize) -> Result<AnyTensor> {
        if times == 1 {
            return Ok(self);
        }
        let shape = *self.shape();
        if shape[axis] == 1 {
            return self.expand(shape.with(axis, times));
        }
        self.fits_rank("repeat", shape.rank() + 1)?;
        let copies = self.reshape(shape.inserted(place, 1))?.expand(shape.inserted(place, times))?;
        copies.reshape(shape.with(axis, shape[axis].saturating_mul(times)))
    }

    /// Repeats the tensor; counts are of the last axes, and more counts than axes add axes in front. See
    /// [`Tensor::tile`](crate::Tensor::tile).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn tile(self, times: &[usize]) -> Result<AnyTensor> {
        let rank = self.rank().max(times.len());
        let any = self.unsqueeze(rank)?;
        let first = rank - times.len();
        times.iter().enumerate().try_fold(any, |any, (place, &times)| any.repeat_dim(first + place, times))
    }

    /// Repeats each slice of an axis, copies adjacent. See
    /// [`Tensor::repeat_interleave`](crate::Tensor::repeat_interleave).
    ///
    /// # Errors
    /// As [`repeat_dim`](AnyTensor::repeat_dim).
    #[doc(alias = "repeat")]
    pub fn repeat_interleave(self, times: usize, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("repeat_interleave", self.ty())?;
        self.repeat_axis(axis, axis + 1, times)
    }

    /// Repeats each slice of an axis as often as an integer tensor states. Waits for the device. See
    /// [`Tensor::repeat_interleave_each`](crate::Tensor::repeat_interleave_each).
    ///
    /// # Errors
    /// When the axis is out of range, the counts are not one integer of at least 0 for each slice, they add up to more
    /// than 2²⁸, or their computation failed.
    pub fn repeat_interleave_each(self, times: AnyTensor, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("repeat_interleave_each", self.ty())?;
        let wrong = |problem: &str| {
            let types = [self.ty().into(), times.ty().into()];
            Error::type_error("repeat_interleave_each", problem, &types)
                .hint("the counts are a vector of integers of at least 0, as long as the axis")
        };
        if !times.dtype().is_int() || times.rank() != 1 || times.shape()[0] != self.shape()[axis] {
            return Err(wrong(&format!("needs one integer for each of the {} slices", self.shape()[axis])));
        }
        let counts = times.to_data()?.to_vec::<i64>();
        if let Some(count) = counts.iter().find(|&&count| count < 0) {
            return Err(wrong(&format!("cannot repeat {count} times")));
        }
        let total = counts.iter().fold(0usize, |total, &count| total.saturating_add(count as usize));
        check_table("repeat_interleave_each", &[total])?;
        let places =
            counts.iter().enumerate().flat_map(|(place, &n)| core::iter::repeat_n(place as i64, n as usize));
        let index = self.host_index(places.collect());
        self.take(axis, index)
    }

    /// Creates an index tensor of host integers, in the integer dtype of this tensor's stack, `[count]`.
    pub(crate) fn host_index(&self, places: Vec<i64>) -> AnyTensor {
        let data = TensorData::from(places).convert(self.stack().int_dtype());
        AnyTensor::from_data(data, self.stack())
    }
}
