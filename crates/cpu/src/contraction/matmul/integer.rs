//! Exact, wrapping matmul of integers.

use super::bytes;
use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};
use kiln_ir::{DType, Element, Result, TensorType};

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 17;

/// The minimum number of rows for which panels of 8-bit integers are reused often enough to be packed.
const MIN_PACKED_ROWS: usize = 4;

/// An integer type, and its accumulator type.
pub(in crate::contraction) trait Integer: Element {
    /// The type of accumulators and results.
    type Sum: Element;

    /// Converts, keeping the value.
    fn widen(self) -> Self::Sum;

    /// `sum + a * b`, wrapping.
    fn multiply_add(sum: Self::Sum, a: Self::Sum, b: Self::Sum) -> Self::Sum;
}

macro_rules! integers {
    ($($ty:ty as $sum:ty),*) => {$(
        impl Integer for $ty {
            type Sum = $sum;

            #[inline(always)]
            fn widen(self) -> $sum {
                self as $sum
            }

            #[inline(always)]
            fn multiply_add(sum: $sum, a: $sum, b: $sum) -> $sum {
                sum.wrapping_add(a.wrapping_mul(b))
            }
        }
    )*};
}

integers!(i64 as i64, i32 as i32, i16 as i16, i8 as i32, u64 as u64, u32 as u32, u16 as u16, u8 as i32);

/// The matmul of two integer arrays.
///
/// # Errors
/// When there is not enough memory.
pub(in crate::contraction) fn integers<T: Integer>(
    cpu: &Cpu,
    [(a, a_ty), (b, b_ty)]: [(&Array, TensorType); 2],
    result: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(result)?;
    if result.num_elements() == 0 {
        return Ok(output);
    }
    // Rows of `b` are read repeatedly and must be contiguous. `a` is read once per row of the result.
    let b = cpu.contiguous(b, &b_ty)?;
    let a = cpu.contiguous(a, &a_ty)?;
    let rank = result.rank();
    let (m, n, k) = (result.shape[rank - 2], result.shape[rank - 1], a_ty.shape[rank - 1]);
    let rows = result.num_elements() / n;
    if m >= MIN_PACKED_ROWS && matches!(T::DTYPE, DType::I8 | DType::U8) {
        for batch in 0..rows / m {
            let a = a.as_ptr::<u8>().wrapping_add(batch * m * k);
            let b = b.as_ptr::<u8>().wrapping_add(batch * k * n);
            let c = output.as_mut_ptr::<i32>().wrapping_add(batch * m * n);
            // SAFETY: sizes by inference; contiguous operands, and sums are `i32`.
            unsafe { bytes::multiply(cpu.level, &cpu.pool, [m, k, n], T::DTYPE == DType::I8, a, b, c) };
        }
        return Ok(output);
    }
    let (pa, pb) = (Shared::new(a.as_mut_ptr::<T>()), Shared::new(b.as_mut_ptr::<T>()));
    let pc = Shared::new(output.as_mut_ptr::<T::Sum>());
    cpu.pool.parallel_for(rows, GRAIN.div_ceil((n * k).max(1)), |range| {
        for row in range {
            // SAFETY: sizes by inference; every row of the output is written once.
            let (a, b, c) = unsafe {
                (
                    core::slice::from_raw_parts(pa.get().add(row * k), k),
                    core::slice::from_raw_parts(pb.get().add(row / m * k * n), k * n),
                    core::slice::from_raw_parts_mut(pc.get().add(row * n), n),
                )
            };
            integer_row(cpu.level, a, b, c);
        }
    });
    Ok(output)
}

multiversion! {
    /// One row of the result: `c[j] = Σ_k a[k] b[k][j]`, in pieces that stay in registers and the L1 cache.
    fn integer_row[T: Integer]<T> in { Widest::Avx2 } (a: &[T], b: &[T], c: &mut [T::Sum]) {
        let n = c.len();
        for start in (0..n).step_by(64) {
            let len = (n - start).min(64);
            let mut sums = [T::Sum::default(); 64];
            for (k, &x) in a.iter().enumerate() {
                let x = x.widen();
                let row = &b[k * n + start..][..len];
                for (sum, &y) in sums.iter_mut().zip(row) {
                    *sum = T::multiply_add(*sum, x, y.widen());
                }
            }
            c[start..start + len].copy_from_slice(&sums[..len]);
        }
    }
}
