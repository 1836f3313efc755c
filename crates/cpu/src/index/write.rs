//! Indexed writes, in place if the base has no other owner.
//!
//! Elements with the same target combine in the order of the source, however the work is split: threads split targets,
//! never the elements of one target. Sums of many single elements over few targets are the exception. The source is
//! split into chunks, whose number depends on its length and not on the threads, and their sums are added in order.

use super::elements::{Elements, Places};
use super::update::{Combine, Job, run};
use super::{Reader, ReaderName};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::{tensor, through_f32};
use crate::copy::{Shared, copy};
use crate::walk::Walk;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_ir::{
    DType, Engine, Error, Op, Operand, Operands, Result, SliceAxis, TensorType, UpdateMode, Value, Values,
};
use smallvec::smallvec;

/// The minimum combined elements per task.
pub(super) const GRAIN: usize = 1 << 14;

/// Adjacent elements of one slice per task.
const COLUMNS: usize = 128;

/// The minimum of those, so that threads seldom write to the same cache line.
const NARROWEST: usize = 16;

pub(crate) fn put(
    cpu: &Cpu,
    op: &Op,
    axis: usize,
    mode: UpdateMode,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    if combines_in_f32(mode, results[0].dtype) {
        return through_f32(cpu, op, inputs, results);
    }
    let ty = *tensor(&inputs, 0)?.1;
    let reader = Reader { by: ReaderName::Op("put", axis), length: ty.shape[axis] };
    let shape = Blocks::of(&ty, axis);
    if shape.block == 1
        && let Some(places) = reader.places(cpu, &inputs, 1)?
    {
        return write(cpu, mode, inputs, |source, target| shape.elements(cpu, &places, true, source, target));
    }
    let indices = reader.indices(cpu, &inputs, 1)?;
    write(cpu, mode, inputs, |source, target| Put { cpu, shape, indices: &indices, source, target })
}

pub(crate) fn scatter(
    cpu: &Cpu,
    op: &Op,
    axis: usize,
    mode: UpdateMode,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    if combines_in_f32(mode, results[0].dtype) {
        return through_f32(cpu, op, inputs, results);
    }
    let ty = *tensor(&inputs, 0)?.1;
    let reader = Reader { by: ReaderName::Op("scatter", axis), length: ty.shape[axis] };
    let shape = Blocks::of(&ty, axis);
    if shape.block == 1
        && let Some(places) = reader.places(cpu, &inputs, 1)?
    {
        return write(cpu, mode, inputs, |source, target| {
            shape.elements(cpu, &places, false, source, target)
        });
    }
    let indices = reader.indices(cpu, &inputs, 1)?;
    write(cpu, mode, inputs, |source, target| Scatter { cpu, shape, indices: &indices, source, target })
}

/// 16-bit floats lose precision in long sums.
fn combines_in_f32(mode: UpdateMode, dtype: DType) -> bool {
    mode != UpdateMode::Set && matches!(dtype, DType::F16 | DType::BF16)
}

/// Runs the job on the addresses of the source (the third operand, contiguous) and of the result, which is initialized
/// with the base (the first).
fn write<J: Job>(
    cpu: &Cpu,
    mode: UpdateMode,
    mut inputs: Operands,
    job: impl FnOnce(Shared<u8>, Shared<u8>) -> J,
) -> Result<Values> {
    let (source, ty) = tensor(&inputs, 2)?;
    let (size, dtype) = (ty.dtype.size(), ty.dtype);
    let source = cpu.contiguous(source, ty)?;
    let base = overwritable(cpu, inputs.remove(0))?;
    let target = Array::of(&base)?.address(size);
    if source.num_elements() > 0 {
        let job = job(Shared::new(source.address(size)), Shared::new(target));
        // SAFETY: the indices were checked against the base, and inference has compared the shapes; nothing else
        // accesses the target.
        unsafe { run(&job, mode, dtype) };
    }
    Ok(smallvec![base])
}

