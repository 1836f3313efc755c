//! Blocks of lines: loaded into vector lanes, transformed, and stored.

use super::plan::{Complex, Plan, root};
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;

/// The layout of lines: `inner` adjacent lines, and the distance `jump` to the next `inner`.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub(super) inner: usize,
    pub(super) jump: usize,
    /// The element stride of a line.
    pub(super) step: usize,
}

impl Lines {
    /// The lines along the middle one of three axes.
    pub(super) fn along(length: usize, inner: usize) -> Lines {
        Lines { inner, jump: length * inner, step: inner }
    }

    fn start(&self, line: usize) -> usize {
        line / self.inner * self.jump + line % self.inner
    }
}

/// The element kinds of a transform's input and output lines.
pub(super) enum Form<'a, T> {
    /// Complex to complex. The results are multiplied by twiddle factors, if they belong to a longer transform.
    Complex(Option<&'a Twiddles>),
    /// Real to the first half of the spectrum.
    FromReal(Real<'a, T>),
    /// The first half of the spectrum to real.
    ToReal(Real<'a, T>),
}

/// Real lines: for an even number of points, two elements are packed into one complex element.
pub(super) struct Real<'a, T> {
    pub(super) points: usize,
    /// Whether the exponent has the usual sign: minus from real, plus to real.
    pub(super) usual: bool,
    /// The real and imaginary parts of `exp(-2πi k / points)`, up to a quarter of the circle.
    pub(super) roots: &'a [T],
}

/// Twiddle factors: multiplies row `k` of column `n` by `exp(-2πi k n / points)`, for lines along the first of two
/// axes.
pub(super) struct Twiddles {
    points: usize,
    columns: usize,
    inner: usize,
    /// The roots at multiples of `fine.len()`, and the roots between two of them.
    coarse: Vec<(f64, f64)>,
    fine: Vec<(f64, f64)>,
}

impl Twiddles {
    pub(super) fn new(points: usize, columns: usize, inner: usize) -> Twiddles {
        let size = points.isqrt().next_power_of_two();
        let coarse = (0..points.div_ceil(size)).map(|turn| root(turn * size, points)).collect();
        let fine = (0..size).map(|turn| root(turn, points)).collect();
        Twiddles { points, columns, inner, coarse, fine }
    }

    fn root(&self, turn: usize) -> (f64, f64) {
        let (a, b) = (self.coarse[turn / self.fine.len()], self.fine[turn % self.fine.len()]);
        (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
    }
}

/// Lines to be transformed.
pub(super) struct Job<'a, T> {
    pub(super) plan: &'a Plan<T>,
    pub(super) form: Form<'a, T>,
    pub(super) from: Lines,
    pub(super) to: Lines,
    pub(super) source: [Shared<T>; 2],
    pub(super) target: [Shared<T>; 2],
    pub(super) lines: usize,
}

/// Some blocks, each with one line per vector lane.
pub(super) struct Blocks<'a, T> {
    pub(super) job: &'a Job<'a, T>,
    pub(super) range: Range<usize>,
}

/// Returns the number of lanes of a vector.
pub(super) struct Lanes;

impl<T> Kernel<T> for Lanes {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) -> usize {
        S::LANES
    }
}

/// Scratch elements for lines of that many complex elements.
pub(super) fn scratch_len(length: usize, lanes: usize) -> usize {
    2 * half_room(length, lanes)
}

/// One more element than the length, for the last frequency of half a spectrum.
fn half_room(length: usize, lanes: usize) -> usize {
    2 * lanes * (length + 1)
}

impl<T: Float> Kernel<T> for Blocks<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let Blocks { job, range } = self;
        let lanes = S::LANES;
        let mut memory = Scratch::<T>::new(scratch_len(job.plan.length, lanes));
        for block in range {
            let first = block * lanes;
            let some = first..(first + lanes).min(job.lines);
            let a = memory.as_mut_ptr();
            // SAFETY: the memory holds both halves; the lines are the job's.
            unsafe {
                let b = a.add(half_room(job.plan.length, lanes));
                job.fetch::<S>(&some, a);
                let y = job.plan.run::<S>(a, b);
                job.put::<S>(&some, y);
            }
        }
    }
}

