//! Pooling.

use crate::numbers::{Number, Numbers, reals};
use crate::places::{pick, place, positions};
use crate::reduce::first_extreme;
use alloc::vec::Vec;
use kiln_ir::{Extremum, PoolKind, PoolSpec, Result, Shape, TensorData, TensorType};

pub(crate) fn pool(x: &TensorData, spec: &PoolSpec, ty: TensorType) -> Result<TensorData> {
    let include_padding = match spec.kind {
        PoolKind::Max => return pick(&[x], winners(x, spec, &ty.shape), ty.shape),
        PoolKind::Average { include_padding } => include_padding,
    };
    let elements = reals(x);
    let mean = |window: Window| {
        let sum: f64 = window.places.iter().map(|&place| elements[place]).sum();
        sum / window.divisor(include_padding)
    };
    Numbers::Real(windows(spec, x.shape(), &ty.shape).map(mean).collect()).into_data(ty)
}

/// The gradient of pooling. Only max pooling needs the operand `x`.
pub(crate) fn pool_grad(
    grad: &TensorData,
    x: Option<&TensorData>,
    spec: &PoolSpec,
    ty: TensorType,
) -> Result<TensorData> {
    if let (PoolKind::Max, Some(x)) = (spec.kind, x) {
        let winners = winners(x, spec, grad.shape());
        let numbers = match Numbers::of(grad) {
            Numbers::Real(grad) => Numbers::Real(sent_back(&grad, &winners, ty.num_elements())),
            Numbers::Integer(grad) => Numbers::Integer(sent_back(&grad, &winners, ty.num_elements())),
        };
        return numbers.into_data(ty);
    }
    let include_padding = spec.kind == PoolKind::Average { include_padding: true };
    let mut totals = alloc::vec![0.0; ty.num_elements()];
    for (window, grad) in windows(spec, &ty.shape, grad.shape()).zip(reals(grad)) {
        for &place in &window.places {
            totals[place] += grad / window.divisor(include_padding);
        }
    }
    Numbers::Real(totals).into_data(ty)
}

fn sent_back<N: Number>(grad: &[N], winners: &[usize], count: usize) -> Vec<N> {
    let mut totals = alloc::vec![N::ZERO; count];
    for (&grad, &winner) in grad.iter().zip(winners) {
        totals[winner] = totals[winner].plus(grad);
    }
    totals
}

/// For each window, the place of its first maximum.
fn winners(x: &TensorData, spec: &PoolSpec, y: &Shape) -> Vec<usize> {
    fn winner<N: Number>(numbers: &[N], window: &Window) -> usize {
        let elements: Vec<N> = window.places.iter().map(|&place| numbers[place]).collect();
        window.places[first_extreme(&elements, Extremum::Max)]
    }
    let windows = windows(spec, x.shape(), y);
    match Numbers::of(x) {
        Numbers::Real(n) => windows.map(|window| winner(&n, &window)).collect(),
        Numbers::Integer(n) => windows.map(|window| winner(&n, &window)).collect(),
    }
}

/// The pooling window of one result element.
struct Window {
    /// The places in the operand, in row-major order.
    places: Vec<usize>,
    /// The number of elements with padding, but without overhang.
    padded: usize,
}

impl Window {
    fn divisor(&self, include_padding: bool) -> f64 {
        if include_padding { self.padded as f64 } else { self.places.len() as f64 }
    }
}

/// The windows of all elements of the result `y`, in row-major order.
fn windows<'a>(spec: &'a PoolSpec, x: &'a Shape, y: &'a Shape) -> impl Iterator<Item = Window> + 'a {
    positions(*y).map(|position| {
        let mut window = Window { places: Vec::new(), padded: 0 };
        for k in positions(spec.window.as_slice().into()) {
            // The index in the padded operand along a pooled axis.
            let index = |axis: usize| position[axis + 2] * spec.stride[axis] + k[axis] * spec.dilation[axis];
            let axes = 0..spec.window.len();
            let counts = |axis: usize| {
                let (low, high) = spec.padding[axis];
                index(axis) < low + x[axis + 2] + high
            };
            window.padded += usize::from(axes.clone().all(counts));
            let inside = |axis: usize| {
                index(axis).checked_sub(spec.padding[axis].0).filter(|&index| index < x[axis + 2])
            };
            let space: Option<Vec<usize>> = axes.map(inside).collect();
            if let Some(space) = space {
                let source: Vec<usize> = position[..2].iter().copied().chain(space).collect();
                window.places.push(place(x, &source));
            }
        }
        window
    })
}
