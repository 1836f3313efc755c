//! Matrix products.
//!
//! [`gemm`] is the general algorithm, with holes for work on blocks of operands and result; [`skinny`] has the cases
//! that are bound by reading one operand; [`integer`] is exact arithmetic.

pub(crate) mod gemm;
mod integer;
mod matrix;
mod pack;
mod skinny;
mod tile;

pub(super) use integer::integers;
pub(crate) use matrix::Matrix;

use super::simd::Float;
use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use crate::isa::Level;
use crate::walk::Walk;
use gemm::{Gemm, Operand};
use kiln_ir::{Result, TensorType};
use skinny::Dots;

/// Multiplications worth waking another thread for.
const GRAIN: usize = 1 << 18;

/// `c = scale · a · b`, or `c += scale · a · b` where `accumulate` is set, on this thread. `[m, k] x [k, n] -> [m, n]`.
///
/// # Safety
/// The matrices have these sizes; `c` overlaps neither other and nobody else uses it.
pub(crate) unsafe fn product<T: Float>(
    level: Level,
    [m, k, n]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    c: Matrix<T>,
    accumulate: bool,
    scale: T,
) {
    debug_assert!(c.column == 1 || n <= 1);
    let plain = Gemm::new([m, k, n], Operand::Matrix(a), Operand::Matrix(b), Some(c));
    // SAFETY: as the caller promises.
    unsafe { Gemm { accumulate, scale, ..plain }.run_alone(level) }
}

/// Sizes, operands and result of a product. Columns of the result lie side by side.
type Operation<T> = ([usize; 3], Matrix<T>, Matrix<T>, Matrix<T>);

/// Sizes and strides of a batched product whose result is contiguous.
struct Batched {
    sizes: [usize; 3],
    /// The axes before the last two, with the strides of both operands.
    batch: Walk<2>,
    a: [isize; 2],
    b: [isize; 2],
}

impl Batched {
    fn new(a: &Array, b: &Array) -> Batched {
        let rank = a.shape().rank();
        let (m, k, n) = (a.shape()[rank - 2], a.shape()[rank - 1], b.shape()[rank - 1]);
        let (sa, sb) = (a.strides(), b.strides());
        let batched = Batched {
            sizes: [m, k, n],
            batch: Walk::new(&a.shape()[..rank - 2], [&sa[..rank - 2], &sb[..rank - 2]]),
            a: [sa[rank - 2], sa[rank - 1]],
            b: [sb[rank - 2], sb[rank - 1]],
        };
        batched.with_batch_as_rows()
    }

    /// Where all products share the right matrix and the left matrices lie one after the other, they are one product.
    fn with_batch_as_rows(mut self) -> Batched {
        let batch = &self.batch;
        let [m, k, n] = self.sizes;
        if batch.rank == 1
            && batch.strides[0][1] == 0
            && (m == 1 || batch.strides[0][0] == self.a[0] * m as isize)
        {
            let rows = batch.lengths[0] * m;
            let stride = if m == 1 { batch.strides[0][0] } else { self.a[0] };
            self.sizes = [rows, k, n];
            self.a[0] = stride;
            self.batch = Walk::new(&[], [&[], &[]]);
        }
        self
    }
}

/// The product of two arrays whose elements are `T`s.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn floats<T: Float>(cpu: &Cpu, a: &Array, b: &Array, result: &TensorType) -> Result<Array> {
    let output = Array::uninit(result)?;
    if result.num_elements() == 0 {
        return Ok(output);
    }
    let batched = Batched::new(a, b);
    let [m, k, n] = batched.sizes;
    let count = batched.batch.num_elements();
    let work = (m * n).saturating_mul(k.max(1));
    let (pa, pb) = (Shared::new(a.as_mut_ptr::<T>()), Shared::new(b.as_mut_ptr::<T>()));
    let pc = Shared::new(output.as_mut_ptr::<T>());
    let operation = |i: usize, offsets: [isize; 2]| {
        let a = Matrix::new(pa.get().wrapping_offset(offsets[0]), batched.a[0], batched.a[1]);
        let b = Matrix::new(pb.get().wrapping_offset(offsets[1]), batched.b[0], batched.b[1]);
        ([m, k, n], a, b, Matrix::new(pc.get().wrapping_add(i * m * n), n as isize, 1))
    };
    if count > 1 && (work < 2 * GRAIN || count >= 4 * cpu.pool.threads()) {
        cpu.pool.parallel_for(count, GRAIN.div_ceil(work), |range| {
            let mut place = batched.batch.at(range.start);
            for i in range {
                // SAFETY: sizes by inference; every product has a part of the output of its own.
                unsafe { alone(cpu, operation(i, place.offsets)) };
                place.advance(&batched.batch, 1);
            }
        });
        return Ok(output);
    }
    let mut place = batched.batch.at(0);
    for i in 0..count {
        // SAFETY: as above.
        unsafe { shared(cpu, operation(i, place.offsets)) };
        place.advance(&batched.batch, 1);
    }
    Ok(output)
}

/// One product, on this thread.
///
/// # Safety
/// As [`product`].
unsafe fn alone<T: Float>(cpu: &Cpu, operation: Operation<T>) {
    let (sizes, a, b, c) = operation;
    // SAFETY: as the caller promises.
    unsafe {
        if Dots::suit(sizes, a, b) {
            T::dispatch(cpu.level, Dots { sizes, a, b, c });
        } else {
            product(cpu.level, sizes, a, b, c, false, T::ONE);
        }
    }
}

/// One product, by all threads where it is worth it.
///
/// # Safety
/// As [`product`].
unsafe fn shared<T: Float>(cpu: &Cpu, operation: Operation<T>) {
    let ([m, k, n], a, b, c) = operation;
    let work = (m * n).saturating_mul(k);
    if cpu.pool.threads() == 1 || work < 2 * GRAIN {
        // SAFETY: as the caller promises.
        return unsafe { alone(cpu, operation) };
    }
    if m >= 32 && n >= 32 {
        let gemm = Gemm::new([m, k, n], Operand::Matrix(a), Operand::Matrix(b), Some(c));
        // SAFETY: as the caller promises.
        return unsafe { gemm.run(cpu.level, &cpu.pool) };
    }
    // A narrow product is bound by reading the larger operand: each thread reads parts of it.
    let (longer, grain) = if m >= n { (m, GRAIN.div_ceil(n * k)) } else { (n, GRAIN.div_ceil(m * k)) };
    let pointers = [Shared::new(a.start), Shared::new(b.start), Shared::new(c.start)];
    cpu.pool.parallel_for(longer, grain.next_multiple_of(64), |range| {
        let a = Matrix::new(pointers[0].get(), a.row, a.column);
        let b = Matrix::new(pointers[1].get(), b.row, b.column);
        let c = Matrix::new(pointers[2].get(), c.row, c.column);
        // SAFETY: as the caller promises; the ranges are disjoint.
        unsafe {
            if m >= n {
                let part = ([range.len(), k, n], a.at(range.start, 0), b, c.at(range.start, 0));
                alone(cpu, part);
            } else {
                let part = ([m, k, range.len()], a, b.at(0, range.start), c.at(0, range.start));
                alone(cpu, part);
            }
        }
    });
}
