//! Coordinate grids.

use super::super::data::check_table;
use crate::{AnyTensor, Axis, DType, Error, Result, Shape, Stack, TensorData, TensorType};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Axes, Binary, Op};

/// The axis order of a [`meshgrid`](crate::grid::meshgrid).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexing {
    /// Matrix indexing, `ij`: the first vector varies along the first axis.
    #[default]
    Matrix,
    /// Cartesian indexing, `xy`: the first vector varies along the second axis, the second along the first.
    Cartesian,
}

impl AnyTensor {
    /// Creates coordinate grids: each vector is expanded along the axes of all others. See
    /// [`grid::meshgrid`](crate::grid::meshgrid).
    ///
    /// # Errors
    /// When there are no vectors, a tensor has not exactly one axis, or the dtypes differ.
    pub fn meshgrid(vectors: Vec<AnyTensor>, indexing: Indexing) -> Result<Vec<AnyTensor>> {
        check_vectors("meshgrid", &vectors)?;
        let axes: Vec<usize> =
            (0..vectors.len()).map(|place| axis_of(place, vectors.len(), indexing)).collect();
        let mut shape = Shape::new(alloc::vec![1; vectors.len()]);
        for (vector, &axis) in vectors.iter().zip(&axes) {
            shape[axis] = vector.shape()[0];
        }
        let ones = Shape::new(alloc::vec![1; vectors.len()]);
        let repeated = |(vector, &axis): (AnyTensor, &usize)| {
            let length = vector.shape()[0];
            vector.reshape(ones.with(axis, length))?.expand(shape)
        };
        vectors.into_iter().zip(&axes).map(repeated).collect()
    }

    /// Stacks the grids of [`meshgrid`](AnyTensor::meshgrid) along a new axis. See
    /// [`grid::meshgrid_stack`](crate::grid::meshgrid_stack).
    ///
    /// # Errors
    /// As [`meshgrid`](AnyTensor::meshgrid), and when the axis is out of range of the result.
    pub fn meshgrid_stack(
        vectors: Vec<AnyTensor>,
        indexing: Indexing,
        axis: impl Into<Axis>,
    ) -> Result<AnyTensor> {
        stacked(AnyTensor::meshgrid(vectors, indexing)?, axis.into())
    }

    /// Computes the Cartesian product of vectors, `[count, vectors]`. See
    /// [`grid::cartesian_prod`](crate::grid::cartesian_prod).
    ///
    /// # Errors
    /// As [`meshgrid`](AnyTensor::meshgrid).
    pub fn cartesian_prod(vectors: Vec<AnyTensor>) -> Result<AnyTensor> {
        check_vectors("cartesian_prod", &vectors)?;
        let width = vectors.len();
        let points = AnyTensor::meshgrid_stack(vectors, Indexing::Matrix, -1)?;
        let count = points.shape()[..width].iter().product();
        points.reshape([count, width])
    }

    /// Returns all combinations of `size` elements of a vector, `[count, size]`. See
    /// [`grid::combinations`](crate::grid::combinations).
    ///
    /// # Errors
    /// When the tensor is not a vector, or the result has more than 2²⁸ elements.
    pub fn combinations(self, size: usize, with_replacement: bool) -> Result<AnyTensor> {
        check_vectors("combinations", core::slice::from_ref(&self))?;
        check_table(
            "combinations",
            &[number_of_choices(self.shape()[0], size, with_replacement), size.max(1)],
        )?;
        let chosen = choices(self.shape()[0], size, with_replacement);
        let shape = [chosen.len() / size.max(1), size];
        let shape = if size == 0 { [0, 0] } else { shape };
        let index = TensorData::new(chosen, shape)?.convert(self.stack().int_dtype());
        let index = AnyTensor::from_data(index, self.stack());
        self.apply_with(&Op::Take { axis: 0 }, [index.into_value().into()])
    }

    /// Returns the index of each element of a shape, `[shape.., axes]`.
    /// See [`Tensor::cartesian_grid`](crate::Tensor::cartesian_grid).
    ///
    /// # Errors
    /// When the shape has no axes.
    pub fn cartesian_grid(shape: impl Into<Shape>, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        let (shape, stack) = (shape.into(), device.as_ref());
        if shape.rank() == 0 {
            return Err(Error::type_error("cartesian_grid", "needs at least 1 axis", &[]));
        }
        let ty = TensorType::new(shape, stack.int_dtype());
        let axes = (0..shape.rank()).map(|axis| AnyTensor::iota(ty, axis, stack));
        stacked(axes.collect::<Result<Vec<AnyTensor>>>()?, Axis::from(-1))
    }

    /// Creates the sampling grids of affine maps of images: maps `[batch, 2, 3]`, size `[height, width]`, to
    /// `[batch, height, width, 2]`. See [`grid::affine_grid_2d`](crate::grid::affine_grid_2d).
    ///
    /// # Errors
    /// When the maps are not floats of shape `[batch, 2, 3]`.
    pub fn affine_grid_2d(self, size: [usize; 2], align_corners: bool) -> Result<AnyTensor> {
        affine_grid("affine_grid_2d", self, &size, align_corners)
    }

