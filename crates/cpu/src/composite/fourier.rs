//! The discrete Fourier transform (FFT) of any length, in the dtype of its operands.
//!
//! Lengths with small prime factors use the mixed-radix algorithm, others Bluestein's
//! ([1970](https://doi.org/10.1109/TAU.1970.1162132)): a convolution whose length is a power of two. One line per
//! vector lane is transformed at a time. If there are fewer lines, or they exceed a cache, a line becomes the rows and
//! columns of a matrix ([Gentleman and Sande 1966](https://doi.org/10.1145/1464291.1464352)).

mod block;
mod plan;

use crate::Cpu;
use crate::array::Array;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use alloc::vec::Vec;
use block::{Blocks, Form, Job, Lanes, Lines, Real, Twiddles, scratch_len};
use core::ops::Range;
use kiln_ir::{DType, FftKind, Result, TensorType};
use plan::{Plan, halves, root, roots};
use smallvec::SmallVec;

/// The minimum elements per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 13;

/// The maximum scratch memory for one block of lines: it fits the L2 cache.
const MAX_SCRATCH_BYTES: usize = 2 << 20;

/// The minimum length of a line that becomes a matrix.
const SHORTEST_MATRIX: usize = 64;

/// The maximum number of elements of a padded convolution at once.
const MAX_PADDED: usize = 1 << 24;

/// Transforms along an axis.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn fft<T: Float>(
    cpu: &Cpu,
    inputs: &[&Array],
    (kind, axis, inverse): (FftKind, usize, bool),
    from: &TensorType,
    results: &[TensorType],
) -> Result<SmallVec<[Array; 2]>> {
    let outputs: SmallVec<[Array; 2]> = results.iter().map(Array::uninit).collect::<Result<_>>()?;
    if results[0].num_elements() == 0 {
        return Ok(outputs);
    }
    let inputs: SmallVec<[Array; 2]> =
        inputs.iter().map(|x| cpu.contiguous(x, from)).collect::<Result<_>>()?;
    let pair = |arrays: &[Array]| {
        let last = arrays.len() - 1;
        [Shared::new(arrays[0].as_mut_ptr::<T>()), Shared::new(arrays[last].as_mut_ptr::<T>())]
    };
    let transform = Transform {
        cpu,
        lanes: lanes::<T>(cpu),
        points: kind.points(from.shape[axis]),
        outer: from.shape[..axis].iter().product(),
        inner: from.shape[axis + 1..].iter().product(),
    };
    match kind {
        FftKind::Complex => {
            let [mut source, mut target] = [pair(&inputs), pair(&outputs)];
            if inverse {
                // Exchanging real and imaginary parts on both sides flips the sign of the exponent.
                source.swap(0, 1);
                target.swap(0, 1);
            }
            transform.complex(source, target)?;
        }
        FftKind::FromReal => transform.spectrum_of_real(pair(&inputs)[0], pair(&outputs), !inverse)?,
        FftKind::ToReal { .. } => transform.real_of_spectrum(pair(&inputs), pair(&outputs)[0], inverse)?,
    }
    Ok(outputs)
}

/// The number of lines per block: the lanes of a vector.
fn lanes<T: Float>(cpu: &Cpu) -> usize {
    // SAFETY: the kernel only returns the number of lanes.
    unsafe { T::dispatch(cpu.level, Lanes) }
}

/// The lines along the middle one of three axes.
#[derive(Clone, Copy)]
struct Transform<'a> {
    cpu: &'a Cpu,
    lanes: usize,
    outer: usize,
    points: usize,
    inner: usize,
}

/// The real and imaginary parts of complex elements.
type Parts<T> = [Shared<T>; 2];

