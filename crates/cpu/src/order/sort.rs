//! Sorting and top-k: whole lines, or their first entries.

mod entries;
mod radix;
mod select;

use super::key::{Key, Ordered};
use super::lines::{Lines, Tile};
use crate::Cpu;
use crate::array::Array;
use crate::buffer::Buffer;
use crate::contraction::tensor;
use crate::copy::Shared;
use crate::index::store_index;
use crate::scalar::with_number;
use alloc::vec::Vec;
use entries::{Entry, Pair};
use kiln_ir::{Axes, DType, MAX_RANK, Operands, Result, TensorType, Values};
use smallvec::smallvec;

/// The minimum entries of a line that is split between threads.
const SHARED_FROM: usize = 1 << 16;

/// Entries per task that are created or written.
const PART: usize = 1 << 14;

pub(crate) fn sort(
    cpu: &Cpu,
    axis: usize,
    descending: bool,
    index: DType,
    inputs: Operands,
) -> Result<Values> {
    let len = tensor(&inputs, 0)?.1.shape[axis];
    topk(cpu, axis, len, descending, index, inputs)
}

pub(crate) fn topk(
    cpu: &Cpu,
    axis: usize,
    k: usize,
    largest: bool,
    index: DType,
    inputs: Operands,
) -> Result<Values> {
    let (x, ty) = tensor(&inputs, 0)?;
    let values_ty = ty.with_shape(ty.shape.with(axis, k));
    let types = [values_ty, values_ty.with_dtype(index)];
    let [values, indices] = first_entries(cpu, (x, ty), axis, k, largest, types)?;
    Ok(smallvec![values.into_value(types[0]), indices.into_value(types[1])])
}

/// The first `k` entries of each line in sorted order: values and indices, of these types.
fn first_entries(
    cpu: &Cpu,
    (x, ty): (&Array, &TensorType),
    axis: usize,
    k: usize,
    largest: bool,
    types: [TensorType; 2],
) -> Result<[Array; 2]> {
    let last = ty.rank() - 1;
    if axis != last && x.strides()[axis].unsigned_abs() > x.strides()[last].unsigned_abs() {
        return first_entries_across(cpu, (x, ty), axis, k, largest, types);
    }
    let [values, indices] = [Array::uninit(&types[0])?, Array::uninit(&types[1])?];
    if types[0].num_elements() > 0 {
        let job = Sort {
            cpu,
            lines: Lines::new(&ty.shape, axis, [x.strides(), values.strides(), indices.strides()]),
            k,
            largest,
            values: Shared::new(values.as_mut_ptr()),
            indices: Shared::new(indices.as_mut_ptr()),
            index_size: types[1].dtype.size(),
        };
        // SAFETY: the lines are those of `x` and of the results, which are fresh.
        with_number!(ty.dtype, T => unsafe { job.run::<T>(x.as_ptr()) })?;
    }
    Ok([values, indices])
}

/// As [`first_entries`] for strided lines: copies lines to be contiguous, and the results back.
fn first_entries_across(
    cpu: &Cpu,
    (x, ty): (&Array, &TensorType),
    axis: usize,
    k: usize,
    largest: bool,
    types: [TensorType; 2],
) -> Result<[Array; 2]> {
    let last = ty.rank() - 1;
    let swapped = |array: &Array, ty: &TensorType| {
        let mut axes: [usize; MAX_RANK] = core::array::from_fn(|axis| axis);
        axes.swap(axis, last);
        let layout = array.layout.permute(&Axes::new(&axes[..=last]));
        let ty = ty.with_shape(layout.shape);
        cpu.contiguous(&Array { buffer: array.buffer.clone(), layout }, &ty).map(|array| (array, ty))
    };
    let (x, ty) = swapped(x, ty)?;
    let moved = types.map(|of| of.with_shape(ty.shape.with(last, k)));
    let [values, indices] = first_entries(cpu, (&x, &ty), last, k, largest, moved)?;
    Ok([swapped(&values, &moved[0])?.0, swapped(&indices, &moved[1])?.0])
}

/// Writes the first `k` entries of each line in sorted order.
struct Sort<'a> {
    cpu: &'a Cpu,
    lines: Lines<3>,
    k: usize,
    largest: bool,
    values: Shared<u8>,
    indices: Shared<u8>,
    index_size: usize,
}

