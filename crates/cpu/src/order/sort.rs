//! Sorting, whole lines or only their first entries.

mod entries;

use super::key::{Key, Ordered};
use super::lines::{Lines, Tile};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::tensor;
use crate::copy::Shared;
use crate::index::store_index;
use crate::scalar::with_number;
use alloc::vec::Vec;
use entries::{Entry, Pair, order_entries};
use kiln_ir::{DType, Operands, Result, Values};
use smallvec::smallvec;

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
    let indices_ty = values_ty.with_dtype(index);
    let values = Array::uninit(&values_ty)?;
    let indices = Array::uninit(&indices_ty)?;
    if values_ty.num_elements() > 0 {
        let job = Sort {
            lines: Lines::new(&ty.shape, axis, [x.strides(), values.strides(), indices.strides()]),
            k,
            largest,
            values: Shared::new(values.as_mut_ptr()),
            indices: Shared::new(indices.as_mut_ptr()),
            index_size: index.size(),
        };
        // SAFETY: the lines are those of `x` and of the results, which are fresh.
        with_number!(ty.dtype, T => unsafe { job.run::<T>(cpu, x.as_ptr()) });
    }
    Ok(smallvec![values.into_value(values_ty), indices.into_value(indices_ty)])
}

/// Writes the first `k` entries of each line in order.
struct Sort {
    lines: Lines<3>,
    k: usize,
    largest: bool,
    values: Shared<u8>,
    indices: Shared<u8>,
    index_size: usize,
}

impl Sort {
    /// # Safety
    /// The lines stay within `x` and the results, which nobody else sees.
    unsafe fn run<T: Ordered>(&self, cpu: &Cpu, x: *const T) {
        let x = Shared::new(x.cast_mut());
        let fits_word = T::Key::BITS <= 32 && u32::try_from(self.lines.len).is_ok();
        self.lines.for_each(&cpu.pool, &|tile| {
            // SAFETY: as the caller promises.
            unsafe {
                if fits_word {
                    self.tile::<T, u64>(x.get(), tile);
                } else {
                    self.tile::<T, Pair>(x.get(), tile);
                }
            }
        });
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn tile<T: Ordered, E: Entry>(&self, x: *const T, tile: Tile<3>) {
        let len = self.lines.len;
        let is_few = self.k <= len / 4;
        let mut entries = Vec::<E>::with_capacity(if is_few { 0 } else { len });
        let mut scratch = Vec::<E>::new();
        for line in 0..tile.count {
            let start = tile.line(line);
            // SAFETY: as the caller promises.
            unsafe {
                let x = x.offset(start[0]);
                if is_few {
                    self.select(x, &mut entries);
                } else {
                    entries.clear();
                    entries.extend((0..len).map(|i| self.entry::<T, E>(x, i)));
                    order_entries(&mut entries, &mut scratch, T::Key::BITS);
                }
                self.store(x, start, &entries[..self.k]);
            }
        }
    }

    /// # Safety
    /// As [`run`](Self::run); `x` is where a line begins.
    #[inline(always)]
    unsafe fn entry<T: Ordered, E: Entry>(&self, x: *const T, place: usize) -> E {
        // SAFETY: as the caller promises.
        let key = unsafe { (*x.offset(place as isize * self.lines.along[0])).key() };
        E::new(if self.largest { key.complement() } else { key }.wide(), place)
    }

    /// Finds the first `k` entries of a line (fewer than it has), in order. Those that may still be among them gather
    /// in a short list, which is cut back whenever it is full.
    ///
    /// # Safety
    /// As [`entry`](Self::entry).
    unsafe fn select<T: Ordered, E: Entry>(&self, x: *const T, entries: &mut Vec<E>) {
        let (k, full) = (self.k, (4 * self.k).max(64));
        entries.clear();
        entries.reserve(full);
        let mut last: Option<E> = None;
        for place in 0..self.lines.len {
            // SAFETY: as the caller promises.
            let entry = unsafe { self.entry::<T, E>(x, place) };
            if last.is_some_and(|last| entry > last) {
                continue;
            }
            entries.push(entry);
            if entries.len() == full {
                last = Some(*entries.select_nth_unstable(k - 1).1);
                entries.truncate(k);
            }
        }
        entries.sort_unstable();
    }

    /// # Safety
    /// As [`run`](Self::run); `x` is where a line begins, and `start` where it does in each tensor.
    unsafe fn store<T: Ordered, E: Entry>(&self, x: *const T, start: [isize; 3], entries: &[E]) {
        let along = self.lines.along;
        for (i, entry) in entries.iter().enumerate() {
            let (i, place) = (i as isize, entry.place());
            // SAFETY: as the caller promises.
            unsafe {
                *self.values.get().cast::<T>().offset(start[1] + i * along[1]) =
                    *x.offset(place as isize * along[0]);
                store_index(self.indices.get(), self.index_size, start[2] + i * along[2], place);
            }
        }
    }
}