impl<T: Float> Job<'_, T> {
    /// Loads lines into scratch memory.
    ///
    /// # Safety
    /// The machine has the unit; there is a half of the room, and nothing writes these lines.
    #[inline(always)]
    unsafe fn fetch<S: Simd<T>>(&self, some: &Range<usize>, a: *mut T) {
        let (lanes, row) = (S::LANES, 2 * S::LANES);
        let source = self.source.map(Shared::get);
        // SAFETY: as the caller promises.
        unsafe {
            match &self.form {
                Form::Complex(_) => {
                    load::<T, S>(source[0], &self.from, some, self.plan.length, a, row);
                    load::<T, S>(source[1], &self.from, some, self.plan.length, a.add(lanes), row);
                }
                Form::FromReal(real) if real.points.is_multiple_of(2) => {
                    load::<T, S>(source[0], &self.from, some, real.points, a, lanes);
                }
                Form::FromReal(real) => {
                    load::<T, S>(source[0], &self.from, some, real.points, a, row);
                    for i in 0..real.points {
                        S::store(a.add(i * row + lanes), S::splat(T::ZERO));
                    }
                }
                Form::ToReal(real) => {
                    let bins = real.points / 2 + 1;
                    load::<T, S>(source[0], &self.from, some, bins, a, row);
                    load::<T, S>(source[1], &self.from, some, bins, a.add(lanes), row);
                    if !real.usual {
                        negate::<T, S>(a.add(lanes), bins);
                    }
                    if real.points.is_multiple_of(2) {
                        joined::<T, S>(real, a);
                    } else {
                        mirrored::<T, S>(real, a);
                    }
                }
            }
        }
    }

    /// Stores the results.
    ///
    /// # Safety
    /// As [`Job::fetch`]; nothing else writes these lines of the result.
    #[inline(always)]
    unsafe fn put<S: Simd<T>>(&self, some: &Range<usize>, y: *mut T) {
        let (lanes, row) = (S::LANES, 2 * S::LANES);
        let target = self.target.map(Shared::get);
        // SAFETY: as the caller promises.
        unsafe {
            let count = match &self.form {
                Form::Complex(twiddles) => {
                    if let Some(twiddles) = twiddles {
                        multiply_twiddles::<T, S>(twiddles, some, self.plan.length, y);
                    }
                    self.plan.length
                }
                Form::FromReal(real) => {
                    let bins = real.points / 2 + 1;
                    if real.points.is_multiple_of(2) {
                        split::<T, S>(real, y);
                    } else {
                        S::store(y.add(lanes), S::splat(T::ZERO));
                        if !real.usual {
                            negate::<T, S>(y.add(lanes), bins);
                        }
                    }
                    bins
                }
                Form::ToReal(real) => {
                    let distance = if real.points.is_multiple_of(2) { lanes } else { row };
                    store::<T, S>(target[0], &self.to, some, real.points, y, distance);
                    return;
                }
            };
            store::<T, S>(target[0], &self.to, some, count, y, row);
            store::<T, S>(target[1], &self.to, some, count, y.add(lanes), row);
        }
    }
}

/// Completes the spectrum of an odd number of points from its first half, in reverse order, so that a transform with a
/// negative exponent inverts it.
///
/// # Safety
/// The machine has the unit; `x` holds as many complex numbers as points.
#[inline(always)]
unsafe fn mirrored<T: Float, S: Simd<T>>(real: &Real<'_, T>, x: *mut T) {
    let row = 2 * S::LANES;
    // SAFETY: as the caller promises.
    unsafe {
        let zero = S::splat(T::ZERO);
        S::store(x.add(S::LANES), zero);
        for k in 1..real.points / 2 + 1 {
            let here = Complex::load::<T, S>(x.add(k * row));
            here.store::<T, S>(x.add((real.points - k) * row));
            S::store(x.add(k * row + S::LANES), S::sub(zero, here.im));
        }
    }
}

