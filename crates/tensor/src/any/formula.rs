//! Expressions of ops over operands that were checked before.

use crate::{AnyTensor, DType, Error, Result};
use alloc::format;
use kiln_ir::{Op, Var};

impl AnyTensor {
    /// Evaluates an expression of ops. The caller has checked the preconditions of the expression.
    pub(crate) fn expression(self, f: impl for<'e> FnOnce(Var<'e>) -> Var<'e>) -> AnyTensor {
        let AnyTensor { stack, value } = self;
        let result = f(Var::new(stack.engine(), value)).into_value();
        AnyTensor { stack, value: result }
    }

    /// Like [`expression`](AnyTensor::expression), with further operands on the same stack.
    pub(crate) fn expression_with<const N: usize>(
        self,
        rest: [AnyTensor; N],
        f: impl for<'e> FnOnce(Var<'e>, [Var<'e>; N]) -> Var<'e>,
    ) -> AnyTensor {
        let AnyTensor { stack, value } = self;
        let engine = stack.engine();
        let rest = rest.map(|any| Var::new(engine, any.value));
        let result = f(Var::new(engine, value), rest).into_value();
        AnyTensor { stack, value: result }
    }

    /// Like [`expression_with`](AnyTensor::expression_with), where the expression computes in at least `f32`.
    pub(crate) fn wide_expression<const N: usize>(
        self,
        rest: [AnyTensor; N],
        f: impl for<'e> FnOnce(Var<'e>, [Var<'e>; N]) -> Var<'e>,
    ) -> AnyTensor {
        self.expression_with(rest, |x, rest| {
            let rest = rest.map(|x| if x.dtype().is_float() { widened(&x) } else { x });
            f(widened(&x), rest)
        })
    }

    /// Returns an error unless the elements are floats.
    pub(crate) fn check_float(&self, op: &str) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(self.wrong(op, "needs floats").hint("cast the tensor first"))
    }

    /// Returns an error unless the elements are integers.
    pub(crate) fn check_int(&self, op: &str) -> Result<()> {
        if self.dtype().is_int() {
            return Ok(());
        }
        Err(self.wrong(op, "needs integers").hint("cast the tensor first"))
    }

    /// Returns an error unless the rank is at least `least`.
    pub(crate) fn check_rank(&self, op: &str, least: usize, axes: &str) -> Result<()> {
        if self.rank() >= least {
            return Ok(());
        }
        let noun = if least == 1 { "axis" } else { "axes" };
        Err(self.wrong(op, format!("needs at least {least} {noun}")).hint(format!("the axes are {axes}")))
    }

    /// Returns an error unless the other tensor is on the same stack, with the same dtype.
    pub(crate) fn check_alike(&self, op: &str, other: &AnyTensor) -> Result<()> {
        self.in_same_domain(op, other)?;
        if self.dtype() == other.dtype() {
            return Ok(());
        }
        Err(self.unlike(op, "dtypes differ", other).hint("cast one of them"))
    }

    /// Returns an error unless the other tensor has the same type and is on the same stack.
    pub(crate) fn check_same(&self, op: &str, other: &AnyTensor) -> Result<()> {
        self.check_alike(op, other)?;
        if self.shape() == other.shape() {
            return Ok(());
        }
        Err(self.unlike(op, "shapes differ", other))
    }

    /// Creates an error of this operand.
    pub(crate) fn wrong(&self, op: &str, problem: impl Into<alloc::string::String>) -> Error {
        Error::type_error(op, problem, &[self.ty().into()])
    }

    /// Creates an error of two operands.
    pub(crate) fn unlike(
        &self,
        op: &str,
        problem: impl Into<alloc::string::String>,
        other: &AnyTensor,
    ) -> Error {
        Error::type_error(op, problem, &[self.ty().into(), other.ty().into()])
    }

    /// Returns the same elements as a function of `x`, of the same type, with gradient 0 instead of no gradient.
    pub(crate) fn with_zero_gradient_of(self, x: AnyTensor) -> Result<AnyTensor> {
        if !self.stack().is_differentiated() {
            return Ok(self);
        }
        let never = AnyTensor::zeros(self.ty().with_dtype(DType::Bool), self.stack())?;
        never.if_else(x, self)
    }

    /// Returns the same elements as a constant in every layer of differentiation.
    pub(crate) fn constant(self) -> AnyTensor {
        if self.dtype().is_float() { self.expression(|x| constant(&x)) } else { self }
    }
}

/// Returns the same elements without gradient in any layer of differentiation, as for reinterpreted bits.
pub(super) fn constant<'e>(x: &Var<'e>) -> Var<'e> {
    let (float, bits) = match x.dtype() {
        DType::F64 => (DType::F64, DType::U64),
        DType::F32 => (DType::F32, DType::U32),
        DType::F16 => (DType::F16, DType::U16),
        DType::BF16 => (DType::BF16, DType::U16),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => return x.clone(),
    };
    x.apply(Op::Bitcast(bits), &[]).apply(Op::Bitcast(float), &[])
}

/// Converts floats to at least `f32`, also below a mixed-precision layer that stores 16 bits.
pub(crate) fn widened<'e>(x: &Var<'e>) -> Var<'e> {
    let dtype = x.dtype().accumulator();
    if dtype == DType::F32 && x.engine().mixes_precision() {
        return x.apply(Op::Cast(dtype), &[]);
    }
    x.cast(dtype)
}

/// Computes `x` where it is not negative, otherwise 0; the gradient at 0 is that of `x`, and NaN stays.
pub(super) fn at_least_zero<'e>(x: &Var<'e>) -> Var<'e> {
    x.less(&x.scalar(0.0)).select(&x.scalar(0.0), x)
}

/// Computes `-|x|`, whose gradient at 0 is that of `-x`.
pub(super) fn minus_abs<'e>(x: &Var<'e>, negative: &Var<'e>) -> Var<'e> {
    negative.select(x, &-x)
}

/// Computes `ln(1 + exp(x))` for every `x`, with all derivatives: selects one of two branches that are smooth at 0.
pub(crate) fn softplus<'e>(x: &Var<'e>) -> Var<'e> {
    let negative = x.less(&x.scalar(0.0));
    let log = minus_abs(x, &negative).exp().log1p();
    negative.select(&x.scalar(0.0), x) + log
}

/// Computes `1 / (1 + exp(-x))`, accurate at both ends; the exponent is never positive.
pub(crate) fn sigmoid<'e>(x: &Var<'e>) -> Var<'e> {
    let negative = x.less(&x.scalar(0.0));
    let e = minus_abs(x, &negative).exp();
    negative.select(&e, &e.scalar(1.0)) / (e + 1.0)
}

/// Computes `ln(sigmoid(x))`.
pub(super) fn log_sigmoid<'e>(x: &Var<'e>) -> Var<'e> {
    let negative = x.less(&x.scalar(0.0));
    let log = minus_abs(x, &negative).exp().log1p();
    negative.select(x, &x.scalar(0.0)) - log
}
