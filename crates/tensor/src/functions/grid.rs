//! Coordinate grids. To sample at them: [`Tensor::grid_sample_2d`] and [`Tensor::grid_sample_3d`].

pub use crate::any::{GridPadding, GridSampleMode, GridSampleOptions, Indexing};

use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{AnyTensor, Axis, Backend, Kind, Tensor};
use alloc::vec::Vec;

/// Creates coordinate grids from `N` vectors: each vector is expanded along the axes of all others. The results are
/// views, without a copy.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor, grid::{self, Indexing}};
///
/// let range = |n| Tensor::<Flex, 1, Int>::arange(0..n, &Default::default());
/// let [rows, columns] = grid::meshgrid([range(2), range(3)], Indexing::Matrix);
/// assert_eq!(rows.into_data().to_vec::<i32>(), [0, 0, 0, 1, 1, 1]);
/// assert_eq!(columns.into_data().to_vec::<i32>(), [0, 1, 2, 0, 1, 2]);
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.meshgrid.html>
///
/// # Panics
/// Without vectors.
#[track_caller]
pub fn meshgrid<B: Backend, const N: usize, K: Kind>(
    vectors: [Tensor<B, 1, K>; N],
    indexing: Indexing,
) -> [Tensor<B, N, K>; N] {
    let mut grids = ok(AnyTensor::meshgrid(anys(vectors), indexing)).into_iter();
    core::array::from_fn(|_| match grids.next() {
        Some(grid) => Tensor::from_any(grid),
        None => unreachable!("a grid for each vector"),
    })
}

/// Stacks the grids of [`meshgrid`] along a new axis of the result: 0 is the first axis, -1 the last. `D2` is `N + 1`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor, grid::{self, Indexing}};
///
/// let range = |n| Tensor::<Flex, 1, Int>::arange(0..n, &Default::default());
/// let points: Tensor<Flex, 3, Int> = grid::meshgrid_stack([range(2), range(3)], Indexing::Matrix, -1);
/// assert_eq!(points.dims(), [2, 3, 2]);
/// ```
///
/// # Panics
/// When `D2` is not `N + 1`.
#[track_caller]
pub fn meshgrid_stack<B: Backend, const N: usize, const D2: usize, K: Kind>(
    vectors: [Tensor<B, 1, K>; N],
    indexing: Indexing,
    axis: impl Into<Axis>,
) -> Tensor<B, D2, K> {
    Tensor::from_any(ok(AnyTensor::meshgrid_stack(anys(vectors), indexing, axis)))
}

/// Computes the Cartesian product of vectors, `[count, vectors]`; the last coordinate varies fastest. One vector
/// returns `[count, 1]`, where PyTorch returns the vector.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor, grid};
///
/// let x = Tensor::<Flex, 1, Int>::from_ints([1, 2], &Default::default());
/// let y = Tensor::<Flex, 1, Int>::from_ints([8, 9], &Default::default());
/// let points = grid::cartesian_prod([x, y]);
/// assert_eq!(points.into_data().to_vec::<i32>(), [1, 8, 1, 9, 2, 8, 2, 9]);
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.cartesian_prod.html>
///
/// # Panics
/// Without vectors.
#[track_caller]
pub fn cartesian_prod<B: Backend, const N: usize, K: Kind>(vectors: [Tensor<B, 1, K>; N]) -> Tensor<B, 2, K> {
    Tensor::from_any(ok(AnyTensor::cartesian_prod(anys(vectors))))
}

functions! {
    typed;

    /// Returns all combinations of `size` elements of a vector in their order, `[count, size]`; with replacement an element
    /// may repeat. A `size` above the number of elements, without replacement, returns no rows.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, grid};
    ///
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3], &Default::default());
    /// assert_eq!(grid::combinations(x, 2, false).into_data().to_vec::<i32>(), [1, 2, 1, 3, 2, 3]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.combinations.html>
    ///
    /// # Panics
    /// When the result would have more than 2²⁸ elements.
    pub fn combinations[B: Backend, K: Kind](
        x: Tensor<B, 1, K>,
        size: usize,
        with_replacement: bool,
    ) -> Tensor<B, 2, K>;

    /// Creates the sampling grids of affine maps of images, for [`Tensor::grid_sample_2d`]: maps `[batch, 2, 3]` and a size
    /// `[height, width]` to `[batch, height, width, 2]`.
    ///
    /// Point `(x, y)` is mapped to `map x [x, y, 1]`. Coordinates range from -1 to 1 between the centres of the outermost
    /// elements with `align_corners`, otherwise between their outer edges.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, grid};
    ///
    /// let identity = Tensor::<Flex, 3>::from_floats([[[1.0f32, 0.0, 0.0], [0.0, 1.0, 0.0]]], &Default::default());
    /// let points = grid::affine_grid_2d(identity, [1, 2], false);
    /// assert_eq!(points.into_data().to_vec::<f32>(), [-0.5, 0.0, 0.5, 0.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html>
    ///
    /// # Panics
    /// When the maps are not `[batch, 2, 3]`.
    pub fn affine_grid_2d[B: Backend](
        maps: Tensor<B, 3>,
        size: [usize; 2],
        align_corners: bool,
    ) -> Tensor<B, 4>;

    /// Creates the sampling grids of affine maps of volumes, for [`Tensor::grid_sample_3d`]: maps `[batch, 3, 4]` and a
    /// size `[depth, height, width]` to `[batch, depth, height, width, 3]`. See [`affine_grid_2d`].
    ///
    /// # Panics
    /// When the maps are not `[batch, 3, 4]`.
    pub fn affine_grid_3d[B: Backend](
        maps: Tensor<B, 3>,
        size: [usize; 3],
        align_corners: bool,
    ) -> Tensor<B, 5>;
}

fn anys<B: Backend, const N: usize, K: Kind>(vectors: [Tensor<B, 1, K>; N]) -> Vec<AnyTensor> {
    vectors.into_iter().map(Tensor::into_any).collect()
}