impl Transform<'_> {
    fn lines(&self) -> usize {
        self.outer * self.inner
    }

    /// The plan for lines of that length, if a block of them fits the cache.
    fn direct<T: Float>(&self, length: usize) -> Option<Plan<T>> {
        let is_matrix = length >= SHORTEST_MATRIX;
        let is_spread = 2 * self.lines() > self.lanes;
        let fits = scratch_len(length, self.lanes) * size_of::<T>() <= MAX_SCRATCH_BYTES;
        if !is_matrix || is_spread && fits { Plan::new(length) } else { None }
    }

    fn run<T: Float>(&self, job: &Job<'_, T>) {
        let grain = GRAIN.div_ceil(job.plan.length * self.lanes);
        self.cpu.pool.parallel_for(job.lines.div_ceil(self.lanes), grain, |range| {
            // SAFETY: the job's lines are within its arrays, and each block is run once.
            unsafe { T::dispatch(self.cpu.level, Blocks { job, range }) };
        });
    }

    /// The complex transform with a negative exponent.
    fn complex<T: Float>(&self, source: Parts<T>, target: Parts<T>) -> Result<()> {
        let Transform { points, inner, .. } = *self;
        let lines = Lines::along(points, inner);
        if let Some(plan) = self.direct(points) {
            let form = Form::Complex(None);
            let all = self.lines();
            self.run(&Job { plan: &plan, form, from: lines, to: lines, source, target, lines: all });
            return Ok(());
        }
        // The four-step algorithm: point `a columns + b` is at row `a`, column `b`; frequency `c + d rows` at row `c`,
        // column `d`.
        let Some([rows, columns]) = halves(points) else { return self.bluestein(source, target) };
        let between = Array::uninit(&self.memory::<T>(2 * points))?;
        let middle = halves_of::<T>(&between);
        let plans = [Plan::new(rows), Plan::new(columns)];
        let [Some(first), Some(second)] = &plans else { return self.bluestein(source, target) };
        let twiddles = Twiddles::new(points, columns, inner);
        let across = Lines { inner: columns * inner, jump: points * inner, step: columns * inner };
        let form = Form::Complex(Some(&twiddles));
        let all = self.lines();
        self.run(&Job {
            plan: first,
            form,
            from: across,
            to: across,
            source,
            target: middle,
            lines: all * columns,
        });
        self.run(&Job {
            plan: second,
            form: Form::Complex(None),
            from: Lines::along(columns, inner),
            to: Lines { inner: rows * inner, jump: points * inner, step: rows * inner },
            source: middle,
            target,
            lines: all * rows,
        });
        Ok(())
    }

    /// The type of a scratch tensor with `count` elements per line.
    fn memory<T>(&self, count: usize) -> TensorType {
        TensorType::new([self.lines() * count * size_of::<T>()], DType::U8)
    }

    fn spectrum_of_real<T: Float>(&self, source: Shared<T>, target: Parts<T>, usual: bool) -> Result<()> {
        let Transform { points, inner, .. } = *self;
        let (length, is_even) = packed(points);
        let bins = points / 2 + 1;
        let roots = quarter_roots::<T>(points);
        if let Some(plan) = self.direct(length) {
            self.run(&Job {
                plan: &plan,
                form: Form::FromReal(Real { points, usual, roots: &roots }),
                from: Lines::along(points, inner),
                to: Lines::along(bins, inner),
                source: [source; 2],
                target,
                lines: self.lines(),
            });
            return Ok(());
        }
        let [memory, results] = [2 * length, 2 * length].map(|count| Array::uninit(&self.memory::<T>(count)));
        let (memory, results) = (memory?, results?);
        let (z, y) = (halves_of::<T>(&memory), halves_of::<T>(&results));
        self.rows(length, |outer, i| {
            let to = (outer * length + i) * inner;
            let from = outer * points * inner;
            // SAFETY: rows of the operand and of the memory, each written once.
            unsafe {
                if is_even {
                    copy(source, from + 2 * i * inner, z[0], to, inner);
                    copy(source, from + (2 * i + 1) * inner, z[1], to, inner);
                } else {
                    copy(source, from + i * inner, z[0], to, inner);
                    row_mut(z[1], to, inner).fill(T::ZERO);
                }
            }
        });
        Transform { points: length, ..*self }.complex(z, y)?;
        self.rows(bins, |outer, k| {
            let from = |k: usize| (outer * length + k) * inner;
            let to = (outer * bins + k) * inner;
            // SAFETY: rows of the memory and of the results, each written once.
            unsafe {
                let (re, im) = (row_mut(target[0], to, inner), row_mut(target[1], to, inner));
                let (a_re, a_im) = (row(y[0], from(k % length), inner), row(y[1], from(k % length), inner));
                let mirror = (length - k % length) % length;
                let (b_re, b_im) = (row(y[0], from(mirror), inner), row(y[1], from(mirror), inner));
                let (c, s) = root(k, points);
                for i in 0..inner {
                    if is_even {
                        let half = 0.5;
                        let (a, b) =
                            ((a_re[i].to_f64(), a_im[i].to_f64()), (b_re[i].to_f64(), b_im[i].to_f64()));
                        let (e_re, e_im) = (half * (a.0 + b.0), half * (a.1 - b.1));
                        let (o_re, o_im) = (half * (a.1 + b.1), half * (b.0 - a.0));
                        re[i] = T::from_f64(e_re + (o_re * c - o_im * s));
                        im[i] = T::from_f64(e_im + (o_re * s + o_im * c));
                    } else {
                        (re[i], im[i]) = (a_re[i], a_im[i]);
                    }
                    im[i] = match 2 * k % points {
                        0 => T::ZERO,
                        _ if usual => im[i],
                        _ => -im[i],
                    };
                }
            }
        });
        Ok(())
    }

    fn real_of_spectrum<T: Float>(&self, source: Parts<T>, target: Shared<T>, usual: bool) -> Result<()> {
        let Transform { points, inner, .. } = *self;
        let (length, is_even) = packed(points);
        let bins = points / 2 + 1;
        let roots = quarter_roots::<T>(points);
        if let Some(plan) = self.direct(length) {
            self.run(&Job {
                plan: &plan,
                form: Form::ToReal(Real { points, usual, roots: &roots }),
                from: Lines::along(bins, inner),
                to: Lines::along(points, inner),
                source,
                target: [target; 2],
                lines: self.lines(),
            });
            return Ok(());
        }
        let [memory, results] = [2 * length, 2 * length].map(|count| Array::uninit(&self.memory::<T>(count)));
        let (memory, results) = (memory?, results?);
        let (z, y) = (halves_of::<T>(&memory), halves_of::<T>(&results));
        let sign = if usual { 1.0 } else { -1.0 };
        self.rows(length, |outer, k| {
            let from = |k: usize| (outer * bins + k) * inner;
            // A positive exponent is a negative one for the spectrum in reverse order.
            let to = (outer * length + (length - k) % length) * inner;
            let far = if is_even { length - k } else { points - k };
            // SAFETY: rows of the operands and of the memory, each written once.
            unsafe {
                let (re, im) = (row_mut(z[0], to, inner), row_mut(z[1], to, inner));
                let at = |k: usize| (row(source[0], from(k), inner), row(source[1], from(k), inner));
                let number = |(re, im): (&[T], &[T]), i: usize, k: usize| {
                    let counts = if (2 * k).is_multiple_of(points) { 0.0 } else { sign };
                    (re[i].to_f64(), if counts == 0.0 { 0.0 } else { counts * im[i].to_f64() })
                };
                let (c, s) = root(k, points);
                for i in 0..inner {
                    let found = if is_even {
                        let (a, b) = (number(at(k), i, k), number(at(far), i, far));
                        let (sum, rest) = ((a.0 + b.0, a.1 - b.1), (a.0 - b.0, a.1 + b.1));
                        // Multiplies by i and the conjugate of the root.
                        (sum.0 - (rest.1 * c - rest.0 * s), sum.1 + (rest.0 * c + rest.1 * s))
                    } else if k < bins {
                        number(at(k), i, k)
                    } else {
                        let mirrored = number(at(far), i, far);
                        (mirrored.0, -mirrored.1)
                    };
                    (re[i], im[i]) = (T::from_f64(found.0), T::from_f64(found.1));
                }
            }
        });
        Transform { points: length, ..*self }.complex(z, y)?;
        self.rows(length, |outer, i| {
            let from = (outer * length + i) * inner;
            let to = outer * points * inner;
            // SAFETY: rows of the memory and of the result, each written once.
            unsafe {
                if is_even {
                    copy(y[0], from, target, to + 2 * i * inner, inner);
                    copy(y[1], from, target, to + (2 * i + 1) * inner, inner);
                } else {
                    copy(y[0], from, target, to + i * inner, inner);
                }
            }
        });
        Ok(())
    }

    /// Bluestein's algorithm: `Y[k] = c[k] Σ (x[n] c[n]) conj(c[k - n])` with the chirp `c[k] = exp(-πi k² / points)`.
    fn bluestein<T: Float>(&self, source: Parts<T>, target: Parts<T>) -> Result<()> {
        let Transform { points, inner, .. } = *self;
        let size = (2 * points - 1).next_power_of_two();
        // k² modulo twice the length keeps the angle exact for large k.
        let square = |k: usize| (k as u128 * k as u128 % (2 * points) as u128) as usize;
        let chirp: Vec<(f64, f64)> = (0..points).map(|k| root(square(k), 2 * points)).collect();
        let filter = Factors::new(&filter(&chirp, size));
        let chirp = Factors::new(&chirp);
        let chunk = (MAX_PADDED / (size * inner)).clamp(1, self.outer);
        for first in (0..self.outer).step_by(chunk) {
            let some = Transform { outer: chunk.min(self.outer - first), ..*self };
            let padded = Transform { points: size, ..some };
            let [memory, results] = [(), ()].map(|()| Array::uninit(&some.memory::<T>(2 * size)));
            let (memory, results) = (memory?, results?);
            let (z, y) = (halves_of::<T>(&memory), halves_of::<T>(&results));
            some.spans(size, |outer, span| {
                let (to, from) = (outer * size * inner, (first + outer) * points * inner);
                let (inside, outside) = (span.start..span.end.min(points), span.start.max(points)..span.end);
                // SAFETY: rows of the operands and of the memory, each written once.
                unsafe {
                    if !inside.is_empty() {
                        chirp.multiply((source, from), (z, to), inside, inner);
                    }
                    if !outside.is_empty() {
                        let count = outside.len() * inner;
                        row_mut(z[0], to + outside.start * inner, count).fill(T::ZERO);
                        row_mut(z[1], to + outside.start * inner, count).fill(T::ZERO);
                    }
                }
            });
            padded.complex(z, y)?;
            some.spans(size, |outer, span| {
                let at = outer * size * inner;
                // SAFETY: rows of both memories, each written once.
                unsafe { filter.multiply((y, at), (z, at), span, inner) };
            });
            // The inverse transform, with real and imaginary parts exchanged.
            padded.complex([z[1], z[0]], [y[1], y[0]])?;
            some.spans(points, |outer, span| {
                let (from, to) = (outer * size * inner, (first + outer) * points * inner);
                // SAFETY: rows of the memory and of the results, each written once.
                unsafe { chirp.multiply((y, from), (target, to), span, inner) };
            });
        }
        Ok(())
    }

    /// Calls `body` for parts of all lines of `count` rows: the line's index before the axis, and a range of rows.
    fn spans(&self, count: usize, body: impl Fn(usize, Range<usize>) + Sync) {
        self.cpu.pool.parallel_for(self.outer * count, GRAIN.div_ceil(self.inner), |range| {
            let mut at = range.start;
            while at < range.end {
                let outer = at / count;
                let end = range.end.min((outer + 1) * count);
                body(outer, at - outer * count..end - outer * count);
                at = end;
            }
        });
    }

    /// Calls `body` for all rows `(outer, i)` with `i` below `count`, on all threads.
    fn rows(&self, count: usize, body: impl Fn(usize, usize) + Sync) {
        self.cpu.pool.parallel_for(self.outer * count, GRAIN.div_ceil(self.inner), |range| {
            range.for_each(|place| body(place / count, place % count));
        });
    }
}

