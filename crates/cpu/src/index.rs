//! Indexed reads and writes.
//!
//! Every index is checked before anything is written, so that an invalid one leaves the operands unchanged.

mod elements;
mod find;
mod read;
mod update;
mod write;

use elements::Places;
pub(crate) use find::nonzero;
pub(crate) use read::{gather, take};
pub(crate) use update::{Combine, Max, Min, Product, Sum};
pub(crate) use write::{put, scatter, slice_update};

use crate::Cpu;
use crate::array::Array;
use crate::buffer;
use crate::contraction::tensor;
use crate::copy::Shared;
use alloc::format;
use alloc::vec::Vec;
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::{DType, Element, Error, IndexUser, Operands, Result, Shape, Values};

/// The minimum checked indices per task.
const GRAIN: usize = 1 << 15;

/// The reader of indices, for messages: the op, and the length of the indexed axis.
struct Reader<'a> {
    by: ReaderName<'a>,
    length: usize,
}

/// The reader of an index that errors name.
#[derive(Clone, Copy)]
enum ReaderName<'a> {
    /// An op, along an axis.
    Op(&'a str, usize),
    /// A function that the user called.
    User(IndexUser),
}

impl Reader<'_> {
    /// The indices in an operand, in row-major order; all of them below the length.
    ///
    /// # Errors
    /// At the first index that is out of range.
    fn indices(&self, cpu: &Cpu, inputs: &Operands, place: usize) -> Result<Vec<usize>> {
        let (array, ty) = tensor(inputs, place)?;
        let array = cpu.contiguous(array, ty)?;
        match ty.dtype {
            DType::I64 => self.checked::<i64>(cpu, array.data(), &ty.shape),
            DType::I32 => self.checked::<i32>(cpu, array.data(), &ty.shape),
            DType::I16 => self.checked::<i16>(cpu, array.data(), &ty.shape),
            DType::I8 => self.checked::<i8>(cpu, array.data(), &ty.shape),
            DType::U64 => self.checked::<u64>(cpu, array.data(), &ty.shape),
            DType::U32 => self.checked::<u32>(cpu, array.data(), &ty.shape),
            DType::U16 => self.checked::<u16>(cpu, array.data(), &ty.shape),
            DType::U8 => self.checked::<u8>(cpu, array.data(), &ty.shape),
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Bool => {
                Err(Error::unsupported("cpu", format!("{} cannot index", ty.dtype)))
            }
        }
    }

    /// As [`indices`](Self::indices), without a copy. `None` if the length exceeds a `u32`.
    fn places(&self, cpu: &Cpu, inputs: &Operands, place: usize) -> Result<Option<Places>> {
        if u32::try_from(self.length).is_err() {
            return Ok(None);
        }
        let (array, ty) = tensor(inputs, place)?;
        let array = cpu.contiguous(array, ty)?;
        match ty.dtype {
            DType::I64 => self.in_place::<i64>(cpu, array, &ty.shape),
            DType::I32 => self.in_place::<i32>(cpu, array, &ty.shape),
            DType::I16 => self.in_place::<i16>(cpu, array, &ty.shape),
            DType::I8 => self.in_place::<i8>(cpu, array, &ty.shape),
            DType::U64 => self.in_place::<u64>(cpu, array, &ty.shape),
            DType::U32 => self.in_place::<u32>(cpu, array, &ty.shape),
            DType::U16 => self.in_place::<u16>(cpu, array, &ty.shape),
            DType::U8 => self.in_place::<u8>(cpu, array, &ty.shape),
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Bool => {
                Err(Error::unsupported("cpu", format!("{} cannot index", ty.dtype)))
            }
        }
        .map(Some)
    }

    fn in_place<I: Element + TryInto<usize> + Display>(
        &self,
        cpu: &Cpu,
        array: Array,
        shape: &Shape,
    ) -> Result<Places> {
        let numbers = array.data::<I>();
        let all_fit = AtomicBool::new(true);
        cpu.pool.parallel_for(numbers.len(), GRAIN, |range| {
            let fits = |number: &I| (*number).try_into().unwrap_or(usize::MAX) < self.length;
            if !numbers[range].iter().fold(true, |fit, number| fit & fits(number)) {
                all_fit.store(false, Ordering::Relaxed);
            }
        });
        if !all_fit.into_inner() {
            return Err(self.out_of_range(numbers, shape));
        }
        Ok(Places::new::<I>(array))
    }

    fn checked<I: Element + TryInto<usize> + Display>(
        &self,
        cpu: &Cpu,
        numbers: &[I],
        shape: &Shape,
    ) -> Result<Vec<usize>> {
        let mut indices = buffer::vector::<usize>(numbers.len())?;
        let target = Shared::new(indices.as_mut_ptr());
        let all_fit = AtomicBool::new(true);
        cpu.pool.parallel_for(numbers.len(), GRAIN, |range| {
            let mut fit = true;
            for place in range {
                let index = numbers[place].try_into().unwrap_or(usize::MAX);
                fit &= index < self.length;
                // SAFETY: within the capacity, and each place is written once.
                unsafe { target.get().add(place).write(index) };
            }
            if !fit {
                all_fit.store(false, Ordering::Relaxed);
            }
        });
        if !all_fit.into_inner() {
            return Err(self.out_of_range(numbers, shape));
        }
        // SAFETY: all were written.
        unsafe { indices.set_len(numbers.len()) };
        Ok(indices)
    }

    #[cold]
    fn out_of_range<I: Element + TryInto<usize> + Display>(&self, numbers: &[I], shape: &Shape) -> Error {
        let Reader { by, length } = self;
        let fits = |number: &I| (*number).try_into().is_ok_and(|index| index < *length);
        let place = numbers.iter().position(|number| !fits(number)).unwrap_or(0);
        let (number, position) = (numbers[place], position(shape, place));
        match *by {
            ReaderName::Op(op, axis) => Error::index_out_of_range(op, number, &position, axis, *length),
            ReaderName::User(user) => user.out_of_range(Some((&number, &position)), *length),
        }
    }
}

/// Checks that all entries of an index are below the length; returns it.
pub(crate) fn check(cpu: &Cpu, length: usize, user: IndexUser, inputs: Operands) -> Result<Values> {
    Reader { by: ReaderName::User(user), length }.indices(cpu, &inputs, 0)?;
    Ok(inputs.into_iter().filter_map(|operand| operand.value().cloned()).collect())
}

/// The row-major coordinates of an element number.
fn position(shape: &Shape, mut place: usize) -> Shape {
    let mut position = *shape;
    for axis in (0..shape.rank()).rev() {
        position[axis] = place % shape[axis];
        place /= shape[axis];
    }
    position
}

/// Stores an index as an integer of `size` bytes, wrapping if it is too large.
///
/// # Safety
/// Such an integer is `offset` integers from `target`, and nothing else accesses it.
#[inline(always)]
pub(crate) unsafe fn store_index(target: *mut u8, size: usize, offset: isize, index: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match size {
            1 => *target.offset(offset) = index as u8,
            2 => *target.cast::<u16>().offset(offset) = index as u16,
            4 => *target.cast::<u32>().offset(offset) = index as u32,
            _ => *target.cast::<u64>().offset(offset) = index as u64,
        }
    }
}
