//! Indexed reads: whole slices (take), or single elements (gather).

use super::{Reader, ReaderName};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::tensor;
use crate::copy::{Shared, copy_row, stream};
use crate::isa::Level;
use crate::scalar::with_size;
use crate::walk::Walk;
use kiln_ir::{Operands, Result, Shape, Values};
use smallvec::smallvec;

/// The minimum copied bytes per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 17;

/// Bytes of a block that are prefetched; beyond them the hardware prefetcher follows.
const AHEAD: usize = 2048;

/// The minimum gathered elements per task.
const GRAIN_PICKED: usize = 1 << 14;

pub(crate) fn take(cpu: &Cpu, axis: usize, inputs: Operands) -> Result<Values> {
    let (x, ty) = tensor(&inputs, 0)?;
    let (_, index) = tensor(&inputs, 1)?;
    let indices =
        Reader { by: ReaderName::Op("take", axis), length: ty.shape[axis] }.indices(cpu, &inputs, 1)?;
    let (before, after) = (&ty.shape[..axis], &ty.shape[axis + 1..]);
    let shape: Shape = before.iter().chain(index.shape.iter()).chain(after).copied().collect();
    let result = Array::uninit(&ty.with_shape(shape))?;
    if shape.num_elements() > 0 {
        let job = Take {
            outer: Walk::new(before, [&x.strides()[..axis]]),
            along: x.strides()[axis],
            block: Walk::new(after, [&x.strides()[axis + 1..]]),
            indices: &indices,
            streamed: stream::pays(result.buffer.len()),
            level: cpu.level,
        };
        // SAFETY: the indices were checked, the strides are those of `x`, and the result is fresh.
        with_size!(ty.dtype.size(), T => unsafe { job.run::<T>(cpu, x.as_ptr(), result.as_mut_ptr()) });
    }
    Ok(smallvec![result.into_value(ty.with_shape(shape))])
}

/// Copies one block for each index of the outer axes and each of the list.
struct Take<'a> {
    outer: Walk<1>,
    along: isize,
    block: Walk<1>,
    indices: &'a [usize],
    /// Whether the result is written by non-temporal stores.
    streamed: bool,
    level: Level,
}

impl Take<'_> {
    /// # Safety
    /// Walks and indices stay within the source; the target has room for all blocks and has no other user. Neither is
    /// empty.
    unsafe fn run<T: Copy>(&self, cpu: &Cpu, source: *const T, target: *mut T) {
        let (source, target) = (Shared::new(source.cast_mut()), Shared::new(target));
        let (count, block) = (self.indices.len(), self.block.num_elements());
        let grain = (GRAIN / size_of::<T>()).div_ceil(block).min(GRAIN_PICKED);
        cpu.pool.parallel_for(self.outer.num_elements() * count, grain, |range| {
            let mut place = self.outer.at(range.start / count);
            let mut start = range.start;
            while start < range.end {
                let first = start % count;
                let len = (count - first).min(range.end - start);
                // SAFETY: as the caller promises.
                unsafe {
                    let from = source.get().offset(place.offsets[0]);
                    let to = target.get().add(start * block);
                    self.blocks(&self.indices[first..first + len], from, to);
                }
                place.advance(&self.outer, 1);
                start += len;
            }
            if self.streamed {
                stream::fence();
            }
        });
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    unsafe fn blocks<T: Copy>(&self, indices: &[usize], source: *const T, target: *mut T) {
        if self.block.rank == 1 && self.block.strides[0][0] == 1 {
            // SAFETY: as the caller promises.
            return unsafe { self.rows(indices, source.cast(), target.cast(), size_of::<T>()) };
        }
        let block = self.block.num_elements();
        let (length, stride) = match self.block.rank {
            0 => (1, 1),
            rank => (self.block.lengths[rank - 1], self.block.strides[rank - 1][0]),
        };
        for (i, &index) in indices.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let from = source.offset(index as isize * self.along);
                match self.block.rank {
                    0 => *target.add(i) = *from,
                    1 => copy_row(length, from, target.add(i * block), [stride, 1]),
                    _ => {
                        let mut place = self.block.at(0);
                        for row in (0..block).step_by(length) {
                            let to = target.add(i * block + row);
                            copy_row(length, from.offset(place.offsets[0]), to, [stride, 1]);
                            place.advance(&self.block, length);
                        }
                    }
                }
            }
        }
    }
}

impl Take<'_> {
    /// Copies blocks that are contiguous in the source. The start of a later block is prefetched while one is copied.
    ///
    /// # Safety
    /// As [`run`](Self::run), with elements of that many bytes.
    unsafe fn rows(&self, indices: &[usize], source: *const u8, target: *mut u8, size: usize) {
        let bytes = self.block.lengths[0] * size;
        let from = |index: usize| source.wrapping_offset(index as isize * self.along * size as isize);
        for (i, &index) in indices.iter().enumerate() {
            if let Some(&next) = indices.get(i + 2) {
                for at in (0..bytes.min(AHEAD)).step_by(stream::LINE) {
                    stream::prefetch(from(next).wrapping_add(at));
                }
            }
            // SAFETY: as the caller promises.
            unsafe {
                let to = target.add(i * bytes);
                if self.streamed && bytes >= 4 * stream::LINE {
                    stream::copy(self.level, from(index), to, bytes);
                } else {
                    copy_row(bytes, from(index), to, [1, 1]);
                }
            }
        }
    }
}

pub(crate) fn gather(cpu: &Cpu, axis: usize, inputs: Operands) -> Result<Values> {
    let (x, ty) = tensor(&inputs, 0)?;
    let (_, index) = tensor(&inputs, 1)?;
    let indices =
        Reader { by: ReaderName::Op("gather", axis), length: ty.shape[axis] }.indices(cpu, &inputs, 1)?;
    let ty = ty.with_shape(index.shape);
    let result = Array::uninit(&ty)?;
    let mut strides = x.layout.strides;
    strides[axis] = 0;
    let walk = Walk::new(&index.shape, [&strides]);
    let along = x.strides()[axis];
    // SAFETY: the indices were checked, the strides are those of `x`, and the result is fresh.
    with_size!(ty.dtype.size(), T => unsafe {
        pick::<T>(cpu, &walk, along, &indices, x.as_ptr(), result.as_mut_ptr());
    });
    Ok(smallvec![result.into_value(ty)])
}

/// Gathers, for each element of the walk, the element `along` times its index further.
///
/// # Safety
/// Walk and indices stay within the source; the target has room for all elements and has no other user.
unsafe fn pick<T: Copy>(
    cpu: &Cpu,
    walk: &Walk<1>,
    along: isize,
    indices: &[usize],
    source: *const T,
    target: *mut T,
) {
    let (source, target) = (Shared::new(source.cast_mut()), Shared::new(target));
    cpu.pool.parallel_for(indices.len(), GRAIN_PICKED, |range| {
        let mut place = walk.at(range.start);
        let mut start = range.start;
        while start < range.end {
            let (rest, stride) = match walk.rank {
                0 => (1, 0),
                rank => (walk.lengths[rank - 1] - place.along(rank - 1), walk.strides[rank - 1][0]),
            };
            let len = rest.min(range.end - start);
            for (i, &index) in indices[start..start + len].iter().enumerate() {
                let offset = place.offsets[0] + i as isize * stride + index as isize * along;
                // SAFETY: as the caller promises.
                unsafe { *target.get().add(start + i) = *source.get().offset(offset) };
            }
            place.advance(walk, len);
            start += len;
        }
    });
}
