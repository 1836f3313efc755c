//! Staged operands: copies made before a kernel runs.

use crate::buffer::Buffer;
use crate::copy::copy;
use crate::threads::Pool;
use alloc::vec::Vec;
use kiln_ir::Result;
use kiln_kernel::{Kernel, KernelKind, Launch, ParamKind};

/// The number of elements from which a blocked copy is faster than strided reads.
const LARGE: usize = 1 << 14;

/// An operand that is contiguous along another axis than the kernel's innermost. It is first copied into the kernel's
/// order, by blocks, since strided reads would fetch each cache line many times.
pub(super) struct Staged {
    pub(super) param: usize,
    shape: Vec<usize>,
    from: Vec<isize>,
    to: Vec<isize>,
    size: usize,
}

/// Selects the operands to be copied; the launch then reads the copies.
pub(super) fn stage(kernel: &Kernel, launch: &mut Launch) -> Vec<Staged> {
    let mut all = Vec::new();
    match kernel.kind {
        KernelKind::Map | KernelKind::Transpose | KernelKind::RowReduce => {}
        KernelKind::ColReduce | KernelKind::FullReduce | KernelKind::Scan | KernelKind::MatMul(_) => {
            return all;
        }
    }
    let Some(last) = launch.extents.len().checked_sub(1) else { return all };
    for (number, param) in kernel.params.iter().enumerate() {
        let strides = &launch.bindings[number].strides;
        let crossed: Vec<usize> =
            (0..strides.len()).filter(|&axis| strides[axis] != 0 && launch.extents[axis] > 1).collect();
        let elements: usize = crossed.iter().map(|&axis| launch.extents[axis]).product();
        let step = |axis: usize| strides[axis].unsigned_abs();
        let nearer = crossed.iter().any(|&axis| step(axis) < strides[last].unsigned_abs());
        let far = strides.get(last).is_some_and(|stride| stride.unsigned_abs() * param.dtype.size() >= 64);
        let read = param.kind == ParamKind::Input && kernel.is_read_everywhere(number as u32);
        if !read || !far || !nearer || elements < LARGE {
            continue;
        }
        let mut to = alloc::vec![0isize; strides.len()];
        let mut stride = 1isize;
        for &axis in crossed.iter().rev() {
            to[axis] = stride;
            stride *= launch.extents[axis] as isize;
        }
        let along = |strides: &[isize]| crossed.iter().map(|&axis| strides[axis]).collect();
        all.push(Staged {
            param: number,
            shape: crossed.iter().map(|&axis| launch.extents[axis]).collect(),
            from: along(strides),
            to: along(&to),
            size: param.dtype.size(),
        });
        launch.bindings[number].strides = to;
    }
    all
}

impl Staged {
    /// Copies an operand, given the pointer to its first element.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(super) fn copy(&self, pool: &Pool, from: *const u8) -> Result<Buffer> {
        let elements: usize = self.shape.iter().product();
        let buffer = Buffer::uninit(elements * self.size)?;
        // SAFETY: the operand's elements, and a fresh buffer for as many.
        unsafe {
            copy(pool, self.size, &self.shape, (from, &self.from), (buffer.as_ptr(), &self.to));
        }
        Ok(buffer)
    }
}
