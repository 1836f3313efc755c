//! Elementwise arithmetic. Operands of different dtypes are promoted ([`DType::promote`]); shapes broadcast.

use crate::special::{CLAMP_MAX, CLAMP_MIN, HYPOT, LOGADDEXP, LOGADDEXP2, XLOG1PY, XLOGY};
use crate::{AnyTensor, DType, Number, Result, Scalar};
use kiln_ir::{Binary, Comparison, Var};

macro_rules! pairs {
    ($($method:ident $with_number:ident $function:ident;)*) => {
        #[allow(
            clippy::should_implement_trait,
            reason = "operators cannot return a Result as field users expect"
        )]
        impl AnyTensor {$(
            #[doc = concat!("See [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
            ///
            /// # Errors
            /// When the shapes do not broadcast, or both tensors are `bool`.
            #[inline]
            pub fn $method(self, other: AnyTensor) -> Result<AnyTensor> {
                self.binary(Binary::$function, other)
            }

            #[doc = concat!("[`", stringify!($method), "`](AnyTensor::", stringify!($method), ") with a number.")]
            ///
            /// A float scalar promotes an integer tensor, and any scalar a `bool` tensor, to the default dtype of the
            /// scalar's kind.
            ///
            /// # Errors
            /// When the number is a `bool`, or an integer out of range of the tensor's dtype.
            #[inline]
            pub fn $with_number(self, x: impl Number) -> Result<AnyTensor> {
                self.promoted_for(x)?.binary_scalar(Binary::$function, x)
            }
        )*}
    };
}

pairs! {
    add add_scalar Add;
    sub sub_scalar Sub;
    mul mul_scalar Mul;
    div div_scalar Div;
    fmod fmod_scalar Rem;
    pow pow_scalar Pow;
}

impl AnyTensor {
    /// Promotes the tensor to a dtype that represents the scalar.
    pub(crate) fn promoted_for(self, x: impl Number) -> Result<AnyTensor> {
        let (dtype, stack) = (self.dtype(), self.stack().clone());
        match x.scalar() {
            Scalar::Float(_) if !dtype.is_float() => self.cast(stack.float_dtype()),
            Scalar::Int(_) | Scalar::UInt(_) if dtype.is_bool() => self.cast(stack.int_dtype()),
            Scalar::Float(_) | Scalar::Int(_) | Scalar::UInt(_) | Scalar::Bool(_) => Ok(self),
        }
    }

