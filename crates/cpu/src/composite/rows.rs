//! Softmax and norms: several passes over a row while it is in cache.

mod single;

use crate::Cpu;
use crate::array::Array;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::{Shared, stream};
use crate::isa::{Level, Widest, multiversion};
use crate::reduce::order::{BLOCK, COLUMN_SLOTS, ColumnStep, LANES, column_steps};
use kiln_ir::{NormKind, Result, TensorType};

/// The minimum elements per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 13;

/// Columns processed together if the axis is not the last.
const COLUMNS: usize = 64;

/// The operation along a row.
#[derive(Clone, Copy)]
pub(super) enum Along<'a, T> {
    /// Softmax, or its logarithm.
    Softmax { log: bool },
    /// A norm, scaled and shifted.
    Norm { kind: NormKind, epsilon: T, weight: Option<&'a [T]>, bias: Option<&'a [T]> },
}

/// Contiguous rows.
pub(super) struct Rows<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    length: usize,
    /// Whether the result is written by non-temporal stores.
    past: bool,
}

/// Floats with row kernels.
pub(super) trait RowFloat: Float {
    /// Applies the operation to each row.
    fn along(level: Level, rows: Rows<'_, Self>, function: Along<'_, Self>);

    /// Computes softmax down columns.
    ///
    /// # Safety
    /// The columns exist, and nothing else uses those of the result.
    unsafe fn down(level: Level, columns: Columns<Self>);
}

impl RowFloat for f32 {
    fn along(level: Level, rows: Rows<'_, f32>, function: Along<'_, f32>) {
        if let Err(rows) = single::along(level, rows, function) {
            along_plain(level, rows, function);
        }
    }

    unsafe fn down(level: Level, columns: Columns<f32>) {
        // SAFETY: as the caller promises.
        unsafe {
            if let Err(columns) = single::down(level, columns) {
                f32::dispatch(level, columns);
            }
        }
    }
}

impl RowFloat for f64 {
    fn along(level: Level, rows: Rows<'_, f64>, function: Along<'_, f64>) {
        along_plain(level, rows, function);
    }

    unsafe fn down(level: Level, columns: Columns<f64>) {
        // SAFETY: as the caller promises.
        unsafe { f64::dispatch(level, columns) }
    }
}

fn along_plain<T: Float>(level: Level, rows: Rows<'_, T>, function: Along<'_, T>) {
    let Rows { x, y, length, .. } = rows;
    match function {
        Along::Softmax { log } => softmax_rows(level, x, y, length, log),
        Along::Norm { kind, epsilon, weight, bias } => {
            for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
                norm_row(level, kind, epsilon, x, y, weight, bias);
            }
        }
    }
}

/// Softmax of an array along an axis, or its logarithm.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn softmax<T: RowFloat>(
    cpu: &Cpu,
    x: &Array,
    ty: &TensorType,
    axis: usize,
    log: bool,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    if ty.num_elements() == 0 {
        return Ok(output);
    }
    let x = cpu.contiguous(x, ty)?;
    let length = ty.shape[axis];
    let inner: usize = ty.shape[axis + 1..].iter().product();
    let outer = ty.num_elements() / length / inner;
    let (from, to) = (Shared::new(x.as_mut_ptr::<T>()), Shared::new(output.as_mut_ptr::<T>()));
    if inner == 1 {
        let past = stream::pays(ty.num_bytes());
        cpu.pool.parallel_for(outer, GRAIN.div_ceil(length), |range| {
            let (start, len) = (range.start * length, range.len() * length);
            // SAFETY: rows of operand and result, which only this part uses.
            let (x, y) = unsafe { parts(from, to, start, len) };
            T::along(cpu.level, Rows { x, y, length, past }, Along::Softmax { log });
        });
        return Ok(output);
    }
    let blocks = inner.div_ceil(COLUMNS);
    cpu.pool.parallel_for(outer * blocks, GRAIN.div_ceil(length * COLUMNS.min(inner)), |range| {
        for task in range {
            let first = task % blocks * COLUMNS;
            let columns = (inner - first).min(COLUMNS);
            let start = task / blocks * length * inner + first;
            let span = (length - 1) * inner + columns;
            let x = from.get().wrapping_add(start);
            let y = to.get().wrapping_add(start);
            let table = Columns { x, y, length, stride: inner, columns, log };
            debug_assert!(start + span <= ty.num_elements());
            // SAFETY: columns of operand and result, which only this part uses.
            unsafe { T::down(cpu.level, table) };
        }
    });
    Ok(output)
}

