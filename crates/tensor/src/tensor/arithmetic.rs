//! Elementwise arithmetic on floats and integers.

use crate::tensor::forward::forward;
use crate::{Backend, Float, Int, Number, Numeric, Tensor};

#[allow(
    clippy::should_implement_trait,
    reason = "the operators are implemented too; chains of methods read better"
)]
impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Computes `self + other`; broadcasts.
    #[track_caller]
    pub fn add(self, other: Self) -> Self {
        self + other
    }

    /// Computes `self - other`; broadcasts.
    #[track_caller]
    pub fn sub(self, other: Self) -> Self {
        self - other
    }

    /// Computes `self * other`, element by element; broadcasts.
    #[track_caller]
    pub fn mul(self, other: Self) -> Self {
        self * other
    }

    /// Computes `self / other`; broadcasts. Integers truncate towards zero; integer division by zero returns 0.
    #[track_caller]
    pub fn div(self, other: Self) -> Self {
        self / other
    }

    /// Computes `self + x`.
    ///
    /// # Panics
    /// When the tensor has integer elements and `x` is fractional or out of the range of the dtype.
    #[track_caller]
    pub fn add_scalar(self, x: impl Number) -> Self {
        self + x.scalar()
    }

    /// Computes `self - x`.
    ///
    /// # Panics
    /// When the tensor has integer elements and `x` is fractional or out of the range of the dtype.
    #[track_caller]
    pub fn sub_scalar(self, x: impl Number) -> Self {
        self - x.scalar()
    }

    /// Computes `self * x`.
    ///
    /// # Panics
    /// When the tensor has integer elements and `x` is fractional or out of the range of the dtype.
    #[track_caller]
    pub fn mul_scalar(self, x: impl Number) -> Self {
        self * x.scalar()
    }

    /// Computes `self / x`.
    ///
    /// # Panics
    /// When the tensor has integer elements and `x` is fractional or out of the range of the dtype.
    #[track_caller]
    pub fn div_scalar(self, x: impl Number) -> Self {
        self / x.scalar()
    }
}

