//! The memory addresses of a tile's points, and copies between memory and registers.

use crate::copy::copy_row;
use crate::scalar::with_size;
use crate::walk::{Cursor, Walk};
use core::mem::MaybeUninit;

/// The access of a parameter: its strides along the axes outside of all tiles, along a tile's rows, and within a row.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) outer: Walk<1>,
    pub(super) rows: Walk<1>,
    pub(super) inner: Walk<1>,
    /// The element size in bytes.
    pub(super) size: usize,
}

/// A tile: some rows, and the same range of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
}

/// A rectangle of a tile with one stride along each side.
struct Piece {
    /// The offset of the first element in memory, relative to the first element of row and column 0.
    offset: isize,
    /// The index of the first element in the tile.
    at: usize,
    rows: usize,
    columns: usize,
    row_stride: isize,
    column_stride: isize,
}

/// The maximum number of steps along the innermost axis of a walk from a cursor, and the stride there. A walk without
/// axes has one point, which represents any number of points with the same address.
fn run(walk: &Walk<1>, place: &Cursor<1>, wanted: usize) -> (usize, isize) {
    match walk.rank.checked_sub(1) {
        Some(last) => (wanted.min(walk.lengths[last] - place.along(last)), walk.strides[last][0]),
        None => (wanted, 0),
    }
}

/// The offsets and conditions of a load by index, one per element.
pub(super) struct Moved {
    pub(super) offsets: *const u8,
    /// Whether offsets have 64 bits instead of 32.
    pub(super) is_wide: bool,
    pub(super) condition: *const u8,
}

impl Moved {
    /// The offset of an element; `None` where nothing is loaded.
    ///
    /// # Safety
    /// The register has that element.
    unsafe fn of(&self, element: usize) -> Option<isize> {
        // SAFETY: as the caller promises.
        unsafe {
            let holds = *self.condition.add(element) != 0;
            holds.then(|| match self.is_wide {
                true => *self.offsets.cast::<i64>().add(element) as isize,
                false => *self.offsets.cast::<i32>().add(element) as isize,
            })
        }
    }
}

impl Access {
    fn pieces(&self, block: &Block, mut each: impl FnMut(Piece)) {
        if block.rows == 1 && self.inner.rank <= 1 {
            // Most tiles are a range of one row.
            return each(Piece {
                offset: self.rows.offset(block.row) + self.inner.offset(block.column),
                at: 0,
                rows: 1,
                columns: block.columns,
                row_stride: 0,
                column_stride: if self.inner.rank == 1 { self.inner.strides[0][0] } else { 0 },
            });
        }
        let mut row_place = self.rows.at(block.row);
        let first = self.inner.at(block.column);
        let mut row = 0;
        while row < block.rows {
            let (rows, row_stride) = run(&self.rows, &row_place, block.rows - row);
            let mut place = first;
            let mut column = 0;
            while column < block.columns {
                let (columns, column_stride) = run(&self.inner, &place, block.columns - column);
                each(Piece {
                    offset: row_place.offsets[0] + place.offsets[0],
                    at: row * block.columns + column,
                    rows,
                    columns,
                    row_stride,
                    column_stride,
                });
                place.advance(&self.inner, columns);
                column += columns;
            }
            row_place.advance(&self.rows, rows);
            row += rows;
        }
    }

    /// Copies a tile from memory into a register.
    ///
    /// # Safety
    /// `from` is the address of the element at row and column 0, the block is within the memory, and the register has
    /// room for it. They do not overlap, or are the same elements in the same order.
    pub(super) unsafe fn gather(&self, from: *const u8, block: &Block, to: *mut u8) {
        with_size!(self.size, T => {
            let (from, to) = (from.cast::<T>(), to.cast::<T>());
            self.pieces(block, |piece| {
                let (from, to) = (from.wrapping_offset(piece.offset), to.wrapping_add(piece.at));
                // A result that reuses an operand's memory may equal the operand, which then needs no copy.
                if core::ptr::eq(from, to) {
                    return;
                }
                let strides = [piece.row_stride, piece.column_stride];
                let row = [block.columns as isize, 1];
                // SAFETY: as the caller promises.
                unsafe { copy_block(piece.rows, piece.columns, (from, strides), (to, row)) };
            });
        });
    }

    /// Copies the elements of a tile where a condition is true from memory into a register; elsewhere it writes zeros.
    ///
    /// # Safety
    /// As [`gather`](Self::gather), but memory must exist only where the condition is true. The condition has one
    /// `bool` per element.
    pub(super) unsafe fn gather_where(
        &self,
        from: *const u8,
        block: &Block,
        condition: *const u8,
        to: *mut u8,
    ) {
        with_size!(self.size, T => {
            let (from, to) = (from.cast::<T>(), to.cast::<T>());
            self.stretches(block, |at, len, offset, step| {
                // SAFETY: as the caller promises.
                let holds = unsafe { core::slice::from_raw_parts(condition.add(at), len) };
                let mut start = 0;
                while start < len {
                    let count = equal_run(&holds[start..]);
                    let to = to.wrapping_add(at + start);
                    let from = from.wrapping_offset(offset + start as isize * step);
                    // SAFETY: as the caller promises.
                    unsafe {
                        match holds[start] {
                            0 => to.write_bytes(0, count),
                            _ => copy_row(count, from, to, [step, 1]),
                        }
                    }
                    start += count;
                }
            });
        });
    }