/// # Safety
/// These elements exist, and nothing else uses those of the result.
unsafe fn parts<'a, T>(from: Shared<T>, to: Shared<T>, start: usize, len: usize) -> (&'a [T], &'a mut [T]) {
    // SAFETY: as the caller promises.
    unsafe {
        (
            core::slice::from_raw_parts(from.get().add(start), len),
            core::slice::from_raw_parts_mut(to.get().add(start), len),
        )
    }
}

/// The maximum element, ignoring NaN.
#[inline(always)]
pub(super) fn greatest<T: Float>(row: &[T]) -> T {
    let mut best = [T::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            best[lane] = if chunk[lane] > best[lane] { chunk[lane] } else { best[lane] };
        }
    }
    best.iter().chain(rest).fold(T::NEG_INFINITY, |best, &x| if x > best { x } else { best })
}

/// The sum of `f` of each element, in the [order](crate::reduce::order) of a reduction. Rows of `f32` have a
/// [kernel of their own](single) where there are vectors.
#[inline(always)]
pub(super) fn sum_of<T: Float>(row: &[T], f: impl Fn(T) -> T) -> T {
    let total = row.chunks(BLOCK).fold(0.0, |total, block| {
        let mut sums = [T::ZERO; LANES];
        let width = if row.len() < LANES { 1 } else { LANES };
        for chunk in block.chunks(width) {
            sums.iter_mut().zip(chunk).for_each(|(sum, &x)| *sum += f(x));
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] += sums[lane + width];
            }
            width /= 2;
        }
        total + sums[0].to_f64()
    });
    T::from_f64(total)
}

multiversion! {
    fn softmax_rows[T: Float]<T> in { Widest::Avx512 } (x: &[T], y: &mut [T], length: usize, log: bool) {
        for (x, y) in x.chunks_exact(length).zip(y.chunks_exact_mut(length)) {
            let shift = greatest(x);
            for (y, &x) in y.iter_mut().zip(x) {
                *y = (x - shift).exp();
            }
            let total = sum_of(y, |y| y);
            if log {
                let total = total.ln();
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - shift) - total);
            } else {
                let factor = T::ONE / total;
                y.iter_mut().for_each(|y| *y *= factor);
            }
        }
    }
}

/// Softmax down adjacent columns, at most [`COLUMNS`].
pub(super) struct Columns<T> {
    x: *const T,
    y: *mut T,
    length: usize,
    stride: usize,
    columns: usize,
    log: bool,
}

impl<T: Float> Kernel<T> for Columns<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(mut self) {
        let mut shift = [T::NEG_INFINITY; COLUMNS];
        for i in 0..self.length {
            // SAFETY: rows of the block.
            let x = unsafe { core::slice::from_raw_parts(self.x.add(i * self.stride), self.columns) };
            for (shift, &x) in shift.iter_mut().zip(x) {
                *shift = if x > *shift { x } else { *shift };
            }
        }
        let mut totals = [0.0; COLUMNS];
        for start in (0..self.length).step_by(BLOCK) {
            let end = self.length.min(start + BLOCK);
            let mut slots = [[T::ZERO; COLUMNS]; COLUMN_SLOTS];
            for step in column_steps(self.length) {
                match *step {
                    ColumnStep::Rows { first, step, slot } => {
                        slots[slot] = [T::ZERO; COLUMNS];
                        for i in (start + first..end).step_by(step) {
                            // SAFETY: as above.
                            let (x, y) = unsafe { self.row(i) };
                            for (((y, &x), &shift), sum) in
                                y.iter_mut().zip(x).zip(&shift).zip(&mut slots[slot])
                            {
                                *y = (x - shift).exp();
                                *sum += *y;
                            }
                        }
                    }
                    ColumnStep::Combine { into, from } => {
                        let (before, after) = slots.split_at_mut(from);
                        before[into].iter_mut().zip(&after[0]).for_each(|(a, &b)| *a += b);
                    }
                }
            }
            totals.iter_mut().zip(&slots[0]).for_each(|(total, x)| *total += x.to_f64());
        }
        let mut total = totals.map(T::from_f64);
        let log = self.log;
        for total in &mut total {
            *total = if log { total.ln() } else { T::ONE / *total };
        }
        for i in 0..self.length {
            // SAFETY: as above.
            let (x, y) = unsafe { self.row(i) };
            for (((y, &x), &shift), &total) in y.iter_mut().zip(x).zip(&shift).zip(&total) {
                *y = if log { (x - shift) - total } else { *y * total };
            }
        }
    }
}

