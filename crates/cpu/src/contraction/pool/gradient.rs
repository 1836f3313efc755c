//! The gradient of pooling.
//!
//! Contributions of adjacent windows to an operand row are first summed per remainder modulo the stride. There, window
//! `i` and its element `k` have index `i + k / stride`, so windows and sums are contiguous. The sums are then added to
//! the row as contiguous runs.

use super::{Column, Number, Windows, beats};
use crate::isa::multiversion;
use alloc::vec;
use alloc::vec::Vec;

/// Windows processed together.
const CHUNK: usize = 64;

/// The element index of a window without a maximum yet.
const NONE: u32 = u32::MAX;

/// Sums for a row of the operand, one line per remainder modulo the stride. Elements that no window reaches have none.
pub(super) struct Sums<T> {
    lines: Vec<Vec<T>>,
}

impl<T: Number> Sums<T> {
    /// Creates sums for `count` windows at a time.
    fn new(windows: &Windows, count: usize) -> Sums<T> {
        let reach = windows.columns.len().saturating_sub(1) * windows.dilation;
        // At least the two lines of a stride of 2.
        let lines = windows.step.min((reach + 1).max(2));
        Sums { lines: vec![vec![T::default(); count + reach / windows.step]; lines] }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.lines.iter_mut().for_each(|line| line.fill(T::default()));
    }

    /// The sums that element `k` of each window adds to.
    #[inline(always)]
    fn of(&mut self, windows: &Windows, k: usize) -> &mut [T] {
        let place = k * windows.dilation;
        &mut self.lines[place % windows.step][place / windows.step..]
    }

    /// Adds to a row of the operand, from window `first` on; elements in the padding are left out.
    #[inline(always)]
    fn add_to(&self, windows: &Windows, first: usize, row: &mut [T]) {
        let (step, start) = (windows.step, first * windows.step);
        // The first index of all lines that is inside the row.
        let skipped = windows.low.saturating_sub(start).div_ceil(step);
        let end = windows.length + windows.low;
        if step == 2 && self.lines[0].len() > skipped {
            let from = start + 2 * skipped - windows.low;
            let (pairs, _) = row[from.min(windows.length)..].as_chunks_mut::<2>();
            let (even, odd) = (&self.lines[0][skipped..], &self.lines[1][skipped..]);
            let done = pairs.len().min(even.len());
            for (pair, (&even, &odd)) in pairs.iter_mut().zip(even.iter().zip(odd)) {
                *pair = [pair[0].plus(even), pair[1].plus(odd)];
            }
            // Half a pair before the first and after the last.
            if skipped > 0 && from > 0 {
                row[from - 1] = row[from - 1].plus(self.lines[1][skipped - 1]);
            }
            let next = from + 2 * done;
            if next < windows.length && done < even.len() {
                row[next] = row[next].plus(even[done]);
            }
            return;
        }
        for (remainder, line) in self.lines.iter().enumerate() {
            let place = start + remainder;
            let skipped = windows.low.saturating_sub(place).div_ceil(step);
            let count = end.saturating_sub(place).div_ceil(step).min(line.len());
            if skipped >= count {
                continue;
            }
            let row = &mut row[place + skipped * step - windows.low..];
            if step == 1 {
                row.iter_mut().zip(&line[skipped..count]).for_each(|(x, &sum)| *x = x.plus(sum));
            } else {
                let places = row.iter_mut().step_by(step);
                places.zip(&line[skipped..count]).for_each(|(x, &sum)| *x = x.plus(sum));
            }
        }
    }
}

/// Per-chunk state of the max-pooling gradient.
pub(super) struct MaxGradient<T> {
    best: [T; CHUNK],
    /// Its index in the window.
    which: [u32; CHUNK],
    sums: Sums<T>,
}

impl<T: Number> MaxGradient<T> {
    pub(super) fn new(windows: &Windows) -> MaxGradient<T> {
        MaxGradient {
            best: [T::LOWEST; CHUNK],
            which: [NONE; CHUNK],
            sums: Sums::new(windows, windows.row.min(CHUNK)),
        }
    }