    /// As [`gather_where`](Self::gather_where), with each element moved by an offset.
    pub(super) unsafe fn gather_at(&self, from: *const u8, block: &Block, moved: &Moved, to: *mut u8) {
        with_size!(self.size, T => {
            let (from, to) = (from.cast::<T>(), to.cast::<T>());
            self.stretches(block, |at, len, offset, step| {
                // SAFETY: as the caller promises.
                let of = |i: usize| unsafe { moved.of(at + i) };
                let mut start = 0;
                while start < len {
                    let by = of(start);
                    let count = 1 + (start + 1..len).take_while(|&i| of(i) == by).count();
                    let to = to.wrapping_add(at + start);
                    // SAFETY: as the caller promises.
                    unsafe {
                        match by {
                            None => to.write_bytes(0, count),
                            Some(by) => {
                                let from = from.wrapping_offset(offset + by + start as isize * step);
                                copy_row(count, from, to, [step, 1]);
                            }
                        }
                    }
                    start += count;
                }
            });
        });
    }

    /// Copies a tile from a register to memory.
    ///
    /// # Safety
    /// As [`gather`](Self::gather) with exchanged roles; nothing else uses these elements.
    pub(super) unsafe fn scatter(&self, from: *const u8, block: &Block, to: *mut u8) {
        with_size!(self.size, T => {
            let (from, to) = (from.cast::<T>(), to.cast::<T>());
            self.pieces(block, |piece| {
                let (from, to) = (from.wrapping_add(piece.at), to.wrapping_offset(piece.offset));
                let strides = [piece.row_stride, piece.column_stride];
                let row = [block.columns as isize, 1];
                // SAFETY: as the caller promises.
                unsafe { copy_block(piece.rows, piece.columns, (from, row), (to, strides)) };
            });
        });
    }

    /// Calls a function with each run of a tile with evenly spaced offsets: its start in the tile, its length, its
    /// first offset, and the step.
    pub(super) fn stretches(&self, block: &Block, mut each: impl FnMut(usize, usize, isize, isize)) {
        self.pieces(block, |piece| {
            for row in 0..piece.rows {
                let offset = piece.offset + row as isize * piece.row_stride;
                each(piece.at + row * block.columns, piece.columns, offset, piece.column_stride);
            }
        });
    }
}

/// The number of equal bytes at the start.
fn equal_run(bytes: &[u8]) -> usize {
    const AT_ONCE: usize = 64;
    let Some(&first) = bytes.first() else { return 0 };
    let same = |chunk: &&[u8]| **chunk == [first; AT_ONCE];
    let whole = AT_ONCE * bytes.chunks_exact(AT_ONCE).take_while(same).count();
    whole + bytes[whole..].iter().take_while(|&&byte| byte == first).count()
}

/// Copies a rectangle, along the side with the smaller stride.
///
/// # Safety
/// All elements exist, and those of the target do not overlap the source's.
unsafe fn copy_block<T: Copy>(
    rows: usize,
    columns: usize,
    (from, from_strides): (*const T, [isize; 2]),
    (to, to_strides): (*mut T, [isize; 2]),
) {
    let nearer =
        |strides: [isize; 2]| strides[0] != 0 && strides[0].unsigned_abs() < strides[1].unsigned_abs();
    if rows > 1 && (nearer(from_strides) || nearer(to_strides)) {
        for column in 0..columns as isize {
            // SAFETY: as the caller promises.
            unsafe {
                let from = from.offset(column * from_strides[1]);
                let to = to.offset(column * to_strides[1]);
                for row in 0..rows as isize {
                    *to.offset(row * to_strides[0]) = *from.offset(row * from_strides[0]);
                }
            }
        }
        return;
    }
    for row in 0..rows as isize {
        // SAFETY: as the caller promises.
        unsafe {
            let from = from.offset(row * from_strides[0]);
            copy_row(columns, from, to.offset(row * to_strides[0]), [from_strides[1], to_strides[1]]);
        }
    }
}

/// Writes each of `rows` elements `columns` times.
///
/// # Safety
/// The source has `rows` elements of `size` bytes, and the target room for all; they do not overlap.
pub(super) unsafe fn repeat(size: usize, from: *const u8, to: *mut u8, rows: usize, columns: usize) {
    with_size!(size, T => {
        // SAFETY: as the caller promises.
        unsafe {
            let from = core::slice::from_raw_parts(from.cast::<T>(), rows);
            let to = core::slice::from_raw_parts_mut(to.cast::<MaybeUninit<T>>(), rows * columns);
            for (to, from) in to.chunks_exact_mut(columns).zip(from) {
                to.fill(MaybeUninit::new(*from));
            }
        }
    });
}
