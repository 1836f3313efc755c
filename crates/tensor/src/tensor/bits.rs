//! Bitwise operations on integers.

use crate::tensor::forward::forward;
use crate::{Backend, Int, Number, Tensor};

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Int>;

    /// Computes the bitwise AND; broadcasts.
    /// Defined as [`torch.bitwise_and`](https://docs.pytorch.org/docs/stable/generated/torch.bitwise_and.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, 7], &device);
    /// let b = Tensor::from_ints([10, 1], &device);
    /// assert_eq!(a.bitwise_and(b).into_data().to_vec::<i32>(), [8, 1]);
    /// ```
    pub fn bitwise_and(self, other: Self as any) -> Self;

    /// Computes [`bitwise_and`](Tensor::bitwise_and) with a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, 7], &device);
    /// assert_eq!(a.bitwise_and_scalar(10).into_data().to_vec::<i32>(), [8, 2]);
    /// ```
    pub fn bitwise_and_scalar(self, x: impl Number) -> Self;

    /// Computes the bitwise OR; broadcasts.
    /// Defined as [`torch.bitwise_or`](https://docs.pytorch.org/docs/stable/generated/torch.bitwise_or.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, 7], &device);
    /// let b = Tensor::from_ints([10, 1], &device);
    /// assert_eq!(a.bitwise_or(b).into_data().to_vec::<i32>(), [14, 7]);
    /// ```
    pub fn bitwise_or(self, other: Self as any) -> Self;

    /// Computes [`bitwise_or`](Tensor::bitwise_or) with a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, 7], &device);
    /// assert_eq!(a.bitwise_or_scalar(10).into_data().to_vec::<i32>(), [14, 15]);
    /// ```
    pub fn bitwise_or_scalar(self, x: impl Number) -> Self;

    /// Computes the bitwise XOR; broadcasts.
    /// Defined as [`torch.bitwise_xor`](https://docs.pytorch.org/docs/stable/generated/torch.bitwise_xor.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, 7], &device);
    /// let b = Tensor::from_ints([10, 1], &device);
    /// assert_eq!(a.bitwise_xor(b).into_data().to_vec::<i32>(), [6, 6]);
    /// ```
    pub fn bitwise_xor(self, other: Self as any) -> Self;

    /// Computes [`bitwise_xor`](Tensor::bitwise_xor) with a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, 7], &device);
    /// assert_eq!(a.bitwise_xor_scalar(10).into_data().to_vec::<i32>(), [6, 13]);
    /// ```
    pub fn bitwise_xor_scalar(self, x: impl Number) -> Self;

    /// Computes the bitwise left shift; broadcasts. A shift by the bit width or more, or by a negative number, returns
    /// 0.
    /// Defined as [`torch.bitwise_left_shift`](https://docs.pytorch.org/docs/stable/generated/torch.bitwise_left_shift.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 3], &device);
    /// let b = Tensor::from_ints([4, 1], &device);
    /// assert_eq!(a.bitwise_left_shift(b).into_data().to_vec::<i32>(), [16, 6]);
    /// ```
    pub fn bitwise_left_shift(self, other: Self as any) -> Self;

    /// Computes [`bitwise_left_shift`](Tensor::bitwise_left_shift) by a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([1, 3], &device);
    /// assert_eq!(a.bitwise_left_shift_scalar(2).into_data().to_vec::<i32>(), [4, 12]);
    /// ```
    pub fn bitwise_left_shift_scalar(self, x: impl Number) -> Self;

    /// Computes the arithmetic right shift; broadcasts. A shift by the bit width or more, or by a negative number,
    /// returns the sign: 0 or -1.
    /// Defined as [`torch.bitwise_right_shift`](https://docs.pytorch.org/docs/stable/generated/torch.bitwise_right_shift.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([16, -8], &device);
    /// let b = Tensor::from_ints([4, 1], &device);
    /// assert_eq!(a.bitwise_right_shift(b).into_data().to_vec::<i32>(), [1, -4]);
    /// ```
    pub fn bitwise_right_shift(self, other: Self as any) -> Self;

    /// Computes [`bitwise_right_shift`](Tensor::bitwise_right_shift) by a scalar.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([16, -8], &device);
    /// assert_eq!(a.bitwise_right_shift_scalar(2).into_data().to_vec::<i32>(), [4, -2]);
    /// ```
    pub fn bitwise_right_shift_scalar(self, x: impl Number) -> Self;

    /// Computes the bitwise NOT: `-x - 1` for signed integers. Defined as
    /// [`torch.bitwise_not`](https://docs.pytorch.org/docs/stable/generated/torch.bitwise_not.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([0, 7], &device);
    /// assert_eq!(a.bitwise_not().into_data().to_vec::<i32>(), [-1, -8]);
    /// ```
    pub fn bitwise_not(self) -> Self;

    /// Counts the 1 bits (population count), in the same dtype. Defined as NumPy's
    /// [`bitwise_count`](https://numpy.org/doc/stable/reference/generated/numpy.bitwise_count.html), except that
    /// negative integers count the bits of their two's complement.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([0, 7, -1], &device);
    /// assert_eq!(a.count_ones().into_data().to_vec::<i32>(), [0, 3, 32]);
    /// ```
    pub fn count_ones(self) -> Self;

    /// Computes the greatest common divisor, never negative; broadcasts. `gcd(0, 0)` is 0. Defined as
    /// [`torch.gcd`](https://docs.pytorch.org/docs/stable/generated/torch.gcd.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([12, -8, 0], &device);
    /// let b = Tensor::from_ints([18, 12, 5], &device);
    /// assert_eq!(a.gcd(b).into_data().to_vec::<i32>(), [6, 4, 5]);
    /// ```
    pub fn gcd(self, other: Self as any) -> Self;

    /// Computes the least common multiple; broadcasts. It is not negative unless it overflows the dtype and wraps, and
    /// 0 where either operand is 0. Defined as
    /// [`torch.lcm`](https://docs.pytorch.org/docs/stable/generated/torch.lcm.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1, Int>::from_ints([4, -6, 0], &device);
    /// let b = Tensor::from_ints([6, 4, 5], &device);
    /// assert_eq!(a.lcm(b).into_data().to_vec::<i32>(), [12, 12, 0]);
    /// ```
    pub fn lcm(self, other: Self as any) -> Self;
}
