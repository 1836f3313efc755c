//! Matmul.
//!
//! [`gemm`] is the general algorithm, with hooks on blocks of operands and result. [`narrow`] handles the memory-bound
//! cases (GEMV-like). [`integer`] is exact integer arithmetic, [`bytes`] that of 8 bits, [`dequantized`] reads
//! quantized weights, which are never expanded to floats, and [`blocks`] those in blocks with scales of their own.

pub(crate) mod blocks;
mod bytes;
pub(crate) mod dequantized;
pub(crate) mod gemm;
mod gemv;
mod integer;
pub(crate) mod matrix;
mod output;
mod pack;
mod tile;
#[cfg(feature = "blas")]
mod vendor;
mod weights;

pub(super) use integer::integers;
use matrix::Matrix;
pub(super) use weights::with_weights;

use super::simd::Float;
use crate::Cpu;
use crate::array::Array;
use crate::threads::Pool;
use crate::walk::Walk;
use core::ops::Range;
use gemm::Operand;
use kiln_ir::{Result, TensorType};
use output::Output;
use pack::PackRows;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// The sizes and strides of a batched matmul with a contiguous result.
struct Batched {
    sizes: [usize; 3],
    /// The batch axes, with the strides of both operands.
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

    /// Merges the batch into the rows, if all matmuls share the right matrix and the left matrices are evenly spaced.
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

/// The matmul of two float arrays, accumulated in `T`: `f32` also for 16-bit floats, which are converted as blocks are
/// copied, and rounded once at the end.
///
/// # Errors
/// When there is not enough memory, or the chosen BLAS is missing.
pub(super) fn floats<T: Float, N: Output<T>>(
    cpu: &Cpu,
    [a, b]: [&Array; 2],
    ty: &TensorType,
) -> Result<Array> {
    #[cfg(feature = "blas")]
    crate::blas::library()?;
    let output = Array::uninit(ty)?;
    if output.num_elements() == 0 {
        return Ok(output);
    }
    let batched = Batched::new(a, b);
    let start = [a.as_ptr::<N>(), b.as_ptr::<N>()].map(|start| Matrix::new(start, 0, 0));
    let c = Matrix::new(output.as_ptr::<N>(), 0, 1);
    let product = Products { batched, a: start[0], b: start[1], c };
    // SAFETY: sizes by inference; the output is fresh.
    unsafe { product.run::<T>(cpu) };
    Ok(output)
}

/// A batch of matmuls, and the pointers to operands and results.
struct Products<N> {
    batched: Batched,
    a: Matrix<N>,
    b: Matrix<N>,
    c: Matrix<N>,
}

impl<N> Products<N> {
    /// # Safety
    /// The matrices have these sizes, and nothing else uses the results.
    unsafe fn run<T: Float>(&self, cpu: &Cpu)
    where
        N: Output<T>,
    {
        let Batched { sizes: [m, k, n], batch, .. } = &self.batched;
        let count = batch.num_elements();
        let work = (m * n).saturating_mul(*k).max(1);
        // SAFETY: as the caller promises; every matmul has its own part of the output.
        unsafe {
            if count > 1 && (0..batch.rank).all(|axis| batch.strides[axis][1] == 0) {
                return self.stacked::<T>(cpu);
            }
            if count > 1 && (work < 2 * GRAIN || count >= 4 * cpu.pool.threads()) {
                let alone = Pool::new(1);
                return cpu.pool.parallel_for(count, GRAIN.div_ceil(work), |range| {
                    let mut place = batch.at(range.start);
                    for i in range {
                        self.one::<T>(cpu, i, place.offsets, &alone);
                        place.advance(batch, 1);
                    }
                });
            }
            let mut place = batch.at(0);
            for i in 0..count {
                self.one::<T>(cpu, i, place.offsets, &cpu.pool);
                place.advance(batch, 1);
            }
        }
    }

    /// Computes one matmul of the batch.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn one<T: Float>(&self, cpu: &Cpu, i: usize, [a, b]: [isize; 2], pool: &Pool)
    where
        N: Output<T>,
    {
        let Batched { sizes: [m, k, n], a: [a_row, a_column], b: [b_row, b_column], .. } = self.batched;
        let a = Matrix::new(self.a.start.wrapping_offset(a), a_row, a_column);
        let b = Matrix::new(self.b.start.wrapping_offset(b), b_row, b_column);
        let c = Matrix::new(self.c.start.wrapping_add(i * m * n), n as isize, 1);
        // SAFETY: as the caller promises.
        unsafe { N::multiply(cpu, [m, k, n], N::operand(a), N::operand(b), c, pool) };
    }

    /// Computes all matmuls as one, if they share the right matrix: its panels are packed once. The rows of the left
    /// matrices are gathered from any addresses.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn stacked<T: Float>(&self, cpu: &Cpu)
    where
        N: Output<T>,
    {
        let Batched { sizes: [m, k, n], batch, a: [row, column], b: [b_row, b_column] } = &self.batched;
        let gather = |rows: Range<usize>, depth: Range<usize>, to: *mut T, stride: usize| {
            let mut first = rows.start;
            while first < rows.end {
                let (i, within) = (first / m, first % m);
                let count = (m - within).min(rows.end - first);
                let start = self.a.start.wrapping_offset(batch.at(i).offsets[0]);
                let from = Matrix::new(start, *row, *column).at(within, depth.start);
                let to = to.wrapping_add((first - rows.start) * stride);
                // SAFETY: rows of one left matrix, and as many of the block.
                unsafe {
                    T::dispatch(cpu.level, PackRows { from, rows: count, depth: depth.len(), to, stride });
                }
                first += count;
            }
        };
        let sizes = [batch.num_elements() * m, *k, *n];
        let b = N::operand(Matrix::new(self.b.start, *b_row, *b_column));
        let c = Matrix::new(self.c.start, *n as isize, 1);
        // SAFETY: as the caller promises.
        unsafe { N::multiply(cpu, sizes, Operand::Computed(&gather), b, c, &cpu.pool) };
    }
}
