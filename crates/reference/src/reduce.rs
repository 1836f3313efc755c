//! Reductions, scans, argmin and argmax.

use crate::numbers::{Number, Numbers};
use crate::places::{lines, place, positions};
use alloc::vec::Vec;
use kiln_ir::{Axes, Extremum, Reduction, Result, Scalar, Shape, TensorData, TensorType};

pub(crate) fn reduce(
    x: &TensorData,
    reduction: Reduction,
    axes: &Axes,
    ty: TensorType,
) -> Result<TensorData> {
    let identity = reduction.identity(ty.dtype);
    let numbers = match Numbers::of(x) {
        Numbers::Real(n) => Numbers::Real(reduced(&n, x.shape(), reduction, identity, axes, ty.shape)),
        Numbers::Integer(n) => Numbers::Integer(reduced(&n, x.shape(), reduction, identity, axes, ty.shape)),
    };
    numbers.into_data(ty)
}

fn reduced<N: Number>(
    numbers: &[N],
    shape: &Shape,
    reduction: Reduction,
    identity: Scalar,
    axes: &Axes,
    result: Shape,
) -> Vec<N> {
    let mut totals = alloc::vec![N::from_scalar(identity); result.num_elements()];
    for (mut position, &number) in positions(*shape).zip(numbers) {
        for axis in axes.iter() {
            position[axis] = 0;
        }
        let total = &mut totals[place(&result, &position)];
        *total = total.combined(reduction, number);
    }
    totals
}

pub(crate) fn scan(
    x: &TensorData,
    reduction: Reduction,
    axis: usize,
    reverse: bool,
    exclusive: bool,
) -> Result<TensorData> {
    let order = Order { reduction, identity: reduction.identity(x.dtype()), reverse, exclusive };
    let numbers = match Numbers::of(x) {
        Numbers::Real(n) => Numbers::Real(order.scanned(&n, x.shape(), axis)),
        Numbers::Integer(n) => Numbers::Integer(order.scanned(&n, x.shape(), axis)),
    };
    numbers.into_data(x.ty())
}

/// The direction and reduction of a scan.
struct Order {
    reduction: Reduction,
    identity: Scalar,
    reverse: bool,
    exclusive: bool,
}

impl Order {
    fn scanned<N: Number>(&self, numbers: &[N], shape: &Shape, axis: usize) -> Vec<N> {
        let mut result = numbers.to_vec();
        for line in lines(shape, axis) {
            let mut places: Vec<usize> = line.places().collect();
            if self.reverse {
                places.reverse();
            }
            let mut total = N::from_scalar(self.identity);
            for place in places {
                let before = total;
                total = total.combined(self.reduction, numbers[place]);
                result[place] = if self.exclusive { before } else { total };
            }
        }
        result
    }
}

pub(crate) fn arg_reduce(
    x: &TensorData,
    extremum: Extremum,
    axis: usize,
    ty: TensorType,
) -> Result<TensorData> {
    let indices = match Numbers::of(x) {
        Numbers::Real(n) => extreme_indices(&n, x.shape(), extremum, axis),
        Numbers::Integer(n) => extreme_indices(&n, x.shape(), extremum, axis),
    };
    Numbers::Integer(indices).into_data(ty)
}

fn extreme_indices<N: Number>(numbers: &[N], shape: &Shape, extremum: Extremum, axis: usize) -> Vec<i128> {
    let index = |line: crate::places::Line| {
        let elements: Vec<N> = line.places().map(|place| numbers[place]).collect();
        first_extreme(&elements, extremum) as i128
    };
    lines(shape, axis).map(index).collect()
}

/// The index of the first extremum; NaN counts as extreme. Needs at least one element.
pub(crate) fn first_extreme<N: Number>(elements: &[N], extremum: Extremum) -> usize {
    let mut best = 0;
    for (index, &element) in elements.iter().enumerate().skip(1) {
        let beyond = match extremum {
            Extremum::Min => element < elements[best],
            Extremum::Max => element > elements[best],
        };
        if !elements[best].is_nan() && (beyond || element.is_nan()) {
            best = index;
        }
    }
    best
}
