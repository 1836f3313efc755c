//! Vectorized row operations in `f32`. A row is read from memory once, and again from the L1 cache. A result too large
//! for the caches is written by non-temporal stores.

use super::{Along, Columns, Rows};
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::stream;
use crate::isa::Level;
use crate::math::single::{exp, ln};
use crate::math::vector::{self, Single, Work};
use crate::reduce::Sum;
use crate::reduce::order::{BLOCK, COLUMN_SLOTS, ColumnStep, LANES, across, column_steps};
use kiln_ir::NormKind;

/// The maximum length of rows whose data stays in the L1 cache on the way to memory.
const SHORT: usize = 4096;

/// Vectors that are accumulated side by side.
const SIDE: usize = 4;

/// Applies the operation to rows, or returns them if the level has no vectors.
pub(super) fn along<'a>(
    level: Level,
    rows: Rows<'a, f32>,
    function: Along<'_, f32>,
) -> Result<(), Rows<'a, f32>> {
    // SAFETY: slices of as many elements as the rows have.
    unsafe { vector::run(level, RowWork { rows, function }) }.map_err(|work| work.rows)
}

/// Computes softmax down columns, or returns them if the level has no vectors.
///
/// # Safety
/// The columns exist, and nothing else uses those of the result.
pub(super) unsafe fn down(level: Level, columns: Columns<f32>) -> Result<(), Columns<f32>> {
    // SAFETY: as the caller promises.
    unsafe { vector::run(level, columns) }
}

impl Work for Columns<f32> {
    #[inline(always)]
    unsafe fn run<V: Single>(self) {
        let mut column = 0;
        // SAFETY: columns of the operand and the result.
        unsafe {
            while column + SIDE * V::LANES <= self.columns {
                softmax_down::<V, SIDE>(&self, column, V::LANES);
                column += SIDE * V::LANES;
            }
            while column < self.columns {
                softmax_down::<V, 1>(&self, column, V::LANES.min(self.columns - column));
                column += V::LANES;
            }
        }
    }
}

/// Computes softmax down the columns of `VECTORS` vectors, of which `count` lanes each are valid.
///
/// # Safety
/// As [`down`].
#[inline(always)]
unsafe fn softmax_down<V: Single, const VECTORS: usize>(table: &Columns<f32>, column: usize, count: usize) {
    let Columns { length, stride, log, .. } = *table;
    let at = |row: usize, vector: usize| row * stride + column + vector * V::LANES;
    let mut shift = [V::splat(f32::NEG_INFINITY); VECTORS];
    // SAFETY: as the caller promises.
    unsafe {
        for row in 0..length {
            for v in 0..VECTORS {
                shift[v] = load::<V>(table.x, at(row, v), count).max(shift[v]);
            }
        }
        let mut sums = [[V::splat(0.0); VECTORS]; COLUMN_SLOTS];
        let mut totals = [[0.0f64; 16]; VECTORS];
        for start in (0..length).step_by(BLOCK) {
            let end = length.min(start + BLOCK);
            for step in column_steps(length) {
                match *step {
                    ColumnStep::Rows { first, step, slot } => {
                        let mut sum = [V::splat(0.0); VECTORS];
                        for row in (start + first..end).step_by(step) {
                            for v in 0..VECTORS {
                                let power = exp(load::<V>(table.x, at(row, v), count) - shift[v]);
                                sum[v] = sum[v] + power;
                                if !log {
                                    store(power, table.y, at(row, v), count);
                                }
                            }
                        }
                        sums[slot] = sum;
                    }
                    ColumnStep::Combine { into, from } => {
                        for v in 0..VECTORS {
                            sums[into][v] = sums[into][v] + sums[from][v];
                        }
                    }
                }
            }
            for v in 0..VECTORS {
                let mut lanes = [0.0; 16];
                sums[0][v].store(lanes.as_mut_ptr());
                totals[v].iter_mut().zip(lanes).for_each(|(total, x)| *total += f64::from(x));
            }
        }
        let mut total = totals.map(|lanes| {
            let lanes = lanes.map(|x| x as f32);
            V::load(lanes.as_ptr())
        });
        for v in 0..VECTORS {
            total[v] = if log { ln(total[v]) } else { V::splat(1.0) / total[v] };
        }
        for row in 0..length {
            for v in 0..VECTORS {
                let i = at(row, v);
                let value = if log {
                    (load::<V>(table.x, i, count) - shift[v]) - total[v]
                } else {
                    load::<V>(table.y, i, count) * total[v]
                };
                store(value, table.y, i, count);
            }
        }
    }
}

