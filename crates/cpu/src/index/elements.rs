//! Indexed combination of single elements along the last axis (scatter).
//!
//! Indices are read in place, one block at a time: a list of `usize` indices would cost more than the sums.

use super::update::{Combine, Job};
use super::write::GRAIN;
use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_ir::Element;

/// Indices that are narrowed at once, on the stack.
const BLOCK: usize = 512;

/// The minimum elements of a row for which chunks have their own bins.
const MIN_BINNED: usize = 1 << 16;

/// The maximum number of chunks of a row. A constant, so that sums do not depend on the number of threads.
const MAX_CHUNKS: usize = 16;

/// The elements per bin from which a chunk amortizes its bins.
const PER_BIN: usize = 4;

/// The number of threads from which each reads all indices of a row and combines those in its own range.
const FILTERING_THREADS: usize = 8;

/// Copies a block of indices into `u32`s, starting at a pointer.
///
/// # Safety
/// The indices exist there, and all of them fit `u32`.
type Narrow = unsafe fn(*const u8, &mut [u32]);

/// Contiguous indices, all of them checked to be below a length that fits a `u32`.
pub(super) struct Places {
    array: Array,
    size: usize,
    /// `None` if they have 32 bits.
    narrow: Option<Narrow>,
}

impl Places {
    /// The indices must have been checked.
    pub(super) fn new<I: Element + TryInto<usize>>(array: Array) -> Places {
        /// # Safety
        /// As [`Narrow`].
        unsafe fn narrow<I: Element + TryInto<usize>>(from: *const u8, to: &mut [u32]) {
            for (i, to) in to.iter_mut().enumerate() {
                // SAFETY: as the caller promises.
                *to = unsafe { *from.cast::<I>().add(i) }.try_into().unwrap_or(0) as u32;
            }
        }
        let size = size_of::<I>();
        Places { array, size, narrow: (size != 4).then_some(narrow::<I> as Narrow) }
    }

    fn len(&self) -> usize {
        self.array.num_elements()
    }

    /// Calls `body` with blocks of a range of the indices, and the number of indices before each block.
    ///
    /// # Safety
    /// The range is within the indices.
    #[inline(always)]
    unsafe fn blocks(&self, range: Range<usize>, mut body: impl FnMut(usize, &[u32])) {
        let at = |place: usize| self.array.address(self.size).wrapping_add(place * self.size).cast_const();
        let Some(narrow) = self.narrow else {
            // SAFETY: 32 bits each, within the array; those of an `i32` are not negative.
            return body(0, unsafe { core::slice::from_raw_parts(at(range.start).cast(), range.len()) });
        };
        let mut block = [0u32; BLOCK];
        for start in range.clone().step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(range.end - start)];
            // SAFETY: within the array, and checked.
            unsafe { narrow(at(start), block) };
            body(start - range.start, block);
        }
    }
}

/// Combines rows `[outer, count]` of the source into `[outer, length]` of the target, at each element's index.
pub(super) struct Elements<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) outer: usize,
    pub(super) length: usize,
    /// One row of indices for all rows, or one for each.
    pub(super) places: &'a Places,
    pub(super) is_shared: bool,
    pub(super) source: Shared<u8>,
    pub(super) target: Shared<u8>,
}

impl Job for Elements<'_> {
    /// # Safety
    /// Source and target have the elements that the lengths and indices reach. They do not overlap, and nothing else
    /// accesses the target.
    unsafe fn run<T: Copy + Sync, C: Combine<T>>(&self) {
        let (count, pool) = (self.count(), &self.cpu.pool);
        let chunks = self.chunks();
        if let Some(neutral) = C::neutral()
            && chunks > 1
        {
            for row in 0..self.outer {
                // SAFETY: as the caller promises.
                unsafe { self.by_chunks::<T, C>(row, chunks, neutral) };
            }
            return;
        }
        if pool.threads() >= FILTERING_THREADS.max(self.outer + 1) && count >= 8 * GRAIN {
            for row in 0..self.outer {
                pool.parallel_for(self.length, self.length.div_ceil(pool.threads()), |targets| {
                    // SAFETY: as the caller promises; no two threads have the same targets.
                    unsafe { self.to_range::<T, C>(row, targets) };
                });
            }
            return;
        }
        pool.parallel_for(self.outer, GRAIN.div_ceil(count), |rows| {
            for row in rows {
                // SAFETY: as the caller promises; no two threads have the same rows.
                unsafe { self.in_order::<T, C>(row, 0..count, self.row_of_target(row)) };
            }
        });
    }
}