impl Sort<'_> {
    /// # Safety
    /// The lines stay within `x` and the results, which nothing else accesses.
    unsafe fn run<T: Ordered>(&self, x: *const T) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe {
            if T::Key::BITS <= 32 && u32::try_from(self.lines.len).is_ok() {
                self.as_entries::<T, u64>(x)
            } else {
                self.as_entries::<T, Pair>(x)
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn as_entries<T: Ordered, E: Entry>(&self, x: *const T) -> Result<()> {
        let pool = &self.cpu.pool;
        let x = Shared::new(x.cast_mut());
        if self.lines.len >= SHARED_FROM && self.lines.count() < pool.threads() {
            // SAFETY: as the caller promises.
            return self.lines.each().try_for_each(|start| unsafe { self.shared::<T, E>(x, start) });
        }
        self.lines.for_each(pool, &|tile| {
            // SAFETY: as the caller promises.
            unsafe { self.tile::<T, E>(x.get(), tile) }
        });
        Ok(())
    }

    /// Whether `k` is so small that the other entries need no order.
    fn is_few(&self) -> bool {
        self.k <= self.lines.len / 4
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn tile<T: Ordered, E: Entry>(&self, x: *const T, tile: Tile<3>) {
        let len = self.lines.len;
        let mut entries = Vec::<E>::with_capacity(if self.is_few() { 0 } else { len });
        let mut scratch = Vec::<E>::new();
        for line in 0..tile.count {
            let start = tile.line(line);
            // SAFETY: as the caller promises.
            unsafe {
                let x = x.offset(start[0]);
                if self.is_few() {
                    self.select(x, 0..len, &mut entries);
                } else {
                    entries.clear();
                    entries.extend((0..len).map(|i| self.entry::<T, E>(x, i)));
                    radix::order(&mut entries, &mut scratch);
                }
                self.store(x, start, 0, &entries[..self.k]);
            }
        }
    }

    /// Sorts one line with all threads.
    ///
    /// # Safety
    /// As [`run`](Self::run); `start` is the offset of the line in each tensor.
    unsafe fn shared<T: Ordered, E: Entry>(&self, x: Shared<T>, start: [isize; 3]) -> Result<()> {
        let pool = &self.cpu.pool;
        let line = Shared::new(x.get().wrapping_offset(start[0]));
        if self.is_few() && self.k <= select::MAX_SHARE {
            // SAFETY: as the caller promises.
            unsafe {
                let entries = self.select_shared::<T, E>(line);
                self.store(line.get(), start, 0, &entries[..self.k]);
            }
            return Ok(());
        }
        let len = self.lines.len;
        let buffers = [Buffer::uninit(len * size_of::<E>())?, Buffer::uninit(len * size_of::<E>())?];
        let [made, spare] = [0, 1].map(|i| Shared::new(buffers[i].as_ptr().cast::<E>()));
        pool.parallel_for(len, PART, |range| {
            for place in range {
                // SAFETY: an element of the line and its entry.
                unsafe { made.get().add(place).write(self.entry::<T, E>(line.get(), place)) };
            }
        });
        // SAFETY: all entries are written, and both buffers hold that many.
        let ordered = Shared::new(unsafe { radix::order_shared(pool, made, spare, len) });
        pool.parallel_for(self.k, PART, |range| {
            // SAFETY: sorted entries, as many as the line is long; each part of the results is written once.
            unsafe {
                let entries = core::slice::from_raw_parts(ordered.get().add(range.start), range.len());
                self.store(line.get(), start, range.start, entries);
            }
        });
        Ok(())
    }

    /// # Safety
    /// As [`run`](Self::run); `x` is the start of a line.
    #[inline(always)]
    unsafe fn entry<T: Ordered, E: Entry>(&self, x: *const T, place: usize) -> E {
        // SAFETY: as the caller promises.
        let x = unsafe { *x.offset(place as isize * self.lines.along[0]) };
        E::new(rank(x, self.largest).wide(), place)
    }

    /// Writes entries, the first of which has index `first` in its line.
    ///
    /// # Safety
    /// As [`run`](Self::run); `x` is the start of the line, and `start` its offset in each tensor.
    unsafe fn store<T: Ordered, E: Entry>(
        &self,
        x: *const T,
        start: [isize; 3],
        first: usize,
        entries: &[E],
    ) {
        let along = self.lines.along;
        let values = self.values.get().cast::<T>().wrapping_offset(start[1] + first as isize * along[1]);
        for (i, entry) in entries.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe { *values.offset(i as isize * along[1]) = *x.offset(entry.place() as isize * along[0]) };
        }
        let offset = start[2] + first as isize * along[2];
        for (i, entry) in entries.iter().enumerate() {
            let at = offset + i as isize * along[2];
            // SAFETY: as the caller promises.
            unsafe { store_index(self.indices.get(), self.index_size, at, entry.place()) };
        }
    }
}

/// The sort key, reversed if the greatest come first.
#[inline(always)]
fn rank<T: Ordered>(x: T, largest: bool) -> T::Key {
    if largest { x.key().complement() } else { x.key() }
}
