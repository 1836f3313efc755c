//! Vectorized row operations in `f32`. A row is read from memory once, and again from the L1 cache. A result too large
//! for the caches is written by non-temporal stores.

use super::{Along, Columns, Rows};
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::stream;
use crate::isa::Level;
use crate::math::single::{exp, ln};
use crate::math::vector::{self, Single, Vector, Work};
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
    let mut total = [V::splat(0.0); VECTORS];
    // SAFETY: as the caller promises.
    unsafe {
        for row in 0..length {
            for v in 0..VECTORS {
                shift[v] = load::<V>(table.x, at(row, v), count).max(shift[v]);
            }
        }
        for row in 0..length {
            for v in 0..VECTORS {
                let power = exp(load::<V>(table.x, at(row, v), count) - shift[v]);
                total[v] = total[v] + power;
                if !log {
                    store(power, table.y, at(row, v), count);
                }
            }
        }
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

/// Reduces the vectors of a row side by side (`each` combines an accumulator with a vector) and then their lanes
/// (`join`). Elements of an incomplete vector are left out. It is no function of closures, because these would not be
/// compiled for the unit.
macro_rules! fold {
    ($V:ty, $x:expr, $start:expr, |$total:ident, $element:ident| $each:expr, |$a:ident, $b:ident| $join:expr) => {{
        let x: &[f32] = $x;
        let mut sides = [<$V>::splat($start); SIDE];
        let wide = SIDE * <$V>::LANES;
        let mut i = 0;
        // SAFETY: within the slice; no vector has more lanes than the array.
        unsafe {
            while i + wide <= x.len() {
                for side in 0..SIDE {
                    let ($total, $element) =
                        (sides[side], <$V>::load(x.as_ptr().add(i + side * <$V>::LANES)));
                    sides[side] = $each;
                }
                i += wide;
            }
            while i + <$V>::LANES <= x.len() {
                let ($total, $element) = (sides[0], <$V>::load(x.as_ptr().add(i)));
                sides[0] = $each;
                i += <$V>::LANES;
            }
            let mut width = SIDE / 2;
            while width > 0 {
                for side in 0..width {
                    let ($a, $b) = (sides[side], sides[side + width]);
                    sides[side] = $join;
                }
                width /= 2;
            }
            let mut lanes = [$start; 16];
            sides[0].store(lanes.as_mut_ptr());
            lanes
        }
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

/// The elements of the incomplete vector.
#[inline(always)]
fn rest<V: Vector>(x: &[f32]) -> &[f32] {
    &x[x.len() - x.len() % V::LANES..]
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

/// The sum of the lanes; those beyond the vector are 0.
#[inline(always)]
fn sum(mut lanes: [f32; 16]) -> f32 {
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn sum_of<V: Single>(x: &[f32]) -> f32 {
    let total = sum(fold!(V, x, 0.0, |total, x| total + x, |a, b| a + b));
    rest::<V>(x).iter().fold(total, |total, &x| total + x)
}

/// The maximum element, ignoring NaN.
#[inline(always)]
fn greatest<V: Single>(x: &[f32]) -> f32 {
    let lanes = fold!(V, x, f32::NEG_INFINITY, |best, x| x.max(best), |a, b| a.max(b));
    lanes.iter().chain(rest::<V>(x)).fold(f32::NEG_INFINITY, |best, &x| if x > best { x } else { best })
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
    let factor = V::splat(1.0 / sum_of::<V>(exponentials));
    let from = exponentials.as_ptr();
    write_row!(V, y, PAST, |i, count| load::<V>(from, i, count) * factor);
}

#[inline(always)]
fn log_softmax<V: Single>(x: &[f32], y: &mut [f32], past: bool) {
    let shift = V::splat(greatest::<V>(x));
    let mut total = sum(fold!(V, x, 0.0, |total, x| total + exp(x - shift), |a, b| a + b));
    let rest = rest::<V>(x);
    let mut lanes = [0.0; 16];
    if !rest.is_empty() {
        // SAFETY: fewer elements than a vector has; no vector has more lanes than the array.
        unsafe { exp(V::load_some(rest.as_ptr(), rest.len()) - shift).store(lanes.as_mut_ptr()) };
        total = lanes[..rest.len()].iter().fold(total, |total, &x| total + x);
    }
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
    let count = x.len() as f32;
    let mean = match kind {
        NormKind::Layer => sum_of::<V>(x) / count,
        NormKind::Rms => 0.0,
    };
    let middle = V::splat(mean);
    let lanes = fold!(V, x, 0.0, |total, x| (x - middle).mul_add(x - middle, total), |a, b| a + b);
    let squares = rest::<V>(x).iter().fold(sum(lanes), |total, &x| total + (x - mean) * (x - mean));
    let factor = V::splat(1.0 / Float::sqrt(squares / count + epsilon));
    let from = x.as_ptr();
    match (weight, bias) {
        (Some(weight), Some(bias)) => {
            let (weight, bias) = (weight[..x.len()].as_ptr(), bias[..x.len()].as_ptr());
            write_row!(V, y, past, |i, count| {
                let normal = (load::<V>(from, i, count) - middle) * factor;
                normal.mul_add(load(weight, i, count), load(bias, i, count))
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
