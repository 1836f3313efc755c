//! Reductions.

mod difference;
mod extreme;
mod logsum;
mod moments;
mod scan;
mod truth;

use crate::{AnyTensor, Axis, AxisList, Error, Result};
use kiln_ir::{Axes, Binary, DType, MAX_RANK, Op, Reduction};
use smallvec::SmallVec;

impl AnyTensor {
    /// Reduces all elements along axes (in any order), which are kept with length 1.
    ///
    /// # Errors
    /// When an axis is out of range or repeated, or a sum or product is of `bool`.
    pub fn reduce(self, reduction: Reduction, axes: &[usize]) -> Result<AnyTensor> {
        if axes.is_empty() {
            return Ok(self);
        }
        self.check_axes("reduce", axes)?;
        let mut axes: SmallVec<[usize; MAX_RANK]> = axes.iter().copied().collect();
        axes.sort_unstable();
        self.apply(&Op::Reduce { reduction, axes: Axes::new(&axes) })
    }

    /// Reduces all elements to a tensor of shape `[1]`.
    ///
    /// # Errors
    /// When a sum or product is of `bool`.
    pub fn reduce_all(self, reduction: Reduction) -> Result<AnyTensor> {
        let axes = self.all_axes();
        self.reduce(reduction, &axes)?.reshape([1])
    }

    /// Returns all axes, in ascending order.
    pub(crate) fn all_axes(&self) -> SmallVec<[usize; MAX_RANK]> {
        (0..self.rank()).collect()
    }

    fn reduce_one(self, op: &str, reduction: Reduction, axis: Axis) -> Result<AnyTensor> {
        let axis = axis.of(op, self.ty())?;
        self.apply(&Op::Reduce { reduction, axes: Axes::one(axis) })
    }

    fn reduce_some(self, op: &str, reduction: Reduction, axes: &AxisList) -> Result<AnyTensor> {
        let axes = axes.sorted_of(op, self.ty())?;
        if axes.is_empty() { Ok(self) } else { self.apply(&Op::Reduce { reduction, axes: Axes::new(&axes) }) }
    }