/// The value itself if it is contiguous and has no other owner; otherwise a copy.
fn overwritable(cpu: &Cpu, base: Operand) -> Result<Value> {
    let Operand::Value(mut base) = base else {
        return Err(Error::unsupported("cpu", "the base must be a tensor"));
    };
    if let Some(array) = base.payload_mut::<Array>()
        && array.buffer.is_unique()
        && array.is_contiguous()
    {
        return Ok(base);
    }
    let ty = *base.ty();
    Ok(cpu.copied(Array::of(&base)?, &ty)?.into_value(ty))
}

/// A contiguous tensor as `[outer, length, block]` with respect to one axis.
#[derive(Clone, Copy)]
struct Blocks {
    outer: usize,
    length: usize,
    block: usize,
}

impl Blocks {
    fn of(ty: &TensorType, axis: usize) -> Blocks {
        let product = |axes: &[usize]| axes.iter().product();
        Blocks {
            outer: product(&ty.shape[..axis]),
            length: ty.shape[axis],
            block: product(&ty.shape[axis + 1..]),
        }
    }

    /// Blocks of one element each, with one list of indices for all outer indices or one for each.
    fn elements<'a>(
        self,
        cpu: &'a Cpu,
        places: &'a Places,
        is_shared: bool,
        source: Shared<u8>,
        target: Shared<u8>,
    ) -> Elements<'a> {
        let Blocks { outer, length, .. } = self;
        Elements { cpu, outer, length, places, is_shared, source, target }
    }
}

/// Combines blocks `[outer, indices, block]` of the source into `[outer, length, block]` of the target.
struct Put<'a> {
    cpu: &'a Cpu,
    shape: Blocks,
    indices: &'a [usize],
    source: Shared<u8>,
    target: Shared<u8>,
}

impl Job for Put<'_> {
    /// # Safety
    /// Source and target have the elements that shape and indices reach. They do not overlap, and nothing else accesses
    /// the target.
    unsafe fn run<T: Copy + Sync, C: Combine<T>>(&self) {
        let Blocks { outer, block, .. } = self.shape;
        let (pool, count) = (&self.cpu.pool, self.indices.len());
        // SAFETY (here and below): blocks of source and target; no two threads write the same columns of a block.
        if pool.threads() == 1 || outer * count * block <= GRAIN {
            for o in 0..outer {
                // SAFETY: as above.
                unsafe { self.in_order::<T, C>(o, 0..block) };
            }
            return;
        }
        let parts = block.div_ceil(COLUMNS);
        if outer * parts >= 2 * pool.threads() {
            let grain = GRAIN.div_ceil(count * block.min(COLUMNS));
            return pool.parallel_for(outer * parts, grain, |range| {
                for task in range {
                    let start = task % parts * COLUMNS;
                    // SAFETY: as above.
                    unsafe { self.in_order::<T, C>(task / parts, start..(start + COLUMNS).min(block)) };
                }
            });
        }
        let order = self.by_target();
        for o in 0..outer {
            pool.parallel_for(count, GRAIN.div_ceil(block), |range| {
                // SAFETY: as above: each block of the target belongs to one range.
                unsafe { self.grouped::<T, C>(o, range, &order) };
            });
        }
    }
}

