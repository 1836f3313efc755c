//! Matmuls by the vendor's BLAS.

use super::gemm::{Gemm, Operand};
use super::matrix::Matrix;
use crate::blas::{self, NO_TRANSPOSE, ROW_MAJOR, TRANSPOSE};
use crate::contraction::simd::Float;
use crate::threads::Pool;
use core::ffi::c_int;

/// The minimum multiplications for which a call is worthwhile; below, [`Gemm`] has less overhead.
const MIN_MULTIPLICATIONS: usize = 1 << 18;

/// Rows and columns of the blocks that an epilogue receives: within the limits that [`Gemm::epilogue`] promises.
const BLOCK: [usize; 2] = [96, 256];

/// A matrix as BLAS wants it: whether it is transposed, its first element and its leading dimension.
struct Argument<T>(c_int, *const T, c_int);

impl<T> Argument<T> {
    /// `None` if neither rows nor columns are contiguous, or a size exceeds the interface's integers.
    fn of(operand: &Operand<'_, T>, [rows, columns]: [usize; 2]) -> Option<Argument<T>>
    where
        T: Float,
    {
        let Operand::Matrix(matrix) = operand else { return None };
        let Matrix { start, row, column } = *matrix;
        let leading = |stride: isize, least: usize, length: usize| {
            let stride = if length == 1 { least as isize } else { stride };
            c_int::try_from(stride).ok().filter(|stride| *stride as usize >= least && *stride > 0)
        };
        let plain = (column == 1 || columns == 1).then(|| leading(row, columns, rows)).flatten();
        let transposed = || (row == 1 || rows == 1).then(|| leading(column, rows, columns)).flatten();
        match plain {
            Some(leading) => Some(Argument(NO_TRANSPOSE, start.cast_const(), leading)),
            None => transposed().map(|leading| Argument(TRANSPOSE, start.cast_const(), leading)),
        }
    }
}

/// Runs a GEMM by the library if there is one and it suits; returns whether it ran.
///
/// # Safety
/// As [`Gemm::run`].
pub(super) unsafe fn run<T: Float>(gemm: &Gemm<'_, T>, pool: &Pool) -> bool {
    // An error of the choice was reported before the matmul began.
    let Ok(Some(library)) = blas::library() else { return false };
    let [m, k, n] = gemm.sizes;
    if m.saturating_mul(n).saturating_mul(k) < MIN_MULTIPLICATIONS {
        return false;
    }
    let Some(c) = gemm.c else { return false };
    let (Some(a), Some(b)) = (Argument::of(&gemm.a, [m, k]), Argument::of(&gemm.b, [k, n])) else {
        return false;
    };
    let number = |size: usize| c_int::try_from(size).ok();
    let (Some(rows), Some(depth), Some(columns)) = (number(m), number(k), number(n)) else { return false };
    let Some(Argument(NO_TRANSPOSE, _, c_row)) = Argument::of(&Operand::Matrix(c), [m, n]) else {
        return false;
    };
    library.set_threads(pool.threads());
    let multiply = T::gemm_of(library);
    let beta = if gemm.accumulate { T::ONE } else { T::ZERO };
    // SAFETY: the caller vouches for the memory; strides and sizes are those of the matrices.
    unsafe {
        multiply(
            ROW_MAJOR, a.0, b.0, rows, columns, depth, gemm.scale, a.1, a.2, b.1, b.2, beta, c.start, c_row,
        );
        finish(gemm, c, pool);
    }
    true
}

/// Calls the epilogue, block by block.
///
/// # Safety
/// As [`Gemm::run`]; the product is finished.
unsafe fn finish<T: Float>(gemm: &Gemm<'_, T>, c: Matrix<T>, pool: &Pool) {
    let Some(epilogue) = gemm.epilogue else { return };
    let [m, _, n] = gemm.sizes;
    let [down, across] = [m.div_ceil(BLOCK[0]), n.div_ceil(BLOCK[1])];
    pool.parallel_for(down * across, 1, |blocks| {
        for block in blocks {
            let (row, column) = (block / across * BLOCK[0], block % across * BLOCK[1]);
            let rows = row..(row + BLOCK[0]).min(m);
            let columns = column..(column + BLOCK[1]).min(n);
            epilogue(rows, columns, c.at(row, column).start, c.row as usize);
        }
    });
}

#[cfg(test)]
mod tests;