    /// Computes the sum of all elements, of shape `[1]`. See [`Tensor::sum`](crate::Tensor::sum).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    pub fn sum(self) -> Result<AnyTensor> {
        self.reduce_all(Reduction::Sum)
    }

    /// Computes the sum along an axis. See [`Tensor::sum_dim`](crate::Tensor::sum_dim).
    ///
    /// # Errors
    /// When the axis is out of range, or the tensor is `bool`.
    #[doc(alias = "sum")]
    pub fn sum_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.reduce_one("sum_dim", Reduction::Sum, axis.into())
    }

    /// Computes the sum along axes. See [`Tensor::sum_dims`](crate::Tensor::sum_dims).
    ///
    /// # Errors
    /// When an axis is out of range or repeated, or the tensor is `bool`.
    pub fn sum_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.reduce_some("sum_dims", Reduction::Sum, &axes.into())
    }

    /// Computes the sum along axes, which are removed. See
    /// [`Tensor::sum_dims_squeeze`](crate::Tensor::sum_dims_squeeze).
    ///
    /// # Errors
    /// As [`sum_dims`](AnyTensor::sum_dims).
    pub fn sum_dims_squeeze(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().sorted_of("sum_dims_squeeze", self.ty())?;
        self.reduce(Reduction::Sum, &axes)?.without_axes("sum_dims_squeeze", &axes)
    }

    /// Computes the product of all elements, of shape `[1]`. See [`Tensor::prod`](crate::Tensor::prod).
    ///
    /// # Errors
    /// As [`sum`](AnyTensor::sum).
    pub fn prod(self) -> Result<AnyTensor> {
        self.reduce_all(Reduction::Prod)
    }

    /// Computes the product along an axis. See [`Tensor::prod_dim`](crate::Tensor::prod_dim).
    ///
    /// # Errors
    /// As [`sum_dim`](AnyTensor::sum_dim).
    pub fn prod_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        self.reduce_one("prod_dim", Reduction::Prod, axis.into())
    }

    /// Computes the product along axes. See [`Tensor::prod_dims`](crate::Tensor::prod_dims).
    ///
    /// # Errors
    /// As [`sum_dims`](AnyTensor::sum_dims).
    pub fn prod_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        self.reduce_some("prod_dims", Reduction::Prod, &axes.into())
    }

    /// Computes the mean of all elements, of shape `[1]`. See [`Tensor::mean`](crate::Tensor::mean).
    ///
    /// # Errors
    /// As [`sum`](AnyTensor::sum).
    pub fn mean(self) -> Result<AnyTensor> {
        let axes = self.all_axes();
        self.mean_over(&axes)?.reshape([1])
    }

    /// Computes the mean along an axis. See [`Tensor::mean_dim`](crate::Tensor::mean_dim).
    ///
    /// # Errors
    /// As [`sum_dim`](AnyTensor::sum_dim).
    pub fn mean_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("mean_dim", self.ty())?;
        self.mean_over(&[axis])
    }

    /// Computes the mean along axes. See [`Tensor::mean_dims`](crate::Tensor::mean_dims).
    ///
    /// # Errors
    /// As [`sum_dims`](AnyTensor::sum_dims).
    pub fn mean_dims(self, axes: impl Into<AxisList>) -> Result<AnyTensor> {
        let axes = axes.into().of("mean_dims", self.ty())?;
        self.mean_over(&axes)
    }

    /// Computes the mean along axes, which are kept with length 1.
    ///
    /// # Errors
    /// As [`sum_dims`](AnyTensor::sum_dims).
    pub fn mean_over(self, axes: &[usize]) -> Result<AnyTensor> {
        self.check_axes("mean", axes)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        let dtype = self.dtype();
        self.widened()?.reduce(Reduction::Sum, axes)?.binary_scalar(Binary::Div, count)?.cast(dtype)
    }

    /// Converts to a dtype of at least 32 bits for sums, powers and counts: in narrower dtypes they overflow and lose
    /// small terms, even if the final result fits. Floats are at least `f32` also below a mixed-precision layer, which
    /// stores some in 16 bits.
    pub(crate) fn widened(self) -> Result<AnyTensor> {
        let (dtype, wide) = (self.dtype(), self.dtype().accumulator());
        if dtype.is_int() {
            return if dtype.size() < 4 { self.cast(DType::I32) } else { Ok(self) };
        }
        let is_mixed = wide == DType::F32 && self.stack().engine().mixes_precision();
        if is_mixed { self.apply(&Op::Cast(wide)) } else { self.cast(wide) }
    }

    /// [`widened`](AnyTensor::widened) for floats, and unchanged for other dtypes.
    pub(crate) fn widened_floats(self) -> Result<AnyTensor> {
        if self.dtype().is_float() { self.widened() } else { Ok(self) }
    }

    /// [`widened_floats`](AnyTensor::widened_floats) for two operands of an elementwise op. Operands that do not suit
    /// are unchanged, so that the error of the op names their types.
    pub(crate) fn widened_with(self, other: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
        let suits = self.dtype() == other.dtype()
            && kiln_ir::infer::broadcast_shapes(self.shape(), other.shape()).is_some();
        if suits { Ok((self.widened_floats()?, other.widened_floats()?)) } else { Ok((self, other)) }
    }

    /// Computes the sum along an axis, ignoring NaN. See [`Tensor::nansum_dim`](crate::Tensor::nansum_dim).
    ///
    /// # Errors
    /// When the axis is out of range, or the dtype is not a float.
    pub fn nansum_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("nansum_dim", self.ty())?;
        let nan = self.nan_places("nansum_dim")?;
        nan.if_else_number(0.0, self)?.reduce(Reduction::Sum, &[axis])
    }

    /// Computes the sum of all elements, ignoring NaN, of shape `[1]`. See [`Tensor::nansum`](crate::Tensor::nansum).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn nansum(self) -> Result<AnyTensor> {
        let nan = self.nan_places("nansum")?;
        nan.if_else_number(0.0, self)?.reduce_all(Reduction::Sum)
    }

    /// Computes the mean along an axis, ignoring NaN. See [`Tensor::nanmean_dim`](crate::Tensor::nanmean_dim).
    ///
    /// # Errors
    /// As [`nansum_dim`](AnyTensor::nansum_dim).
    pub fn nanmean_dim(self, axis: impl Into<Axis>) -> Result<AnyTensor> {
        let axis = axis.into().of("nanmean_dim", self.ty())?;
        let nan = self.nan_places("nanmean_dim")?;
        self.nanmean_over(nan, &[axis])
    }

    /// Computes the mean of all elements, ignoring NaN, of shape `[1]`. See
    /// [`Tensor::nanmean`](crate::Tensor::nanmean).
    ///
    /// # Errors
    /// As [`nansum`](AnyTensor::nansum).
    pub fn nanmean(self) -> Result<AnyTensor> {
        let (nan, axes) = (self.nan_places("nanmean")?, self.all_axes());
        self.nanmean_over(nan, &axes)?.reshape([1])
    }

    fn nanmean_over(self, nan: AnyTensor, axes: &[usize]) -> Result<AnyTensor> {
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        // Counted as integers: a float cannot count far.
        let missing = nan.clone().cast(self.stack().int_dtype())?.reduce(Reduction::Sum, axes)?;
        let present = missing.scalar_binary(count, Binary::Sub)?;
        let (dtype, x) = (self.dtype(), nan.if_else_number(0.0, self)?.widened()?);
        let present = present.cast(x.dtype())?;
        x.reduce(Reduction::Sum, axes)?.binary(Binary::Div, present)?.cast(dtype)
    }

    /// Computes the mask of NaN elements.
    pub(crate) fn nan_places(&self, op: &str) -> Result<AnyTensor> {
        if !self.dtype().is_float() {
            return Err(Error::type_error(op, "needs floats", &[self.ty().into()])
                .hint("convert it first: `float()`, or `cast` to a float dtype"));
        }
        self.clone().compare(kiln_ir::Comparison::Ne, self.clone())
    }
}
