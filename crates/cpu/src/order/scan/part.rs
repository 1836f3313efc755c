//! The loops of a scan: parts of adjacent lines.

use super::Form;
use crate::index::Combine;
use crate::isa::{Level, multiversion};
use crate::lane::Lane;
use crate::math::vector::{self, Double, Single, Vector, Work};

/// Adjacent lines that are processed together.
pub(super) const COLUMNS: usize = 128;

/// Columns whose totals are kept in registers.
const LANES: usize = 16;

/// Lines whose elements are interleaved, to hide the latency of each line's total.
const TURNS: usize = 4;

/// A part of up to [`COLUMNS`] lines.
pub(super) struct Part<T, A> {
    pub(super) x: *const T,
    pub(super) y: *mut T,
    /// The number of elements of each line.
    pub(super) len: usize,
    /// The stride along a line, in source and target.
    pub(super) along: [isize; 2],
    /// The distance between adjacent lines.
    pub(super) across: [isize; 2],
    pub(super) identity: A,
    /// Whether the scan is exclusive.
    pub(super) exclusive: bool,
    /// Whether results are written; otherwise only the totals are computed.
    pub(super) store: bool,
}

impl<T: Lane, A: Copy> Part<T, A> {
    /// Writes the results and adds the totals of this part to the carry. Without results, returns the totals of this
    /// part alone.
    ///
    /// # Safety
    /// The elements exist in source and target, which nothing else writes; if the two overlap, they are the same.
    pub(super) unsafe fn run<F: Form<T, Total = A>, C: Combine<A>>(&self, level: Level, before: &mut [A]) {
        // SAFETY: as the caller promises.
        unsafe {
            if self.across == [1, 1] && before.len() > 1 {
                let vectors = before.len() / LANES * LANES;
                if vectors > 0 {
                    columns::<T, A, F, C>(level, self, &mut before[..vectors]);
                }
                self.lines_from::<F, C>(vectors, before);
            } else if self.along != [1, 1] || !F::lines(level, self, before) {
                self.lines_from::<F, C>(0, before);
            }
        }
    }

    /// Combines the total of this part with the carry before it, or replaces the carry.
    #[inline(always)]
    fn finish<C: Combine<A>>(&self, before: &mut A, total: A) {
        *before = if self.store { C::combine(*before, total) } else { total };
    }

    /// Scans the lines from `first` on, a few at a time. Each result depends on the one before it, so that vector
    /// instructions would not help.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(never)]
    unsafe fn lines_from<F: Form<T, Total = A>, C: Combine<A>>(&self, mut first: usize, before: &mut [A]) {
        // SAFETY: as the caller promises.
        unsafe {
            while first + TURNS <= before.len() {
                self.turns::<F, C, TURNS>(first, &mut before[first..]);
                first += TURNS;
            }
            for line in first..before.len() {
                self.turns::<F, C, 1>(line, &mut before[line..]);
            }
        }
    }

    /// Scans a few lines element by element, from line `first` on.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline(always)]
    unsafe fn turns<F: Form<T, Total = A>, C: Combine<A>, const N: usize>(
        &self,
        first: usize,
        before: &mut [A],
    ) {
        let start = before;
        let before: [A; N] = core::array::from_fn(|line| start[line]);
        let mut totals = [self.identity; N];
        let at = |n: usize| first as isize * self.across[n];
        let (x, y) = (self.x.wrapping_offset(at(0)), self.y.wrapping_offset(at(1)));
        for i in 0..self.len as isize {
            for line in 0..N {
                let across = line as isize;
                // SAFETY: as the caller promises; an element is read before its result is written.
                unsafe {
                    let x = *x.offset(i * self.along[0] + across * self.across[0]);
                    let after = C::combine(totals[line], F::widen(x));
                    if self.store {
                        let own = if self.exclusive { totals[line] } else { after };
                        *y.offset(i * self.along[1] + across * self.across[1]) =
                            F::narrow(C::combine(before[line], own));
                    }
                    totals[line] = after;
                }
            }
        }
        for line in 0..N {
            self.finish::<C>(&mut start[line], totals[line]);
        }
    }

