//! Block kernels of pooling and its gradients, over `[rows, space..]` with any number of spatial dimensions.
//!
//! Parameters: the tensors, the number of points, and the lengths of the operand and the result along each dimension,
//! alternately.

use crate::index::combined_in;
use kiln_ir::{DType, PoolKind, PoolSpec};
use kiln_kernel::block::{BlockKernel, Builder, Expression, constant, index};

/// Threads per block.
const THREADS: u32 = 256;

/// The lengths of the operand and the result along each spatial dimension.
struct Extents {
    total: Expression,
    operand: Vec<Expression>,
    result: Vec<Expression>,
}

impl Extents {
    fn new(k: &Builder, axes: usize) -> Extents {
        let total = k.length("total");
        let (mut operand, mut result) = (Vec::new(), Vec::new());
        for axis in 0..axes {
            operand.push(k.length(&format!("x{axis}")));
            result.push(k.length(&format!("y{axis}")));
        }
        Extents { total, operand, result }
    }
}

/// The row of an element of `[rows, lengths..]`, and its index along each dimension.
pub(crate) fn split(k: &Builder, at: &Expression, lengths: &[Expression]) -> (Expression, Vec<Expression>) {
    let mut rest = at.clone();
    let mut places: Vec<Expression> = Vec::new();
    for length in lengths.iter().rev() {
        places.push(k.bind(&(&rest % length)));
        rest = k.bind(&(&rest / length));
    }
    places.reverse();
    (rest, places)
}

/// The index of an element in its row.
pub(crate) fn joined(places: &[Expression], lengths: &[Expression]) -> Expression {
    let mut at = places[0].clone();
    for (place, length) in places.iter().zip(lengths).skip(1) {
        at = at * length + place;
    }
    at
}

/// The number of elements of a row.
pub(crate) fn product(lengths: &[Expression]) -> Expression {
    let first = lengths[0].clone();
    lengths[1..].iter().fold(first, |product, length| product * length)
}

/// The first maximum of each window: its value, or its index in its row (`finds_index`).
pub(crate) fn max(spec: &PoolSpec, dtype: DType, finds_index: bool) -> BlockKernel {
    let k = Builder::new("pool_max", THREADS);
    let x = k.input("x", dtype);
    let y = k.output("y", if finds_index { DType::I32 } else { dtype });
    let extents = Extents::new(&k, spec.window.len());
    k.for_points(&extents.total, |p| {
        let (row, window) = split(&k, &p, &extents.result);
        let start = k.bind(&(row * product(&extents.operand)));
        let none = index(0) - index(1);
        let best_at = k.var(&none);
        let best = k.var(&zero(dtype));
        each_in_window(&k, spec, &window, &extents.operand, &|at| {
            let next = k.bind(&x.at(&(&start + at)));
            let mut is_kept = next.le(&best.get());
            if dtype.is_float() {
                // A NaN replaces numbers, and is kept.
                let is_number = next.eq(&next);
                is_kept = best.get().ne(&best.get()) | (is_kept & is_number);
            }
            let is_kept = best_at.get().ge(&index(0)) & is_kept;
            k.when(&!is_kept, || {
                k.set(&best, &next);
                k.set(&best_at, at);
            });
        });
        let found = if finds_index { best_at.get().cast(DType::I32) } else { best.get() };
        k.store(&y, &p, &found);
    });
    k.finish()
}

/// The mean of each window.
pub(crate) fn average(spec: &PoolSpec, dtype: DType) -> BlockKernel {
    let k = Builder::new("pool_average", THREADS);
    let (x, y) = (k.input("x", dtype), k.output("y", dtype));
    let extents = Extents::new(&k, spec.window.len());
    let computed = combined_in(dtype);
    k.for_points(&extents.total, |p| {
        let (row, window) = split(&k, &p, &extents.result);
        let start = k.bind(&(row * product(&extents.operand)));
        let sum = k.var(&zero(computed));
        each_in_window(&k, spec, &window, &extents.operand, &|at| {
            k.set(&sum, &(sum.get() + x.at(&(&start + at)).cast(computed)));
        });
        let count = count(spec, &window, &extents.operand).cast(computed);
        k.store(&y, &p, &(sum.get() / count).cast(dtype));
    });
    k.finish()
}

/// The gradient of [`max`]: each element sums the gradients of the windows whose maximum it is. Inputs: gradients and the
/// indices of maxima.
pub(crate) fn max_grad(spec: &PoolSpec, dtype: DType) -> BlockKernel {
    let k = Builder::new("pool_max_grad", THREADS);
    let (grad, winners) = (k.input("grad", dtype), k.input("winners", DType::I32));
    let y = k.output("y", dtype);
    let extents = Extents::new(&k, spec.window.len());
    let computed = combined_in(dtype);
    k.for_points(&extents.total, |p| {
        let (row, element) = split(&k, &p, &extents.operand);
        let start = k.bind(&(&row * &product(&extents.result)));
        let own = k.bind(&(&p - &(&row * &product(&extents.operand))));
        let sum = k.var(&zero(computed));
        each_window(&k, spec, &element, &extents.result, &|window| {
            let at = k.bind(&(&start + &joined(window, &extents.result)));
            let wins = winners.at(&at).to_index().eq(&own);
            k.when(&wins, || k.set(&sum, &(sum.get() + grad.at(&at).cast(computed))));
        });
        k.store(&y, &p, &sum.get().cast(dtype));
    });
    k.finish()
}

