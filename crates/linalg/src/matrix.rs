//! Expressions on matrices, the last two dimensions, for gradients and composed functions.

pub(crate) mod complex;

use crate::op::last_two;
use kiln_ir::{DType, Shape, SliceAxis, TensorType, Var};

/// Row and column indices, `[rows, 1]` and `[1, cols]`.
fn positions<'e>(x: &Var<'e>, rows: usize, cols: usize) -> (Var<'e>, Var<'e>) {
    let count = |shape: [usize; 2], axis| Var::iota(x.engine(), TensorType::new(shape, DType::I32), axis);
    (count([rows, 1], 0), count([1, cols], 1))
}

/// The mask `column - row <= diagonal`: `[rows, cols]`.
fn at_most<'e>(x: &Var<'e>, rows: usize, cols: usize, diagonal: i32) -> Var<'e> {
    let (row, col) = positions(x, rows, cols);
    col.less(&(row + f64::from(diagonal) + 1.0))
}

/// The mask of the main diagonal: `[rows, cols]`.
pub(crate) fn on_diagonal<'e>(x: &Var<'e>, rows: usize, cols: usize) -> Var<'e> {
    let (row, col) = positions(x, rows, cols);
    row.equal(&col)
}

/// Elements on and below a diagonal, zeros elsewhere (`tril`).
pub(crate) fn tril<'e>(x: &Var<'e>, diagonal: i32) -> Var<'e> {
    let (rows, cols) = last_two(&x.shape());
    at_most(x, rows, cols, diagonal).select(x, &x.scalar(0.0))
}

/// Elements on and above a diagonal, zeros elsewhere (`triu`).
pub(crate) fn triu<'e>(x: &Var<'e>, diagonal: i32) -> Var<'e> {
    let (rows, cols) = last_two(&x.shape());
    at_most(x, rows, cols, diagonal - 1).select(&x.scalar(0.0), x)
}

/// The identity matrix `[rows, cols]`, in the dtype of `x`.
pub(crate) fn eye<'e>(x: &Var<'e>, rows: usize, cols: usize) -> Var<'e> {
    on_diagonal(x, rows, cols).cast(x.dtype())
}

/// The symmetric matrix with this lower triangle.
pub(crate) fn symmetric_from_lower<'e>(x: &Var<'e>) -> Var<'e> {
    tril(x, 0) + tril(x, -1).transpose()
}

/// The diagonal: `[.., rows, cols]` to `[.., min(rows, cols)]`.
pub(crate) fn diagonal<'e>(x: &Var<'e>) -> Var<'e> {
    let shape = x.shape();
    let rank = shape.rank();
    let length = shape[rank - 2].min(shape[rank - 1]);
    let square = block(x, 0..length, 0..length);
    let kept = on_diagonal(x, length, length).select(&square, &x.scalar(0.0));
    kept.sum(&[rank - 2]).reshape(shape.without(rank - 1).with(rank - 2, length))
}

/// The diagonal matrix: `[.., n]` to `[.., n, n]`.
pub(crate) fn from_diagonal<'e>(x: &Var<'e>) -> Var<'e> {
    let n = x.shape()[x.rank() - 1];
    on_diagonal(x, n, n).select(&as_row(x), &x.scalar(0.0))
}

/// Row vectors: `[.., n]` to `[.., 1, n]`.
pub(crate) fn as_row<'e>(x: &Var<'e>) -> Var<'e> {
    x.reshape(x.shape().inserted(x.rank() - 1, 1))
}

/// Column vectors: `[.., n]` to `[.., n, 1]`.
pub(crate) fn as_column<'e>(x: &Var<'e>) -> Var<'e> {
    x.reshape(x.shape().inserted(x.rank(), 1))
}

/// A block: ranges of rows and columns.
pub(crate) fn block<'e>(x: &Var<'e>, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) -> Var<'e> {
    let shape = x.shape();
    let rank = shape.rank();
    if (rows.len(), cols.len()) == (shape[rank - 2], shape[rank - 1]) {
        return x.clone();
    }
    let mut slices: Vec<SliceAxis> = shape.iter().map(|&length| SliceAxis::all(length)).collect();
    slices[rank - 2] = SliceAxis::range(rows);
    slices[rank - 1] = SliceAxis::range(cols);
    x.slice(slices)
}

/// A range of columns.
pub(crate) fn columns<'e>(x: &Var<'e>, cols: std::ops::Range<usize>) -> Var<'e> {
    block(x, 0..last_two(&x.shape()).0, cols)
}

/// A range of rows.
pub(crate) fn rows<'e>(x: &Var<'e>, rows: std::ops::Range<usize>) -> Var<'e> {
    block(x, rows, 0..last_two(&x.shape()).1)
}

/// Concatenates matrices horizontally.
pub(crate) fn beside<'e>(parts: &[Var<'e>]) -> Var<'e> {
    Var::concat(parts, parts[0].rank() - 1)
}

/// Concatenates matrices vertically.
pub(crate) fn below<'e>(parts: &[Var<'e>]) -> Var<'e> {
    Var::concat(parts, parts[0].rank() - 2)
}

/// One element per matrix: `[..]` to `[.., 1, 1]`.
pub(crate) fn as_matrix<'e>(x: &Var<'e>) -> Var<'e> {
    let shape: Shape = x.shape().iter().copied().chain([1, 1]).collect();
    x.reshape(shape)
}

/// The sum of each matrix, `[.., 1, 1]`.
pub(crate) fn sum<'e>(x: &Var<'e>) -> Var<'e> {
    x.sum(&[x.rank() - 2, x.rank() - 1])
}

/// The gradient of a result, or zeros if there is none.
pub(crate) fn or_zeros<'e>(gradient: &Option<Var<'e>>, like: &Var<'e>) -> Var<'e> {
    gradient.clone().unwrap_or_else(|| Var::zeros(like.engine(), like.ty()))
}
