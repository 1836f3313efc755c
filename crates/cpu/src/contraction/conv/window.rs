//! The kernel of depthwise convolution: one source channel per result channel.
//!
//! A strip would load a vector for every multiplication. Here several rows of the result are summed together. A loaded
//! vector of a source row is multiplied for all of them, since windows of adjacent rows overlap.

use super::lines::Lines;
use crate::Cpu;
use crate::contraction::simd::{Float, Kernel, Simd};
use alloc::vec::Vec;

/// The parameters of a convolution of planes with square windows, over a source in the layout of [`Lines`].
pub(super) struct Windows {
    /// The side length of the window.
    side: usize,
    /// The offset of the window of position 0, within a channel of the source.
    start: usize,
    /// The row stride of the source.
    pitch: usize,
    /// The weight index of each element of the window, row by row.
    weights: Vec<usize>,
    /// Rows and columns of the result.
    size: [usize; 2],
}

impl Windows {
    /// `None` if windows are not dense squares of a supported side length. `None` also if rows of the result would
    /// leave many lanes empty: strips of positions then waste less.
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

    /// Computes one channel of the result, whose rows are contiguous.
    ///
    /// # Safety
    /// The source is a channel in the layout of the lines, with room for a vector after it. The weights are those of
    /// the channel. The result has that size and has no other writer.
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
    /// The window of position 0.
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

    /// Computes some rows of the result, vector by vector; the last vectors overlap the previous ones.
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
        // SAFETY: windows of these positions are within the source, except for lanes past the row, which read the
        // elements after it; rows of the result.
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
