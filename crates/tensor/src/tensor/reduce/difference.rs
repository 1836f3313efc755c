//! Finite differences and trapezoidal integration.

use crate::tensor::forward::forward;
use crate::{Axis, Backend, Numeric, Tensor};

impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Computes the `n`th finite difference along an axis: differences of adjacent elements, taken `n` times. Each time
    /// the axis is shorter by 1, until it is empty.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.diff.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 4.0, 9.0], &device);
    /// assert_eq!(x.clone().diff(1, 0).into_data().to_vec::<f32>(), [3.0, 5.0]);
    /// assert_eq!(x.diff(2, 0).into_data().to_vec::<f32>(), [2.0]);
    /// ```
    #[track_caller]
    pub fn diff(self, n: usize, axis: impl Into<Axis>) -> Self {
        self.map(|x| x.diff(n, axis))
    }

    /// Like [`diff`](Tensor::diff), with tensors prepended and appended along the axis first.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.diff.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 4.0, 9.0], &device);
    /// let zero = Tensor::<Flex, 1>::from_floats([0.0], &device);
    /// assert_eq!(x.diff_with(1, 0, Some(zero), None).into_data().to_vec::<f32>(), [1.0, 3.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// When the shapes differ outside the axis.
    #[track_caller]
    pub fn diff_with(
        self,
        n: usize,
        axis: impl Into<Axis>,
        before: Option<Self>,
        after: Option<Self>,
    ) -> Self {
        let (before, after) = (before.map(Tensor::into_any), after.map(Tensor::into_any));
        self.map(|x| x.diff_with(n, axis, before, after))
    }
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D>;

    /// Integrates samples `dx` apart along an axis, which is kept with length 1, by the trapezoidal rule.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.trapezoid.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let y = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(y.trapezoid(0.5, 0).into_data().to_vec::<f32>(), [2.0]);
    /// ```
    pub fn trapezoid(self, dx: f64, axis: impl Into<Axis>) -> Self;

    /// Integrates samples at the positions `x`, `[n]` or broadcast to the samples, by the trapezoidal rule along an
    /// axis, which is kept with length 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.trapezoid.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let y = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let x = Tensor::<Flex, 1>::from_floats([0.0, 1.0, 3.0], &device);
    /// assert_eq!(y.trapezoid_at(x, 0).into_data().to_vec::<f32>(), [6.5]);
    /// ```
    ///
    /// # Panics
    /// When the positions do not broadcast to the samples.
    pub fn trapezoid_at<const D2: usize>(self, x: Tensor<B, D2> as any, axis: impl Into<Axis>) -> Self;

    /// Computes the cumulative trapezoidal integral of samples `dx` apart along an axis, which becomes shorter by 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cumulative_trapezoid.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let y = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(y.cumulative_trapezoid(1.0, 0).into_data().to_vec::<f32>(), [1.5, 4.0]);
    /// ```
    pub fn cumulative_trapezoid(self, dx: f64, axis: impl Into<Axis>) -> Self;

    /// Computes the cumulative trapezoidal integral of samples at the positions `x`, `[n]` or broadcast to the samples,
    /// along an axis, which becomes shorter by 1.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.cumulative_trapezoid.html>
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let y = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let x = Tensor::<Flex, 1>::from_floats([0.0, 1.0, 3.0], &device);
    /// assert_eq!(y.cumulative_trapezoid_at(x, 0).into_data().to_vec::<f32>(), [1.5, 6.5]);
    /// ```
    ///
    /// # Panics
    /// When the positions do not broadcast to the samples.
    pub fn cumulative_trapezoid_at<const D2: usize>(self, x: Tensor<B, D2> as any, axis: impl Into<Axis>) -> Self;
}