impl<T: Float> Columns<T> {
    /// # Safety
    /// The block has that row, and nothing else uses the result's.
    #[inline(always)]
    unsafe fn row(&mut self, i: usize) -> (&[T], &mut [T]) {
        // SAFETY: as the caller promises.
        unsafe {
            (
                core::slice::from_raw_parts(self.x.add(i * self.stride), self.columns),
                core::slice::from_raw_parts_mut(self.y.add(i * self.stride), self.columns),
            )
        }
    }
}

/// Normalizes rows of `length` elements, then scales and shifts.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn norm<T: RowFloat>(
    cpu: &Cpu,
    kind: NormKind,
    length: usize,
    epsilon: f64,
    [x, weight, bias]: [Option<(&Array, &TensorType)>; 3],
    ty: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    let Some(x) = x.filter(|_| ty.num_elements() > 0) else { return Ok(output) };
    let contiguous = |array: (&Array, &TensorType)| cpu.contiguous(array.0, array.1);
    let x = contiguous(x)?;
    let weight = weight.map(contiguous).transpose()?;
    let bias = bias.map(contiguous).transpose()?;
    // SAFETY: both have the shape of a row.
    let row = |array: &Array| unsafe { core::slice::from_raw_parts(array.as_ptr::<T>(), length) };
    let (weight, bias) = (weight.as_ref().map(row), bias.as_ref().map(row));
    let (from, to) = (Shared::new(x.as_mut_ptr::<T>()), Shared::new(output.as_mut_ptr::<T>()));
    let past = stream::pays(ty.num_bytes());
    cpu.pool.parallel_for(ty.num_elements() / length, GRAIN.div_ceil(length), |range| {
        let (start, len) = (range.start * length, range.len() * length);
        // SAFETY: rows of operand and result, which only this part uses.
        let (x, y) = unsafe { parts(from, to, start, len) };
        let function = Along::Norm { kind, epsilon: T::from_f64(epsilon), weight, bias };
        T::along(cpu.level, Rows { x, y, length, past }, function);
    });
    Ok(output)
}

multiversion! {
    fn norm_row[T: Float]<T> in { Widest::Avx512 } (
        kind: NormKind,
        epsilon: T,
        x: &[T],
        y: &mut [T],
        weight: Option<&[T]>,
        bias: Option<&[T]>,
    ) {
        let share = T::from_f64(1.0 / x.len() as f64);
        let mean = match kind {
            NormKind::Layer => sum_of(x, |x| x) * share,
            NormKind::Rms => T::ZERO,
        };
        let variance = sum_of(x, |x| (x - mean) * (x - mean)) * share;
        let factor = T::ONE / (variance + epsilon).sqrt();
        match (weight, bias) {
            (Some(weight), Some(bias)) => {
                for (((y, &x), &weight), &bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                    *y = (x - mean) * factor * weight + bias;
                }
            }
            (Some(weight), None) => {
                for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
                    *y = (x - mean) * factor * weight;
                }
            }
            (None, Some(_) | None) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - mean) * factor),
        }
    }
}