    /// Computes the elementwise minimum. See [`Tensor::minimum`](crate::Tensor::minimum).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or both tensors are `bool`.
    pub fn minimum(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Min, other)
    }

    /// Computes the elementwise maximum. See [`Tensor::maximum`](crate::Tensor::maximum).
    ///
    /// # Errors
    /// As [`minimum`](AnyTensor::minimum).
    pub fn maximum(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Max, other)
    }

    /// Clamps elements from below to `low`. See [`Tensor::clamp_min`](crate::Tensor::clamp_min). A float scalar
    /// promotes an integer tensor, and any scalar a `bool` tensor, to the default dtype of the scalar's kind.
    ///
    /// # Errors
    /// As [`add_scalar`](AnyTensor::add_scalar).
    pub fn clamp_min(self, low: impl Number) -> Result<AnyTensor> {
        self.promoted_for(low)?.at_least(low)
    }

    /// Clamps elements from above to `high`. See [`Tensor::clamp_max`](crate::Tensor::clamp_max). A float scalar
    /// promotes an integer tensor, and any scalar a `bool` tensor, to the default dtype of the scalar's kind.
    ///
    /// # Errors
    /// As [`clamp_min`](AnyTensor::clamp_min).
    pub fn clamp_max(self, high: impl Number) -> Result<AnyTensor> {
        self.promoted_for(high)?.at_most(high)
    }

    /// [`clamp_min`](AnyTensor::clamp_min) in the tensor's own dtype.
    pub(crate) fn at_least(self, low: impl Number) -> Result<AnyTensor> {
        if self.dtype().is_float() {
            self.bound(&CLAMP_MIN, low)
        } else {
            self.binary_scalar(Binary::Max, low)
        }
    }

    /// [`clamp_max`](AnyTensor::clamp_max) in the tensor's own dtype.
    pub(crate) fn at_most(self, high: impl Number) -> Result<AnyTensor> {
        if self.dtype().is_float() {
            self.bound(&CLAMP_MAX, high)
        } else {
            self.binary_scalar(Binary::Min, high)
        }
    }

    /// Creates a rank-0 tensor of this tensor's dtype on its stack.
    fn number_beside(&self, x: impl Number) -> Result<AnyTensor> {
        AnyTensor::full(kiln_ir::TensorType::new([], self.dtype()), x, self.stack())
    }

    /// Computes the remainder with the sign of the divisor, as Python's `%`. See
    /// [`Tensor::remainder`](crate::Tensor::remainder).
    ///
    /// # Errors
    /// As [`div`](AnyTensor::div).
    pub fn remainder(self, divisor: AnyTensor) -> Result<AnyTensor> {
        let (rest, adjust) = self.truncated_rest(&divisor)?;
        adjust.if_else(rest.clone().add(divisor)?, rest)
    }

    /// Computes the `remainder` by a scalar. See [`Tensor::remainder_scalar`](crate::Tensor::remainder_scalar).
    ///
    /// # Errors
    /// As [`div_scalar`](AnyTensor::div_scalar).
    pub fn remainder_scalar(self, divisor: impl Number) -> Result<AnyTensor> {
        let x = self.promoted_for(divisor)?;
        let divisor = x.number_beside(divisor)?;
        x.remainder(divisor)
    }

    /// Returns the remainder of the truncated division, and where its sign is not the divisor's.
    fn truncated_rest(self, divisor: &AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
        let (x, divisor) = AnyTensor::promoted("remainder", self, divisor.clone())?;
        let rest = x.fmod(divisor.clone())?;
        let negative = |x: AnyTensor| x.compare_scalar(Comparison::Lt, 0);
        let differ = negative(rest.clone())?.binary(Binary::Xor, negative(divisor)?)?;
        let adjust = rest.clone().compare_scalar(Comparison::Ne, 0)?.binary(Binary::And, differ)?;
        Ok((rest, adjust))
    }

    /// Computes the quotient rounded down. See [`Tensor::floor_divide`](crate::Tensor::floor_divide).
    ///
    /// # Errors
    /// As [`div`](AnyTensor::div).
    #[doc(alias = "floor_div")]
    pub fn floor_divide(self, divisor: AnyTensor) -> Result<AnyTensor> {
        let (x, divisor) = AnyTensor::promoted("floor_divide", self, divisor)?;
        let (rest, adjust) = x.clone().truncated_rest(&divisor)?;
        if !x.dtype().is_float() {
            let whole = x.div(divisor)?;
            return adjust.if_else(whole.clone().sub_scalar(1)?, whole);
        }
        // `x - rest` is a multiple of the divisor, up to rounding.
        let whole = x.clone().sub(rest)?.div(divisor.clone())?.round()?;
        let whole = adjust.if_else(whole.clone().sub_scalar(1.0)?, whole)?;
        let by_zero = divisor.clone().compare_scalar(Comparison::Eq, 0)?;
        by_zero.if_else(x.div(divisor)?, whole)
    }

    /// Computes `floor_divide` by a scalar. See [`Tensor::floor_divide_scalar`](crate::Tensor::floor_divide_scalar).
    ///
    /// # Errors
    /// As [`div_scalar`](AnyTensor::div_scalar).
    pub fn floor_divide_scalar(self, divisor: impl Number) -> Result<AnyTensor> {
        let x = self.promoted_for(divisor)?;
        let divisor = x.number_beside(divisor)?;
        x.floor_divide(divisor)
    }

    /// Computes the quotient rounded towards zero. See [`Tensor::trunc_divide`](crate::Tensor::trunc_divide).
    ///
    /// # Errors
    /// As [`div`](AnyTensor::div).
    #[doc(alias = "div")]
    pub fn trunc_divide(self, divisor: AnyTensor) -> Result<AnyTensor> {
        let quotient = self.div(divisor)?;
        if quotient.dtype().is_float() { quotient.trunc() } else { Ok(quotient) }
    }

    /// Computes `trunc_divide` by a scalar. See [`Tensor::trunc_divide_scalar`](crate::Tensor::trunc_divide_scalar).
    ///
    /// # Errors
    /// As [`div_scalar`](AnyTensor::div_scalar).
    pub fn trunc_divide_scalar(self, divisor: impl Number) -> Result<AnyTensor> {
        let quotient = self.div_scalar(divisor)?;
        if quotient.dtype().is_float() { quotient.trunc() } else { Ok(quotient) }
    }

    /// Raises each element to the power of an exponent tensor. See [`Tensor::powf`](crate::Tensor::powf).
    ///
    /// # Errors
    /// As [`pow`](AnyTensor::pow).
    #[doc(alias = "pow")]
    pub fn powf(self, exponent: AnyTensor) -> Result<AnyTensor> {
        self.pow(exponent)
    }

    /// Raises each element to the power of a scalar. See [`Tensor::powf_scalar`](crate::Tensor::powf_scalar).
    ///
    /// # Errors
    /// When the tensor is `bool` and the exponent 2.
    #[doc(alias = "pow")]
    #[doc(alias = "power")]
    pub fn powf_scalar(self, exponent: f64) -> Result<AnyTensor> {
        if exponent == 2.0 { self.square() } else { self.pow_scalar(exponent) }
    }

    /// Raises each element to the power of an integer tensor. See [`Tensor::powi`](crate::Tensor::powi).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the tensor is `bool`.
    pub fn powi(self, exponent: AnyTensor) -> Result<AnyTensor> {
        let dtype = self.dtype();
        self.pow(exponent.cast(dtype)?)
    }

    /// Raises each element to an integer power. See [`Tensor::powi_scalar`](crate::Tensor::powi_scalar).
    ///
    /// # Errors
    /// When the exponent is out of range of the integer dtype, or the tensor is `bool` and the exponent not 1.
    pub fn powi_scalar(self, exponent: i32) -> Result<AnyTensor> {
        match exponent {
            1 => Ok(self),
            2 => self.square(),
            _ => self.binary_scalar(Binary::Pow, exponent),
        }
    }

    /// Raises each element to the power of an exponent tensor, in `f64`. See
    /// [`Tensor::float_power`](crate::Tensor::float_power).
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    pub fn float_power(self, exponent: AnyTensor) -> Result<AnyTensor> {
        self.cast(DType::F64)?.pow(exponent.cast(DType::F64)?)
    }

    /// Alias of `minimum`, the elementwise minimum of two tensors. See [`Tensor::min_pair`](crate::Tensor::min_pair).
    ///
    /// # Errors
    /// As [`minimum`](AnyTensor::minimum).
    #[doc(alias = "minimum")]
    pub fn min_pair(self, other: AnyTensor) -> Result<AnyTensor> {
        self.minimum(other)
    }

    /// Alias of `maximum`, the elementwise maximum of two tensors. See [`Tensor::max_pair`](crate::Tensor::max_pair).
    ///
    /// # Errors
    /// As [`minimum`](AnyTensor::minimum).
    #[doc(alias = "maximum")]
    pub fn max_pair(self, other: AnyTensor) -> Result<AnyTensor> {
        self.maximum(other)
    }

    /// Computes the elementwise minimum, ignoring NaN. See [`Tensor::fmin`](crate::Tensor::fmin).
    ///
    /// # Errors
    /// As [`minimum`](AnyTensor::minimum).
    pub fn fmin(self, other: AnyTensor) -> Result<AnyTensor> {
        self.of_numbers(Binary::Min, other)
    }

    /// Computes the elementwise maximum, ignoring NaN. See [`Tensor::fmax`](crate::Tensor::fmax).
    ///
    /// # Errors
    /// As [`minimum`](AnyTensor::minimum).
    pub fn fmax(self, other: AnyTensor) -> Result<AnyTensor> {
        self.of_numbers(Binary::Max, other)
    }

    /// Computes the minimum or maximum of two elements, of equal ones the first; where one is NaN, the other.
    fn of_numbers(self, function: Binary, other: AnyTensor) -> Result<AnyTensor> {
        let (a, b) = AnyTensor::promoted(function.name(), self, other)?;
        if !a.dtype().is_float() {
            return a.binary(function, b);
        }
        let (low, high) = if function == Binary::Max { (&b, &a) } else { (&a, &b) };
        let is_ordered = low.clone().compare(Comparison::Le, high.clone())?;
        is_ordered.binary(Binary::Or, b.clone().is_nan()?)?.if_else(a, b)
    }

    /// Clamps elements to `[low, high]`. See [`Tensor::clamp`](crate::Tensor::clamp).
    ///
    /// # Errors
    /// As [`clamp_min`](AnyTensor::clamp_min).
    #[doc(alias = "clip")]
    pub fn clamp(self, low: impl Number, high: impl Number) -> Result<AnyTensor> {
        let clamped = self.clamp_min(low).and_then(|x| x.clamp_max(high));
        clamped.map_err(|error| error.in_op("clamp"))
    }

    /// Interpolates linearly from `self` (weight 0) to `end` (weight 1), exact at both ends. See
    /// [`Tensor::lerp`](crate::Tensor::lerp).
    ///
    /// # Errors
    /// When the shapes do not broadcast, the weights are not floats, or both ends are `bool`.
    pub fn lerp(self, end: AnyTensor, weight: AnyTensor) -> Result<AnyTensor> {
        let span = end.clone().sub(self.clone())?;
        let from_start = self.add(span.clone().mul(weight.clone())?)?;
        let rest = weight.clone().scalar_binary(1, Binary::Sub)?;
        let from_end = end.sub(span.mul(rest)?)?;
        weight.compare_scalar(Comparison::Lt, 0.5)?.if_else(from_start, from_end)
    }

    /// Computes `lerp` with a scalar weight. See [`Tensor::lerp_scalar`](crate::Tensor::lerp_scalar).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or both ends are `bool`.
    pub fn lerp_scalar(self, end: AnyTensor, weight: f64) -> Result<AnyTensor> {
        let span = end.clone().sub(self.clone())?;
        if weight < 0.5 {
            self.add(span.mul_scalar(weight)?)
        } else {
            end.sub(span.mul_scalar(1.0 - weight)?)
        }
    }

    /// Computes `self + factor * a * b`. See [`Tensor::addcmul`](crate::Tensor::addcmul).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or `a` and `b` are `bool`.
    pub fn addcmul(self, a: AnyTensor, b: AnyTensor, factor: f64) -> Result<AnyTensor> {
        self.add(a.mul(b)?.mul_scalar(factor)?)
    }

    /// Computes `self + factor * a / b`. See [`Tensor::addcdiv`](crate::Tensor::addcdiv).
    ///
    /// # Errors
    /// As [`addcmul`](AnyTensor::addcmul).
    pub fn addcdiv(self, a: AnyTensor, b: AnyTensor, factor: f64) -> Result<AnyTensor> {
        self.add(a.div(b)?.mul_scalar(factor)?)
    }

    /// Computes the angle of the point `(other, self)` from the x axis, in radians from -π to π. See
    /// [`Tensor::atan2`](crate::Tensor::atan2).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or neither dtype is a float.
    #[doc(alias = "arctan2")]
    pub fn atan2(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Atan2, other)
    }

    /// Computes `sqrt(self² + other²)` without intermediate overflow. See [`Tensor::hypot`](crate::Tensor::hypot).
    ///
    /// # Errors
    /// As [`atan2`](AnyTensor::atan2).
    pub fn hypot(self, other: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&HYPOT, other)
    }

    /// Computes `ln(e^self + e^other)` without overflow. See [`Tensor::logaddexp`](crate::Tensor::logaddexp).
    ///
    /// # Errors
    /// As [`atan2`](AnyTensor::atan2).
    pub fn logaddexp(self, other: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&LOGADDEXP, other)
    }

    /// Computes `log₂(2^self + 2^other)` without overflow. See [`Tensor::logaddexp2`](crate::Tensor::logaddexp2).
    ///
    /// # Errors
    /// As [`atan2`](AnyTensor::atan2).
    pub fn logaddexp2(self, other: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&LOGADDEXP2, other)
    }

    /// Computes `self * ln(other)`, or 0 where `self` is 0 and `other` is not NaN. See
    /// [`Tensor::xlogy`](crate::Tensor::xlogy).
    ///
    /// # Errors
    /// As [`atan2`](AnyTensor::atan2).
    pub fn xlogy(self, other: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&XLOGY, other)
    }

    /// Computes `self * ln(1 + other)`, or 0 where `self` is 0 and `other` is not NaN. See
    /// [`Tensor::xlog1py`](crate::Tensor::xlog1py).
    ///
    /// # Errors
    /// As [`atan2`](AnyTensor::atan2).
    pub fn xlog1py(self, other: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&XLOG1PY, other)
    }

    /// Computes the Heaviside step function. See [`Tensor::heaviside`](crate::Tensor::heaviside).
    ///
    /// # Errors
    /// As [`minimum`](AnyTensor::minimum).
    pub fn heaviside(self, at_zero: AnyTensor) -> Result<AnyTensor> {
        let (x, at_zero) = AnyTensor::promoted("heaviside", self, at_zero)?;
        let dtype = x.dtype();
        let step = x.clone().scalar_compare(0, Comparison::Lt)?.cast(dtype)?;
        let step = if dtype.is_float() { x.clone().is_nan()?.if_else(x.clone(), step)? } else { step };
        x.compare_scalar(Comparison::Eq, 0)?.if_else(at_zero, step)
    }

    /// Returns the magnitude of `self` with the sign bit of `sign`, also for zeros. See
    /// [`Tensor::copysign`](crate::Tensor::copysign).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the promoted dtype is `bool` or an unsigned integer.
    pub fn copysign(self, sign: AnyTensor) -> Result<AnyTensor> {
        let (x, sign) = AnyTensor::promoted("copysign", self, sign)?;
        let magnitude = x.abs()?;
        sign.signbit()?.if_else(magnitude.clone().neg()?, magnitude)
    }

    /// Returns `true` where the sign bit is set. See [`Tensor::signbit`](crate::Tensor::signbit).
    ///
    /// # Errors
    /// When the tensor is `bool`.
    pub fn signbit(self) -> Result<AnyTensor> {
        let x = if self.dtype().is_float() { self.expression(|x| crate::special::bits(&x)) } else { self };
        x.compare_scalar(Comparison::Lt, 0)
    }

    /// Returns the next representable float after `self` in the direction of `towards`. See
    /// [`Tensor::nextafter`](crate::Tensor::nextafter).
    ///
    /// # Errors
    /// When the dtype is not a float, or the shapes do not broadcast.
    pub fn nextafter(self, towards: AnyTensor) -> Result<AnyTensor> {
        self.require_float("nextafter")?;
        let op = kiln_ir::Op::Binary(Binary::Atan2);
        let (x, towards) = AnyTensor::matched(&op, self, towards)?;
        x.in_same_domain("nextafter", &towards)?;
        Ok(x.expression_with([towards], |x, [towards]| crate::special::nextafter(&x, &towards)))
    }

    /// Decomposes each element into mantissa `m` and exponent `e` with `self = m 2^e` and `½ <= |m| < 1`. See
    /// [`Tensor::frexp`](crate::Tensor::frexp).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn frexp(self) -> Result<(AnyTensor, AnyTensor)> {
        self.require_float("frexp")?;
        let exponent =
            self.clone().expression(|x| crate::special::exponent(&x)).cast(self.stack().int_dtype())?;
        Ok((self.ldexp(exponent.clone().neg()?)?, exponent))
    }

    /// Computes `self * 2^exponent`, the inverse of `frexp`. See [`Tensor::ldexp`](crate::Tensor::ldexp).
    ///
    /// # Errors
    /// When the dtype is not a float, or the shapes do not broadcast.
    pub fn ldexp(self, exponent: AnyTensor) -> Result<AnyTensor> {
        self.require_float("ldexp")?;
        let dtype = self.dtype();
        let wide = dtype.accumulator();
        let mut x = self.cast(wide)?;
        for factor in exponent.cast(wide)?.formulas(crate::special::powers_of_two) {
            x = x.mul(factor)?;
        }
        x.cast(dtype)
    }

    /// Computes the greatest common divisor, never negative. See [`Tensor::gcd`](crate::Tensor::gcd).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or a tensor is `bool`.
    pub fn gcd(self, other: AnyTensor) -> Result<AnyTensor> {
        let (mut a, mut b) = AnyTensor::promoted("gcd", self.abs()?, other.abs()?)?;
        // For adjacent Fibonacci numbers Euclid's algorithm needs the most steps: 1.45 per bit.
        let steps = a.dtype().size() * 12 + 1;
        for _ in 0..steps {
            let rest = a.clone().fmod(b.clone())?;
            let done = b.clone().compare_scalar(Comparison::Eq, 0)?;
            (a, b) = (done.if_else(a, b)?, rest);
        }
        // The magnitude of the most negative integer is negative, and so may be remainders of it.
        a.abs()
    }

    /// Computes the least common multiple. See [`Tensor::lcm`](crate::Tensor::lcm).
    ///
    /// # Errors
    /// As [`gcd`](AnyTensor::gcd).
    pub fn lcm(self, other: AnyTensor) -> Result<AnyTensor> {
        let (a, b) = (self.abs()?, other.abs()?);
        let divisor = a.clone().gcd(b.clone())?;
        a.div(divisor)?.mul(b)
    }

    /// Evaluates an expression with several results.
    pub(crate) fn formulas<const N: usize>(
        self,
        f: impl for<'e> FnOnce(&Var<'e>) -> [Var<'e>; N],
    ) -> [AnyTensor; N] {
        let stack = self.stack().clone();
        f(&Var::new(stack.engine(), self.into_value()))
            .map(|value| AnyTensor::new(stack.clone(), value.into_value()))
    }

    pub(crate) fn require_float(&self, op: &str) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(kiln_ir::Error::type_error(op, "needs a float dtype", &[self.ty().into()])
            .hint("cast the tensor to a float dtype first"))
    }
}
