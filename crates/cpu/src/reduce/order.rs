//! The order in which the elements of a result are combined: a function of their number alone.
//!
//! The elements of a result are numbered in row-major order of the operand's axes, and split into blocks of [`BLOCK`]. In
//! a block, lane `i` combines the elements `i`, `i + LANES`, `i + 2 LANES` and so on, in vectors of the dtype (`f32` for
//! narrower floats). Then the lanes are combined, first those whose distance is half of [`LANES`]. The results of the
//! blocks are added to a total one after another, in `f64` for floats. Fewer than [`LANES`] elements are combined one
//! after another.
//!
//! Every kernel keeps this order, so results have the same bits for all layouts of the operand, fused regions and numbers
//! of threads.

use super::Reducer;
use crate::copy::Shared;
use crate::isa::multiversion;
use crate::lane::Lane;

/// Elements combined side by side.
pub(crate) const LANES: usize = 32;

/// Elements combined before their result is added to the total.
pub(crate) const BLOCK: usize = 1024;

/// Rows added in one pass over their accumulators.
const SIDE: usize = 8;

/// Rows of accumulators of [`combine_columns`]: one, and the lanes that wait for their partner.
pub(crate) const COLUMN_SLOTS: usize = 1 + LANES.ilog2() as usize;

/// A step that combines the rows of a block, column by column, in rows of accumulators. The last step leaves the result in
/// slot 0.
#[derive(Clone, Copy)]
pub(crate) enum ColumnStep {
    /// Combines every `step`th row of the block from `first` on in an empty slot.
    Rows { first: usize, step: usize, slot: usize },
    /// Combines a slot with a later one.
    Combine { into: usize, from: usize },
}

/// The steps of a block of a result with that many elements.
pub(crate) fn column_steps(length: usize) -> &'static [ColumnStep] {
    const ONE_AFTER_ANOTHER: &[ColumnStep] = &[ColumnStep::Rows { first: 0, step: 1, slot: 0 }];
    const SIDE_BY_SIDE: &[ColumnStep] = &side_by_side_steps();
    if length < LANES { ONE_AFTER_ANOTHER } else { SIDE_BY_SIDE }
}

/// One lane after another, in the order of their combination, so that few wait for their partner.
const fn side_by_side_steps() -> [ColumnStep; 2 * LANES - 1] {
    let mut steps = [ColumnStep::Combine { into: 0, from: 0 }; 2 * LANES - 1];
    let (mut number, mut depth, mut count) = (0, 0, 0);
    while number < LANES {
        let first = number.reverse_bits() >> (usize::BITS - LANES.ilog2());
        let mut slot = if number % 2 == 0 { depth } else { COLUMN_SLOTS - 1 };
        steps[count] = ColumnStep::Rows { first, step: LANES, slot };
        count += 1;
        let mut complete = number;
        while complete % 2 == 1 {
            depth -= 1;
            steps[count] = ColumnStep::Combine { into: depth, from: slot };
            slot = depth;
            count += 1;
            complete /= 2;
        }
        depth = slot + 1;
        number += 1;
    }
    steps
}