    /// Compares with one element of each of the windows from `from` on.
    #[inline(always)]
    fn compare(
        &mut self,
        windows: &Windows,
        row: &[T],
        column: &Column,
        from: usize,
        len: usize,
        number: u32,
    ) {
        let (first, end) = (column.first.max(from), column.end.min(from + len));
        if first >= end {
            return;
        }
        let source = &row[column.start + (first - column.first) * windows.step..];
        let best = &mut self.best[first - from..end - from];
        let which = &mut self.which[first - from..end - from];
        let keep = |best: &mut T, which: &mut u32, x: T| {
            let wins = beats(x, *best) | (*which == NONE);
            *best = if wins { x } else { *best };
            *which = if wins { number } else { *which };
        };
        match windows.step {
            1 => {
                for ((best, which), &x) in best.iter_mut().zip(which).zip(source) {
                    keep(best, which, x);
                }
            }
            2 => {
                // Pairs turn the loads of adjacent windows into vector loads. The last pair may lack its second half.
                let (pairs, rest) = source.as_chunks::<2>();
                for ((best, which), pair) in best.iter_mut().zip(which.iter_mut()).zip(pairs) {
                    keep(best, which, pair[0]);
                }
                if let (Some(best), Some(which), Some(&x)) =
                    (best.get_mut(pairs.len()), which.get_mut(pairs.len()), rest.first())
                {
                    keep(best, which, x);
                }
            }
            step => {
                for ((best, which), &x) in best.iter_mut().zip(which).zip(source.iter().step_by(step)) {
                    keep(best, which, x);
                }
            }
        }
    }
}

/// Per-row state of the average-pooling gradient.
pub(super) struct AverageGradient<T> {
    shares: Vec<T>,
    sums: Sums<T>,
}

impl<T: Number> AverageGradient<T> {
    pub(super) fn new(windows: &Windows) -> AverageGradient<T> {
        AverageGradient { shares: vec![T::default(); windows.row], sums: Sums::new(windows, windows.row) }
    }
}

multiversion! {
    /// Adds each window's gradient to its first maximum.
    pub(super) fn to_greatest[T: Number]<T> in { T::WIDEST } (
        windows: &Windows,
        x: &[T],
        grad: &[T],
        dx: &mut [T],
        kept: &mut MaxGradient<T>,
    ) {
        for ((starts, _), grad) in windows.rows.iter().zip(grad.chunks_exact(windows.row)) {
            for from in (0..windows.row).step_by(CHUNK) {
                let len = (windows.row - from).min(CHUNK);
                (kept.best, kept.which) = ([T::LOWEST; CHUNK], [NONE; CHUNK]);
                let mut number = 0;
                for &start in starts {
                    for column in &windows.columns {
                        kept.compare(windows, &x[start..start + windows.length], column, from, len, number);
                        number += 1;
                    }
                }
                number = 0;
                for &start in starts {
                    kept.sums.clear();
                    for k in 0..windows.columns.len() {
                        let sums = kept.sums.of(windows, k).iter_mut();
                        let given = grad[from..from + len].iter().zip(&kept.which);
                        for (sum, (&grad, &which)) in sums.zip(given) {
                            *sum = sum.plus(if which == number { grad } else { T::default() });
                        }
                        number += 1;
                    }
                    kept.sums.add_to(windows, from, &mut dx[start..start + windows.length]);
                }
            }
        }
    }

    /// Adds each window's share of the mean's gradient to all its elements.
    pub(super) fn to_all[T: Number]<T> in { T::WIDEST } (
        windows: &Windows,
        grad: &[T],
        dx: &mut [T],
        kept: &mut AverageGradient<T>,
    ) {
        for ((starts, outer), grad) in windows.rows.iter().zip(grad.chunks_exact(windows.row)) {
            for ((share, &grad), &inner) in kept.shares.iter_mut().zip(grad).zip(&windows.divisors) {
                *share = grad.over(T::count(outer * inner));
            }
            kept.sums.clear();
            for k in 0..windows.columns.len() {
                let sums = kept.sums.of(windows, k).iter_mut();
                sums.zip(&kept.shares).for_each(|(sum, &share)| *sum = sum.plus(share));
            }
            for &start in starts {
                kept.sums.add_to(windows, 0, &mut dx[start..start + windows.length]);
            }
        }
    }
}
