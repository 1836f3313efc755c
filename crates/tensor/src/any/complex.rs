//! Complex tensors of any rank: pairs of real tensors.

use crate::{AnyTensor, Error, Result, Shape};
use kiln_ir::{Binary, SliceAxis, Unary};

/// A complex tensor whose rank is known at run time: real and imaginary parts of one shape and float dtype.
///
/// See [`Complex`](crate::Complex), the typed wrapper.
#[derive(Clone, Debug)]
pub struct AnyComplex {
    re: AnyTensor,
    im: AnyTensor,
}

#[allow(clippy::should_implement_trait, reason = "operators cannot return a Result as field users expect")]
impl AnyComplex {
    /// Creates a complex tensor from its real and imaginary parts.
    ///
    /// # Errors
    /// When the parts differ in shape, dtype or device, or are not floats.
    pub fn new(re: AnyTensor, im: AnyTensor) -> Result<AnyComplex> {
        re.in_same_domain("complex", &im)?;
        if re.ty() != im.ty() || !re.dtype().is_float() {
            let problem = "parts must be floats of one shape and dtype";
            return Err(Error::type_error("complex", problem, &[re.ty().into(), im.ty().into()])
                .hint("`zeros_like` creates the imaginary part of real numbers"));
        }
        Ok(AnyComplex { re, im })
    }

    /// Creates a complex tensor with imaginary parts 0.
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn from_real(re: AnyTensor) -> Result<AnyComplex> {
        let im = AnyTensor::zeros(*re.ty(), re.stack())?;
        AnyComplex::new(re, im)
    }

    /// Creates a complex tensor from absolute values and angles in radians.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or the angles are not floats.
    pub fn from_polar(abs: AnyTensor, angle: AnyTensor) -> Result<AnyComplex> {
        let re = abs.clone().binary(Binary::Mul, angle.clone().unary(Unary::Cos)?)?;
        AnyComplex::new(re, abs.binary(Binary::Mul, angle.unary(Unary::Sin)?)?)
    }

    /// Converts a tensor whose last axis holds real and imaginary part, `[.., 2]`.
    ///
    /// # Errors
    /// When the last axis does not have length 2, or the dtype is not a float.
    pub fn from_interleaved(x: AnyTensor) -> Result<AnyComplex> {
        let last = x.rank().wrapping_sub(1);
        if x.shape().last() != Some(&2) {
            let problem = "the last axis must have length 2: real and imaginary part";
            return Err(Error::type_error("from_interleaved", problem, &[x.ty().into()])
                .hint("`Complex::new` accepts the parts as two tensors"));
        }
        let shape = x.shape().without(last);
        let part = |start| x.clone().slice_axis(last, SliceAxis { start, len: 1, step: 1 })?.reshape(shape);
        AnyComplex::new(part(0)?, part(1)?)
    }

