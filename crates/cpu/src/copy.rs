//! Copies between strided arrays.

pub(crate) mod stream;
pub(crate) mod transpose;

use crate::Cpu;
use crate::array::Array;
use crate::threads::Pool;
use crate::walk::Walk;
use kiln_ir::{Result, TensorType};
use transpose::{Plane, TransposeBlock};

/// Bytes copied per task.
const GRAIN: usize = 1 << 17;

/// The side length of the square blocks in which transposed data is copied: the cache lines of both sides stay in the
/// L1 cache.
const BLOCK: usize = 32;

impl Cpu {
    /// A contiguous array of the elements, row-major; copied only if needed.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(crate) fn contiguous(&self, array: &Array, ty: &TensorType) -> Result<Array> {
        if array.is_contiguous() { Ok(array.clone()) } else { self.copied(array, ty) }
    }

    /// A contiguous copy.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(crate) fn copied(&self, array: &Array, ty: &TensorType) -> Result<Array> {
        let result = Array::uninit(ty)?;
        // SAFETY: the result is fresh, and both arrays have the type's elements.
        unsafe {
            copy(
                &self.pool,
                ty.dtype.size(),
                &ty.shape,
                (array.address(ty.dtype.size()), array.strides()),
                (result.as_mut_ptr(), result.strides()),
            );
        }
        Ok(result)
    }
}

/// Copies elements of `size` bytes over a shape, from one strided array to another.
///
/// # Safety
/// Addresses and strides stay within their memory, which does not overlap; the destination has no other writer,
/// and its elements are distinct.
pub(crate) unsafe fn copy(
    pool: &Pool,
    size: usize,
    shape: &[usize],
    (source, source_strides): (*const u8, &[isize]),
    (target, target_strides): (*mut u8, &[isize]),
) {
    if shape.contains(&0) {
        return;
    }
    let walk = Walk::new(shape, [source_strides, target_strides]);
    // SAFETY: as the caller promises.
    unsafe {
        match size {
            1 => copy_elements::<u8>(pool, &walk, source.cast(), target.cast()),
            2 => copy_elements::<u16>(pool, &walk, source.cast(), target.cast()),
            4 => copy_elements::<u32>(pool, &walk, source.cast(), target.cast()),
            _ => copy_elements::<u64>(pool, &walk, source.cast(), target.cast()),
        }
    }
}

/// A pointer that may be sent to other threads: parts of a walk access different elements.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: users write different elements from different threads.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(pointer: *mut T) -> Shared<T> {
        Shared(pointer)
    }

    #[inline(always)]
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

/// # Safety
/// As [`copy`].
unsafe fn copy_elements<T: TransposeBlock>(pool: &Pool, walk: &Walk<2>, source: *const T, target: *mut T) {
    let mut outer = walk.ordered(1);
    let (source, target) = (Shared::new(source.cast_mut()), Shared::new(target));
    if outer.rank == 0 {
        // SAFETY: one element each.
        unsafe { *target.get() = *source.get() };
        return;
    }
    let (length, inner) = outer.remove(outer.rank - 1);
    if outer.rank == 0 {
        return pool.parallel_for(length, GRAIN / size_of::<T>(), |range| {
            let start = range.start as isize;
            // SAFETY: parts of the row.
            unsafe {
                let from = source.get().offset(start * inner[0]);
                copy_row(range.len(), from, target.get().offset(start * inner[1]), inner);
            }
        });
    }
    let nearest = (0..outer.rank).min_by_key(|&axis| match outer.strides[axis][0].unsigned_abs() {
        0 => usize::MAX,
        stride => stride,
    });
    if let Some(axis) = nearest
        && inner[0].unsigned_abs() > outer.strides[axis][0].unsigned_abs()
        && outer.strides[axis][0] != 0
        && outer.lengths[axis] >= 4
        && length >= 4
    {
        let across = outer.remove(axis);
        let (source_row, target_column) = (across.1[0], inner[1]);
        if source_row == 1 && target_column == 1 && Plane::<T>::has_tiles(across.0, length) {
            let plane = Plane {
                source,
                target,
                rows: across.0,
                columns: length,
                source_column: inner[0],
                target_row: across.1[1],
            };
            // SAFETY: as the caller promises.
            return unsafe { plane.copy(pool, &outer) };
        }
        // SAFETY: as the caller promises.
        return unsafe { copy_blocks(pool, &outer, across, (length, inner), source, target) };
    }
    let grain = (GRAIN / size_of::<T>()).div_ceil(length);
    pool.parallel_for(outer.num_elements(), grain, |rows| {
        let mut place = outer.at(rows.start);
        for _ in rows {
            // SAFETY: rows of the walk.
            unsafe {
                let from = source.get().offset(place.offsets[0]);
                copy_row(length, from, target.get().offset(place.offsets[1]), inner);
            }
            place.advance(&outer, 1);
        }
    });
}

/// # Safety
/// As [`copy`], for one row.
#[inline(always)]
pub(crate) unsafe fn copy_row<T: Copy>(length: usize, source: *const T, target: *mut T, strides: [isize; 2]) {
    // SAFETY: as the caller promises.
    unsafe {
        match strides {
            [1, 1] if length < 16 => {
                for i in 0..length {
                    *target.add(i) = *source.add(i);
                }
            }
            [1, 1] => target.copy_from_nonoverlapping(source, length),
            [0, 1] => core::slice::from_raw_parts_mut(target.cast(), length)
                .fill(core::mem::MaybeUninit::new(*source)),
            [from, to] => {
                for i in 0..length as isize {
                    *target.offset(i * to) = *source.offset(i * from);
                }
            }
        }
    }
}

/// Copies in square blocks if the source is contiguous along another axis (`across`) than the target (`along`).
///
/// # Safety
/// As [`copy`].
unsafe fn copy_blocks<T: Copy>(
    pool: &Pool,
    outer: &Walk<2>,
    across: (usize, [isize; 2]),
    along: (usize, [isize; 2]),
    source: Shared<T>,
    target: Shared<T>,
) {
    let blocks = across.0.div_ceil(BLOCK);
    let grain = (GRAIN / size_of::<T>()).div_ceil(BLOCK * along.0);
    pool.parallel_for(outer.num_elements() * blocks, grain, |range| {
        for part in range {
            let place = outer.at(part / blocks);
            let first = part % blocks * BLOCK;
            let rows = first..(first + BLOCK).min(across.0);
            for start in (0..along.0).step_by(BLOCK) {
                let columns = start..(start + BLOCK).min(along.0);
                for i in rows.clone() {
                    let (from, to) = (
                        place.offsets[0] + i as isize * across.1[0],
                        place.offsets[1] + i as isize * across.1[1],
                    );
                    for j in columns.clone() {
                        // SAFETY: elements of the walk.
                        unsafe {
                            *target.get().offset(to + j as isize * along.1[1]) =
                                *source.get().offset(from + j as isize * along.1[0]);
                        }
                    }
                }
            }
        }
    });
}