impl Elements<'_> {
    /// Elements of a row.
    fn count(&self) -> usize {
        if self.is_shared { self.places.len() } else { self.places.len() / self.outer }
    }

    /// The number of chunks of a row, each with its own bins. It depends on sizes, not on threads.
    fn chunks(&self) -> usize {
        let count = self.count();
        if count < MIN_BINNED || self.outer >= MAX_CHUNKS {
            return 1;
        }
        (count / (PER_BIN * self.length.max(1))).clamp(1, MAX_CHUNKS)
    }

    fn row_of_target<T>(&self, row: usize) -> *mut T {
        self.target.get().cast::<T>().wrapping_add(row * self.length)
    }

    /// Combines a part of a row, in order, into a row of targets or bins.
    ///
    /// # Safety
    /// As [`run`](Job::run); nothing else accesses these targets.
    #[inline(never)]
    unsafe fn in_order<T: Copy, C: Combine<T>>(&self, row: usize, part: Range<usize>, target: *mut T) {
        let count = self.count();
        let source = self.source.get().cast::<T>().wrapping_add(row * count + part.start);
        let first = if self.is_shared { 0 } else { row * count };
        // SAFETY: as the caller promises: each index is below the length of the target.
        unsafe {
            self.places.blocks(first + part.start..first + part.end, |start, block| {
                for (i, &at) in block.iter().enumerate() {
                    let target = target.add(at as usize);
                    *target = C::combine(*target, *source.add(start + i));
                }
            });
        }
    }

    /// Combines the elements of a row whose index is in a range, in order.
    ///
    /// # Safety
    /// As [`run`](Job::run); nothing else accesses these targets.
    #[inline(never)]
    unsafe fn to_range<T: Copy, C: Combine<T>>(&self, row: usize, targets: Range<usize>) {
        let count = self.count();
        let source = self.source.get().cast::<T>().wrapping_add(row * count);
        let target = self.row_of_target::<T>(row);
        let first = if self.is_shared { 0 } else { row * count };
        let (low, many) = (targets.start as u32, targets.len() as u32);
        // SAFETY: as the caller promises.
        unsafe {
            self.places.blocks(first..first + count, |start, block| {
                for (i, &at) in block.iter().enumerate() {
                    if at.wrapping_sub(low) < many {
                        let target = target.add(at as usize);
                        *target = C::combine(*target, *source.add(start + i));
                    }
                }
            });
        }
    }

    /// Combines the chunks of a row into separate bins, and then the bins, in the order of the chunks.
    ///
    /// # Safety
    /// As [`run`](Job::run).
    unsafe fn by_chunks<T: Copy + Sync, C: Combine<T>>(&self, row: usize, chunks: usize, neutral: T) {
        let (count, length, pool) = (self.count(), self.length, &self.cpu.pool);
        let mut bins = Vec::<T>::with_capacity(chunks * length);
        let shared = Shared::new(bins.as_mut_ptr());
        let chunk = count.div_ceil(chunks);
        pool.parallel_for(chunks, 1, |range| {
            for number in range {
                let part = (number * chunk).min(count)..((number + 1) * chunk).min(count);
                // SAFETY: bins of this chunk alone, within the capacity, all of them written first.
                unsafe {
                    let bins = shared.get().add(number * length);
                    for bin in 0..length {
                        bins.add(bin).write(neutral);
                    }
                    self.in_order::<T, C>(row, part, bins);
                }
            }
        });
        let target = Shared::new(self.row_of_target::<T>(row));
        pool.parallel_for(length, GRAIN, |range| {
            for number in 0..chunks {
                for place in range.clone() {
                    // SAFETY: all bins were written; no two threads have the same targets.
                    unsafe {
                        let target = target.get().add(place);
                        *target = C::combine(*target, *shared.get().add(number * length + place));
                    }
                }
            }
        });
    }
}
