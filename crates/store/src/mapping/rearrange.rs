//! Permutations, slices and concatenations of elements in host memory.

use kiln_tensor::{Error, Shape, TensorData, TensorType};

/// The side of the tiles of a permutation, in elements: two tiles of 8-byte elements fit the L1 cache.
const TILE: usize = 32;

/// Reorders axes: axis `i` of the result is axis `axes[i]` of the input.
pub(super) fn permute(data: &TensorData, axes: &[usize]) -> Result<TensorData, Error> {
    let shape = permuted(data.shape(), axes);
    let ty = TensorType { shape, dtype: data.dtype() };
    let strides = data.shape().row_major_strides();
    let strides: Vec<usize> = axes.iter().map(|&axis| strides[axis]).collect();
    let mut bytes = vec![0; data.bytes().len()];
    match data.dtype().size() {
        1 => permute_elements::<1>(data.bytes(), &mut bytes, &shape, &strides),
        2 => permute_elements::<2>(data.bytes(), &mut bytes, &shape, &strides),
        4 => permute_elements::<4>(data.bytes(), &mut bytes, &shape, &strides),
        _ => permute_elements::<8>(data.bytes(), &mut bytes, &shape, &strides),
    }
    TensorData::from_bytes(&bytes, ty)
}

/// The shape after [`permute`].
pub(super) fn permuted(shape: &Shape, axes: &[usize]) -> Shape {
    axes.iter().map(|&axis| shape[axis]).collect()
}

/// Fills `to` in row-major order with the elements of `from` at these strides.
fn permute_elements<const N: usize>(from: &[u8], to: &mut [u8], shape: &Shape, strides: &[usize]) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let lengths = shape.to_vec();
    let (outer, rows, columns) = match lengths.as_slice() {
        [] => (&[][..], 1, 1),
        [columns] => (&[][..], 1, *columns),
        [outer @ .., rows, columns] => (outer, *rows, *columns),
    };
    let stride_of =
        |axis_from_end: usize| strides.len().checked_sub(axis_from_end).map_or(0, |axis| strides[axis]);
    let (row_stride, column_stride) = (stride_of(2), stride_of(1));
    if rows * columns == 0 {
        return;
    }
    for (matrix, to) in to.chunks_exact_mut(rows * columns).enumerate() {
        let start = offset(matrix, outer, strides);
        for first_row in (0..rows).step_by(TILE) {
            for first_column in (0..columns).step_by(TILE) {
                for row in first_row..rows.min(first_row + TILE) {
                    for column in first_column..columns.min(first_column + TILE) {
                        to[row * columns + column] = from[start + row * row_stride + column * column_stride];
                    }
                }
            }
        }
    }
}

/// The position of the element whose row-major index over `lengths` is `index`.
fn offset(mut index: usize, lengths: &[usize], strides: &[usize]) -> usize {
    let mut offset = 0;
    for (&length, &stride) in lengths.iter().zip(strides).rev() {
        offset += index % length * stride;
        index /= length;
    }
    offset
}

/// The elements `start..start + length` of an axis.
pub(super) fn narrow(
    data: &TensorData,
    dim: usize,
    start: usize,
    length: usize,
) -> Result<TensorData, Error> {
    let (rows, row) = rows(data, dim);
    let one = row / data.shape()[dim].max(1);
    let range = start * one..(start + length) * one;
    let mut bytes = Vec::with_capacity(rows * range.len());
    for i in 0..rows {
        bytes.extend_from_slice(&data.bytes()[i * row..][range.clone()]);
    }
    TensorData::from_bytes(&bytes, TensorType { shape: data.shape().with(dim, length), dtype: data.dtype() })
}

/// Joins tensors along an axis. They must have equal dtypes, and equal shapes except for that axis.
pub(super) fn concat(parts: &[TensorData], dim: usize, ty: TensorType) -> Result<TensorData, Error> {
    let total: usize = parts.iter().map(|part| part.bytes().len()).sum();
    let mut bytes = Vec::with_capacity(total);
    let count = parts.first().map_or(0, |part| rows(part, dim).0);
    for i in 0..count {
        for part in parts {
            let (_, row) = rows(part, dim);
            bytes.extend_from_slice(&part.bytes()[i * row..][..row]);
        }
    }
    TensorData::from_bytes(&bytes, ty)
}

/// The number of slices before an axis, and the bytes of one slice.
fn rows(data: &TensorData, dim: usize) -> (usize, usize) {
    let count: usize = data.shape().iter().take(dim).product();
    (count, data.bytes().len() / count.max(1))
}
