//! Triangular matrices and diagonals.

use crate::{AnyTensor, Axis, Error, Result, Scalar, Shape, Stack, TensorType};
use alloc::format;
use kiln_ir::{Binary, Comparison, PadAxis};

impl AnyTensor {
    /// Returns the lower triangle of the last two axes, with zeros above. See [`Tensor::tril`](crate::Tensor::tril).
    ///
    /// # Errors
    /// When there are fewer than two axes.
    pub fn tril(self, offset: i64) -> Result<AnyTensor> {
        let mask = AnyTensor::of_diagonal("tril", *self.shape(), offset, Side::Above, self.stack())?;
        let zero = zero(self.dtype());
        mask.if_else_number(zero, self)
    }

    /// Returns the upper triangle of the last two axes, with zeros below. See [`Tensor::triu`](crate::Tensor::triu).
    ///
    /// # Errors
    /// As [`tril`](AnyTensor::tril).
    pub fn triu(self, offset: i64) -> Result<AnyTensor> {
        let mask = AnyTensor::of_diagonal("triu", *self.shape(), offset, Side::Below, self.stack())?;
        let zero = zero(self.dtype());
        mask.if_else_number(zero, self)
    }

    /// Creates a mask that is true on and below a diagonal of the last two axes. See
    /// [`Tensor::tril_mask`](crate::Tensor::tril_mask).
    ///
    /// # Errors
    /// As [`tril`](AnyTensor::tril).
    pub fn tril_mask(shape: impl Into<Shape>, offset: i64, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::of_diagonal("tril_mask", shape.into(), offset, Side::OnOrBelow, device.as_ref())
    }

    /// Creates a mask that is true on and above a diagonal of the last two axes. See
    /// [`Tensor::triu_mask`](crate::Tensor::triu_mask).
    ///
    /// # Errors
    /// As [`tril`](AnyTensor::tril).
    pub fn triu_mask(shape: impl Into<Shape>, offset: i64, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::of_diagonal("triu_mask", shape.into(), offset, Side::OnOrAbove, device.as_ref())
    }

    /// Creates a mask that is true on a diagonal of the last two axes. See
    /// [`Tensor::diag_mask`](crate::Tensor::diag_mask).
    ///
    /// # Errors
    /// As [`tril`](AnyTensor::tril).
    pub fn diag_mask(shape: impl Into<Shape>, offset: i64, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        AnyTensor::of_diagonal("diag_mask", shape.into(), offset, Side::On, device.as_ref())
    }

    /// Returns the side of the diagonal `column = row + offset` of each element of the last two axes, `[rows, columns]`
    /// repeated to the shape.
    fn of_diagonal(op: &str, shape: Shape, offset: i64, side: Side, stack: &Stack) -> Result<AnyTensor> {
        let Some(first) = shape.rank().checked_sub(2) else {
            return Err(Error::type_error(op, format!("needs at least 2 axes, not {shape}"), &[])
                .hint("rows and columns are the last two axes"));
        };
        let ty = TensorType::new(&shape[first..], stack.int_dtype());
        let rows = AnyTensor::iota(ty, 0, stack)?;
        // No diagonal farther out differs from the first that touches no element.
        let (low, high) = (-(ty.shape[0] as i64), ty.shape[1] as i64);
        let rows = rows.binary_scalar(Binary::Add, offset.clamp(low, high))?;
        let columns = AnyTensor::iota(ty, 1, stack)?;
        let mask = match side {
            Side::On => columns.compare(Comparison::Eq, rows),
            Side::OnOrBelow => columns.compare(Comparison::Le, rows),
            Side::OnOrAbove => rows.compare(Comparison::Le, columns),
            Side::Above => rows.compare(Comparison::Lt, columns),
            Side::Below => columns.compare(Comparison::Lt, rows),
        };
        mask?.expand(shape)
    }

