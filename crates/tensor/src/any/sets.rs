//! Distinct elements. All methods but [`isin`](AnyTensor::isin) wait for the device, because their shapes depend on the
//! data.

use super::index_dtype;
use crate::{AnyTensor, Axis, Error, Result, TensorType};
use alloc::format;
use kiln_ir::{Binary, Comparison, Reduction, Shape, SliceAxis, UpdateMode};

/// Distinct elements or slices, the index of each element among them, and their counts.
#[derive(Clone, Debug)]
pub struct UniqueAny {
    /// The distinct elements, `[count]`, or slices.
    pub values: AnyTensor,
    /// For each element (or slice), the index of its value.
    pub inverse: AnyTensor,
    /// The number of occurrences of each value, `[count]`.
    pub counts: AnyTensor,
}

impl AnyTensor {
    /// Returns the distinct elements in ascending order. Waits for the device. See
    /// [`Tensor::unique`](crate::Tensor::unique).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn unique(self) -> Result<AnyTensor> {
        let sorted = self.flatten_all()?.sort(0)?;
        let first = sorted.clone().run_starts(0)?.places()?;
        sorted.take(0, first)
    }

    /// Like [`unique`](AnyTensor::unique), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn unique_async(self) -> Result<AnyTensor> {
        let sorted = self.flatten_all()?.sort(0)?;
        let first = sorted.clone().run_starts(0)?.places_async().await?;
        sorted.take(0, first)
    }

    /// Returns the distinct elements in ascending order, with indices and counts. Waits for the device. See
    /// [`Tensor::unique_with_counts`](crate::Tensor::unique_with_counts).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn unique_with_counts(self) -> Result<UniqueAny> {
        self.sorted_runs()?.unique()
    }

    /// Like [`unique_with_counts`](AnyTensor::unique_with_counts), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn unique_with_counts_async(self) -> Result<UniqueAny> {
        self.sorted_runs()?.unique_async().await
    }

    /// Returns the distinct slices along an axis, in lexicographic order. Waits for the device. See
    /// [`Tensor::unique_dim`](crate::Tensor::unique_dim).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn unique_dim(self, axis: impl Into<Axis>) -> Result<UniqueAny> {
        self.sorted_slice_runs(axis.into())?.unique()
    }

    /// Like [`unique_dim`](AnyTensor::unique_dim), without blocking the thread.
    ///
    /// # Errors
    /// As [`unique_dim`](AnyTensor::unique_dim), and when the computation of the elements failed.
    pub async fn unique_dim_async(self, axis: impl Into<Axis>) -> Result<UniqueAny> {
        self.sorted_slice_runs(axis.into())?.unique_async().await
    }

    /// Removes consecutive duplicates among the elements. Waits for the device. See
    /// [`Tensor::unique_consecutive`](crate::Tensor::unique_consecutive).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn unique_consecutive(self) -> Result<UniqueAny> {
        self.runs()?.unique()
    }

    /// Like [`unique_consecutive`](AnyTensor::unique_consecutive), without blocking the thread.
    ///
    /// # Errors
    /// When the computation of the elements failed.
    pub async fn unique_consecutive_async(self) -> Result<UniqueAny> {
        self.runs()?.unique_async().await
    }

    /// Removes consecutive duplicate slices along an axis. Waits for the device. See
    /// [`Tensor::unique_consecutive_dim`](crate::Tensor::unique_consecutive_dim).
    ///
    /// # Errors
    /// As [`unique_dim`](AnyTensor::unique_dim).
    pub fn unique_consecutive_dim(self, axis: impl Into<Axis>) -> Result<UniqueAny> {
        self.slice_runs(axis.into())?.unique()
    }

    /// Like [`unique_consecutive_dim`](AnyTensor::unique_consecutive_dim), without blocking the thread.
    ///
    /// # Errors
    /// As [`unique_dim`](AnyTensor::unique_dim), and when the computation of the elements failed.
    pub async fn unique_consecutive_dim_async(self, axis: impl Into<Axis>) -> Result<UniqueAny> {
        self.slice_runs(axis.into())?.unique_async().await
    }

    /// Returns whether each element is in `others`. See [`Tensor::isin`](crate::Tensor::isin).
    ///
    /// # Errors
    /// When the dtypes differ, or both are `bool`.
    pub fn isin(self, others: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("isin", &others)?;
        if self.dtype() != others.dtype() || self.dtype().is_bool() {
            let problem = format!("needs numbers of one dtype, not {} and {}", self.dtype(), others.dtype());
            return Err(Error::type_error("isin", problem, &[self.ty().into(), others.ty().into()]));
        }
        let count = others.shape().num_elements();
        if count == 0 {
            return AnyTensor::zeros(self.ty().with_dtype(kiln_ir::DType::Bool), self.stack());
        }
        let sorted = others.flatten_all()?.sort(0)?;
        let place =
            sorted.clone().searchsorted(self.clone(), false)?.binary_scalar(Binary::Min, count - 1)?;
        self.compare(Comparison::Eq, sorted.take(0, place)?)
    }

    /// Returns the slices along an axis as rows of a matrix.
    fn rows_of(self, axis: usize) -> Result<AnyTensor> {
        let count = self.shape()[axis];
        let width = self.shape().without(axis).num_elements();
        self.movedim(axis, 0)?.reshape([count, width])
    }

    /// Returns the order of the rows of a matrix, by the first column, then the second, and so on. NaNs come last, and
    /// are equal.
    ///
    /// Columns become ranks, and ranks of adjacent columns become ranks of their pairs, until one column is left. The
    /// number of sorts is the number of bits of the column count; each is over half as many columns as the one before.
    fn lexicographic_order(self) -> Result<AnyTensor> {
        let (count, mut columns) = (self.shape()[0], self.shape()[1]);
        let stack = self.stack().clone();
        if columns == 0 {
            let ty = TensorType::new([count], stack.int_dtype());
            return AnyTensor::iota(ty, 0, &stack);
        }
        let mut ranks = self.column_ranks()?;
        while columns > 1 {
            if columns % 2 == 1 {
                let last = AnyTensor::zeros(ranks.ty().with_shape([count, 1]), &stack)?;
                ranks = AnyTensor::cat([ranks, last].into(), 1)?;
            }
            columns = columns.div_ceil(2);
            let every_other = SliceAxis { start: 0, len: columns, step: 2 };
            let first = ranks.clone().slice_axis(1, every_other)?;
            let second = ranks.slice_axis(1, SliceAxis { start: 1, ..every_other })?;
            ranks = first.mul_scalar(count)?.binary(Binary::Add, second)?.column_ranks()?;
        }
        ranks.reshape([count])?.argsort(0)
    }

    /// Returns the index of each element among the distinct elements of its column, in a dtype that can represent pairs
    /// of them.
    fn column_ranks(self) -> Result<AnyTensor> {
        let count = self.shape()[0];
        let ranked = index_dtype(count.saturating_mul(count));
        let (sorted, order) = self.sort_with_indices(0)?;
        let mut starts = sorted.clone().run_starts(0)?;
        if sorted.dtype().is_float() {
            // A NaN is not equal to itself, but has one rank.
            let is_nan = sorted.is_nan()?.cast(ranked)?;
            let earlier = is_nan.cumsum(0)?.compare_scalar(Comparison::Le, 1)?;
            starts = starts.binary(Binary::And, earlier)?;
        }
        let ranks = starts.cast(ranked)?.cumsum(0)?.binary_scalar(Binary::Sub, 1)?;
        let nothing = AnyTensor::zeros(*ranks.ty(), ranks.stack())?;
        nothing.scatter_mode(0, order, ranks, UpdateMode::Set)
    }

    /// Returns the mask of rows of a matrix that differ from the previous row; the first row counts as different.
    fn row_starts(self) -> Result<AnyTensor> {
        let count = self.shape()[0];
        let differ = self.run_starts(0)?.reduce(Reduction::Max, &[1])?.reshape([count])?;
        // Rows without elements are all equal, yet the first one is there.
        let first = AnyTensor::iota(differ.ty().with_dtype(kiln_ir::DType::I32), 0, differ.stack())?;
        differ.binary(Binary::Or, first.compare_scalar(Comparison::Eq, 0)?)
    }

    /// Returns the runs of equal elements, in ascending order.
    fn sorted_runs(self) -> Result<Runs> {
        let shape = *self.shape();
        let (slices, order) = self.flatten_all()?.sort_with_indices(0)?;
        let starts = slices.clone().run_starts(0)?;
        Ok(Runs { slices, axis: 0, starts, order: Some(order), shape: Some(shape) })
    }

    /// Returns the runs of equal slices along an axis, in lexicographic order.
    fn sorted_slice_runs(self, axis: Axis) -> Result<Runs> {
        let axis = axis.of("unique_dim", self.ty())?;
        let rows = self.clone().rows_of(axis)?;
        let order = rows.clone().lexicographic_order()?;
        let starts = rows.take(0, order.clone())?.row_starts()?;
        let slices = self.take(axis, order.clone())?;
        Ok(Runs { slices, axis, starts, order: Some(order), shape: None })
    }

    /// Returns the runs of equal elements, in row-major order.
    fn runs(self) -> Result<Runs> {
        let shape = *self.shape();
        let slices = self.flatten_all()?;
        let starts = slices.clone().run_starts(0)?;
        Ok(Runs { slices, axis: 0, starts, order: None, shape: Some(shape) })
    }

    /// Returns the runs of equal slices along an axis.
    fn slice_runs(self, axis: Axis) -> Result<Runs> {
        let axis = axis.of("unique_consecutive_dim", self.ty())?;
        let starts = self.clone().rows_of(axis)?.row_starts()?;
        Ok(Runs { slices: self, axis, starts, order: None, shape: None })
    }

    /// Returns the indices of the true elements of a vector, `[count]`.
    fn places(self) -> Result<AnyTensor> {
        let places = self.argwhere()?;
        let count = places.shape()[0];
        places.reshape([count])
    }

    /// Like [`places`](AnyTensor::places), without blocking the thread.
    async fn places_async(self) -> Result<AnyTensor> {
        let places = self.argwhere_async().await?;
        let count = places.shape()[0];
        places.reshape([count])
    }

    /// Moves the elements of a vector back by the inverse of a permutation.
    fn put_back(self, order: AnyTensor) -> Result<AnyTensor> {
        let nothing = AnyTensor::zeros(*self.ty(), self.stack())?;
        nothing.put(0, order, self, UpdateMode::Set)
    }
}

