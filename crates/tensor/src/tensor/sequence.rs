//! Ranges, triangle indices, identity matrices and one-hot encodings.

use super::ok;
use crate::tensor::forward::forward;
use crate::{AnyTensor, Axis, Backend, Float, Int, Kind, Number, Numeric, Tensor};
use core::ops::Range;

impl<B: Backend> Tensor<B, 1, Int> {
    /// Creates a tensor of the integers of a range, `[count]`; empty when the range ends before it starts.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.arange.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 1, Int>::arange(2..5, &device).into_data().to_vec::<i32>(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// When an integer of the range does not fit the default integer dtype.
    #[track_caller]
    pub fn arange(range: Range<i64>, device: &B::Device) -> Self {
        Tensor::arange_step(range, 1, device)
    }

    /// Creates a tensor of every `step`th integer of a range, `[count]`. A negative step counts down from the start and
    /// excludes the end.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.arange.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 1, Int>::arange_step(1..8, 3, &device).into_data().to_vec::<i32>(), [1, 4, 7]);
    /// assert_eq!(Tensor::<Flex, 1, Int>::arange_step(5..0, -2, &device).into_data().to_vec::<i32>(), [5, 3, 1]);
    /// ```
    ///
    /// # Panics
    /// When the step is 0.
    #[doc(alias = "arange")]
    #[track_caller]
    pub fn arange_step(range: Range<i64>, step: i64, device: &B::Device) -> Self {
        let stack = B::stack(device);
        Tensor::from_any(ok(AnyTensor::arange(range, step, Int::default_dtype(&stack), &stack)))
    }
}

impl<B: Backend> Tensor<B, 1> {
    /// Creates a tensor of values from the start of a range, `step` apart, before its end: `ceil((end - start) / step)`
    /// elements. Rounding may let the last element reach the end; [`linspace`](Tensor::linspace) accepts the number of
    /// elements instead.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.arange.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 1>::arange_float(0.0..1.0, 0.25, &device).into_data().to_vec::<f32>(), [0.0, 0.25, 0.5, 0.75]);
    /// ```
    ///
    /// # Panics
    /// When the step is 0, or an argument is not finite.
    #[track_caller]
    pub fn arange_float(range: Range<f64>, step: f64, device: &B::Device) -> Self {
        let stack = B::stack(device);
        Tensor::from_any(ok(AnyTensor::arange_float(range, step, Float::default_dtype(&stack), &stack)))
    }

    /// Creates a tensor of `count` evenly spaced values, the first `start` and the last `end`, `[count]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.linspace.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 1>::linspace(0.0, 1.0, 3, &device).into_data().to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, end: f64, count: usize, device: &B::Device) -> Self {
        let stack = B::stack(device);
        Tensor::from_any(ok(AnyTensor::linspace(start, end, count, Float::default_dtype(&stack), &stack)))
    }

    /// Creates a tensor of powers of `base`, whose exponents are [`linspace(start, end, count)`](Tensor::linspace),
    /// `[count]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.logspace.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 1>::logspace(0.0, 2.0, 3, 2.0, &device).into_data().to_vec::<f32>(), [1.0, 2.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn logspace(start: f64, end: f64, count: usize, base: f64, device: &B::Device) -> Self {
        let stack = B::stack(device);
        Tensor::from_any(ok(AnyTensor::logspace(
            start,
            end,
            count,
            base,
            Float::default_dtype(&stack),
            &stack,
        )))
    }
}

impl<B: Backend> Tensor<B, 2, Int> {
    /// Returns the row and column indices of the elements on and below the diagonal `column = row + offset` of a
    /// matrix, in row-major order, `[2, count]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.tril_indices.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 2, Int>::tril_indices(2, 2, 0, &device).into_data().to_vec::<i32>(), [0, 1, 1, 0, 0, 1]);
    /// ```
    #[track_caller]
    pub fn tril_indices(rows: usize, columns: usize, offset: i64, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::tril_indices(rows, columns, offset, &B::stack(device))))
    }

    /// Returns the row and column indices of the elements on and above the diagonal `column = row + offset` of a
    /// matrix, in row-major order, `[2, count]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.triu_indices.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 2, Int>::triu_indices(2, 2, 0, &device).into_data().to_vec::<i32>(), [0, 0, 1, 0, 1, 1]);
    /// ```
    #[track_caller]
    pub fn triu_indices(rows: usize, columns: usize, offset: i64, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::triu_indices(rows, columns, offset, &B::stack(device))))
    }
}

impl<B: Backend, K: Numeric> Tensor<B, 2, K> {
    /// Creates the identity matrix, `[size, size]`.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.eye.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// assert_eq!(Tensor::<Flex, 2>::eye(2, &device).into_data().to_vec::<f32>(), [1.0, 0.0, 0.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn eye(size: usize, device: &B::Device) -> Self {
        let stack = B::stack(device);
        Tensor::from_any(ok(AnyTensor::eye(size, size, K::default_dtype(&stack), &stack)))
    }
}

forward! {
    impl[B: Backend, const D: usize, K: Numeric] Tensor<B, D, K>;

    /// Encodes class indices as one-hot vectors along a new last axis, `[.., classes]`. A class index outside
    /// `0..classes` is an error of the result, reported when the result is read. [`one_hot_fill`](Tensor::one_hot_fill)
    /// returns zeros for it.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.one_hot.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 0], &device);
    /// assert_eq!(x.one_hot::<2>(3).into_data().to_vec::<i32>(), [0, 1, 0, 1, 0, 0]);
    /// ```
    ///
    /// # Panics
    /// When `D2` is not `D + 1`.
    pub fn one_hot<const D2: usize>(self, classes: usize) -> Tensor<B, D2, K>;

    /// Encodes class indices along a new axis `axis`, with `on` at the class and `off` elsewhere. A class index outside
    /// `0..classes` becomes `off` everywhere.
    ///
    /// <https://onnx.ai/onnx/operators/onnx__OneHot.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 0], &device);
    /// assert_eq!(x.one_hot_fill::<2>(2, 5, -1, 0).into_data().to_vec::<i32>(), [-1, 5, 5, -1]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range, or `D2` is not `D + 1`.
    pub fn one_hot_fill<const D2: usize>(
        self,
        classes: usize,
        on: impl Number,
        off: impl Number,
        axis: impl Into<Axis>,
    ) -> Tensor<B, D2, K>;
}
