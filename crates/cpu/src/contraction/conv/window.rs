//! The kernel of depthwise convolution: one channel of the source gives one of the result.
//!
//! A strip would load a vector for every multiplication. Here some rows of the result are summed side by side, so that
//! a loaded vector of a source row is multiplied for all of them: windows of neighbouring rows overlap.

use super::lines::Lines;
use crate::Cpu;
use crate::contraction::simd::{Float, Kernel, Simd};
use alloc::vec::Vec;

/// How a convolution of planes by square windows reads a source that is laid out in [`Lines`].
pub(super) struct Windows {
    /// The side of the window.
    side: usize,
    /// Where the window of position 0 starts, within a channel of the source.
    start: usize,
    /// The distance between rows of the source.
    pitch: usize,
    /// Which weight each place of the window has, row by row.
    weights: Vec<usize>,
    /// Rows and columns of the result.
    size: [usize; 2],
}

impl Windows {
    /// `None` where windows are no whole squares of neighbours, of a side that there is code for, or where rows of the
    /// result leave many lanes empty: strips of positions then waste less.
    pub(super) fn new(lines: &Lines, lanes: usize) -> Option<Windows> {
        let [map] = lines.maps.as_slice() else { return None };
        let ([rows, _], &[height, width]) = (lines.axes.as_slice(), map.grid.as_slice()) else { return None };
        let side = [3, 5, 7].into_iter().find(|side| side * side == map.offsets.len())?;
        let pitch = rows.stride;
        let mut order: Vec<usize> = (0..map.offsets.len()).collect();
        order.sort_unstable_by_key(|&i| map.offsets[i]);
        let start = map.offsets[order[0]];
        let is_square = order.iter().enumerate().all(|(place, &i)| {
            let (down, along) = (place / side, place % side);
            map.offsets[i] == start + down * pitch + along
        });
        let full = 4 * width >= 3 * width.next_multiple_of(lanes);
        (is_square && full && map.out.is_none()).then_some(Windows {
            side,
            start,
            pitch,
            weights: order,
            size: [height, width],
        })
    }

    /// One channel of the result, whose rows have no gaps.
    ///
    /// # Safety
    /// The source is a channel laid out as the lines say, with room for a vector after it; the weights are those of the
    /// channel; the result has that size and has no other writer.
    pub(super) unsafe fn run<T: Float>(
        &self,
        cpu: &Cpu,
        source: *const T,
        weights: *const T,
        result: *mut T,
    ) {
        let mut ordered = [T::ZERO; 49];
        for (to, &from) in ordered.iter_mut().zip(&self.weights) {
            // SAFETY: a weight of the channel.
            *to = unsafe { *weights.add(from) };
        }
        let plane =
            Plane { windows: self, source: source.wrapping_add(self.start), weights: &ordered, result };
        // SAFETY: as the caller promises.
        unsafe { T::dispatch(cpu.level, plane) };
    }
}

struct Plane<'a, T> {
    windows: &'a Windows,
    /// Where the window of position 0 starts.
    source: *const T,
    weights: &'a [T; 49],
    result: *mut T,
}

impl<T: Float> Kernel<T> for Plane<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        // SAFETY: the caller upholds the conditions.
        unsafe {
            match self.windows.side {
                3 => self.rows::<S, 3>(),
                5 => self.rows::<S, 5>(),
                _ => self.rows::<S, 7>(),
            }
        }
    }
}

impl<T: Float> Plane<'_, T> {
    #[inline(always)]
    unsafe fn rows<S: Simd<T>, const SIDE: usize>(&self) {
        let height = self.windows.size[0];
        let mut row = 0;
        // SAFETY: rows of the result, and the windows above them.
        unsafe {
            while row + 4 <= height {
                self.columns::<S, SIDE, 4>(row);
                row += 4;
            }
            if row + 2 <= height {
                self.columns::<S, SIDE, 2>(row);
                row += 2;
            }
            if row < height {
                self.columns::<S, SIDE, 1>(row);
            }
        }
    }

    /// Some rows of the result, vector by vector; the last vectors overlap those before them.
    #[inline(always)]
    unsafe fn columns<S: Simd<T>, const SIDE: usize, const ROWS: usize>(&self, row: usize) {
        let width = self.windows.size[1];
        let two = 2 * S::LANES;
        let mut column = 0;
        // SAFETY: as the caller promises.
        unsafe {
            // Two vectors of four rows and the weights of a small window fit 32 registers.
            if S::REGISTERS == 32 && width >= two {
                while column < width {
                    let start = column.min(width - two);
                    self.tile::<S, SIDE, ROWS, 2, false>(row, start);
                    column = start + two;
                }
            } else if width >= S::LANES {
                while column < width {
                    let start = column.min(width - S::LANES);
                    self.tile::<S, SIDE, ROWS, 1, false>(row, start);
                    column = start + S::LANES;
                }
            } else {
                self.tile::<S, SIDE, ROWS, 1, true>(row, 0);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<
        S: Simd<T>,
        const SIDE: usize,
        const ROWS: usize,
        const VECTORS: usize,
        const PARTIAL: bool,
    >(
        &self,
        row: usize,
        column: usize,
    ) {
        let Windows { pitch, size: [_, width], .. } = *self.windows;
        // SAFETY: windows of these positions lie in the source, but for lanes past the row, which read what follows; rows
        // of the result.
        unsafe {
            let mut sums = [[S::splat(T::ZERO); VECTORS]; ROWS];
            for down in 0..ROWS + SIDE - 1 {
                let from = self.source.add((row + down) * pitch + column);
                for along in 0..SIDE {
                    let mut x = [S::splat(T::ZERO); VECTORS];
                    for v in 0..VECTORS {
                        x[v] = S::load(from.add(along + v * S::LANES));
                    }
                    for r in 0..ROWS {
                        if down >= r && down - r < SIDE {
                            let weight = S::splat(self.weights[(down - r) * SIDE + along]);
                            for v in 0..VECTORS {
                                sums[r][v] = S::mul_add(x[v], weight, sums[r][v]);
                            }
                        }
                    }
                }
            }
            for r in 0..ROWS {
                let to = self.result.add((row + r) * width + column);
                for v in 0..VECTORS {
                    if PARTIAL {
                        S::store_some(to, sums[r][v], width);
                    } else {
                        S::store(to.add(v * S::LANES), sums[r][v]);
                    }
                }
            }
        }
    }
}