    /// Creates the sampling grids of affine maps of volumes: maps `[batch, 3, 4]`, size `[depth, height, width]`, to
    /// `[batch, depth, height, width, 3]`. See [`grid::affine_grid_3d`](crate::grid::affine_grid_3d).
    ///
    /// # Errors
    /// When the maps are not floats of shape `[batch, 3, 4]`.
    pub fn affine_grid_3d(self, size: [usize; 3], align_corners: bool) -> Result<AnyTensor> {
        affine_grid("affine_grid_3d", self, &size, align_corners)
    }
}

fn axis_of(place: usize, count: usize, indexing: Indexing) -> usize {
    match (indexing, place) {
        (Indexing::Cartesian, 0 | 1) if count > 1 => 1 - place,
        (Indexing::Cartesian | Indexing::Matrix, place) => place,
    }
}

fn check_vectors(op: &str, vectors: &[AnyTensor]) -> Result<()> {
    let Some(first) = vectors.first() else {
        return Err(Error::type_error(op, "needs at least one vector", &[])
            .hint("pass the coordinates along each axis"));
    };
    for vector in vectors {
        first.in_same_domain(op, vector)?;
        if vector.rank() != 1 || vector.dtype() != first.dtype() {
            return Err(Error::type_error(
                op,
                "needs tensors of one axis and one dtype",
                &[vector.ty().into()],
            ));
        }
    }
    Ok(())
}

/// Stacks tensors of one shape along a new axis.
fn stacked(tensors: Vec<AnyTensor>, axis: Axis) -> Result<AnyTensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::type_error("stack", "needs at least one tensor", &[]));
    };
    let shape = *first.shape();
    let axis = axis.of("stack", &first.ty().with_shape(shape.inserted(0, 1)))?;
    let parts = tensors.into_iter().map(|tensor| tensor.reshape(shape.inserted(axis, 1)));
    AnyTensor::cat(parts.collect::<Result<Vec<AnyTensor>>>()?, axis)
}

/// Returns the binomial coefficient; saturates.
fn number_of_choices(length: usize, size: usize, with_replacement: bool) -> usize {
    let from = if with_replacement { (length + size).saturating_sub(1) } else { length };
    let step = |count: usize, place: usize| -> Option<usize> {
        // A partial product is a binomial coefficient itself, and so an integer.
        usize::try_from(count as u128 * (from - place) as u128 / (place as u128 + 1)).ok()
    };
    if size > from {
        return 0;
    }
    (0..size.min(from - size)).try_fold(1, step).unwrap_or(usize::MAX)
}

/// Returns the indices of all combinations in lexicographic order, concatenated.
fn choices(length: usize, size: usize, with_replacement: bool) -> Vec<i64> {
    let mut all = Vec::new();
    let mut choice: Vec<usize> = match with_replacement {
        true => alloc::vec![0; size],
        false => (0..size).collect(),
    };
    let last =
        |place: usize| if with_replacement { length } else { (length + place + 1).saturating_sub(size) };
    if size == 0 || length == 0 || (!with_replacement && size > length) {
        return all;
    }
    loop {
        all.extend(choice.iter().map(|&index| index as i64));
        let Some(place) = (0..size).rev().find(|&place| choice[place] + 1 < last(place)) else { return all };
        choice[place] += 1;
        for next in place + 1..size {
            choice[next] = choice[next - 1] + usize::from(!with_replacement);
        }
    }
}

/// Coordinates range from -1 to 1 between the centres of the outermost elements, or between their outer edges.
fn affine_grid(op: &str, maps: AnyTensor, size: &[usize], align_corners: bool) -> Result<AnyTensor> {
    let axes = size.len();
    let fits = maps.rank() == 3 && maps.shape()[1..] == [axes, axes + 1];
    if !fits || !maps.dtype().is_float() {
        let problem = format!("needs floats of shape [batch, {axes}, {}]", axes + 1);
        return Err(Error::type_error(op, problem, &[maps.ty().into()])
            .hint("each row of a map computes one coordinate: a linear part, then a shift"));
    }
    let batch = maps.shape()[0];
    let points = size.iter().fold(1usize, |count, &length| count.saturating_mul(length));
    let ty = TensorType::new(size, wide(maps.dtype()));
    let mut columns = Vec::new();
    // The order of coordinates is x first, where x is the position along the last axis.
    for axis in (0..axes).rev() {
        let length = size[axis] as f64;
        let divisor = if align_corners { length - 1.0 } else { length };
        let centred = AnyTensor::iota(ty, axis, maps.stack())?
            .binary_scalar(Binary::Mul, 2.0)?
            .binary_scalar(Binary::Sub, length - 1.0)?;
        columns.push(centred.binary_scalar(Binary::Div, divisor.max(1.0))?.reshape([points, 1])?);
    }
    columns.push(AnyTensor::ones(TensorType::new([points, 1], ty.dtype), maps.stack())?);
    let dtype = maps.dtype();
    let base =
        AnyTensor::cat(columns, 1)?.reshape([1, points, axes + 1])?.expand([batch, points, axes + 1])?;
    let maps = maps.cast(ty.dtype)?.apply(&Op::Permute(Axes::new(&[0, 2, 1])))?;
    let grid = base.matmul(maps)?.cast(dtype)?;
    grid.reshape(core::iter::once(batch).chain(size.iter().copied()).chain([axes]).collect::<Shape>())
}

/// Returns the dtype in which coordinates are computed: 16 bits do not distinguish adjacent elements of long axes.
pub(super) fn wide(dtype: DType) -> DType {
    if dtype.size() < 4 { DType::F32 } else { dtype }
}
