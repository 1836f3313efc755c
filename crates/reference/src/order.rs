//! Sorting.

use crate::numbers::{Number, Numbers};
use crate::places::{lines, pick, place, positions};
use alloc::vec::Vec;
use kiln_ir::{Result, Shape, TensorData, TensorType};

/// The first elements of a stable sort along an axis and their indices, as many as the results have.
pub(crate) fn sort(
    x: &TensorData,
    axis: usize,
    descending: bool,
    results: &[TensorType],
) -> Result<Vec<TensorData>> {
    let orders = match Numbers::of(x) {
        Numbers::Real(n) => sorted_indices(&n, x.shape(), axis, descending),
        Numbers::Integer(n) => sorted_indices(&n, x.shape(), axis, descending),
    };
    let shape = results[0].shape;
    let one_line = shape.with(axis, 1);
    let indices = positions(shape).map(|p| orders[place(&one_line, &p.with(axis, 0))][p[axis]]);
    let indices: Vec<usize> = indices.collect();
    let places = positions(shape).zip(&indices).map(|(p, &index)| place(x.shape(), &p.with(axis, index)));
    let values = pick(&[x], places, shape)?;
    let indices = indices.iter().map(|&index| index as i128).collect();
    Ok(alloc::vec![values, Numbers::Integer(indices).into_data(results[1])?])
}

/// For each line along the axis, the indices of its elements in the order of a stable sort.
fn sorted_indices<N: Number>(numbers: &[N], shape: &Shape, axis: usize, descending: bool) -> Vec<Vec<usize>> {
    let sorted = |line: crate::places::Line| {
        let mut indices: Vec<usize> = (0..shape[axis]).collect();
        indices.sort_by(|&a, &b| {
            let order = numbers[line.place(a)].order(numbers[line.place(b)]);
            if descending { order.reverse() } else { order }
        });
        indices
    };
    lines(shape, axis).map(sorted).collect()
}