forward! {
    #[allow(
        clippy::should_implement_trait,
        reason = "the operators are implemented too; chains of methods read better"
    )]
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Computes the remainder with the sign of the divisor, as Python's `%`; broadcasts. The operator `%` and
    /// [`fmod`](Tensor::fmod) return the remainder with the sign of the dividend. For a divisor of 0, integers return 0
    /// and floats NaN. Defined as
    /// [`torch.remainder`](https://docs.pytorch.org/docs/stable/generated/torch.remainder.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([7, -7, 7, -7], &device);
    /// let b = Tensor::from_ints([3, 3, -3, -3], &device);
    /// assert_eq!(a.remainder(b).into_data().to_vec::<i32>(), [1, 2, -2, -1]);
    /// ```
    pub fn remainder(self, divisor: Self as any) -> Self;

    /// Computes the [`remainder`](Tensor::remainder) by a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([7, -7], &device);
    /// assert_eq!(a.remainder_scalar(3).into_data().to_vec::<i32>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `divisor` is fractional or out of the range of the dtype.
    pub fn remainder_scalar(self, divisor: impl Number) -> Self;

    /// Computes the remainder of the truncated division, with the sign of the dividend, as Rust's and C's `%`;
    /// broadcasts. For a divisor of 0, integers return 0 and floats NaN. Defined as
    /// [`torch.fmod`](https://docs.pytorch.org/docs/stable/generated/torch.fmod.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([7, -7, 7, -7], &device);
    /// let b = Tensor::from_ints([3, 3, -3, -3], &device);
    /// assert_eq!(a.fmod(b).into_data().to_vec::<i32>(), [1, -1, 1, -1]);
    /// ```
    pub fn fmod(self, divisor: Self as any) -> Self;

    /// Computes [`fmod`](Tensor::fmod) by a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([7, -7], &device);
    /// assert_eq!(a.fmod_scalar(3).into_data().to_vec::<i32>(), [1, -1]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `divisor` is fractional or out of the range of the dtype.
    pub fn fmod_scalar(self, divisor: impl Number) -> Self;

    /// Computes the quotient rounded down; broadcasts. Integer division by zero returns 0; float division by zero
    /// returns the result of `/`. The gradient is 0. Defined as
    /// [`torch.floor_divide`](https://docs.pytorch.org/docs/stable/generated/torch.floor_divide.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([7, -7, 7, -7], &device);
    /// let b = Tensor::from_ints([3, 3, -3, -3], &device);
    /// assert_eq!(a.floor_divide(b).into_data().to_vec::<i32>(), [2, -3, -3, 2]);
    /// ```
    #[doc(alias = "floor_div")]
    pub fn floor_divide(self, divisor: Self as any) -> Self;

    /// Computes [`floor_divide`](Tensor::floor_divide) by a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([7, -7], &device);
    /// assert_eq!(a.floor_divide_scalar(3).into_data().to_vec::<i32>(), [2, -3]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `divisor` is fractional or out of the range of the dtype.
    pub fn floor_divide_scalar(self, divisor: impl Number) -> Self;

    /// Computes the quotient rounded towards zero; broadcasts. For integers it equals `/`. The gradient is 0. Defined
    /// as [`torch.div`](https://docs.pytorch.org/docs/stable/generated/torch.div.html) with `rounding_mode="trunc"`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([7.0, -7.0], &device);
    /// let b = Tensor::from_floats([2.0, 2.0], &device);
    /// let y = Tensor::from_floats([3.0, -3.0], &device);
    /// assert!(a.trunc_divide(b).all_close(y, None, Some(1e-6)));
    /// ```
    #[doc(alias = "div")]
    pub fn trunc_divide(self, divisor: Self as any) -> Self;

    /// Computes [`trunc_divide`](Tensor::trunc_divide) by a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([7.0, -7.0], &device);
    /// let y = Tensor::from_floats([3.0, -3.0], &device);
    /// assert!(a.trunc_divide_scalar(2).all_close(y, None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `divisor` is fractional or out of the range of the dtype.
    pub fn trunc_divide_scalar(self, divisor: impl Number) -> Self;

    /// Raises each element to the power of an exponent tensor; broadcasts. Integers wrap, and a negative exponent
    /// returns the truncated real result. Defined as
    /// [`torch.pow`](https://docs.pytorch.org/docs/stable/generated/torch.pow.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([2, 3, -2], &device);
    /// let b = Tensor::from_ints([5, 2, 3], &device);
    /// assert_eq!(a.pow(b).into_data().to_vec::<i32>(), [32, 9, -8]);
    /// ```
    pub fn pow(self, exponent: Self as any) -> Self;

    /// Raises each element to an integer power.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([2, -3], &device);
    /// assert_eq!(a.powi_scalar(3).into_data().to_vec::<i32>(), [8, -27]);
    /// ```
    pub fn powi_scalar(self, exponent: i32) -> Self;

    /// Computes the elementwise minimum; broadcasts. NaN if either element is NaN. Defined as
    /// [`torch.minimum`](https://docs.pytorch.org/docs/stable/generated/torch.minimum.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 5], &device);
    /// let b = Tensor::from_ints([2, 3], &device);
    /// assert_eq!(a.minimum(b).into_data().to_vec::<i32>(), [1, 3]);
    /// ```
    pub fn minimum(self, other: Self as any) -> Self;

    /// Computes the elementwise maximum; broadcasts. NaN if either element is NaN. Defined as
    /// [`torch.maximum`](https://docs.pytorch.org/docs/stable/generated/torch.maximum.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 5], &device);
    /// let b = Tensor::from_ints([2, 3], &device);
    /// assert_eq!(a.maximum(b).into_data().to_vec::<i32>(), [2, 5]);
    /// ```
    pub fn maximum(self, other: Self as any) -> Self;

    /// Alias of [`minimum`](Tensor::minimum), the elementwise minimum of two tensors.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 5], &device);
    /// let b = Tensor::from_ints([2, 3], &device);
    /// assert_eq!(a.min_pair(b).into_data().to_vec::<i32>(), [1, 3]);
    /// ```
    #[doc(alias = "minimum")]
    pub fn min_pair(self, other: Self as any) -> Self;

    /// Alias of [`maximum`](Tensor::maximum), the elementwise maximum of two tensors.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 5], &device);
    /// let b = Tensor::from_ints([2, 3], &device);
    /// assert_eq!(a.max_pair(b).into_data().to_vec::<i32>(), [2, 5]);
    /// ```
    #[doc(alias = "maximum")]
    pub fn max_pair(self, other: Self as any) -> Self;
}