/// The gradient of [`average`].
pub(crate) fn average_grad(spec: &PoolSpec, dtype: DType) -> BlockKernel {
    let k = Builder::new("pool_average_grad", THREADS);
    let (grad, y) = (k.input("grad", dtype), k.output("y", dtype));
    let extents = Extents::new(&k, spec.window.len());
    let computed = combined_in(dtype);
    k.for_points(&extents.total, |p| {
        let (row, element) = split(&k, &p, &extents.operand);
        let start = k.bind(&(row * product(&extents.result)));
        let sum = k.var(&zero(computed));
        each_window(&k, spec, &element, &extents.result, &|window| {
            let sent = grad.at(&(&start + &joined(window, &extents.result))).cast(computed);
            let count = count(spec, window, &extents.operand).cast(computed);
            k.set(&sum, &(sum.get() + sent / count));
        });
        k.store(&y, &p, &sum.get().cast(dtype));
    });
    k.finish()
}

fn zero(dtype: DType) -> Expression {
    constant(0, dtype)
}

/// Loops over the elements of a window that are no padding, with their index in the row.
fn each_in_window(
    k: &Builder,
    spec: &PoolSpec,
    window: &[Expression],
    lengths: &[Expression],
    body: &dyn Fn(&Expression),
) {
    in_window(k, spec, window, lengths, None, body);
}

/// The loops over dimensions from number `lengths.len() - window.len()` of the spec on. `before` is the index in the
/// earlier dimensions.
fn in_window(
    k: &Builder,
    spec: &PoolSpec,
    window: &[Expression],
    lengths: &[Expression],
    before: Option<&Expression>,
    body: &dyn Fn(&Expression),
) {
    let axis = spec.window.len() - window.len();
    let ([place, window @ ..], [length, lengths @ ..]) = (window, lengths) else {
        if let Some(at) = before {
            body(at);
        }
        return;
    };
    let first = k.bind(&(place * &index(spec.stride[axis]) - index(spec.padding[axis].0)));
    k.for_each(&index(spec.window[axis]), |step| {
        let at = k.bind(&(&first + &(step * index(spec.dilation[axis]))));
        let is_inside = at.ge(&index(0)) & at.lt(length);
        k.when(&is_inside, || {
            let at = match before {
                Some(before) => k.bind(&(before * length + &at)),
                None => at.clone(),
            };
            in_window(k, spec, window, lengths, Some(&at), body);
        });
    });
}

/// Loops over the windows that may contain an element, with their index along each dimension.
fn each_window(
    k: &Builder,
    spec: &PoolSpec,
    element: &[Expression],
    counts: &[Expression],
    body: &dyn Fn(&[Expression]),
) {
    around(k, spec, element, counts, &[], body);
}

fn around(
    k: &Builder,
    spec: &PoolSpec,
    element: &[Expression],
    counts: &[Expression],
    window: &[Expression],
    body: &dyn Fn(&[Expression]),
) {
    let axis = window.len();
    if axis == element.len() {
        return body(window);
    }
    let (stride, low) = (spec.stride[axis], spec.padding[axis].0);
    let reach = (spec.window[axis] - 1) * spec.dilation[axis];
    let last = k.bind(&(&element[axis] + &index(low)));
    let start = (&last - &index(reach)).max(&index(0));
    let first = (start + index(stride - 1)) / index(stride);
    let end = (&last / &index(stride) + index(1)).min(&counts[axis]);
    k.for_range(&first, &end, &index(1), |place| {
        let window: Vec<Expression> = window.iter().cloned().chain([place]).collect();
        around(k, spec, element, counts, &window, body);
    });
}

/// The divisor of an average window, as an index.
fn count(spec: &PoolSpec, window: &[Expression], lengths: &[Expression]) -> Expression {
    let PoolKind::Average { include_padding } = spec.kind else { return index(1) };
    let along = window.iter().zip(lengths).enumerate().map(|(axis, (place, length))| {
        let (low, high) = spec.padding[axis];
        let start = place * &index(spec.stride[axis]) - index(low);
        let end = &start + &index(spec.window[axis]);
        if include_padding {
            end.min(&(length + &index(high))) - start
        } else {
            end.min(length) - start.max(&index(0))
        }
    });
    product(&along.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::printed::assert_printed;

    fn spec(kind: PoolKind, axes: usize) -> PoolSpec {
        PoolSpec {
            kind,
            window: vec![3; axes],
            stride: vec![2; axes],
            padding: vec![(1, 0); axes],
            overhang: vec![1; axes],
            dilation: vec![if kind == PoolKind::Max { 2 } else { 1 }; axes],
        }
    }

    #[test]
    fn maxima_are_printed() {
        for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
            for axes in 1..=3 {
                let spec = spec(PoolKind::Max, axes);
                assert_printed(&max(&spec, dtype, false));
                assert_printed(&max(&spec, dtype, true));
                assert_printed(&max_grad(&spec, dtype));
            }
        }
    }

    #[test]
    fn means_are_printed() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for axes in 1..=3 {
                for include_padding in [false, true] {
                    let spec = spec(PoolKind::Average { include_padding }, axes);
                    assert_printed(&average(&spec, dtype));
                    assert_printed(&average_grad(&spec, dtype));
                }
            }
        }
    }
}
