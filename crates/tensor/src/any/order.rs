//! Sorting and top-k.

mod quantile;
mod rank;

pub use quantile::Interpolation;

use crate::{AnyTensor, Axis, Error, Result};
use alloc::format;
use kiln_ir::{DType, Op};

/// The results of a sort that are used.
#[derive(Clone, Copy)]
enum Wanted {
    Values,
    Indices,
}

impl AnyTensor {
    /// Sorts in ascending order along an axis. See [`Tensor::sort`](crate::Tensor::sort).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn sort(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.sorted("sort", axis.into(), false, Wanted::Values)?.0)
    }

    /// Sorts in descending order along an axis. See [`Tensor::sort_descending`](crate::Tensor::sort_descending).
    ///
    /// # Errors
    /// As [`sort`](AnyTensor::sort).
    pub fn sort_descending(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.sorted("sort_descending", axis.into(), true, Wanted::Values)?.0)
    }

    /// Sorts in ascending order along an axis, and returns the index of each element. See
    /// [`Tensor::sort_with_indices`](crate::Tensor::sort_with_indices).
    ///
    /// # Errors
    /// As [`sort`](AnyTensor::sort).
    #[doc(alias = "sort")]
    pub fn sort_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.sorted("sort_with_indices", axis.into(), false, Wanted::Indices)
    }

    /// Sorts in descending order along an axis, and returns the index of each element. See
    /// [`Tensor::sort_descending_with_indices`](crate::Tensor::sort_descending_with_indices).
    ///
    /// # Errors
    /// As [`sort`](AnyTensor::sort).
    pub fn sort_descending_with_indices(self, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.sorted("sort_descending_with_indices", axis.into(), true, Wanted::Indices)
    }

    /// Sorts in ascending order along the first axis. See [`Tensor::msort`](crate::Tensor::msort).
    ///
    /// # Errors
    /// When the tensor has no axes.
    pub fn msort(self) -> Result<AnyTensor> {
        self.sort(0)
    }

    /// Returns the indices that sort an axis in ascending order. See [`Tensor::argsort`](crate::Tensor::argsort).
    ///
    /// # Errors
    /// As [`sort`](AnyTensor::sort).
    pub fn argsort(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.sorted("argsort", axis.into(), false, Wanted::Indices)?.1)
    }

    /// Returns the indices that sort an axis in descending order. See
    /// [`Tensor::argsort_descending`](crate::Tensor::argsort_descending).
    ///
    /// # Errors
    /// As [`sort`](AnyTensor::sort).
    pub fn argsort_descending(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.sorted("argsort_descending", axis.into(), true, Wanted::Indices)?.1)
    }

    fn sorted(
        self,
        name: &str,
        axis: Axis,
        descending: bool,
        wanted: Wanted,
    ) -> Result<(AnyTensor, AnyTensor)> {
        let axis = axis.of(name, self.ty())?;
        let index = self.index_along(axis, wanted);
        self.ordered(&Op::Sort { axis, descending, index })
    }

    /// Returns the `k` greatest elements along an axis. See [`Tensor::topk`](crate::Tensor::topk).
    ///
    /// # Errors
    /// When the axis is out of range, or has fewer than `k` elements.
    pub fn topk(self, k: usize, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.first_of("topk", k, axis.into(), true, Wanted::Values)?.0)
    }

    /// Returns the `k` greatest elements along an axis, and their indices. See
    /// [`Tensor::topk_with_indices`](crate::Tensor::topk_with_indices).
    ///
    /// # Errors
    /// As [`topk`](AnyTensor::topk).
    #[doc(alias = "topk")]
    #[doc(alias = "top_k")]
    pub fn topk_with_indices(self, k: usize, axis: impl Into<Axis>) -> Result<(AnyTensor, AnyTensor)> {
        self.first_of("topk_with_indices", k, axis.into(), true, Wanted::Indices)
    }

    /// Returns the indices of the `k` greatest elements along an axis. See [`Tensor::argtopk`](crate::Tensor::argtopk).
    ///
    /// # Errors
    /// As [`topk`](AnyTensor::topk).
    pub fn argtopk(self, k: usize, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.first_of("argtopk", k, axis.into(), true, Wanted::Indices)?.1)
    }

    /// Returns the `k` least elements along an axis. See [`Tensor::topk_smallest`](crate::Tensor::topk_smallest).
    ///
    /// # Errors
    /// As [`topk`](AnyTensor::topk).
    pub fn topk_smallest(self, k: usize, axis: impl Into<Axis>) -> Result<AnyTensor> {
        Ok(self.first_of("topk_smallest", k, axis.into(), false, Wanted::Values)?.0)
    }

    /// Returns the `k` least elements along an axis, and their indices. See
    /// [`Tensor::topk_smallest_with_indices`](crate::Tensor::topk_smallest_with_indices).
    ///
    /// # Errors
    /// As [`topk`](AnyTensor::topk).
    pub fn topk_smallest_with_indices(
        self,
        k: usize,
        axis: impl Into<Axis>,
    ) -> Result<(AnyTensor, AnyTensor)> {
        self.first_of("topk_smallest_with_indices", k, axis.into(), false, Wanted::Indices)
    }

    fn first_of(
        self,
        name: &str,
        k: usize,
        axis: Axis,
        largest: bool,
        wanted: Wanted,
    ) -> Result<(AnyTensor, AnyTensor)> {
        let axis = axis.of(name, self.ty())?;
        let index = self.index_along(axis, wanted);
        self.ordered(&Op::TopK { axis, k, largest, index })
    }

    /// Returns the dtype of indices along an axis. If the indices are not used, the axis may be too long for the
    /// stack's integer dtype.
    fn index_along(&self, axis: usize, wanted: Wanted) -> DType {
        match wanted {
            Wanted::Values if i32::try_from(self.shape()[axis]).is_err() => DType::I64,
            Wanted::Values | Wanted::Indices => self.stack().int_dtype(),
        }
    }

    /// Checks that the stack's integers can represent the index of each element.
    pub(crate) fn check_places(&self, op: &str, elements: usize) -> Result<()> {
        let index = self.stack().int_dtype();
        if index != DType::I32 || elements <= 1 << 31 {
            return Ok(());
        }
        let problem = format!("{elements} elements are more than {index} counts");
        let hint = "use a device whose integers are i64, or process the elements in parts";
        Err(Error::type_error(op, problem, &[self.ty().into()]).hint(hint))
    }

    fn ordered(self, op: &Op) -> Result<(AnyTensor, AnyTensor)> {
        let mut results = self.apply_many(op, [])?.into_iter();
        match (results.next(), results.next()) {
            (Some(values), Some(index)) => Ok((values, index)),
            _ => Err(Error::type_error(op.name(), "does not return two results", &[])),
        }
    }
}
