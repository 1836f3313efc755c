//! Elementwise ops, from which all arithmetic methods are built.

use crate::{AnyTensor, DType, Error, Number, Result, Stack};
use kiln_ir::{
    Binary, Comparison, Op, Operand, OperandType, Operands, Scalar, TensorType, Unary, Value, infer,
    infer_alike, infer_with_number,
};
use smallvec::smallvec;

impl AnyTensor {
    /// Applies a unary function elementwise.
    ///
    /// # Errors
    /// When the function does not accept the dtype: see [`Unary`].
    #[inline]
    pub fn unary(self, function: Unary) -> Result<AnyTensor> {
        self.apply(&Op::Unary(function))
    }

    /// Applies a binary function elementwise; broadcasts.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the function does not accept the promoted dtype: see [`Binary`] and
    /// [`DType::promote`].
    #[inline]
    pub fn binary(self, function: Binary, other: AnyTensor) -> Result<AnyTensor> {
        let AnyTensor { stack, value } = other;
        self.pairwise(&Op::Binary(function), &stack, value)
    }

    /// Like [`binary`](AnyTensor::binary), without consuming the other operand: cheaper than a clone of it.
    ///
    /// # Errors
    /// As [`binary`](AnyTensor::binary).
    #[inline]
    pub fn binary_with(self, function: Binary, other: &AnyTensor) -> Result<AnyTensor> {
        self.pairwise(&Op::Binary(function), &other.stack, other.value.clone())
    }

    /// Applies a binary function with a scalar on the right.
    ///
    /// # Errors
    /// When the number is not a value of the dtype, or the function does not accept the dtype: see [`Scalar::fits`] and
    /// [`Binary`].
    #[inline]
    pub fn binary_scalar(self, function: Binary, x: impl Number) -> Result<AnyTensor> {
        self.with_number(&Op::Binary(function), x.scalar(), false)
    }

    /// Applies a binary function with a scalar on the left.
    ///
    /// # Errors
    /// As [`binary_scalar`](AnyTensor::binary_scalar).
    #[inline]
    pub fn scalar_binary(self, x: impl Number, function: Binary) -> Result<AnyTensor> {
        self.with_number(&Op::Binary(function), x.scalar(), true)
    }

    /// Compares elementwise; broadcasts.
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    pub fn compare(self, comparison: Comparison, other: AnyTensor) -> Result<AnyTensor> {
        let AnyTensor { stack, value } = other;
        self.pairwise(&Op::Compare(comparison), &stack, value)
    }

    /// Compares each element with a scalar, which may be outside the range of the dtype.
    ///
    /// # Errors
    /// When the number is a fraction or NaN and the dtype an integer, or only one of number and dtype is `bool`.
    pub fn compare_scalar(self, comparison: Comparison, x: impl Number) -> Result<AnyTensor> {
        let (comparison, x) = comparison.bounded(x.scalar(), self.dtype(), false);
        self.with_number(&Op::Compare(comparison), x, false)
    }

    /// Compares a scalar, which may be outside the range of the dtype, with each element.
    ///
    /// # Errors
    /// As [`compare_scalar`](AnyTensor::compare_scalar).
    pub fn scalar_compare(self, x: impl Number, comparison: Comparison) -> Result<AnyTensor> {
        let (comparison, x) = comparison.bounded(x.scalar(), self.dtype(), true);
        self.with_number(&Op::Compare(comparison), x, true)
    }

    /// Returns the error of [`binary_with`](AnyTensor::binary_with), without running the op.
    #[inline]
    pub(crate) fn check_binary(&self, function: Binary, other: &AnyTensor) -> Result<()> {
        let op = Op::Binary(function);
        if self.stack.same_domain(&other.stack) && infer_alike(&op, self.ty(), other.ty()).is_some() {
            return Ok(());
        }
        self.in_same_domain(op.name(), other)?;
        let meeting = || AnyTensor::meeting(op.name(), self.dtype(), self, other);
        let dtype = if self.dtype() == other.dtype() { self.dtype() } else { meeting()? };
        match kiln_ir::infer::broadcast_shapes(self.shape(), other.shape()) {
            Some(shape) => {
                let ty = TensorType { shape, dtype };
                infer(&op, &[(&ty).into(), (&ty).into()]).map(|_| ())
            }
            None => infer(&op, &[self.ty().into(), other.ty().into()]).map(|_| ()),
        }
    }

    /// Returns the error of [`binary_scalar`](AnyTensor::binary_scalar), without running the op.
    #[inline]
    pub(crate) fn check_binary_scalar(&self, function: Binary, x: Scalar) -> Result<()> {
        let op = Op::Binary(function);
        match infer_with_number(&op, self.ty(), x) {
            Some(_) => Ok(()),
            None => AnyTensor::inferred_with_number(&op, self.ty(), x, false).map(|_| ()),
        }
    }

