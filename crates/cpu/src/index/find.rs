//! NonZero: the positions of nonzero elements.

use super::{position, store_index};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::tensor;
use crate::copy::Shared;
use crate::lane::{Bits, Lane};
use crate::scalar::with_size;
use alloc::vec::Vec;
use kiln_ir::{DType, Operands, Result, Shape, TensorType, Values};
use smallvec::smallvec;

/// Elements that are counted, and then written, per task.
const PART: usize = 1 << 15;

pub(crate) fn nonzero(cpu: &Cpu, index: DType, inputs: Operands) -> Result<Values> {
    let (x, ty) = tensor(&inputs, 0)?;
    let x = cpu.contiguous(x, ty)?;
    let (result, ty) = with_size!(ty.dtype.size(), T => {
        // Zeros of both signs are zero.
        let sign = if ty.dtype.is_float() { 1 << (T::BITS - 1) } else { 0 };
        found::<T>(cpu, x.data(), !sign, &ty.shape, index)?
    });
    Ok(smallvec![result.into_value(ty)])
}

/// The positions of elements with any bit of the mask.
fn found<T: Bits>(cpu: &Cpu, x: &[T], mask: T, shape: &Shape, index: DType) -> Result<(Array, TensorType)> {
    let is_found = |x: &&T| !Lane::eq(Bits::and(**x, mask), T::default());
    let parts = x.len().div_ceil(PART);
    let mut counts = alloc::vec![0usize; parts];
    let slots = Shared::new(counts.as_mut_ptr());
    cpu.pool.parallel_for(parts, 1, |range| {
        for part in range {
            let elements = &x[part * PART..((part + 1) * PART).min(x.len())];
            // SAFETY: each part has its own count.
            unsafe { *slots.get().add(part) = elements.iter().filter(is_found).count() };
        }
    });
    let mut total = 0;
    let starts: Vec<usize> = counts
        .iter()
        .map(|count| {
            total += count;
            total - count
        })
        .collect();
    let ty = TensorType::new([total, shape.rank()], index);
    let result = Array::uninit(&ty)?;
    if shape.rank() == 0 {
        return Ok((result, ty));
    }
    let target = Shared::new(result.as_mut_ptr::<u8>());
    cpu.pool.parallel_for(parts, 1, |range| {
        for part in range {
            let place = part * PART..((part + 1) * PART).min(x.len());
            let mut row = starts[part] * shape.rank();
            let rows = shape[shape.rank() - 1];
            let mut start = place.start;
            while start < place.end {
                let end = ((start / rows + 1) * rows).min(place.end);
                let mut at = None;
                for (i, _) in x[start..end].iter().enumerate().filter(|(_, x)| is_found(x)) {
                    let at = at.get_or_insert_with(|| position(shape, start));
                    for (axis, &index_here) in at.iter().enumerate() {
                        let number = index_here + if axis + 1 == at.len() { i } else { 0 };
                        // SAFETY: the rows of a part begin after those of all earlier parts.
                        unsafe { store_index(target.get(), index.size(), (row + axis) as isize, number) };
                    }
                    row += at.len();
                }
                start = end;
            }
        }
    });
    Ok((result, ty))
}
