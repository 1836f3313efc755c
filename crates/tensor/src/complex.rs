//! Complex tensors.

use crate::tensor::ok;
use crate::{AnyComplex, Backend, Tensor};
use core::ops::{Add, Div, Mul, Neg, Sub};

/// A complex tensor of rank `D`: a pair of real tensors, the real and imaginary parts.
///
/// Kiln has no complex dtype: engines, layers and file formats handle the parts as floats, and gradients are those of
/// the parts. [`fft`](crate::fft) and [`signal`](crate::signal) use this type. A multiplication is four real
/// multiplications, and a matmul is four real matmuls.
///
/// The gradient of a real function of `z` is the pair of its derivatives by real and imaginary part: PyTorch's
/// conjugate Wirtinger gradient.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let real = |x: [f32; 2]| Tensor::<Flex, 1>::from_floats(x, &Default::default());
/// let z = Complex::new(real([3.0, 0.0]), real([4.0, 1.0]));
/// assert_eq!(z.clone().abs().into_data().to_vec::<f32>(), [5.0, 1.0]);
/// let square = z.clone() * z;
/// assert_eq!(square.re().into_data().to_vec::<f32>(), [-7.0, -1.0]);
/// assert_eq!(square.im().into_data().to_vec::<f32>(), [24.0, 0.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Complex<B: Backend, const D: usize> {
    re: Tensor<B, D>,
    im: Tensor<B, D>,
}

impl<B: Backend, const D: usize> Complex<B, D> {
    /// Creates a complex tensor from its real and imaginary parts.
    ///
    /// # Panics
    /// When the parts differ in shape, dtype or device.
    #[track_caller]
    pub fn new(re: Tensor<B, D>, im: Tensor<B, D>) -> Self {
        Complex::from_any(ok(AnyComplex::new(re.into_any(), im.into_any())))
    }

    /// Creates a complex tensor with imaginary parts 0.
    #[track_caller]
    pub fn from_real(re: Tensor<B, D>) -> Self {
        Complex::from_any(ok(AnyComplex::from_real(re.into_any())))
    }

    /// Creates a complex tensor from absolute values and angles in radians.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.polar.html>
    #[track_caller]
    pub fn from_polar(abs: Tensor<B, D>, angle: Tensor<B, D>) -> Self {
        Complex::from_any(ok(AnyComplex::from_polar(abs.into_any(), angle.into_any())))
    }

    /// Converts a tensor whose last axis holds real and imaginary part, `[.., 2]`; `D2` is `D + 1`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Complex, Tensor};
    ///
    /// let pairs = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// let z: Complex<Flex, 1> = Complex::from_interleaved(pairs);
    /// assert_eq!(z.im().into_data().to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When the length of the last axis is not 2, or `D2` is not `D + 1`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.view_as_complex.html>
    #[track_caller]
    pub fn from_interleaved<const D2: usize>(pairs: Tensor<B, D2>) -> Self {
        Complex::from_any(ok(AnyComplex::from_interleaved(pairs.into_any())))
    }

    /// Converts to a tensor with real and imaginary part along a new last axis, `[.., 2]`; `D2` is `D + 1`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.view_as_real.html>
    #[track_caller]
    pub fn into_interleaved<const D2: usize>(self) -> Tensor<B, D2> {
        Tensor::from_any(ok(self.into_any().into_interleaved()))
    }

    /// Converts an [`AnyComplex`] to a typed complex tensor.
    ///
    /// # Panics
    /// When the ranks differ.
    #[track_caller]
    pub fn from_any(any: AnyComplex) -> Self {
        let (re, im) = any.into_parts();
        Complex { re: Tensor::from_any(re), im: Tensor::from_any(im) }
    }

    /// Converts to an [`AnyComplex`], whose rank is known at run time.
    #[track_caller]
    pub fn into_any(self) -> AnyComplex {
        ok(AnyComplex::new(self.re.into_any(), self.im.into_any()))
    }

    /// Returns the real parts.
    pub fn re(&self) -> Tensor<B, D> {
        self.re.clone()
    }

    /// Returns the imaginary parts.
    pub fn im(&self) -> Tensor<B, D> {
        self.im.clone()
    }

    /// Returns the real and imaginary parts.
    pub fn into_parts(self) -> (Tensor<B, D>, Tensor<B, D>) {
        (self.re, self.im)
    }

    /// Returns the lengths of the axes.
    pub fn dims(&self) -> [usize; D] {
        self.re.dims()
    }

    /// Applies a function to both parts. The function must be linear or only move elements (`reshape`, `slice`,
    /// `permute`, `cat`).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Complex, Tensor};
    ///
    /// let z = Complex::from_real(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
    /// let flat: Complex<Flex, 1> = z.each(|part| part.reshape([6]));
    /// assert_eq!(flat.dims(), [6]);
    /// ```
    #[track_caller]
    pub fn each<const D2: usize>(self, f: impl Fn(Tensor<B, D>) -> Tensor<B, D2>) -> Complex<B, D2> {
        Complex { re: f(self.re), im: f(self.im) }
    }

    /// Returns the complex conjugate: the imaginary parts are negated.
    #[track_caller]
    pub fn conj(self) -> Self {
        Complex::from_any(ok(self.into_any().conj()))
    }

    /// Computes the absolute value `√(re² + im²)`, without overflow. The gradient at 0 is 0.
    #[track_caller]
    pub fn abs(self) -> Tensor<B, D> {
        Tensor::from_any(ok(self.into_any().abs()))
    }

    /// Computes the angle to the positive real axis in radians, from -π to π; 0 at 0.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.angle.html>
    #[track_caller]
    pub fn angle(self) -> Tensor<B, D> {
        Tensor::from_any(ok(self.into_any().angle()))
    }

    /// Computes `e^self`.
    #[track_caller]
    pub fn exp(self) -> Self {
        Complex::from_any(ok(self.into_any().exp()))
    }

    /// Multiplies by a real scalar.
    #[track_caller]
    pub fn mul_scalar(self, x: f64) -> Self {
        Complex::from_any(ok(self.into_any().mul_scalar(x)))
    }

    /// Computes complex matmuls over the last two axes; the batch axes broadcast.
    ///
    /// # Panics
    /// When inner or batch sizes differ, or with fewer than two axes.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Complex, Tensor};
    ///
    /// let one = Tensor::<Flex, 2>::ones([1, 1], &Default::default());
    /// let i = Complex::new(one.zeros_like(), one);
    /// assert_eq!(i.clone().matmul(i).re().into_data().to_vec::<f32>(), [-1.0]);
    /// ```
    #[track_caller]
    pub fn matmul(self, other: Self) -> Self {
        Complex::from_any(ok(self.into_any().matmul(other.into_any())))
    }
}

macro_rules! operators {
    ($($(#[$doc:meta])* $operator:ident $method:ident;)*) => {$(
        impl<B: Backend, const D: usize> $operator for Complex<B, D> {
            type Output = Self;

            $(#[$doc])*
            #[track_caller]
            fn $method(self, other: Self) -> Self {
                Complex::from_any(ok(self.into_any().$method(other.into_any())))
            }
        }
    )*};
}

operators! {
    /// Adds element by element; broadcasts.
    Add add;
    /// Subtracts element by element; broadcasts.
    Sub sub;
    /// Multiplies element by element; broadcasts.
    Mul mul;
    /// Divides element by element; broadcasts. Division by 0 returns NaN.
    Div div;
}

impl<B: Backend, const D: usize> Neg for Complex<B, D> {
    type Output = Self;

    #[track_caller]
    fn neg(self) -> Self {
        self.mul_scalar(-1.0)
    }
}