/// The length of the complex transform of a real line, and whether it packs two elements into each complex one.
fn packed(points: usize) -> (usize, bool) {
    if points.is_multiple_of(2) { (points / 2, true) } else { (points, false) }
}

/// The real and imaginary parts of `exp(-2πi k / points)` up to a quarter of the circle, for an even number of points.
fn quarter_roots<T: Float>(points: usize) -> Vec<T> {
    if !points.is_multiple_of(2) {
        return Vec::new();
    }
    let quarter = points / 4 + 1;
    let all = if points.is_multiple_of(8) { roots(points) } else { Vec::new() };
    let one = |k: usize| all.get(k).copied().unwrap_or_else(|| root(k, points));
    (0..quarter).map(one).flat_map(|(re, im)| [T::from_f64(re), T::from_f64(im)]).collect()
}

/// The transform of the conjugate chirp, divided by the length of the convolution, which is a power of two.
fn filter(chirp: &[(f64, f64)], size: usize) -> Vec<(f64, f64)> {
    let mut x = alloc::vec![(0.0, 0.0); size];
    for (k, &(re, im)) in chirp.iter().enumerate() {
        for place in [k, (size - k) % size] {
            x[place] = (re / size as f64, -im / size as f64);
        }
    }
    let roots = roots(size);
    let mut y = x.clone();
    let (mut left, mut done) = (size, 1);
    while left > 1 {
        left /= 2;
        for p in 0..left {
            let w = roots[p * done];
            for q in 0..done {
                let (a, b) = (x[p * done + q], x[(p + left) * done + q]);
                let rest = (a.0 - b.0, a.1 - b.1);
                y[2 * p * done + q] = (a.0 + b.0, a.1 + b.1);
                y[(2 * p + 1) * done + q] = (rest.0 * w.0 - rest.1 * w.1, rest.0 * w.1 + rest.1 * w.0);
            }
        }
        core::mem::swap(&mut x, &mut y);
        done *= 2;
    }
    x
}

