//! Coordinate grids and grid sampling.

use super::ok;
use crate::any::GridSampleOptions;
use crate::tensor::forward::forward;
use crate::{AnyTensor, Backend, Int, Shape, Tensor};

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// Creates a tensor of the index of each element of a shape: for `[2, 3]` a tensor of shape `[2, 3, 2]`. `D` is the
    /// rank of the shape plus one.
    ///
    /// # Panics
    /// When `D` is not the rank of the shape plus one.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let grid = Tensor::<Flex, 3, Int>::cartesian_grid([2, 2], &Default::default());
    /// assert_eq!(grid.into_data().to_vec::<i32>(), [0, 0, 0, 1, 1, 0, 1, 1]);
    /// ```
    ///
    /// <https://numpy.org/doc/stable/reference/generated/numpy.indices.html>, with the axes last.
    #[track_caller]
    pub fn cartesian_grid(shape: impl Into<Shape>, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::cartesian_grid(shape, &B::stack(device))))
    }
}

forward! {
    impl[B: Backend] Tensor<B, 4>;

    /// Samples images `[batch, channels, height, width]` at the points of a grid `[batch, height_out, width_out, 2]`.
    /// The result is `[batch, channels, height_out, width_out]`.
    ///
    /// A point is `(x, y)`: -1 is the left or upper end, 1 the right or lower end. NaN is read as -1. Both operands
    /// have gradients; with `Nearest` the gradient of the grid is 0.
    ///
    /// # Panics
    /// When the batch sizes differ, or height or width is 0.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, grid::GridSampleOptions};
    ///
    /// let picture = Tensor::<Flex, 4>::from_floats([[[[1.0f32, 2.0], [3.0, 4.0]]]], &Default::default());
    /// let centre = Tensor::<Flex, 4>::zeros([1, 1, 1, 2], &Default::default());
    /// let value = picture.grid_sample_2d(centre, GridSampleOptions::default());
    /// assert_eq!(value.into_data().to_vec::<f32>(), [2.5]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html>
    pub fn grid_sample_2d(self, grid: Tensor<B, 4> as any, options: GridSampleOptions) -> Self;
}

forward! {
    impl[B: Backend] Tensor<B, 5>;

    /// Samples volumes `[batch, channels, depth, height, width]` at the points of a grid
    /// `[batch, depth_out, height_out, width_out, 3]`. The result is
    /// `[batch, channels, depth_out, height_out, width_out]`. A point is `(x, y, z)`, where x is the position along the
    /// width.
    ///
    /// # Panics
    /// When the batch sizes differ, depth, height or width is 0, or the mode is bicubic.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, grid::GridSampleOptions};
    ///
    /// let volume = Tensor::<Flex, 5>::ones([1, 2, 3, 3, 3], &Default::default());
    /// let points = Tensor::<Flex, 5>::zeros([1, 1, 1, 4, 3], &Default::default());
    /// let values = volume.grid_sample_3d(points, GridSampleOptions::default());
    /// assert_eq!(values.dims(), [1, 2, 1, 1, 4]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html>
    pub fn grid_sample_3d(self, grid: Tensor<B, 5> as any, options: GridSampleOptions) -> Self;
}