    /// Returns a diagonal of the plane of two axes, as a new last axis. See
    /// [`Tensor::diagonal`](crate::Tensor::diagonal).
    ///
    /// # Errors
    /// When an axis is out of range, or both are the same.
    pub fn diagonal(self, offset: i64, a: impl Into<Axis>, b: impl Into<Axis>) -> Result<AnyTensor> {
        self.diagonal_of(offset, a.into(), b.into())
    }

    fn diagonal_of(self, offset: i64, a: Axis, b: Axis) -> Result<AnyTensor> {
        let (a, b) = (a.of("diagonal", self.ty())?, b.of("diagonal", self.ty())?);
        if a == b {
            return Err(Error::type_error("diagonal", format!("axis {a} twice"), &[self.ty().into()])
                .hint("name the axis of rows and that of columns"));
        }
        let any = self.movedim([a, b], [-2, -1])?;
        let last = any.rank() - 1;
        let (rows, columns) = (any.shape()[last - 1] as i64, any.shape()[last] as i64);
        let (row, column) = (offset.saturating_neg().clamp(0, rows), offset.clamp(0, columns));
        let length = (rows - row).min(columns - column) as usize;
        let square = any.narrow(last - 1, row as usize, length)?.narrow(last, column as usize, length)?;
        let shape = square.shape().with(last, 1);
        let places = TensorType::new([length, 1], square.stack().int_dtype());
        let places = AnyTensor::iota(places, 0, square.stack())?.expand(shape)?;
        square.gather(last, places)?.reshape(shape.without(last))
    }

    /// Embeds the last axis as a diagonal of a plane of two new axes. See
    /// [`Tensor::diag_embed`](crate::Tensor::diag_embed).
    ///
    /// # Errors
    /// When the tensor has no axes, or the axes are not two different axes of the result.
    pub fn diag_embed(self, offset: i64, a: impl Into<Axis>, b: impl Into<Axis>) -> Result<AnyTensor> {
        self.diagonal_to(offset, a.into(), b.into())
    }

    fn diagonal_to(self, offset: i64, a: Axis, b: Axis) -> Result<AnyTensor> {
        let Some(last) = self.rank().checked_sub(1) else {
            return Err(Error::type_error("diag_embed", "needs at least 1 axis", &[self.ty().into()])
                .hint("`unsqueeze` adds one"));
        };
        let zero = zero(self.dtype());
        let mut pads = alloc::vec![PadAxis::default(); last + 1];
        let by = offset.unsigned_abs() as usize;
        pads[last] = if offset < 0 { PadAxis::new(by, 0) } else { PadAxis::new(0, by) };
        let rows = self.pad_axes(pads, zero)?;
        let size = rows.shape()[last];
        let plane = rows.shape().inserted(last, size);
        let on = AnyTensor::diag_mask([size, size], offset, rows.stack())?;
        let off = on.unary(kiln_ir::Unary::Not)?;
        let rows = rows.unsqueeze_dim(-1)?.expand(plane)?;
        off.if_else_number(zero, rows)?.movedim([-2, -1], crate::AxisList::of_two(a, b))
    }

    /// Returns a matrix with the vector as a diagonal, or the diagonal of a matrix as a vector. See
    /// [`Tensor::diag`](crate::Tensor::diag).
    ///
    /// # Errors
    /// When there are not one or two axes.
    pub fn diag(self, offset: i64) -> Result<AnyTensor> {
        match self.rank() {
            1 => self.diag_embed(offset, 0, 1),
            2 => self.diagonal(offset, 0, 1),
            _ => Err(Error::type_error("diag", "needs 1 or 2 axes", &[self.ty().into()])
                .hint("`diag_embed` and `diagonal` accept more axes")),
        }
    }
}

/// The positions of a matrix relative to a diagonal.
#[derive(Clone, Copy)]
enum Side {
    On,
    OnOrBelow,
    OnOrAbove,
    Above,
    Below,
}

/// Returns zero, or `false`.
pub(crate) fn zero(dtype: crate::DType) -> Scalar {
    if dtype.is_bool() { Scalar::Bool(false) } else { Scalar::Int(0) }
}