/// The destination of the results of blocks.
pub(crate) enum Blocks<'a, T, R: Reducer<T>> {
    /// A total, to which they are added.
    Joined(&'a mut R::Total),
    /// A slot for each block of a part.
    Kept(&'a mut [R::Lane]),
}

/// Combines all elements of a result, which are neighbours. Compiled for the instructions of the caller.
#[inline(always)]
pub(crate) fn combine_run<T: Lane, R: Reducer<T>>(x: &[T]) -> R::Total {
    if x.len() < LANES {
        return R::join(R::empty(), one_after_another::<T, R>(R::identity(), x));
    }
    x.chunks(BLOCK).fold(R::empty(), |total, block| {
        let mut lanes = [R::identity(); LANES];
        side_by_side::<T, R>(&mut lanes, block);
        R::join(total, across::<T, R>(&lanes))
    })
}

/// Combines fewer than [`LANES`] elements one after another. Not inlined: so few are not worth a copy for each caller and
/// level.
#[inline(never)]
fn one_after_another<T: Lane, R: Reducer<T>>(lane: R::Lane, x: &[T]) -> R::Lane {
    x.iter().fold(lane, |lane, x| R::combine(lane, R::load(*x)))
}

/// Combines elements with lanes, the first element with the first lane.
#[inline(always)]
fn side_by_side<T: Lane, R: Reducer<T>>(lanes: &mut [R::Lane; LANES], x: &[T]) {
    let (chunks, rest) = x.as_chunks::<LANES>();
    // A copy whose address no call gets, so that it stays in registers.
    let mut own = *lanes;
    for chunk in chunks {
        for i in 0..LANES {
            own[i] = R::combine(own[i], R::load(chunk[i]));
        }
    }
    *lanes = own;
    combine_few::<T, R>(lanes, rest);
}

/// Combines fewer than [`LANES`] elements with lanes. Not inlined, as [`one_after_another`].
#[inline(never)]
fn combine_few<T: Lane, R: Reducer<T>>(lanes: &mut [R::Lane], x: &[T]) {
    for (lane, x) in lanes.iter_mut().zip(x) {
        *lane = R::combine(*lane, R::load(*x));
    }
}

/// Combines all lanes. Not inlined: its last steps on two lanes each would otherwise make the compiler keep the loop
/// before it in vectors of two.
#[inline(never)]
pub(crate) fn across<T, R: Reducer<T>>(lanes: &[R::Lane; LANES]) -> R::Lane {
    let mut lanes = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = R::combine(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

multiversion! {
    /// Combines the elements from number `at` on of a result of `length` elements. `lanes` are those of the block that
    /// contains element `at`; a part that starts with a block needs none.
    pub(crate) fn combine_part[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (
        x: &[T],
        at: usize,
        length: usize,
        lanes: &mut [R::Lane; LANES],
        blocks: &mut Blocks<'_, T, R>,
    ) {
        let (mut x, mut at) = (x, at);
        while !x.is_empty() {
            let inside = at % BLOCK;
            if inside == 0 {
                *lanes = [R::identity(); LANES];
            }
            let (mut now, rest) = x.split_at(x.len().min(BLOCK - inside));
            at += now.len();
            x = rest;
            if length < LANES {
                lanes[0] = one_after_another::<T, R>(lanes[0], now);
            } else {
                if !inside.is_multiple_of(LANES) {
                    let before = &mut lanes[inside % LANES..];
                    let (first, aligned) = now.split_at(now.len().min(before.len()));
                    combine_few::<T, R>(before, first);
                    now = aligned;
                }
                side_by_side::<T, R>(lanes, now);
            }
            if at % BLOCK == 0 || at == length {
                // The other lanes of a short result are empty.
                let block = if length < LANES { lanes[0] } else { across::<T, R>(lanes) };
                match blocks {
                    Blocks::Joined(total) => **total = R::join(**total, block),
                    Blocks::Kept(slots) => {
                        if let Some((slot, rest)) = core::mem::take(slots).split_first_mut() {
                            *slot = block;
                            *slots = rest;
                        }
                    }
                }
            }
        }
    }

    /// Combines each column of a block of rows, which start at these offsets. A result has `length` elements. `slots` is
    /// scratch memory for [`COLUMN_SLOTS`] rows; the results are in the first.
    pub(crate) fn combine_columns[T: Lane, R: Reducer<T>]<T, R> in { T::WIDEST } (
        x: Shared<T>,
        rows: &[isize],
        length: usize,
        columns: usize,
        slots: &mut [R::Lane],
    ) {
        for step in column_steps(length) {
            match *step {
                ColumnStep::Rows { first, step, slot } => {
                    add_rows::<T, R>(x, rows, (first, step), &mut slots[slot * columns..][..columns]);
                }
                ColumnStep::Combine { into, from } => {
                    let (before, after) = slots.split_at_mut(from * columns);
                    let into = &mut before[into * columns..][..columns];
                    into.iter_mut().zip(&after[..columns]).for_each(|(a, b)| *a = R::combine(*a, *b));
                }
            }
        }
    }
}

/// Combines every `step`th row from `first` on, for each column.
#[inline(always)]
fn add_rows<T: Lane, R: Reducer<T>>(
    x: Shared<T>,
    rows: &[isize],
    (first, step): (usize, usize),
    lanes: &mut [R::Lane],
) {
    let columns = lanes.len();
    // SAFETY: the caller of `combine_columns` promises that the rows may be read.
    let row = |at: usize| unsafe { core::slice::from_raw_parts(x.get().offset(rows[at]), columns) };
    lanes.fill(R::identity());
    let mut at = first;
    while at + (SIDE - 1) * step < rows.len() {
        let side: [&[T]; SIDE] = core::array::from_fn(|i| row(at + i * step));
        for (column, lane) in lanes.iter_mut().enumerate() {
            let mut sum = *lane;
            for i in 0..SIDE {
                sum = R::combine(sum, R::load(side[i][column]));
            }
            *lane = sum;
        }
        at += SIDE * step;
    }
    for at in (at..rows.len()).step_by(step) {
        for (lane, x) in lanes.iter_mut().zip(row(at)) {
            *lane = R::combine(*lane, R::load(*x));
        }
    }
}