    /// Converts to a tensor with real and imaginary part along a new last axis, `[.., 2]`.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn into_interleaved(self) -> Result<AnyTensor> {
        let rank = self.re.rank();
        let shape = self.re.shape().inserted(rank, 1);
        AnyTensor::cat([self.re.reshape(shape)?, self.im.reshape(shape)?].into(), rank)
    }

    /// Returns the real parts.
    pub fn re(&self) -> &AnyTensor {
        &self.re
    }

    /// Returns the imaginary parts.
    pub fn im(&self) -> &AnyTensor {
        &self.im
    }

    /// Returns the real and imaginary parts.
    pub fn into_parts(self) -> (AnyTensor, AnyTensor) {
        (self.re, self.im)
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        self.re.shape()
    }

    /// Applies a function to both parts.
    ///
    /// # Errors
    /// Those of `f`, and when its results are not of one shape and float dtype.
    pub fn each(self, f: impl Fn(AnyTensor) -> Result<AnyTensor>) -> Result<AnyComplex> {
        AnyComplex::new(f(self.re)?, f(self.im)?)
    }

    /// Computes `self + other`; broadcasts.
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    pub fn add(self, other: AnyComplex) -> Result<AnyComplex> {
        AnyComplex::new(self.re.binary(Binary::Add, other.re)?, self.im.binary(Binary::Add, other.im)?)
    }

    /// Computes `self - other`; broadcasts.
    ///
    /// # Errors
    /// As [`add`](AnyComplex::add).
    pub fn sub(self, other: AnyComplex) -> Result<AnyComplex> {
        AnyComplex::new(self.re.binary(Binary::Sub, other.re)?, self.im.binary(Binary::Sub, other.im)?)
    }

    /// Computes `self * other`, element by element; broadcasts.
    ///
    /// # Errors
    /// As [`add`](AnyComplex::add).
    pub fn mul(self, other: AnyComplex) -> Result<AnyComplex> {
        bilinear(self, other, |a, b| a.binary(Binary::Mul, b))
    }

    /// Computes `self / other`, element by element; broadcasts. The divisor is scaled to parts of at most 1 first, so
    /// that squares neither overflow nor underflow.
    ///
    /// # Errors
    /// As [`add`](AnyComplex::add).
    pub fn div(self, other: AnyComplex) -> Result<AnyComplex> {
        // The scale cancels, so gradients ignore it.
        let size = |part: &AnyTensor| part.clone().detach().unary(Unary::Abs);
        let scale = size(&other.re)?.binary(Binary::Max, size(&other.im)?)?;
        let divisor = other.each(|part| part.binary_with(Binary::Div, &scale))?;
        let square = |part: &AnyTensor| part.clone().binary_with(Binary::Mul, part);
        let squares = square(&divisor.re)?.binary(Binary::Add, square(&divisor.im)?)?;
        let product = self.mul(divisor.conj()?)?;
        product.each(|part| part.binary_with(Binary::Div, &squares)?.binary_with(Binary::Div, &scale))
    }

    /// Multiplies by a real scalar.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn mul_scalar(self, x: f64) -> Result<AnyComplex> {
        self.each(|part| part.binary_scalar(Binary::Mul, x))
    }

    /// Returns the complex conjugate: the imaginary parts are negated.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn conj(self) -> Result<AnyComplex> {
        AnyComplex::new(self.re, self.im.unary(Unary::Neg)?)
    }

    /// Computes the absolute value `√(re² + im²)`, without overflow. The gradient at 0 is 0.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn abs(self) -> Result<AnyTensor> {
        let size = |part: &AnyTensor| part.clone().detach().unary(Unary::Abs);
        let largest = size(&self.re)?.binary(Binary::Max, size(&self.im)?)?;
        // If both parts are 0 or one is infinite, they do not change.
        let plain = largest.clone().compare_scalar(kiln_ir::Comparison::Eq, 0.0)?;
        let infinite = largest.clone().compare_scalar(kiln_ir::Comparison::Eq, f64::INFINITY)?;
        let scale = plain.clone().if_else_number(1.0, infinite.clone().if_else_number(1.0, largest)?)?;
        let square = |part: AnyTensor| {
            let part = part.binary_with(Binary::Div, &scale)?;
            part.clone().binary(Binary::Mul, part)
        };
        let squares = square(self.re)?.binary(Binary::Add, square(self.im)?)?;
        let inside = plain.clone().if_else_number(1.0, squares)?;
        let root = inside.unary(Unary::Sqrt)?.binary(Binary::Mul, scale)?;
        plain.if_else_number(0.0, root)
    }

    /// Computes the angle to the positive real axis in radians, from -π to π; 0 at 0.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn angle(self) -> Result<AnyTensor> {
        self.im.binary(Binary::Atan2, self.re)
    }

    /// Computes `e^self`.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn exp(self) -> Result<AnyComplex> {
        AnyComplex::from_polar(self.re.unary(Unary::Exp)?, self.im)
    }

    /// Computes complex matmuls over the last two axes; the batch axes broadcast.
    ///
    /// # Errors
    /// As [`AnyTensor::matmul`].
    pub fn matmul(self, other: AnyComplex) -> Result<AnyComplex> {
        bilinear(self, other, AnyTensor::matmul)
    }
}

/// Computes `(a + bi)(c + di) = (ac - bd) + (ad + bc)i` for a product of real tensors.
fn bilinear(
    x: AnyComplex,
    y: AnyComplex,
    product: impl Fn(AnyTensor, AnyTensor) -> Result<AnyTensor>,
) -> Result<AnyComplex> {
    let AnyComplex { re: a, im: b } = x;
    let AnyComplex { re: c, im: d } = y;
    let re = product(a.clone(), c.clone())?.binary(Binary::Sub, product(b.clone(), d.clone())?)?;
    AnyComplex::new(re, product(a, d)?.binary(Binary::Add, product(b, c)?)?)
}