/// Unpacks the spectrum of real lines that were packed as complex lines. With the transforms `E` of the even and `O` of
/// the odd elements, `X[k] = E[k] + w[k] O[k]`, and `X[half - k]` is the conjugate of `E[k] - w[k] O[k]`.
///
/// # Safety
/// The machine has the unit; `z` holds one complex number more than half the points.
#[inline(always)]
unsafe fn split<T: Float, S: Simd<T>>(real: &Real<'_, T>, z: *mut T) {
    let (half, row) = (real.points / 2, 2 * S::LANES);
    // SAFETY: as the caller promises; there is a root up to half of the half.
    unsafe {
        let zero = S::splat(T::ZERO);
        let point_five = S::splat(T::from_f64(0.5));
        for k in 0..=half / 2 {
            let a = Complex::load::<T, S>(z.add(k * row));
            let b = Complex::load::<T, S>(z.add((half - k) % half * row));
            let even = Complex { re: S::add(a.re, b.re), im: S::sub(a.im, b.im) }.scaled::<T, S>(point_five);
            let odd = Complex { re: S::add(a.im, b.im), im: S::sub(b.re, a.re) }.scaled::<T, S>(point_five);
            let odd = if k == 0 { odd } else { odd.times::<T, S>(real.roots.as_ptr().add(2 * k)) };
            let (mut x, mut y) = (even.plus::<T, S>(odd), even.minus::<T, S>(odd));
            if real.usual {
                y.im = S::sub(zero, y.im);
            } else {
                x.im = S::sub(zero, x.im);
            }
            x.store::<T, S>(z.add(k * row));
            y.store::<T, S>(z.add((half - k) * row));
        }
    }
}

/// The inverse of [`split`], for a positive exponent:
/// `Z[k] = X[k] + conj(X[half - k]) + i conj(w[k]) (X[k] - conj(X[half - k]))`, in reverse order, so that a transform
/// with a negative exponent follows.
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn joined<T: Float, S: Simd<T>>(real: &Real<'_, T>, x: *mut T) {
    let (half, row) = (real.points / 2, 2 * S::LANES);
    // SAFETY: as the caller promises; there is a root up to half of the half.
    unsafe {
        let zero = S::splat(T::ZERO);
        let (first, last) = (S::load(x), S::load(x.add(half * row)));
        Complex { re: S::add(first, last), im: S::sub(first, last) }.store::<T, S>(x);
        for k in 1..=half / 2 {
            let a = Complex::load::<T, S>(x.add(k * row));
            let b = Complex::load::<T, S>(x.add((half - k) * row));
            let sum = Complex { re: S::add(a.re, b.re), im: S::sub(a.im, b.im) };
            // The conjugate, so that it is multiplied by the root itself.
            let rest = Complex { re: S::sub(a.re, b.re), im: S::sub(zero, S::add(a.im, b.im)) };
            let rest = rest.times::<T, S>(real.roots.as_ptr().add(2 * k));
            let here = Complex { re: S::add(sum.re, rest.im), im: S::add(sum.im, rest.re) };
            let mirrored = Complex { re: S::sub(sum.re, rest.im), im: S::sub(rest.re, sum.im) };
            mirrored.store::<T, S>(x.add(k * row));
            here.store::<T, S>(x.add((half - k) * row));
        }
    }
}

/// Negates every second vector: the imaginary parts.
///
/// # Safety
/// The machine has the unit; that many vectors may be read and written.
#[inline(always)]
unsafe fn negate<T: Float, S: Simd<T>>(at: *mut T, count: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let zero = S::splat(T::ZERO);
        for i in 0..count {
            let place = at.add(2 * i * S::LANES);
            S::store(place, S::sub(zero, S::load(place)));
        }
    }
}