    /// Scans adjacent columns, from `first` on, row by row.
    ///
    /// # Safety
    /// As [`run`](Self::run); adjacent lines have distance 1.
    #[inline(always)]
    unsafe fn lanes<F: Form<T, Total = A>, C: Combine<A>>(
        &self,
        row: usize,
        first: usize,
        before: &[A; LANES],
        totals: &mut [A; LANES],
    ) {
        // SAFETY: as the caller promises; the elements are read before their results are written.
        unsafe {
            let x =
                self.x.offset(row as isize * self.along[0]).add(first).cast::<[T; LANES]>().read_unaligned();
            let mut y = x;
            for lane in 0..LANES {
                let after = C::combine(totals[lane], F::widen(x[lane]));
                let own = if self.exclusive { totals[lane] } else { after };
                y[lane] = F::narrow(C::combine(before[lane], own));
                totals[lane] = after;
            }
            if self.store {
                let to = self.y.offset(row as isize * self.along[1]).add(first);
                to.cast::<[T; LANES]>().write_unaligned(y);
            }
        }
    }
}

/// Vectorized sums of contiguous `f32`, as [`Part::run`]. Returns whether the level has vectors.
///
/// # Safety
/// As [`Part::run`].
pub(super) unsafe fn sums(level: Level, part: &Part<f32, f64>, before: &mut [f64]) -> bool {
    debug_assert!(part.along == [1, 1]);
    // SAFETY: as the caller promises.
    unsafe { vector::run(level, Sums { part, before }) }.is_ok()
}

struct Sums<'a> {
    part: &'a Part<f32, f64>,
    before: &'a mut [f64],
}

impl Work for Sums<'_> {
    #[inline(always)]
    unsafe fn run<V: Single>(self) {
        let Sums { part, before } = self;
        for (line, before) in before.iter_mut().enumerate() {
            let at = |n: usize| line as isize * part.across[n];
            let (x, y) = (part.x.wrapping_offset(at(0)), part.y.wrapping_offset(at(1)));
            let front = V::Double::splat(*before);
            let mut total = V::Double::splat(0.0);
            for i in (0..part.len).step_by(V::LANES) {
                let count = V::LANES.min(part.len - i);
                // SAFETY: elements of the line, which are read before results take their place.
                unsafe {
                    let x = x.wrapping_add(i);
                    let x = if count == V::LANES { V::load(x) } else { V::load_some(x, count) };
                    let [low, high] = x.widen();
                    let [low, high] =
                        [run_on(part.exclusive, low, &mut total), run_on(part.exclusive, high, &mut total)];
                    let (sums, y) = (V::narrow([front + low, front + high]), y.wrapping_add(i));
                    if part.store && count == V::LANES {
                        sums.store(y);
                    } else if part.store {
                        sums.store_some(y, count);
                    }
                }
            }
            let mut lanes = [0.0; 8];
            // SAFETY: no vector has more lanes than the array.
            unsafe { total.store(lanes.as_mut_ptr()) };
            part.finish::<crate::index::Sum>(before, lanes[0]);
        }
    }
}

/// The scan of a vector with the carry `total`, which is updated.
#[inline(always)]
fn run_on<D: Double>(exclusive: bool, x: D, total: &mut D) -> D {
    let sums = x.running_sums();
    let own = if exclusive { sums.moved_on() } else { sums };
    let after = *total + own;
    *total = *total + sums.last();
    after
}

multiversion! {
    /// Scans adjacent columns, a multiple of [`LANES`] and at most [`COLUMNS`].
    fn columns[T: Lane, A: Copy, F: Form<T, Total = A>, C: Combine<A>]<T, A, F, C> in { T::WIDEST } (
        part: &Part<T, A>,
        before: &mut [A],
    ) {
        let mut totals = [part.identity; COLUMNS];
        let (chunks, _) = before.as_chunks::<LANES>();
        for row in 0..part.len {
            for (chunk, before) in chunks.iter().enumerate() {
                let totals = &mut totals[chunk * LANES..][..LANES];
                // SAFETY: the creator of the part guarantees its lines; the slice has that many elements.
                unsafe { part.lanes::<F, C>(row, chunk * LANES, before, &mut *totals.as_mut_ptr().cast()) };
            }
        }
        for (before, total) in before.iter_mut().zip(totals) {
            part.finish::<C>(before, total);
        }
    }
}