/// Runs of equal slices along an axis, whose number is not known yet.
struct Runs {
    slices: AnyTensor,
    axis: usize,
    /// True at the start of a run, for each slice.
    starts: AnyTensor,
    /// The indices by which the slices were sorted.
    order: Option<AnyTensor>,
    /// The shape of the elements that the slices are, for the index of each of them.
    shape: Option<Shape>,
}

impl Runs {
    /// Waits for the number of runs.
    fn unique(self) -> Result<UniqueAny> {
        let first = self.starts.clone().places()?;
        self.with_first(first)
    }

    async fn unique_async(self) -> Result<UniqueAny> {
        let first = self.starts.clone().places_async().await?;
        self.with_first(first)
    }

    /// Builds the result from the indices of the first slice of each run.
    fn with_first(self, first: AnyTensor) -> Result<UniqueAny> {
        let Runs { slices, axis, starts, order, shape } = self;
        let (index, total) = (slices.stack().int_dtype(), starts.shape()[0]);
        let mut inverse = starts.cast(index)?.cumsum(0)?.binary_scalar(Binary::Sub, 1)?;
        if let Some(order) = order {
            inverse = inverse.put_back(order)?;
        }
        if let Some(shape) = shape {
            inverse = inverse.reshape(shape)?;
        }
        let count = first.shape()[0];
        let next = first
            .clone()
            .slice_axis(0, SliceAxis { start: count.min(1), len: count.saturating_sub(1), step: 1 })?;
        let end = AnyTensor::full(first.ty().with_shape([count.min(1)]), total, first.stack())?;
        let counts = AnyTensor::cat([next, end].into(), 0)?.binary(Binary::Sub, first.clone())?;
        Ok(UniqueAny { values: slices.take(axis, first)?, inverse, counts })
    }
}
