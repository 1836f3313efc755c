//! Transposing copies in square tiles whose sides are cache lines. Each line of the source is read completely, and each
//! line of the target is written completely. None is therefore fetched twice, even if lines map to the same cache sets.

use super::stream::{self, LINE};
use super::{GRAIN, Shared};
use crate::threads::Pool;
use crate::walk::Walk;
use core::ops::Range;

/// Bytes along a source row that a task processes before the next rows.
const STRIP: usize = 2048;

/// Cache lines of the target along each of its rows that a task writes.
const TILES: usize = 8;

/// A matrix and its transpose: element `(row, column)` of the target, at `row * target_row + column`, is the element at
/// `column * source_column + row` of the source.
pub(super) struct Plane<T> {
    pub(super) source: Shared<T>,
    pub(super) target: Shared<T>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) source_column: isize,
    pub(super) target_row: isize,
}

/// The side length of a tile in elements: one cache line.
const fn side<T>() -> usize {
    LINE / size_of::<T>()
}

impl<T: TransposeBlock> Plane<T> {
    /// Whether there is at least one tile.
    pub(super) fn has_tiles(rows: usize, columns: usize) -> bool {
        rows >= side::<T>() && columns >= side::<T>()
    }

    /// Copies a plane at each position of the outer walk.
    ///
    /// # Safety
    /// The planes are within source and target, which do not overlap. Nothing else accesses the target, whose elements
    /// are distinct.
    pub(super) unsafe fn copy(&self, pool: &Pool, outer: &Walk<2>) {
        let (strip, chunk) = (STRIP / size_of::<T>(), TILES * side::<T>());
        let (strips, chunks) = (self.rows.div_ceil(strip), self.columns.div_ceil(chunk));
        let units = strips * chunks;
        let bytes = outer.num_elements() * self.rows * self.columns * size_of::<T>();
        let streamed =
            stream::pays(bytes) && (self.target_row.unsigned_abs() * size_of::<T>()).is_multiple_of(LINE);
        let grain = GRAIN.div_ceil(strip.min(self.rows) * chunk.min(self.columns) * size_of::<T>());
        pool.parallel_for(outer.num_elements() * units, grain, |range| {
            for unit in range {
                let place = outer.at(unit / units);
                let (row, column) = (unit % units / chunks * strip, unit % chunks * chunk);
                let rows = row..(row + strip).min(self.rows);
                let columns = column..(column + chunk).min(self.columns);
                // SAFETY: as the caller promises; units are disjoint.
                unsafe { self.unit(place.offsets, rows, columns, streamed) };
            }
            if streamed {
                stream::fence();
            }
        });
    }

    /// # Safety
    /// As [`copy`](Self::copy); nothing else writes these rows and columns.
    unsafe fn unit(&self, offsets: [isize; 2], rows: Range<usize>, columns: Range<usize>, streamed: bool) {
        let side = side::<T>();
        let source = self.source.get().cast_const().wrapping_offset(offsets[0]);
        let target = self.target.get().wrapping_offset(offsets[1]);
        let from = |row: usize, column: usize| {
            source.wrapping_offset(column as isize * self.source_column).wrapping_add(row)
        };
        let to = |row: usize, column: usize| {
            target.wrapping_offset(row as isize * self.target_row).wrapping_add(column)
        };
        let streamed = streamed && to(rows.start, columns.start).cast::<u8>().align_offset(LINE) == 0;
        let last = |range: &Range<usize>| range.start + range.len() / side * side;
        let (last_row, last_column) = (last(&rows), last(&columns));
        for column in (columns.start..last_column).step_by(side) {
            for row in (rows.start..last_row).step_by(side) {
                // SAFETY: a whole tile of both.
                unsafe { self.tile(from(row, column), to(row, column), streamed) };
            }
        }
        let rest = |rows: Range<usize>, columns: Range<usize>| {
            for row in rows {
                for column in columns.clone() {
                    // SAFETY: elements of both.
                    unsafe { *to(row, column) = *from(row, column) };
                }
            }
        };
        rest(rows.start..last_row, last_column..columns.end);
        rest(last_row..rows.end, columns);
    }