struct RowWork<'a, 'b> {
    rows: Rows<'a, f32>,
    function: Along<'b, f32>,
}

impl Work for RowWork<'_, '_> {
    #[inline(always)]
    unsafe fn run<V: Single>(self) {
        let Rows { x, y, length, past } = self.rows;
        let bytes = V::LANES * size_of::<f32>();
        let aligned = y.as_ptr().addr().is_multiple_of(bytes) && length.is_multiple_of(V::LANES);
        let past = past && aligned && length <= SHORT;
        match self.function {
            Along::Softmax { log: false } => {
                let mut scratch = Scratch::<f32>::new(if past { length } else { 0 });
                for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
                    if past {
                        softmax::<V, true>(x, y, scratch.as_mut_slice());
                    } else {
                        softmax::<V, false>(x, y, &mut []);
                    }
                }
            }
            Along::Softmax { log: true } => {
                for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
                    log_softmax::<V>(x, y, past);
                }
            }
            Along::Norm { kind, epsilon, weight, bias } => {
                for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
                    norm::<V>(kind, epsilon, x, y, (weight, bias), past);
                }
            }
        }
        if past {
            stream::fence();
        }
    }
}

/// Prefetches the same element of the next row.
#[inline(always)]
fn prefetch_next(x: &[f32], i: usize) {
    stream::prefetch(x.as_ptr().wrapping_add(x.len() + i).cast());
}

/// The maximum number of vectors that hold the lanes of a block.
const SIDES: usize = 8;

/// Sums a function of the vectors of a row, in the [order](crate::reduce::order) of a reduction. It is no function of
/// closures, because these would not be compiled for the unit.
macro_rules! sum_row {
    ($V:ty, $x:expr, |$element:ident| $value:expr) => {{
        let x: &[f32] = $x;
        let sides = const { LANES / <$V>::LANES };
        let mut total = 0.0;
        for block in x.chunks(BLOCK) {
            let whole = block.len() - block.len() % LANES;
            let mut sums = [<$V>::splat(0.0); SIDES];
            let mut i = 0;
            let mut lanes = [0.0; LANES];
            let mut rest = [0.0; LANES];
            // SAFETY: within the block; the vectors of all sides have as many elements as the arrays.
            unsafe {
                while i < whole {
                    for side in 0..sides {
                        let $element = <$V>::load(block.as_ptr().add(i + side * <$V>::LANES));
                        sums[side] = sums[side] + $value;
                    }
                    i += LANES;
                }
                for side in 0..sides {
                    sums[side].store(lanes.as_mut_ptr().add(side * <$V>::LANES));
                }
                while i < block.len() {
                    let count = (block.len() - i).min(<$V>::LANES);
                    let $element = load::<$V>(block.as_ptr(), i, count);
                    store($value, rest.as_mut_ptr(), i - whole, count);
                    i += count;
                }
            }
            let rest = &rest[..block.len() - whole];
            let block = if x.len() < LANES {
                rest.iter().fold(0.0, |sum, x| sum + x)
            } else {
                lanes.iter_mut().zip(rest).for_each(|(lane, x)| *lane += x);
                across::<f32, Sum>(&lanes)
            };
            total += f64::from(block);
        }
        total as f32
    }};
}

/// Writes each vector of a row: the elements `i..i + count`, a full vector or the remainder.
macro_rules! write_row {
    ($V:ty, $y:expr, $past:expr, |$i:ident, $count:ident| $value:expr) => {{
        let y: &mut [f32] = $y;
        let whole = y.len() - y.len() % <$V>::LANES;
        let mut $i = 0;
        let mut $count = <$V>::LANES;
        // SAFETY: within the slice, which is aligned to a vector if it is written by non-temporal stores.
        unsafe {
            if $past {
                while $i < whole {
                    let value: $V = $value;
                    value.stream(y.as_mut_ptr().add($i));
                    $i += <$V>::LANES;
                }
            } else {
                while $i < whole {
                    let value: $V = $value;
                    value.store(y.as_mut_ptr().add($i));
                    $i += <$V>::LANES;
                }
            }
            $count = y.len() - whole;
            if $count > 0 {
                let value: $V = $value;
                value.store_some(y.as_mut_ptr().add(whole), $count);
            }
        }
    }};
}

