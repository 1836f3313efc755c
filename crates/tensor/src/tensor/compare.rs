//! Comparisons and logical operations, which broadcast and return `bool`, and tests for NaN and infinity.

use super::ok;
use crate::tensor::forward::forward;
use crate::{Backend, Bool, Float, Kind, Number, Numeric, Tensor};

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Computes `self == other`; broadcasts. False for NaN. Defined as
    /// [`torch.eq`](https://docs.pytorch.org/docs/stable/generated/torch.eq.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let b = Tensor::from_ints([2, 2, 2], &device);
    /// assert_eq!(a.equal(b).into_data().to_vec::<bool>(), [false, true, false]);
    /// ```
    #[doc(alias = "eq")]
    pub fn equal(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes `self == x`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// assert_eq!(a.equal_elem(2).into_data().to_vec::<bool>(), [false, true, false]);
    /// ```
    pub fn equal_elem(self, x: impl Number) -> Tensor<B, D, Bool>;

    /// Alias of [`equal_elem`](Tensor::equal_elem).
    pub fn equal_scalar(self, x: impl Number) -> Tensor<B, D, Bool> = equal_elem;

    /// Computes `self != other`; broadcasts. True for NaN. Defined as
    /// [`torch.ne`](https://docs.pytorch.org/docs/stable/generated/torch.ne.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let b = Tensor::from_ints([2, 2, 2], &device);
    /// assert_eq!(a.not_equal(b).into_data().to_vec::<bool>(), [true, false, true]);
    /// ```
    #[doc(alias = "ne")]
    pub fn not_equal(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes `self != x`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// assert_eq!(a.not_equal_elem(2).into_data().to_vec::<bool>(), [true, false, true]);
    /// ```
    pub fn not_equal_elem(self, x: impl Number) -> Tensor<B, D, Bool>;

    /// Alias of [`not_equal_elem`](Tensor::not_equal_elem).
    pub fn not_equal_scalar(self, x: impl Number) -> Tensor<B, D, Bool> = not_equal_elem;
}

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Computes `self < other`; broadcasts. False for NaN. Defined as
    /// [`torch.lt`](https://docs.pytorch.org/docs/stable/generated/torch.lt.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let b = Tensor::from_ints([2, 2, 2], &device);
    /// assert_eq!(a.lower(b).into_data().to_vec::<bool>(), [true, false, false]);
    /// ```
    #[doc(alias = "lt")]
    #[doc(alias = "less")]
    pub fn lower(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes `self < x`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// assert_eq!(a.lower_elem(2).into_data().to_vec::<bool>(), [true, false, false]);
    /// ```
    pub fn lower_elem(self, x: impl Number) -> Tensor<B, D, Bool>;

    /// Alias of [`lower_elem`](Tensor::lower_elem).
    pub fn lower_scalar(self, x: impl Number) -> Tensor<B, D, Bool> = lower_elem;

    /// Computes `self <= other`; broadcasts. False for NaN. Defined as
    /// [`torch.le`](https://docs.pytorch.org/docs/stable/generated/torch.le.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let b = Tensor::from_ints([2, 2, 2], &device);
    /// assert_eq!(a.lower_equal(b).into_data().to_vec::<bool>(), [true, true, false]);
    /// ```
    #[doc(alias = "le")]
    #[doc(alias = "less_equal")]
    pub fn lower_equal(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes `self <= x`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// assert_eq!(a.lower_equal_elem(2).into_data().to_vec::<bool>(), [true, true, false]);
    /// ```
    pub fn lower_equal_elem(self, x: impl Number) -> Tensor<B, D, Bool>;

    /// Alias of [`lower_equal_elem`](Tensor::lower_equal_elem).
    pub fn lower_equal_scalar(self, x: impl Number) -> Tensor<B, D, Bool> = lower_equal_elem;

    /// Computes `self > other`; broadcasts. False for NaN. Defined as
    /// [`torch.gt`](https://docs.pytorch.org/docs/stable/generated/torch.gt.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let b = Tensor::from_ints([2, 2, 2], &device);
    /// assert_eq!(a.greater(b).into_data().to_vec::<bool>(), [false, false, true]);
    /// ```
    #[doc(alias = "gt")]
    pub fn greater(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes `self > x`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// assert_eq!(a.greater_elem(2).into_data().to_vec::<bool>(), [false, false, true]);
    /// ```
    pub fn greater_elem(self, x: impl Number) -> Tensor<B, D, Bool>;

    /// Alias of [`greater_elem`](Tensor::greater_elem).
    pub fn greater_scalar(self, x: impl Number) -> Tensor<B, D, Bool> = greater_elem;

    /// Computes `self >= other`; broadcasts. False for NaN. Defined as
    /// [`torch.ge`](https://docs.pytorch.org/docs/stable/generated/torch.ge.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// let b = Tensor::from_ints([2, 2, 2], &device);
    /// assert_eq!(a.greater_equal(b).into_data().to_vec::<bool>(), [false, true, true]);
    /// ```
    #[doc(alias = "ge")]
    pub fn greater_equal(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes `self >= x`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &device);
    /// assert_eq!(a.greater_equal_elem(2).into_data().to_vec::<bool>(), [false, true, true]);
    /// ```
    pub fn greater_equal_elem(self, x: impl Number) -> Tensor<B, D, Bool>;

    /// Alias of [`greater_equal_elem`](Tensor::greater_equal_elem).
    pub fn greater_equal_scalar(self, x: impl Number) -> Tensor<B, D, Bool> = greater_equal_elem;

    /// Returns `true` where the sign bit is set: below zero, and for -0 and NaN with the sign bit. Defined as
    /// [`torch.signbit`](https://docs.pytorch.org/docs/stable/generated/torch.signbit.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([-1.0, -0.0, 0.0], &device);
    /// assert_eq!(a.signbit().into_data().to_vec::<bool>(), [true, true, false]);
    /// ```
    pub fn signbit(self) -> Tensor<B, D, Bool>;
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Float>;

    /// Returns `true` where an element is NaN. Defined as
    /// [`torch.isnan`](https://docs.pytorch.org/docs/stable/generated/torch.isnan.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device);
    /// assert_eq!(a.is_nan().into_data().to_vec::<bool>(), [false, true, false, false]);
    /// ```
    #[doc(alias = "isnan")]
    pub fn is_nan(self) -> Tensor<B, D, Bool>;

    /// Returns `true` where an element is infinite. Defined as
    /// [`torch.isinf`](https://docs.pytorch.org/docs/stable/generated/torch.isinf.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device);
    /// assert_eq!(a.is_inf().into_data().to_vec::<bool>(), [false, false, true, true]);
    /// ```
    #[doc(alias = "isinf")]
    pub fn is_inf(self) -> Tensor<B, D, Bool>;

    /// Returns `true` where an element is +∞. Defined as
    /// [`torch.isposinf`](https://docs.pytorch.org/docs/stable/generated/torch.isposinf.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device);
    /// assert_eq!(a.is_pos_inf().into_data().to_vec::<bool>(), [false, false, true, false]);
    /// ```
    pub fn is_pos_inf(self) -> Tensor<B, D, Bool>;

    /// Returns `true` where an element is -∞. Defined as
    /// [`torch.isneginf`](https://docs.pytorch.org/docs/stable/generated/torch.isneginf.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device);
    /// assert_eq!(a.is_neg_inf().into_data().to_vec::<bool>(), [false, false, false, true]);
    /// ```
    pub fn is_neg_inf(self) -> Tensor<B, D, Bool>;

    /// Returns `true` where an element is neither NaN nor infinite. Defined as
    /// [`torch.isfinite`](https://docs.pytorch.org/docs/stable/generated/torch.isfinite.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY], &device);
    /// assert_eq!(a.is_finite().into_data().to_vec::<bool>(), [true, false, false, false]);
    /// ```
    #[doc(alias = "isfinite")]
    pub fn is_finite(self) -> Tensor<B, D, Bool>;

    /// Returns whether any element is NaN, of shape `[1]`. Does not wait for the device.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, f32::NAN]], &device);
    /// assert_eq!(a.contains_nan().into_data().to_vec::<bool>(), [true]);
    /// ```
    pub fn contains_nan(self) -> Tensor<B, 1, Bool>;

    /// Returns `true` where `|self - other| <= absolute + relative * |other|`, both are the same infinity, or both are
    /// NaN; broadcasts. Defaults: relative 1e-5, absolute 1e-8. Defined as
    /// [`torch.isclose`](https://docs.pytorch.org/docs/stable/generated/torch.isclose.html) with `equal_nan=True`.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let b = Tensor::from_floats([1.000001, 2.1], &device);
    /// assert_eq!(a.is_close(b, None, None).into_data().to_vec::<bool>(), [true, false]);
    /// ```
    #[doc(alias = "isclose")]
    pub fn is_close(self, other: Self as any, relative: Option<f64>, absolute: Option<f64>) -> Tensor<B, D, Bool>;
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Returns whether all elements are close, by [`is_close`](Tensor::is_close). Waits for the device.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// assert!(a.clone().all_close(a * 1.000001, None, None));
    /// ```
    ///
    /// # Panics
    /// When the shapes do not broadcast, or a computation failed.
    #[doc(alias = "allclose")]
    #[track_caller]
    pub fn all_close(self, other: Self, relative: Option<f64>, absolute: Option<f64>) -> bool {
        ok(self.into_any().all_close(other.into_any(), relative, absolute))
    }

    /// Like [`all_close`](Tensor::all_close), without blocking the thread.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or a computation failed.
    pub async fn all_close_async(
        self,
        other: Self,
        relative: Option<f64>,
        absolute: Option<f64>,
    ) -> crate::Result<bool> {
        self.into_any().all_close_async(other.into_any(), relative, absolute).await
    }
}

forward! {
    impl[B: Backend, const D: usize, K: Kind] Tensor<B, D, K>;

    /// Computes the logical AND; broadcasts. Elements other than 0, NaN included, are true. Defined as
    /// [`torch.logical_and`](https://docs.pytorch.org/docs/stable/generated/torch.logical_and.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([0, 2, 3], &device);
    /// let b = Tensor::<Flex, 1, Int>::from_ints([1, 0, 4], &device);
    /// assert_eq!(a.clone().logical_and(b.clone()).into_data().to_vec::<bool>(), [false, false, true]);
    /// assert_eq!(a.clone().logical_or(b.clone()).into_data().to_vec::<bool>(), [true, true, true]);
    /// assert_eq!(a.clone().logical_xor(b).into_data().to_vec::<bool>(), [true, true, false]);
    /// assert_eq!(a.logical_not().into_data().to_vec::<bool>(), [true, false, false]);
    /// ```
    pub fn logical_and(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes the logical OR; broadcasts. Elements other than 0 are true. Defined as
    /// [`torch.logical_or`](https://docs.pytorch.org/docs/stable/generated/torch.logical_or.html).
    pub fn logical_or(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes the logical XOR; broadcasts. Elements other than 0 are true. Defined as
    /// [`torch.logical_xor`](https://docs.pytorch.org/docs/stable/generated/torch.logical_xor.html).
    pub fn logical_xor(self, other: Self as any) -> Tensor<B, D, Bool>;

    /// Computes the logical NOT: true where an element is 0 or false. Defined as
    /// [`torch.logical_not`](https://docs.pytorch.org/docs/stable/generated/torch.logical_not.html).
    pub fn logical_not(self) -> Tensor<B, D, Bool>;
}