    /// # Safety
    /// As [`unit`](Self::unit), for one tile; with `streamed`, the rows of the target are aligned to cache lines.
    #[inline(always)]
    unsafe fn tile(&self, source: *const T, target: *mut T, streamed: bool) {
        let side = side::<T>();
        let mut tile = core::mem::MaybeUninit::<Tile>::uninit();
        let lines = tile.as_mut_ptr().cast::<T>();
        // SAFETY: the tile has room for `side` lines; blocks of the source and of the tile.
        unsafe {
            for column in (0..side).step_by(T::SIDE) {
                let source = source.offset(column as isize * self.source_column);
                for row in (0..side).step_by(T::SIDE) {
                    T::transpose(
                        source.add(row),
                        self.source_column,
                        lines.add(row * side + column),
                        side as isize,
                    );
                }
            }
            for row in 0..side {
                let from = lines.add(row * side).cast::<u8>();
                let to = target.offset(row as isize * self.target_row).cast::<u8>();
                if streamed {
                    stream::line(from, to);
                } else {
                    to.copy_from_nonoverlapping(from, LINE);
                }
            }
        }
    }
}

/// Memory for a tile of the smallest elements.
#[repr(C, align(64))]
struct Tile([u8; LINE * LINE]);

/// Elements whose blocks of 16 bytes by as many rows can be transposed.
pub(crate) trait TransposeBlock: Copy {
    /// The side of a block.
    const SIDE: usize = 16 / size_of::<Self>();

    /// Transposes a block: the element at `row * stride + column` of the source moves to `column * stride + row` of the
    /// target. Each side has its own stride.
    ///
    /// # Safety
    /// Both blocks exist and do not overlap; nothing else accesses the target.
    unsafe fn transpose(source: *const Self, source_row: isize, target: *mut Self, target_row: isize);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::TransposeBlock;
    use core::arch::x86_64::*;

    macro_rules! transpose {
        ($($ty:ty, $side:literal, $low:ident, $high:ident;)*) => {$(
            impl TransposeBlock for $ty {
                #[inline(always)]
                unsafe fn transpose(source: *const $ty, source_row: isize, target: *mut $ty, target_row: isize) {
                    // SAFETY: every x86-64 has SSE2; the caller guarantees the rows, and accesses may be unaligned.
                    unsafe {
                        let row = |i: usize| _mm_loadu_si128(source.offset(i as isize * source_row).cast());
                        let mut rows: [__m128i; $side] = core::array::from_fn(row);
                        let mut round = 1;
                        // Each round interleaves the first half of the rows with the second.
                        while round < $side {
                            let before = rows;
                            for i in 0..$side / 2 {
                                rows[2 * i] = $low(before[i], before[i + $side / 2]);
                                rows[2 * i + 1] = $high(before[i], before[i + $side / 2]);
                            }
                            round *= 2;
                        }
                        for (i, row) in rows.into_iter().enumerate() {
                            _mm_storeu_si128(target.offset(i as isize * target_row).cast(), row);
                        }
                    }
                }
            }
        )*};
    }

    transpose! {
        u64, 2, _mm_unpacklo_epi64, _mm_unpackhi_epi64;
        u32, 4, _mm_unpacklo_epi32, _mm_unpackhi_epi32;
        u16, 8, _mm_unpacklo_epi16, _mm_unpackhi_epi16;
        u8, 16, _mm_unpacklo_epi8, _mm_unpackhi_epi8;
    }
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! transpose {
    ($($ty:ty),*) => {$(
        impl TransposeBlock for $ty {
            #[inline(always)]
            unsafe fn transpose(source: *const $ty, source_row: isize, target: *mut $ty, target_row: isize) {
                for row in 0..Self::SIDE as isize {
                    for column in 0..Self::SIDE as isize {
                        // SAFETY: as the caller promises.
                        unsafe {
                            *target.offset(column * target_row + row) = *source.offset(row * source_row + column);
                        }
                    }
                }
            }
        }
    )*};
}

#[cfg(not(target_arch = "x86_64"))]
transpose!(u64, u32, u16, u8);
