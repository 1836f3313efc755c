//! The dtypes of matmuls: accumulator and output.

use super::gemm::{Gemm, Operand};
use super::matrix::Matrix;
use crate::Cpu;
use crate::contraction::simd::{Float, Source};
use crate::half_float::HalfFloat;
use crate::isa::{Widest, multiversion};
use crate::threads::Pool;
use core::ops::Range;
use half::{bf16, f16};

/// An element type of operands and result of a matmul with the accumulator type `T`.
pub(in crate::contraction) trait Output<T: Float>: Source<T> {
    /// A matrix as an operand.
    fn operand<'a>(matrix: Matrix<Self>) -> Operand<'a, T>;

    /// `c = a · b`; the columns of `c` are contiguous.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn multiply(
        cpu: &Cpu,
        sizes: [usize; 3],
        a: Operand<'_, T>,
        b: Operand<'_, T>,
        c: Matrix<Self>,
        pool: &Pool,
    );
}

impl<T: Float> Output<T> for T {
    fn operand<'a>(matrix: Matrix<T>) -> Operand<'a, T> {
        Operand::Matrix(matrix)
    }

    unsafe fn multiply(
        cpu: &Cpu,
        sizes: [usize; 3],
        a: Operand<'_, T>,
        b: Operand<'_, T>,
        c: Matrix<T>,
        pool: &Pool,
    ) {
        // SAFETY: as the caller promises.
        unsafe { Gemm::new(sizes, a, b, Some(c)).run(cpu.level, pool) };
    }
}

macro_rules! narrow_outputs {
    ($($ty:ty: $operand:ident),*) => {$(
        impl Output<f32> for $ty {
            fn operand<'a>(matrix: Matrix<$ty>) -> Operand<'a, f32> {
                Operand::$operand(matrix)
            }

            unsafe fn multiply(
                cpu: &Cpu,
                sizes: [usize; 3],
                a: Operand<'_, f32>,
                b: Operand<'_, f32>,
                c: Matrix<$ty>,
                pool: &Pool,
            ) {
                let round = |rows: Range<usize>, columns: Range<usize>, start: *mut f32, stride: usize| {
                    for (i, row) in rows.clone().enumerate() {
                        // SAFETY: a row of the block, and its place in the result.
                        let (from, to) = unsafe {
                            (
                                core::slice::from_raw_parts(start.add(i * stride), columns.len()),
                                core::slice::from_raw_parts_mut(c.at(row, columns.start).start, columns.len()),
                            )
                        };
                        narrow(cpu.level, from, to);
                    }
                };
                let plain = Gemm::new(sizes, a, b, None);
                // SAFETY: as the caller promises.
                unsafe { Gemm { epilogue: Some(&round), ..plain }.run(cpu.level, pool) };
            }
        }
    )*};
}

narrow_outputs!(f16: F16, bf16: BF16);

multiversion! {
    /// Rounds to 16-bit floats.
    fn narrow[N: HalfFloat]<N> in { Widest::Avx512 } (from: &[f32], to: &mut [N]) {
        for (to, &x) in to.iter_mut().zip(from) {
            *to = N::narrow(x);
        }
    }
}