    /// Runs an op on this tensor and a scalar, which may be the left operand.
    #[inline]
    fn with_number(self, op: &Op, x: Scalar, is_first: bool) -> Result<AnyTensor> {
        let ty = match infer_with_number(op, self.ty(), x) {
            Some(ty) => ty,
            None => AnyTensor::inferred_with_number(op, self.ty(), x, is_first)?,
        };
        let (tensor, number) = (Operand::Value(self.value), Operand::Scalar(x));
        let operands = if is_first { two(number, tensor) } else { two(tensor, number) };
        let results = self.stack.execute(op, operands, &[ty]);
        AnyTensor::only(self.stack, op, results)
    }

    #[inline(never)]
    fn inferred_with_number(op: &Op, ty: &TensorType, x: Scalar, is_first: bool) -> Result<TensorType> {
        let (tensor, number) = (OperandType::Tensor(ty), OperandType::Scalar(x));
        let types = if is_first { [number, tensor] } else { [tensor, number] };
        Ok(infer(op, &types)?[0])
    }

    #[inline]
    fn pairwise(self, op: &Op, stack: &Stack, other: Value) -> Result<AnyTensor> {
        if self.stack.same_domain(stack)
            && let Some(ty) = infer_alike(op, self.value.ty(), other.ty())
        {
            let operands = two(Operand::Value(self.value), Operand::Value(other));
            let results = self.stack.execute(op, operands, &[ty]);
            return AnyTensor::only(self.stack, op, results);
        }
        self.pairwise_any(op, AnyTensor::new(stack.clone(), other))
    }

    /// Runs an op on two tensors that may differ in dtype and shape.
    #[inline(never)]
    fn pairwise_any(self, op: &Op, other: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain(op.name(), &other)?;
        let (a, b) = AnyTensor::matched(op, self, other)?;
        let results =
            AnyTensor::emit(&a.stack, op, smallvec![Operand::Value(a.value), Operand::Value(b.value)])?;
        AnyTensor::only(a.stack, op, results)
    }

    /// Promotes two tensors to one dtype, by [`DType::promote`], and broadcasts them to one shape.
    pub(crate) fn matched(op: &Op, a: AnyTensor, b: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
        let (a, b) = AnyTensor::promoted(op.name(), a, b)?;
        if a.shape() == b.shape() {
            return Ok((a, b));
        }
        match kiln_ir::infer::broadcast_shapes(a.shape(), b.shape()) {
            Some(shape) => Ok((a.expand(shape)?, b.expand(shape)?)),
            // Inference of the op itself creates the message.
            None => infer(op, &[a.ty().into(), b.ty().into()]).map(|_| (a, b)),
        }
    }

    /// Promotes two tensors to one dtype.
    pub(crate) fn promoted(op: &str, a: AnyTensor, b: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
        if a.dtype() == b.dtype() {
            return Ok((a, b));
        }
        let dtype = AnyTensor::meeting(op, a.dtype(), &a, &b)?;
        Ok((a.cast(dtype)?, b.cast(dtype)?))
    }

    /// Returns the dtype to which `b` and tensors of a dtype, one of which is `a`, are promoted.
    pub(crate) fn meeting(op: &str, dtype: DType, a: &AnyTensor, b: &AnyTensor) -> Result<DType> {
        DType::promote(dtype, b.dtype()).ok_or_else(|| {
            let problem = alloc::format!("no integer dtype can represent {dtype} and {}", b.dtype());
            Error::type_error(op, problem, &[a.ty().into(), b.ty().into()])
                .hint("cast one of them: to `i64` if its numbers fit, or both to `f64`")
        })
    }

    /// Selects elements of `a` where this `bool` tensor is true, and of `b` elsewhere; broadcasts.
    ///
    /// # Errors
    /// When this tensor is not `bool`, or the shapes do not broadcast.
    pub fn if_else(self, a: AnyTensor, b: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("select", &a)?;
        self.in_same_domain("select", &b)?;
        let shape = kiln_ir::infer::broadcast_shapes(self.shape(), a.shape())
            .and_then(|shape| kiln_ir::infer::broadcast_shapes(&shape, b.shape()));
        let (a, b) = AnyTensor::promoted("select", a, b)?;
        let Some(shape) = shape else {
            return self.apply_with(&Op::Select, [a.value.into(), b.value.into()]);
        };
        let (a, b) = (a.expand(shape)?, b.expand(shape)?);
        self.expand(shape)?.apply_with(&Op::Select, [a.value.into(), b.value.into()])
    }