#[allow(
    clippy::should_implement_trait,
    reason = "the operators are implemented too; chains of methods read better"
)]
impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Clamps elements to `[low, high]`; NaN stays NaN. If `low` is above `high`, elements become `high`. The gradient
    /// passes where the element is in the range, bounds included, and not where it is NaN. Defined as
    /// [`torch.clamp`](https://docs.pytorch.org/docs/stable/generated/torch.clamp.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([-3, 2, 9], &device);
    /// assert_eq!(a.clamp(0, 5).into_data().to_vec::<i32>(), [0, 2, 5]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `low` or `high` is fractional or out of the range of the dtype.
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(self, low: impl Number, high: impl Number) -> Self {
        self.clamp_min(low).clamp_max(high)
    }
}

forward! {
    #[allow(
        clippy::should_implement_trait,
        reason = "the operators are implemented too; chains of methods read better"
    )]
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Clamps elements from below to `low`; NaN stays NaN. The gradient passes at the bound too.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([-3, 2], &device);
    /// assert_eq!(a.clamp_min(0).into_data().to_vec::<i32>(), [0, 2]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `low` is fractional or out of the range of the dtype.
    pub fn clamp_min(self, low: impl Number) -> Self = at_least;

    /// Clamps elements from above to `high`; NaN stays NaN. The gradient passes at the bound too.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([-3, 2], &device);
    /// assert_eq!(a.clamp_max(0).into_data().to_vec::<i32>(), [-3, 0]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has integer elements and `high` is fractional or out of the range of the dtype.
    pub fn clamp_max(self, high: impl Number) -> Self = at_most;

    /// Computes the Heaviside step function: 0 below zero, 1 above, `at_zero` at zero; NaN stays NaN. Broadcasts.
    /// Defined as NumPy's [`heaviside`](https://numpy.org/doc/stable/reference/generated/numpy.heaviside.html);
    /// PyTorch's returns 0 for NaN.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([-1.5, 0.0, 2.0], &device);
    /// let b = Tensor::from_floats([0.5, 0.5, 0.5], &device);
    /// let y = Tensor::from_floats([0.0, 0.5, 1.0], &device);
    /// assert!(a.heaviside(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn heaviside(self, at_zero: Self as any) -> Self;
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Float>;

    /// Interpolates linearly from `self` (weight 0) to `end` (weight 1), exact at both ends; broadcasts. Defined as
    /// [`torch.lerp`](https://docs.pytorch.org/docs/stable/generated/torch.lerp.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.0, 1.0], &device);
    /// let b = Tensor::from_floats([4.0, 3.0], &device);
    /// let y = Tensor::from_floats([1.0, 3.0], &device);
    /// assert!(a.lerp(b, Tensor::from_floats([0.25, 1.0], &device)).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn lerp(self, end: Self as any, weight: Self as any) -> Self;

    /// Computes [`lerp`](Tensor::lerp) with a scalar weight.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.0, 1.0], &device);
    /// let b = Tensor::from_floats([4.0, 3.0], &device);
    /// let y = Tensor::from_floats([1.0, 1.5], &device);
    /// assert!(a.lerp_scalar(b, 0.25).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn lerp_scalar(self, end: Self as any, weight: f64) -> Self;

    /// Computes `self + factor * a * b`; broadcasts. Defined as
    /// [`torch.addcmul`](https://docs.pytorch.org/docs/stable/generated/torch.addcmul.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let b = Tensor::from_floats([4.0, 2.0], &device);
    /// let y = Tensor::from_floats([3.0, 4.0], &device);
    /// assert!(a.clone().addcmul(a, b, 0.5).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn addcmul(self, a: Self as any, b: Self as any, factor: f64) -> Self;

    /// Computes `self + factor * a / b`; broadcasts. Defined as
    /// [`torch.addcdiv`](https://docs.pytorch.org/docs/stable/generated/torch.addcdiv.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let b = Tensor::from_floats([4.0, 2.0], &device);
    /// let y = Tensor::from_floats([1.125, 2.5], &device);
    /// assert!(a.clone().addcdiv(a, b, 0.5).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn addcdiv(self, a: Self as any, b: Self as any, factor: f64) -> Self;

    /// Raises each element to the power of an exponent tensor; broadcasts. NaN for a negative base with a fractional
    /// exponent. Defined as [`torch.pow`](https://docs.pytorch.org/docs/stable/generated/torch.pow.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([4.0, 2.0], &device);
    /// let b = Tensor::from_floats([0.5, 3.0], &device);
    /// let y = Tensor::from_floats([2.0, 8.0], &device);
    /// assert!(a.powf(b).all_close(y, None, Some(1e-6)));
    /// ```
    #[doc(alias = "pow")]
    pub fn powf(self, exponent: Self as any) -> Self;

    /// Raises each element to the power of a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([4.0, 2.25], &device);
    /// let y = Tensor::from_floats([2.0, 1.5], &device);
    /// assert!(a.powf_scalar(0.5).all_close(y, None, Some(1e-6)));
    /// ```
    #[doc(alias = "pow")]
    #[doc(alias = "power")]
    pub fn powf_scalar(self, exponent: f64) -> Self;

    /// Raises each element to the power of an integer tensor; broadcasts.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([2.0, -3.0], &device);
    /// let n = Tensor::<Flex, 1, Int>::from_ints([3, 2], &device);
    /// assert_eq!(a.powi(n).into_data().to_vec::<f32>(), [8.0, 9.0]);
    /// ```
    pub fn powi(self, exponent: Tensor<B, D, Int> as any) -> Self;

    /// Raises each element to the power of an exponent tensor, in `f64`; broadcasts. The result is `f64`. Defined as
    /// [`torch.float_power`](https://docs.pytorch.org/docs/stable/generated/torch.float_power.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([2.0, 9.0], &device);
    /// let b = Tensor::from_floats([-1.0, 0.5], &device);
    /// assert_eq!(a.float_power(b).into_data().to_vec::<f64>(), [0.5, 3.0]);
    /// ```
    pub fn float_power(self, exponent: Self as any) -> Self;

    /// Computes the angle of the point `(other, self)` from the x axis, in radians from -π to π; broadcasts. Defined as
    /// [`torch.atan2`](https://docs.pytorch.org/docs/stable/generated/torch.atan2.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, -1.0], &device);
    /// let b = Tensor::from_floats([1.0, 0.0], &device);
    /// let y = Tensor::from_floats([0.7853982, -1.5707964], &device);
    /// assert!(a.atan2(b).all_close(y, None, Some(1e-6)));
    /// ```
    #[doc(alias = "arctan2")]
    pub fn atan2(self, other: Self as any) -> Self;

    /// Computes `sqrt(self² + other²)` without intermediate overflow; broadcasts. Defined as
    /// [`torch.hypot`](https://docs.pytorch.org/docs/stable/generated/torch.hypot.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([3.0, 0.0], &device);
    /// let b = Tensor::from_floats([4.0, -2.0], &device);
    /// let y = Tensor::from_floats([5.0, 2.0], &device);
    /// assert!(a.hypot(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn hypot(self, other: Self as any) -> Self;

    /// Computes `ln(e^self + e^other)` without overflow; broadcasts. Defined as
    /// [`torch.logaddexp`](https://docs.pytorch.org/docs/stable/generated/torch.logaddexp.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.0, 1000.0], &device);
    /// let b = Tensor::from_floats([0.0, 1000.0], &device);
    /// let y = Tensor::from_floats([0.6931472, 1000.6931], &device);
    /// assert!(a.logaddexp(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn logaddexp(self, other: Self as any) -> Self;

    /// Computes `log₂(2^self + 2^other)` without overflow; broadcasts. Defined as
    /// [`torch.logaddexp2`](https://docs.pytorch.org/docs/stable/generated/torch.logaddexp2.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.0, 1000.0], &device);
    /// let b = Tensor::from_floats([0.0, 1000.0], &device);
    /// let y = Tensor::from_floats([1.0, 1001.0], &device);
    /// assert!(a.logaddexp2(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn logaddexp2(self, other: Self as any) -> Self;

    /// Computes `self * ln(other)`, or 0 where `self` is 0 and `other` is not NaN; broadcasts. Defined as
    /// [`torch.special.xlogy`](https://docs.pytorch.org/docs/stable/special.html#torch.special.xlogy).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.0, 2.0], &device);
    /// let b = Tensor::from_floats([0.0, 3.0], &device);
    /// let y = Tensor::from_floats([0.0, 2.1972246], &device);
    /// assert!(a.xlogy(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn xlogy(self, other: Self as any) -> Self;

    /// Computes `self * ln(1 + other)`, or 0 where `self` is 0 and `other` is not NaN; broadcasts. Defined as
    /// [`torch.special.xlog1py`](https://docs.pytorch.org/docs/stable/special.html#torch.special.xlog1py).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.0, 2.0], &device);
    /// let b = Tensor::from_floats([-1.0, 3.0], &device);
    /// let y = Tensor::from_floats([0.0, 2.7725887], &device);
    /// assert!(a.xlog1py(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn xlog1py(self, other: Self as any) -> Self;

    /// Computes the elementwise minimum, ignoring NaN: if one element is NaN, returns the other. Broadcasts. For equal
    /// elements, the gradient flows to the first. Defined as
    /// [`torch.fmin`](https://docs.pytorch.org/docs/stable/generated/torch.fmin.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN], &device);
    /// let b = Tensor::from_floats([2.0, 3.0], &device);
    /// let y = Tensor::from_floats([1.0, 3.0], &device);
    /// assert!(a.fmin(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn fmin(self, other: Self as any) -> Self;

    /// Computes the elementwise maximum, ignoring NaN: if one element is NaN, returns the other. Broadcasts. For equal
    /// elements, the gradient flows to the first. Defined as
    /// [`torch.fmax`](https://docs.pytorch.org/docs/stable/generated/torch.fmax.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN], &device);
    /// let b = Tensor::from_floats([2.0, 3.0], &device);
    /// let y = Tensor::from_floats([2.0, 3.0], &device);
    /// assert!(a.fmax(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn fmax(self, other: Self as any) -> Self;

    /// Returns the magnitude of `self` with the sign bit of `sign`, also for zeros; broadcasts. Defined as
    /// [`torch.copysign`](https://docs.pytorch.org/docs/stable/generated/torch.copysign.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.5, -2.0], &device);
    /// let b = Tensor::from_floats([-0.0, 3.0], &device);
    /// let y = Tensor::from_floats([-1.5, 2.0], &device);
    /// assert!(a.copysign(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn copysign(self, sign: Self as any) -> Self;

    /// Returns the next representable float after `self` in the direction of `towards`; broadcasts. It has no gradient.
    /// Defined as [`torch.nextafter`](https://docs.pytorch.org/docs/stable/generated/torch.nextafter.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 0.0], &device);
    /// let b = Tensor::from_floats([2.0, 0.0], &device);
    /// let y = Tensor::from_floats([1.0000001, 0.0], &device);
    /// assert!(a.nextafter(b).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn nextafter(self, towards: Self as any) -> Self;
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Decomposes each element into mantissa `m` and exponent `e` with `self = m 2^e` and `½ <= |m| < 1`. Zeros,
    /// infinities and NaN are their own mantissa, with exponent 0. Defined as
    /// [`torch.frexp`](https://docs.pytorch.org/docs/stable/generated/torch.frexp.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([10.0, -0.25], &device);
    /// let (mantissa, exponent) = a.frexp();
    /// assert_eq!(mantissa.into_data().to_vec::<f32>(), [0.625, -0.5]);
    /// assert_eq!(exponent.into_data().to_vec::<i32>(), [4, -1]);
    /// ```
    #[track_caller]
    pub fn frexp(self) -> (Self, Tensor<B, D, Int>) {
        let (mantissa, exponent) = super::ok(self.into_any().frexp());
        (Tensor::from_any(mantissa), Tensor::from_any(exponent))
    }

    /// Computes `self * 2^exponent`, the inverse of [`frexp`](Tensor::frexp); broadcasts. Defined as
    /// [`torch.ldexp`](https://docs.pytorch.org/docs/stable/generated/torch.ldexp.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([0.625, -0.5], &device);
    /// let e = Tensor::<Flex, 1, Int>::from_ints([4, -1], &device);
    /// assert_eq!(a.ldexp(e).into_data().to_vec::<f32>(), [10.0, -0.25]);
    /// ```
    #[track_caller]
    pub fn ldexp(self, exponent: Tensor<B, D, Int>) -> Self {
        self.map(|any| any.ldexp(exponent.into_any()))
    }
}