/// # Safety
/// `y` holds as many complex numbers in each lane as the length.
#[inline(always)]
unsafe fn multiply_twiddles<T: Float, S: Simd<T>>(
    twiddles: &Twiddles,
    some: &Range<usize>,
    length: usize,
    y: *mut T,
) {
    let mut columns = [0; 16];
    for (column, line) in columns.iter_mut().zip(some.clone()) {
        *column = line % (twiddles.columns * twiddles.inner) / twiddles.inner;
    }
    let mut turns = [0; 16];
    for k in 0..length {
        for lane in 0..some.len() {
            let (re, im) = twiddles.root(turns[lane]);
            // SAFETY: element `k` of the lane.
            unsafe {
                let place = y.add(2 * k * S::LANES + lane);
                let (x_re, x_im) = ((*place).to_f64(), (*place.add(S::LANES)).to_f64());
                *place = T::from_f64(x_re * re - x_im * im);
                *place.add(S::LANES) = T::from_f64(x_re * im + x_im * re);
            }
            turns[lane] += columns[lane];
            if turns[lane] >= twiddles.points {
                turns[lane] -= twiddles.points;
            }
        }
    }
}

/// Loads elements of lines into lanes: vectors with row stride `row`. Lanes without a line become 0.
///
/// # Safety
/// The machine has the unit; the elements may be read, and that many vectors written.
#[inline(always)]
unsafe fn load<T: Float, S: Simd<T>>(
    source: *const T,
    lines: &Lines,
    some: &Range<usize>,
    count: usize,
    to: *mut T,
    row: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let from = source.add(lines.start(some.start));
        if some.start % lines.inner + some.len() <= lines.inner {
            if some.len() == S::LANES {
                for i in 0..count {
                    S::store(to.add(i * row), S::load(from.add(i * lines.step)));
                }
            } else {
                for i in 0..count {
                    S::store(to.add(i * row), S::load_some(from.add(i * lines.step), some.len()));
                }
            }
            return;
        }
        let mut done = 0;
        if some.len() == S::LANES && lines.inner == 1 && lines.step == 1 {
            while done + S::LANES <= count {
                S::transpose(from.add(done), lines.jump as isize, to.add(done * row), row as isize);
                done += S::LANES;
            }
        } else {
            for i in 0..count {
                S::store(to.add(i * row), S::splat(T::ZERO));
            }
        }
        for (lane, line) in some.clone().enumerate() {
            let from = source.add(lines.start(line));
            for i in done..count {
                *to.add(i * row + lane) = *from.add(i * lines.step);
            }
        }
    }
}

/// Stores lanes to elements of lines.
///
/// # Safety
/// The machine has the unit; that many vectors may be read, and the elements written.
#[inline(always)]
unsafe fn store<T: Float, S: Simd<T>>(
    target: *mut T,
    lines: &Lines,
    some: &Range<usize>,
    count: usize,
    from: *const T,
    row: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let to = target.add(lines.start(some.start));
        if some.start % lines.inner + some.len() <= lines.inner {
            if some.len() == S::LANES {
                for i in 0..count {
                    S::store(to.add(i * lines.step), S::load(from.add(i * row)));
                }
            } else {
                for i in 0..count {
                    S::store_some(to.add(i * lines.step), S::load(from.add(i * row)), some.len());
                }
            }
            return;
        }
        let mut done = 0;
        if some.len() == S::LANES && lines.inner == 1 && lines.step == 1 {
            while done + S::LANES <= count {
                S::transpose(from.add(done * row), row as isize, to.add(done), lines.jump as isize);
                done += S::LANES;
            }
        }
        for (lane, line) in some.clone().enumerate() {
            let to = target.add(lines.start(line));
            for i in done..count {
                *to.add(i * lines.step) = *from.add(i * row + lane);
            }
        }
    }
}
