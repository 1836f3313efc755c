//! Binary search in sorted tensors.

use crate::{AnyTensor, Error, Result};
use alloc::format;
use kiln_ir::{Binary, Comparison, Unary};

impl AnyTensor {
    /// Finds the insertion indices of values in a sorted tensor. See
    /// [`Tensor::searchsorted`](crate::Tensor::searchsorted).
    ///
    /// # Errors
    /// When the dtypes differ or are `bool`, the sorted tensor has no axes, or it has several and those before the last
    /// are not those of the values.
    pub fn searchsorted(self, values: AnyTensor, right: bool) -> Result<AnyTensor> {
        self.in_same_domain("searchsorted", &values)?;
        let wrong = |problem: &str| {
            Err(Error::type_error("searchsorted", problem, &[self.ty().into(), values.ty().into()]).hint(
                "a sorted vector serves all values; otherwise each row of values has its own sorted row",
            ))
        };
        if self.dtype() != values.dtype() {
            return wrong("the sorted tensor and the values differ in dtype");
        }
        if self.dtype().is_bool() {
            return wrong("needs numbers");
        }
        let shape = *values.shape();
        match self.rank() {
            0 => wrong("the sorted tensor needs at least 1 axis"),
            1 => self.search_last(values.flatten_all()?, right)?.reshape(shape),
            rank if shape.rank() == rank && shape[..rank - 1] == self.shape()[..rank - 1] => {
                self.search_last(values, right)
            }
            rank => wrong(&format!("the first {} lengths must agree", rank - 1)),
        }
    }

    /// Returns the bucket of each element between sorted boundaries. See
    /// [`Tensor::bucketize`](crate::Tensor::bucketize).
    ///
    /// # Errors
    /// When the boundaries are not a vector, or the dtypes differ or are `bool`.
    pub fn bucketize(self, boundaries: AnyTensor, right: bool) -> Result<AnyTensor> {
        if boundaries.rank() != 1 {
            let types = [self.ty().into(), boundaries.ty().into()];
            return Err(Error::type_error("bucketize", "the boundaries need exactly 1 axis", &types)
                .hint("`searchsorted` accepts boundaries for each row"));
        }
        boundaries.searchsorted(self, right)
    }

    /// Runs a binary search along the last axis for all values at once. Each round adds a power of two to the indices
    /// whose element is before the value.
    fn search_last(self, values: AnyTensor, right: bool) -> Result<AnyTensor> {
        let last = self.rank() - 1;
        let length = self.shape()[last];
        self.check_places("searchsorted", length)?;
        let stack = self.stack().clone();
        let mut place = AnyTensor::zeros(values.ty().with_dtype(stack.int_dtype()), &stack)?;
        if length == 0 {
            return Ok(place);
        }
        for bit in (0..=length.ilog2()).rev() {
            let further = place.clone().binary_scalar(Binary::Add, 1u64 << bit)?;
            let inside = further.clone().compare_scalar(Comparison::Le, length)?;
            let probed = further.clone().binary_scalar(Binary::Min, length)?.binary_scalar(Binary::Sub, 1)?;
            let probed = self.clone().gather(last, probed)?;
            let goes = probed.comes_before(values.clone(), right)?.binary(Binary::And, inside)?;
            place = goes.if_else(further, place)?;
        }
        Ok(place)
    }

    /// Returns whether elements are before values, or with `or_equal` equal to them, where NaN is the greatest.
    fn comes_before(self, values: AnyTensor, or_equal: bool) -> Result<AnyTensor> {
        let comparison = if or_equal { Comparison::Le } else { Comparison::Lt };
        let before = self.clone().compare(comparison, values.clone())?;
        if !self.dtype().is_float() {
            return Ok(before);
        }
        let value_is_nan = values.clone().compare(Comparison::Ne, values)?;
        let of_nan = match or_equal {
            true => value_is_nan,
            false => {
                let is_nan = self.clone().compare(Comparison::Ne, self)?;
                value_is_nan.binary(Binary::And, is_nan.unary(Unary::Not)?)?
            }
        };
        before.binary(Binary::Or, of_nan)
    }
}
