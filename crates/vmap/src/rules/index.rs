//! Batching rules of indexing ops.
//!
//! Rules never add an offset to an index to address an example: an index out of range must be an error, not an element
//! of another example. If both operands are batched, indexing slices becomes indexing elements, with the batch as an
//! axis of the index.

use crate::call::{Call, joined, product};
use alloc::vec::Vec;
use kiln_ir::{Op, UpdateMode, Var};

/// The rule of `(x, index)`.
pub(super) fn take<'a>(call: &Call<'a>, axis: usize) -> Var<'a> {
    let (x, index) = (call.input(0), call.input(1));
    match (call.is_batched(0), call.is_batched(1)) {
        (_, false) => x.take(axis + 1, index),
        (false, true) => {
            // The index replaces the axis by its axes, including the batch axis.
            let taken = x.take(axis, index);
            let rest = (0..taken.rank()).filter(|&other| other != axis);
            let order: Vec<usize> = core::iter::once(axis).chain(rest).collect();
            taken.permute(&order)
        }
        (true, true) => {
            let places = Places::new(call, axis);
            let found = x.reshape(places.base(call.n)).gather(2, &places.spread(index));
            found.reshape(call.with_examples(&call.results[0].shape))
        }
    }
}

/// The rule of `(base, index, source)`.
pub(super) fn put<'a>(call: &Call<'a>, axis: usize, mode: UpdateMode) -> Var<'a> {
    let (base, source) = (call.examples(0), call.examples(2));
    let index = call.input(1);
    if !call.is_batched(1) {
        return base.apply(Op::Put { axis: axis + 1, mode }, &[index, &source]);
    }
    let places = Places::new(call, axis);
    let index = places.spread(index);
    let written = base.reshape(places.base(call.n)).scatter(2, mode, &index, &source.reshape(index.shape()));
    written.reshape(base.shape())
}

/// The dims of a base as `[examples, before, length, after]`, and of the elements read from it as
/// `[examples, before, count, after]`.
struct Places {
    before: usize,
    length: usize,
    after: usize,
    count: usize,
}

impl Places {
    fn new(call: &Call<'_>, axis: usize) -> Places {
        let base = call.shape(0);
        Places {
            before: product(&base[..axis]),
            length: base[axis],
            after: product(&base[axis + 1..]),
            count: call.shape(1).num_elements(),
        }
    }

    fn base(&self, n: usize) -> Vec<usize> {
        joined(&[n], &[self.before, self.length, self.after])
    }

    /// The per-example index, broadcast along all other axes: a view.
    fn spread<'a>(&self, index: &Var<'a>) -> Var<'a> {
        let n = index.shape()[0];
        index.reshape([n, 1, self.count, 1]).broadcast([n, self.before, self.count, self.after])
    }
}
