//! Scattered writes: elements written by index or mask.

use super::index_dtype;
use crate::{AnyTensor, Axis, Error, Number, Result, Shape};
use alloc::format;
use kiln_ir::{Binary, DType, Op, SliceAxis, Unary, UpdateMode};

/// The reduction of [`Tensor::scatter_reduce`](crate::Tensor::scatter_reduce) for values with the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterReduction {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The mean; for integers rounded down.
    Mean,
    /// The maximum.
    Max,
    /// The minimum.
    Min,
}

impl AnyTensor {
    /// Combines each slice of the source with the slice of the axis at its index; the reverse of
    /// [`take`](AnyTensor::take). See [`Tensor::put`](crate::Tensor::put).
    ///
    /// # Errors
    /// When the axis is out of range, the index is not of an integer dtype, the source differs from the written slices
    /// in shape or dtype, or a mode other than [`Set`](UpdateMode::Set) combines `bool`.
    #[doc(alias = "index_copy")]
    #[doc(alias = "index_put")]
    pub fn put(
        self,
        axis: impl Into<Axis>,
        index: AnyTensor,
        source: AnyTensor,
        mode: UpdateMode,
    ) -> Result<AnyTensor> {
        self.in_same_domain("put", &index)?;
        self.in_same_domain("put", &source)?;
        let axis = axis.into().of("put", self.ty())?;
        self.apply_with(&Op::Put { axis, mode }, [index.into_value().into(), source.into_value().into()])
    }

    /// Adds each slice of the values at its index along the axis. See
    /// [`Tensor::select_assign`](crate::Tensor::select_assign).
    ///
    /// # Errors
    /// As [`put`](AnyTensor::put), and when the indices are not a vector.
    #[doc(alias = "index_add")]
    pub fn select_assign(
        self,
        axis: impl Into<Axis>,
        indices: AnyTensor,
        values: AnyTensor,
    ) -> Result<AnyTensor> {
        if indices.rank() != 1 {
            let types = [self.ty().into(), indices.ty().into(), values.ty().into()];
            return Err(Error::type_error("select_assign", "the indices need exactly 1 axis", &types)
                .hint("`put` accepts indices with any number of axes"));
        }
        self.put(axis, indices, values, UpdateMode::Add)
    }

    /// Fills the slices of an axis at the indices, `[count]`, with a scalar. See
    /// [`Tensor::index_fill`](crate::Tensor::index_fill).
    ///
    /// # Errors
    /// When the axis is out of range, the indices are not a vector of integers, or the number is not a value of the
    /// dtype.
    pub fn index_fill(self, axis: impl Into<Axis>, indices: AnyTensor, x: impl Number) -> Result<AnyTensor> {
        let axis = axis.into().of("index_fill", self.ty())?;
        if indices.rank() != 1 {
            let types = [self.ty().into(), indices.ty().into()];
            return Err(Error::type_error("index_fill", "the indices need exactly 1 axis", &types)
                .hint("`flatten` them first"));
        }
        let shape = self.shape().with(axis, indices.shape()[0]);
        let values = AnyTensor::full(self.ty().with_shape([]), x, self.stack())?.expand(shape)?;
        self.put(axis, indices, values, UpdateMode::Set)
    }

    /// Adds each value at its index along the axis. See [`Tensor::scatter`](crate::Tensor::scatter).
    ///
    /// # Errors
    /// As [`scatter_mode`](AnyTensor::scatter_mode), and when the tensor is `bool`.
    #[doc(alias = "scatter_add")]
    pub fn scatter(self, axis: impl Into<Axis>, indices: AnyTensor, values: AnyTensor) -> Result<AnyTensor> {
        self.scatter_mode(axis, indices, values, UpdateMode::Add)
    }

    /// Combines each value with the element at its index; the reverse of [`gather`](AnyTensor::gather). See
    /// [`Tensor::scatter_mode`](crate::Tensor::scatter_mode).
    ///
    /// # Errors
    /// When the axis is out of range; the index is not of an integer dtype, differs in rank, or is longer than the
    /// tensor in another axis; the source differs in dtype or rank or is shorter than the index; or a mode other than
    /// [`Set`](UpdateMode::Set) combines `bool`.
    pub fn scatter_mode(
        self,
        axis: impl Into<Axis>,
        index: AnyTensor,
        source: AnyTensor,
        mode: UpdateMode,
    ) -> Result<AnyTensor> {
        self.in_same_domain("scatter", &index)?;
        self.in_same_domain("scatter", &source)?;
        let axis = axis.into().of("scatter", self.ty())?;
        let source = source.cut_to(*index.shape())?;
        let shape = *self.shape();
        let inner = self.clone().beside(&index, axis)?;
        let op = Op::Scatter { axis, mode };
        if *inner.shape() == shape {
            // The clone above must be dropped, so that a sole owner stays one.
            drop(inner);
            return self.apply_with(&op, [index.into_value().into(), source.into_value().into()]);
        }
        let slices = inner.shape().iter().map(|&len| SliceAxis::all(len)).collect();
        let written = inner.apply_with(&op, [index.into_value().into(), source.into_value().into()])?;
        let update = Op::SliceUpdate { slices, mode: UpdateMode::Set };
        self.apply_with(&update, [written.into_value().into()])
    }

    /// Returns the first elements of each axis that is longer than in `shape`.
    fn cut_to(self, shape: Shape) -> Result<AnyTensor> {
        if self.rank() != shape.rank() || *self.shape() == shape {
            return Ok(self);
        }
        (0..shape.rank()).try_fold(self, |part, axis| match shape[axis] < part.shape()[axis] {
            true => part.narrow(axis, 0, shape[axis]),
            false => Ok(part),
        })
    }