impl Put<'_> {
    /// # Safety
    /// As [`run`](Job::run); nothing else writes these columns.
    #[inline(never)]
    unsafe fn in_order<T: Copy, C: Combine<T>>(&self, outer: usize, columns: Range<usize>) {
        for place in 0..self.indices.len() {
            // SAFETY: as the caller promises.
            unsafe { self.combine::<T, C>(outer, place, columns.clone()) };
        }
    }

    /// Combines a part of the list sorted by target: from the first whole group of equal targets to the end of the last
    /// group that begins in the range.
    ///
    /// # Safety
    /// As [`run`](Job::run).
    #[inline(never)]
    unsafe fn grouped<T: Copy, C: Combine<T>>(&self, outer: usize, range: Range<usize>, order: &[usize]) {
        let target = |at: usize| self.indices[order[at]];
        let continues = |at: usize| at > 0 && at < order.len() && target(at) == target(at - 1);
        let mut at = range.start;
        while at < range.end && continues(at) {
            at += 1;
        }
        if at == range.end {
            return;
        }
        while at < range.end || continues(at) {
            // SAFETY: as the caller promises.
            unsafe { self.combine::<T, C>(outer, order[at], 0..self.shape.block) };
            at += 1;
        }
    }

    /// # Safety
    /// As [`run`](Job::run).
    #[inline(always)]
    unsafe fn combine<T: Copy, C: Combine<T>>(&self, outer: usize, place: usize, columns: Range<usize>) {
        let Blocks { length, block, .. } = self.shape;
        let from = (outer * self.indices.len() + place) * block + columns.start;
        let to = (outer * length + self.indices[place]) * block + columns.start;
        // SAFETY: as the caller promises.
        let (source, target) = unsafe {
            (
                core::slice::from_raw_parts(self.source.get().cast::<T>().add(from), columns.len()),
                core::slice::from_raw_parts_mut(self.target.get().cast::<T>().add(to), columns.len()),
            )
        };
        for (target, source) in target.iter_mut().zip(source) {
            *target = C::combine(*target, *source);
        }
    }

    /// The positions of the list, sorted by target and then by position.
    fn by_target(&self) -> Vec<usize> {
        let (indices, length) = (self.indices, self.shape.length);
        if length > 4 * indices.len() {
            let mut order: Vec<usize> = (0..indices.len()).collect();
            order.sort_by_key(|&place| indices[place]);
            return order;
        }
        let mut starts = alloc::vec![0usize; length + 1];
        for &index in indices {
            starts[index + 1] += 1;
        }
        for index in 0..length {
            starts[index + 1] += starts[index];
        }
        let mut order = alloc::vec![0; indices.len()];
        for (place, &index) in indices.iter().enumerate() {
            order[starts[index]] = place;
            starts[index] += 1;
        }
        order
    }
}

/// Combines elements `[outer, indices / (outer * block), block]` of the source, each with its own index, into
/// `[outer, length, block]` of the target.
struct Scatter<'a> {
    cpu: &'a Cpu,
    shape: Blocks,
    indices: &'a [usize],
    source: Shared<u8>,
    target: Shared<u8>,
}

impl Job for Scatter<'_> {
    /// # Safety
    /// As for [`Put`].
    unsafe fn run<T: Copy + Sync, C: Combine<T>>(&self) {
        let Blocks { outer, length, block } = self.shape;
        let count = self.indices.len() / (outer * block);
        let pool = &self.cpu.pool;
        let share = block.div_ceil(pool.threads().div_ceil(outer)).next_multiple_of(NARROWEST);
        let width = share.min(COLUMNS);
        let parts = block.div_ceil(width);
        if outer * parts < pool.threads() && count * block >= 4 * GRAIN {
            // Each thread reads all indices and writes those in its own range.
            for o in 0..outer {
                pool.parallel_for(length, length.div_ceil(pool.threads()), |targets| {
                    // SAFETY: as the caller promises; no two threads have the same targets.
                    unsafe { self.to_range::<T, C>(o, targets) };
                });
            }
            return;
        }
        let grain = GRAIN.div_ceil(count * block.min(width));
        pool.parallel_for(outer * parts, grain, |range| {
            for task in range {
                let (o, start) = (task / parts, task % parts * width);
                let columns = start..(start + width).min(block);
                for i in 0..count {
                    for column in columns.clone() {
                        let from = (o * count + i) * block + column;
                        // SAFETY: as the caller promises; no two threads have the same outer index and column.
                        unsafe { self.combine::<T, C>(o, from, column) };
                    }
                }
            }
        });
    }
}

