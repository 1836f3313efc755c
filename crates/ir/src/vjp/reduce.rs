//! Gradient rules of reductions and sorting.

use super::{Gradients, Rule, attains, index_dtype};
use crate::{Axes, PadAxis, Reduction, Scalar, Shape, SliceAxis, UpdateMode, Var};
use alloc::vec::Vec;

impl<'e> Rule<'_, 'e> {
    pub(super) fn reduce(&self, reduction: Reduction, axes: &Axes) -> Gradients<'e> {
        self.linear(|g, x| match reduction {
            Reduction::Sum => g.broadcast(x.shape()),
            Reduction::Prod => g * product_of_others(x, axes),
            // Recomputes the extreme from `x`: the saved result may come from an operand that was computed with other
            // rounding, and would then match no element.
            Reduction::Min | Reduction::Max => {
                let hit = attains(x, &x.reduce(reduction, &axes.to_vec()));
                let count = hit.cast(x.dtype()).sum(&axes.to_vec());
                hit.select(&(g / count), &g.scalar(0.0))
            }
        })
    }

    pub(super) fn scan(
        &self,
        reduction: Reduction,
        axis: usize,
        reverse: bool,
        exclusive: bool,
    ) -> Gradients<'e> {
        if reduction == Reduction::Sum {
            return self.linear(|g, _| g.scan(Reduction::Sum, axis, !reverse, exclusive));
        }
        let turned = |var: &Var<'e>| if reverse { var.flip(axis) } else { var.clone() };
        self.linear(|g, x| {
            let (g, forward) = (turned(g), turned(x));
            // An exclusive scan is the inclusive scan shifted by one.
            let g = if exclusive { shift(&g, axis, 1) } else { g };
            turned(&match reduction {
                Reduction::Sum => g.scan(Reduction::Sum, axis, true, false),
                Reduction::Prod => scan_prod(&g, &forward, axis),
                Reduction::Min | Reduction::Max => {
                    let y = if exclusive {
                        forward.scan(reduction, axis, false, false)
                    } else {
                        turned(self.y())
                    };
                    scan_extreme(&g, &forward, &y, axis)
                }
            })
        })
    }

    /// Scatters each gradient to the original position of its element.
    pub(super) fn sort(&self, axis: usize) -> Gradients<'e> {
        let Some(g) = &self.gradients[0] else { return self.zero() };
        let index = &self.outputs[1];
        let back = |x: &Var<'e>| Var::zeros(x.engine(), x.ty()).scatter(axis, UpdateMode::Add, index, g);
        alloc::vec![self.wanted[0].then(|| back(self.x(0)))]
    }
}

/// For each element, the product of all others that are reduced with it. It uses no division, so zeros are no problem.
fn product_of_others<'e>(x: &Var<'e>, axes: &Axes) -> Var<'e> {
    if axes.is_empty() {
        return Var::full(x.engine(), x.ty(), 1.0);
    }
    if axes.len() == 1 {
        let before = x.scan(Reduction::Prod, axes.get(0), false, true);
        return before * x.scan(Reduction::Prod, axes.get(0), true, true);
    }
    let kept = (0..x.rank()).filter(|axis| !axes.contains(*axis));
    let order = Axes::new(&kept.chain(axes.iter()).collect::<Vec<_>>());
    let moved = x.permute(&order.to_vec());
    let first = x.rank() - axes.len();
    let reduced: usize = moved.shape()[first..].iter().product();
    let flat: Shape = moved.shape()[..first].iter().copied().chain([reduced]).collect();
    let others = product_of_others(&moved.reshape(flat), &Axes::one(first));
    others.reshape(moved.shape()).permute(&order.inverse().to_vec())
}

/// The gradient of an inclusive cumulative product, without division.
///
/// With `S[k] = g[k] + x[k + 1] * S[k + 1]` it is `S[k]` times the product of the elements before `x[k]`. The
/// recurrence is solved by doubling: after each round `sum` covers twice as many terms.
fn scan_prod<'e>(g: &Var<'e>, x: &Var<'e>, axis: usize) -> Var<'e> {
    let len = x.shape()[axis];
    let mut sum = g.clone();
    let mut factor = shift(x, axis, 1);
    let mut covered = 1;
    while covered < len {
        sum = &sum + &factor * shift(&sum, axis, covered);
        factor = &factor * shift(&factor, axis, covered);
        covered *= 2;
    }
    x.scan(Reduction::Prod, axis, false, true) * sum
}

/// The gradient of an inclusive running minimum or maximum: adds each to the latest element that set the extreme.
fn scan_extreme<'e>(g: &Var<'e>, x: &Var<'e>, y: &Var<'e>, axis: usize) -> Var<'e> {
    let index = index_dtype(x.shape()[axis]);
    let places = Var::iota(x.engine(), x.ty().with_dtype(index), axis);
    let setters = attains(x, y).select(&places, &places.scalar(Scalar::Int(0)));
    let latest = setters.scan(Reduction::Max, axis, false, false);
    Var::zeros(x.engine(), x.ty()).scatter(axis, UpdateMode::Add, &latest, g)
}

/// Element `k + by` at position `k`, zeros after the end.
fn shift<'e>(var: &Var<'e>, axis: usize, by: usize) -> Var<'e> {
    let len = var.shape()[axis];
    let by = by.min(len);
    let mut pads = alloc::vec![PadAxis::default(); var.rank()];
    pads[axis].high = by;
    var.slice_axis(axis, SliceAxis { start: by, len: len - by, step: 1 }).pad(pads, 0.0)
}