    /// Selects the scalar where this `bool` tensor is true, and elements of `b` elsewhere; broadcasts.
    ///
    /// # Errors
    /// When this tensor is not `bool`, the shapes do not broadcast, or the number is not a value of the dtype of `b`.
    pub fn if_else_number(self, x: impl Number, b: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain("select", &b)?;
        let shape = kiln_ir::infer::broadcast_shapes(self.shape(), b.shape());
        let (condition, b) = match shape {
            Some(shape) => (self.expand(shape)?, b.expand(shape)?),
            None => (self, b),
        };
        condition.apply_with(&Op::Select, [Operand::Scalar(x.scalar()), b.value.into()])
    }

    /// Converts to another dtype. Does nothing if the tensor has it already.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    #[doc(alias = "astype")]
    #[doc(alias = "to")]
    pub fn cast(self, dtype: DType) -> Result<AnyTensor> {
        if self.dtype() == dtype { Ok(self) } else { self.apply(&Op::Cast(dtype)) }
    }
}

/// Creates a list of two operands. Pushing them one by one would take a part of a small op's time.
#[inline]
fn two(a: Operand, b: Operand) -> Operands {
    Operands::from_buf_and_len([a, b, Operand::Scalar(Scalar::Bool(false))], 2)
}

#[allow(clippy::should_implement_trait, reason = "operators cannot return a Result as field users expect")]
impl AnyTensor {
    /// Computes `-x`. See [`Tensor::neg`](crate::Tensor::neg).
    ///
    /// # Errors
    /// When the dtype is `bool` or an unsigned integer.
    pub fn neg(self) -> Result<AnyTensor> {
        self.unary(Unary::Neg)
    }

    /// Computes the absolute value. See [`Tensor::abs`](crate::Tensor::abs).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    #[inline]
    pub fn abs(self) -> Result<AnyTensor> {
        self.unary(Unary::Abs)
    }

    /// Computes the sign: -1, 0 or 1. See [`Tensor::sign`](crate::Tensor::sign).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    #[inline]
    pub fn sign(self) -> Result<AnyTensor> {
        self.unary(Unary::Sign)
    }

    /// Computes the square, `x * x`. See [`Tensor::square`](crate::Tensor::square).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    pub fn square(self) -> Result<AnyTensor> {
        self.clone().binary(Binary::Mul, self)
    }

    /// Computes the fractional part, with the sign of the element. See [`Tensor::frac`](crate::Tensor::frac).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn frac(self) -> Result<AnyTensor> {
        let whole = self.clone().trunc()?;
        self.binary(Binary::Sub, whole)
    }

    /// Rounds to `decimals` decimal places, ties to even. See
    /// [`Tensor::round_decimals`](crate::Tensor::round_decimals).
    ///
    /// # Errors
    /// When the dtype is not a float.
    #[doc(alias = "round")]
    pub fn round_decimals(self, decimals: i32) -> Result<AnyTensor> {
        let power = libm::pow(10.0, f64::from(decimals.unsigned_abs()));
        let (up, down) = if decimals < 0 { (Binary::Div, Binary::Mul) } else { (Binary::Mul, Binary::Div) };
        self.binary_scalar(up, power)?.round()?.binary_scalar(down, power)
    }

    /// Converts degrees to radians. See [`Tensor::deg2rad`](crate::Tensor::deg2rad).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn deg2rad(self) -> Result<AnyTensor> {
        self.binary_scalar(Binary::Mul, core::f64::consts::PI / 180.0)
    }

    /// Converts radians to degrees. See [`Tensor::rad2deg`](crate::Tensor::rad2deg).
    ///
    /// # Errors
    /// As [`deg2rad`](AnyTensor::deg2rad).
    pub fn rad2deg(self) -> Result<AnyTensor> {
        self.binary_scalar(Binary::Mul, 180.0 / core::f64::consts::PI)
    }

    /// Replaces NaN and the infinities. See [`Tensor::nan_to_num`](crate::Tensor::nan_to_num).
    ///
    /// # Errors
    /// When the tensor is `bool`, or of an integer dtype that does not represent the three numbers.
    pub fn nan_to_num(self, nan: f64, positive: Option<f64>, negative: Option<f64>) -> Result<AnyTensor> {
        let greatest = crate::number::greatest_float(self.dtype());
        let (is_nan, above, below) =
            (self.clone().is_nan()?, self.clone().is_pos_inf()?, self.clone().is_neg_inf()?);
        let x = is_nan.if_else_number(nan, self)?;
        let x = above.if_else_number(positive.unwrap_or(greatest), x)?;
        below.if_else_number(negative.unwrap_or(-greatest), x)
    }
}