impl Scatter<'_> {
    /// Combines the elements whose index is in a range, in order.
    ///
    /// # Safety
    /// As [`run`](Job::run); nothing else writes to this range.
    unsafe fn to_range<T: Copy, C: Combine<T>>(&self, outer: usize, targets: Range<usize>) {
        let Blocks { outer: all, block, .. } = self.shape;
        let count = self.indices.len() / all;
        let start = outer * count;
        for (i, index) in self.indices[start..start + count].iter().enumerate() {
            if targets.contains(index) {
                // SAFETY: as the caller promises.
                unsafe { self.combine::<T, C>(outer, start + i, i % block) };
            }
        }
    }

    /// # Safety
    /// As [`run`](Job::run); nothing else writes this element.
    #[inline(always)]
    unsafe fn combine<T: Copy, C: Combine<T>>(&self, outer: usize, from: usize, column: usize) {
        let Blocks { length, block, .. } = self.shape;
        let to = (outer * length + self.indices[from]) * block + column;
        // SAFETY: elements of source and target, as the caller promises.
        unsafe {
            let target = self.target.get().cast::<T>().add(to);
            *target = C::combine(*target, *self.source.get().cast::<T>().add(from));
        }
    }
}

pub(crate) fn slice_update(
    cpu: &Cpu,
    slices: &[SliceAxis],
    mode: UpdateMode,
    mut inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    if let Some(function) = mode.binary().filter(|_| combines_in_f32(mode, results[0].dtype)) {
        // No target occurs twice: combining the part that is read first rounds once, and costs only the part.
        let (base, ty) = tensor(&inputs, 0)?;
        let part = TensorType::new(base.layout.slice(slices).shape, ty.dtype);
        let present =
            cpu.execute(&Op::Slice(slices.to_vec()), smallvec![inputs[0].clone()], &[part]).remove(0);
        let written = smallvec![present.into(), inputs.remove(1)];
        let combined = cpu.execute(&Op::Binary(function), written, &[part]).remove(0);
        inputs.push(combined.into());
        return slice_update(cpu, slices, UpdateMode::Set, inputs, results);
    }
    let (source, ty) = tensor(&inputs, 1)?;
    let (source, ty) = (source.clone(), *ty);
    let size = ty.dtype.size();
    let base = overwritable(cpu, inputs.remove(0))?;
    let array = Array::of(&base)?;
    let range = array.layout.slice(slices);
    let target = array.buffer.as_ptr().wrapping_add(range.offset * size);
    if ty.num_elements() == 0 {
        return Ok(smallvec![base]);
    }
    let from = source.address(size);
    if mode == UpdateMode::Set {
        // SAFETY: the slice is within the base, which nothing else accesses, and has the shape of the source.
        unsafe {
            let source = (from.cast_const(), source.strides());
            copy(&cpu.pool, size, &ty.shape, source, (target, range.strides()));
        }
        return Ok(smallvec![base]);
    }
    let walk = Walk::new(&ty.shape, [source.strides(), range.strides()]);
    let job = Rows { cpu, walk, source: Shared::new(from), target: Shared::new(target) };
    // SAFETY: as above.
    unsafe { run(&job, mode, ty.dtype) };
    Ok(smallvec![base])
}

/// Combines each element of a walk's first operand into that of its second.
struct Rows<'a> {
    cpu: &'a Cpu,
    walk: Walk<2>,
    source: Shared<u8>,
    target: Shared<u8>,
}

impl Job for Rows<'_> {
    /// # Safety
    /// The walk stays within both, which do not overlap; nothing else accesses the target, whose elements are distinct.
    unsafe fn run<T: Copy + Sync, C: Combine<T>>(&self) {
        let walk = &self.walk;
        let (source, target) = (self.source, self.target);
        self.cpu.pool.parallel_for(walk.num_elements(), GRAIN, |range| {
            let mut place = walk.at(range.start);
            let mut left = range.len();
            while left > 0 {
                let (rest, [from, to]) = match walk.rank {
                    0 => (1, [0, 0]),
                    rank => (walk.lengths[rank - 1] - place.along(rank - 1), walk.strides[rank - 1]),
                };
                let len = rest.min(left);
                // SAFETY: as the caller promises.
                unsafe {
                    let source = source.get().cast::<T>().offset(place.offsets[0]);
                    let target = target.get().cast::<T>().offset(place.offsets[1]);
                    for i in 0..len as isize {
                        let target = target.offset(i * to);
                        *target = C::combine(*target, *source.offset(i * from));
                    }
                }
                place.advance(walk, len);
                left -= len;
            }
        });
    }
}