/// Loads a vector of a row, of which `count` elements are valid.
///
/// # Safety
/// The row has these elements.
#[inline(always)]
unsafe fn load<V: Single>(x: *const f32, i: usize, count: usize) -> V {
    // SAFETY: as the caller promises.
    unsafe { if count == V::LANES { V::load(x.add(i)) } else { V::load_some(x.add(i), count) } }
}

/// Stores a vector to a row, of which `count` elements are valid.
///
/// # Safety
/// The row has these elements, and they are the caller's.
#[inline(always)]
unsafe fn store<V: Single>(value: V, y: *mut f32, i: usize, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { if count == V::LANES { value.store(y.add(i)) } else { value.store_some(y.add(i), count) } }
}

/// The maximum element, ignoring NaN.
#[inline(always)]
fn greatest<V: Single>(x: &[f32]) -> f32 {
    const VECTORS: usize = 4;
    let mut sides = [V::splat(f32::NEG_INFINITY); VECTORS];
    let mut lanes = [f32::NEG_INFINITY; 16];
    let mut i = 0;
    // SAFETY: within the slice; no vector has more lanes than the array.
    unsafe {
        while i + VECTORS * V::LANES <= x.len() {
            for (side, best) in sides.iter_mut().enumerate() {
                *best = V::load(x.as_ptr().add(i + side * V::LANES)).max(*best);
            }
            i += VECTORS * V::LANES;
        }
        while i + V::LANES <= x.len() {
            sides[0] = V::load(x.as_ptr().add(i)).max(sides[0]);
            i += V::LANES;
        }
        sides[2].max(sides[0]).max(sides[3].max(sides[1])).store(lanes.as_mut_ptr());
    }
    lanes.iter().chain(&x[i..]).fold(f32::NEG_INFINITY, |best, &x| if x > best { x } else { best })
}

/// Softmax of a row. With `PAST`, exponentials are kept in scratch memory, and the result is written by non-temporal
/// stores.
#[inline(always)]
fn softmax<V: Single, const PAST: bool>(x: &[f32], y: &mut [f32], scratch: &mut [f32]) {
    let shift = V::splat(greatest::<V>(x));
    let from = x.as_ptr();
    let exponentials = if PAST { scratch } else { &mut *y };
    write_row!(V, exponentials, false, |i, count| {
        prefetch_next(x, i);
        exp(load::<V>(from, i, count) - shift)
    });
    let factor = V::splat(1.0 / sum_row!(V, exponentials, |x| x));
    let from = exponentials.as_ptr();
    write_row!(V, y, PAST, |i, count| load::<V>(from, i, count) * factor);
}

#[inline(always)]
fn log_softmax<V: Single>(x: &[f32], y: &mut [f32], past: bool) {
    let shift = V::splat(greatest::<V>(x));
    let total = sum_row!(V, x, |x| exp(x - shift));
    let total = ln(V::splat(total));
    let from = x.as_ptr();
    write_row!(V, y, past, |i, count| {
        prefetch_next(x, i);
        (load::<V>(from, i, count) - shift) - total
    });
}

#[inline(always)]
fn norm<V: Single>(
    kind: NormKind,
    epsilon: f32,
    x: &[f32],
    y: &mut [f32],
    (weight, bias): (Option<&[f32]>, Option<&[f32]>),
    past: bool,
) {
    let share = (1.0 / x.len() as f64) as f32;
    let mean = match kind {
        NormKind::Layer => sum_row!(V, x, |x| x) * share,
        NormKind::Rms => 0.0,
    };
    let middle = V::splat(mean);
    let squares = sum_row!(V, x, |x| (x - middle) * (x - middle));
    let factor = V::splat(1.0 / Float::sqrt(squares * share + epsilon));
    let from = x.as_ptr();
    match (weight, bias) {
        (Some(weight), Some(bias)) => {
            let (weight, bias) = (weight[..x.len()].as_ptr(), bias[..x.len()].as_ptr());
            write_row!(V, y, past, |i, count| {
                let normal = (load::<V>(from, i, count) - middle) * factor;
                normal * load(weight, i, count) + load(bias, i, count)
            });
        }
        (Some(weight), None) => {
            let weight = weight[..x.len()].as_ptr();
            write_row!(V, y, past, |i, count| {
                (load::<V>(from, i, count) - middle) * factor * load(weight, i, count)
            });
        }
        (None, Some(_) | None) => {
            write_row!(V, y, past, |i, count| (load::<V>(from, i, count) - middle) * factor);
        }
    }
}