    /// Reduces all values with the same index, with or without the previous element. See
    /// [`Tensor::scatter_reduce`](crate::Tensor::scatter_reduce).
    ///
    /// # Errors
    /// As [`scatter_mode`](AnyTensor::scatter_mode), and when the tensor is `bool`.
    pub fn scatter_reduce(
        self,
        axis: impl Into<Axis>,
        indices: AnyTensor,
        values: AnyTensor,
        reduction: ScatterReduction,
        include_self: bool,
    ) -> Result<AnyTensor> {
        let axis = axis.into().of("scatter_reduce", self.ty())?;
        self.in_same_domain("scatter_reduce", &values)?;
        if self.dtype() != values.dtype() {
            let problem = "tensor and values differ in dtype";
            return Err(Error::type_error(
                "scatter_reduce",
                problem,
                &[self.ty().into(), values.ty().into()],
            ));
        }
        let values = values.cut_to(*indices.shape())?;
        let base = if include_self { self } else { self.forgotten(axis, &indices, reduction)? };
        let mode = match reduction {
            ScatterReduction::Sum | ScatterReduction::Mean => UpdateMode::Add,
            ScatterReduction::Prod => UpdateMode::Mul,
            ScatterReduction::Max => UpdateMode::Max,
            ScatterReduction::Min => UpdateMode::Min,
        };
        let ty = *base.ty();
        let combined = base.scatter_mode(axis, indices.clone(), values, mode)?;
        match reduction {
            ScatterReduction::Mean => combined.over_count(axis, indices, ty.dtype, include_self),
            ScatterReduction::Sum
            | ScatterReduction::Prod
            | ScatterReduction::Max
            | ScatterReduction::Min => Ok(combined),
        }
    }

    /// Returns the tensor with the identity of the reduction at the indices.
    fn forgotten(self, axis: usize, indices: &AnyTensor, reduction: ScatterReduction) -> Result<AnyTensor> {
        let ty = self.ty().with_shape([]);
        let kind = match reduction {
            ScatterReduction::Sum | ScatterReduction::Mean => kiln_ir::Reduction::Sum,
            ScatterReduction::Prod => kiln_ir::Reduction::Prod,
            ScatterReduction::Max => kiln_ir::Reduction::Max,
            ScatterReduction::Min => kiln_ir::Reduction::Min,
        };
        // The reduction of no elements is the identity, in any dtype.
        let nothing = AnyTensor::zeros(ty.with_shape([0]), self.stack())?;
        let identity = nothing.reduce(kind, &[0])?.reshape([])?.expand(*indices.shape())?;
        self.scatter_mode(axis, indices.clone(), identity, UpdateMode::Set)
    }

    /// Divides sums by the number of elements at each index.
    fn over_count(
        self,
        axis: usize,
        indices: AnyTensor,
        dtype: DType,
        include_self: bool,
    ) -> Result<AnyTensor> {
        let narrow = index_dtype(indices.shape().num_elements().saturating_add(1));
        // The dtype of the count, and of the sum.
        let counted = match dtype {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::I64 | DType::U64 => dtype,
            DType::U32 if narrow == DType::I32 => dtype,
            DType::U32 | DType::I32 | DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => narrow,
        };
        let ty = self.ty().with_dtype(counted);
        let ones = AnyTensor::ones(ty.with_shape(*indices.shape()), self.stack())?;
        let own = AnyTensor::full(ty, u8::from(include_self), self.stack())?;
        let count = own.scatter_mode(axis, indices, ones, UpdateMode::Add)?.binary_scalar(Binary::Max, 1)?;
        if dtype.is_float() {
            return self.binary(Binary::Div, count);
        }
        let sum = self.cast(counted)?;
        let rest = sum.clone().binary(Binary::Rem, count.clone())?;
        let below = rest.compare_scalar(kiln_ir::Comparison::Lt, 0)?.cast(counted)?;
        sum.binary(Binary::Div, count)?.binary(Binary::Sub, below)?.cast(dtype)
    }

    /// Replaces the elements where the mask is true by those of the source, in row-major order. See
    /// [`Tensor::masked_scatter`](crate::Tensor::masked_scatter).
    ///
    /// # Errors
    /// When the mask is not `bool`, it does not broadcast to the tensor, or only one of tensor and source is `bool`.
    pub fn masked_scatter(self, mask: AnyTensor, source: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("masked_scatter", &mask)?;
        self.in_same_domain("masked_scatter", &source)?;
        let wrong = |problem: &str| {
            let types = [self.ty().into(), mask.ty().into(), source.ty().into()];
            Error::type_error("masked_scatter", problem, &types)
        };
        if !mask.dtype().is_bool() {
            return Err(wrong("the mask must be bool"));
        }
        if kiln_ir::infer::broadcast_shapes(mask.shape(), self.shape()) != Some(*self.shape()) {
            return Err(wrong(&format!("the mask does not broadcast to {}", self.shape())));
        }
        let shape = *self.shape();
        let mask = mask.expand(shape)?;
        let total = shape.num_elements();
        let count = mask.clone().reshape([total])?.cast(self.stack().int_dtype())?;
        let place = count.scan(kiln_ir::Reduction::Sum, 0)?.reshape(shape)?;
        // Elements that are not replaced read index 0; a source that is too short is an index out of range.
        let place = mask.clone().unary(Unary::Not)?.if_else_number(0, place)?;
        let flat = source.flatten_all()?.pad(&[(1, 0)], super::super::zero(self.dtype()))?;
        mask.if_else(flat.take(0, place)?, self)
    }

    /// Flattens all elements in row-major order, `[count]`.
    pub(crate) fn flatten_all(self) -> Result<AnyTensor> {
        let count = self.shape().num_elements();
        self.reshape([count])
    }
}