/// One complex factor per row.
struct Factors<T> {
    re: Vec<T>,
    im: Vec<T>,
}

impl<T: Float> Factors<T> {
    fn new(list: &[(f64, f64)]) -> Factors<T> {
        let re = list.iter().map(|&(re, _)| T::from_f64(re)).collect();
        let im = list.iter().map(|&(_, im)| T::from_f64(im)).collect();
        Factors { re, im }
    }

    /// Multiplies rows of a line, which starts at an index, into those of another line.
    ///
    /// # Safety
    /// The rows may be read and written, and nothing else writes them meanwhile.
    unsafe fn multiply(
        &self,
        (source, from): (Parts<T>, usize),
        (target, to): (Parts<T>, usize),
        rows: Range<usize>,
        inner: usize,
    ) {
        // If rows are single elements, all of them are processed as one row.
        let together = if inner == 1 { rows.len() } else { 1 };
        for i in rows.step_by(together) {
            let (from, to, count) = (from + i * inner, to + i * inner, together * inner);
            // SAFETY: as the caller promises.
            unsafe {
                let (x_re, x_im) = (row(source[0], from, count), row(source[1], from, count));
                let (y_re, y_im) = (row_mut(target[0], to, count), row_mut(target[1], to, count));
                if inner == 1 {
                    let (re, im) = (&self.re[i..][..count], &self.im[i..][..count]);
                    for k in 0..count {
                        let (a, b) = (x_re[k], x_im[k]);
                        (y_re[k], y_im[k]) = (a * re[k] - b * im[k], a * im[k] + b * re[k]);
                    }
                } else {
                    let (re, im) = (self.re[i], self.im[i]);
                    for k in 0..count {
                        let (a, b) = (x_re[k], x_im[k]);
                        (y_re[k], y_im[k]) = (a * re - b * im, a * im + b * re);
                    }
                }
            }
        }
    }
}

/// The real and the imaginary half of a scratch array.
fn halves_of<T>(memory: &Array) -> Parts<T> {
    let start = memory.as_mut_ptr::<T>();
    let count = memory.layout.shape.iter().product::<usize>() / size_of::<T>();
    [Shared::new(start), Shared::new(start.wrapping_add(count / 2))]
}

/// # Safety
/// That many elements may be read, and nothing writes them meanwhile.
unsafe fn row<'a, T>(from: Shared<T>, start: usize, count: usize) -> &'a [T] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(from.get().add(start), count) }
}

/// # Safety
/// That many elements may be written, and nothing else reads or writes them meanwhile.
unsafe fn row_mut<'a, T>(to: Shared<T>, start: usize, count: usize) -> &'a mut [T] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts_mut(to.get().add(start), count) }
}

/// # Safety
/// As [`row`] and [`row_mut`].
unsafe fn copy<T: Copy>(from: Shared<T>, start: usize, to: Shared<T>, at: usize, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { row_mut(to, at, count).copy_from_slice(row(from, start, count)) };
}
