//! Matrix products.
//!
//! Floats go to the `gemm` crates with whatever strides the operands have; integers to a blocked loop of their own.

use super::simd::{Float, Kernel, Simd};
use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};
use crate::walk::Walk;
use gemm_common::Parallelism;
use kiln_ir::{Element, Result, TensorType};

/// Multiplications worth waking another thread for.
const GRAIN: usize = 1 << 18;

/// A matrix in memory: address of the first element, distances between rows and between columns.
pub(crate) struct Matrix<T> {
    pub(crate) start: *mut T,
    pub(crate) row: isize,
    pub(crate) column: isize,
}

impl<T> Clone for Matrix<T> {
    fn clone(&self) -> Matrix<T> {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T> Matrix<T> {
    pub(crate) fn new(start: *const T, row: isize, column: isize) -> Matrix<T> {
        Matrix { start: start.cast_mut(), row, column }
    }

    pub(crate) fn transposed(self) -> Matrix<T> {
        Matrix { row: self.column, column: self.row, ..self }
    }

    /// The last of `n` rows first.
    fn with_rows_reversed(self, n: usize) -> Matrix<T> {
        Matrix { row: -self.row, ..self.at(n - 1, 0) }
    }

    /// The last of `n` columns first.
    fn with_columns_reversed(self, n: usize) -> Matrix<T> {
        Matrix { column: -self.column, ..self.at(0, n - 1) }
    }

    fn at(self, row: usize, column: usize) -> Matrix<T> {
        let offset = row as isize * self.row + column as isize * self.column;
        Matrix { start: self.start.wrapping_offset(offset), ..self }
    }
}

/// `c = a · b`, or `c += a · b` where `accumulate` is set, on this thread. `[m, k] x [k, n] -> [m, n]`.
///
/// # Safety
/// The matrices have these sizes; `c` overlaps neither other and nobody else uses it.
pub(crate) unsafe fn product<T: Float>(
    [m, k, n]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    c: Matrix<T>,
    accumulate: bool,
    scale: T,
) {
    // SAFETY: as the caller promises.
    unsafe { gemm(([m, k, n], a, b, c), accumulate, scale, Parallelism::None) }
}

/// Sizes, operands and result of a product.
type Operation<T> = ([usize; 3], Matrix<T>, Matrix<T>, Matrix<T>);

/// # Safety
/// As [`product`].
unsafe fn gemm<T: Float>(operation: Operation<T>, accumulate: bool, scale: T, parallelism: Parallelism) {
    let ([m, k, n], a, b, c) = with_ascending_result(operation);
    let before = if accumulate { T::ONE } else { T::ZERO };
    let multiply = T::gemm();
    // SAFETY: as the caller promises.
    unsafe {
        multiply(
            m,
            n,
            k,
            c.start,
            c.column,
            c.row,
            accumulate,
            a.start,
            a.column,
            a.row,
            b.start,
            b.column,
            b.row,
            before,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// The same product in the form that the microkernels are made for: the result's columns lie side by side rather than
/// its rows, and no axis of the result and of the left matrix runs backwards.
fn with_ascending_result<T>(operation: Operation<T>) -> Operation<T> {
    let ([mut m, k, mut n], mut a, mut b, mut c) = operation;
    if c.column.abs() < c.row.abs() {
        (m, n) = (n, m);
        (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
    }
    if c.row < 0 && m > 0 {
        (a, c) = (a.with_rows_reversed(m), c.with_rows_reversed(m));
    }
    if c.column < 0 && n > 0 {
        (b, c) = (b.with_columns_reversed(n), c.with_columns_reversed(n));
    }
    if a.column < 0 && k > 0 {
        (a, b) = (a.with_columns_reversed(k), b.with_rows_reversed(k));
    }
    ([m, k, n], a, b, c)
}

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
            gemm(operation, false, T::ONE, Parallelism::None);
        }
    }
}

/// A narrow product whose operands both run along `k`: every element of the result is a dot product. The general
/// algorithm would spend its time on transposing the larger operand.
struct Dots<T> {
    sizes: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    c: Matrix<T>,
}

impl<T> Dots<T> {
    fn suit([m, k, n]: [usize; 3], a: Matrix<T>, b: Matrix<T>) -> bool {
        a.column == 1 && b.row == 1 && (2..=24).contains(&m.min(n)) && m * n > 256 && k >= 32
    }
}

impl<T: Float> Kernel<T> for Dots<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let [m, _, n] = self.sizes;
        // SAFETY: the matrices have these sizes.
        unsafe {
            if m <= n {
                for j in (0..n).step_by(4) {
                    (0..m).step_by(4).for_each(|i| self.block::<S>(i, j));
                }
            } else {
                for i in (0..m).step_by(4) {
                    (0..n).step_by(4).for_each(|j| self.block::<S>(i, j));
                }
            }
        }
    }
}

impl<T: Float> Dots<T> {
    /// Four rows by four columns of the result; at the edges some are computed twice, into the same place.
    ///
    /// # Safety
    /// As [`product`]; `i` and `j` lie in the result.
    #[inline(always)]
    unsafe fn block<S: Simd<T>>(&self, i: usize, j: usize) {
        let [m, k, n] = self.sizes;
        let rows: [usize; 4] = core::array::from_fn(|r| (i + r).min(m - 1));
        let columns: [usize; 4] = core::array::from_fn(|c| (j + c).min(n - 1));
        let a = rows.map(|row| self.a.at(row, 0).start);
        let b = columns.map(|column| self.b.at(0, column).start);
        // SAFETY: rows of `a` and columns of `b` run along `k` without gaps; elements of `c`.
        unsafe {
            let mut acc = [[S::splat(T::ZERO); 4]; 4];
            let mut from = 0;
            while from + S::LANES <= k {
                let mut y = [S::splat(T::ZERO); 4];
                for c in 0..4 {
                    y[c] = S::load(b[c].add(from));
                }
                for r in 0..4 {
                    let x = S::load(a[r].add(from));
                    for c in 0..4 {
                        acc[r][c] = S::mul_add(x, y[c], acc[r][c]);
                    }
                }
                from += S::LANES;
            }
            for r in 0..4 {
                for c in 0..4 {
                    let mut sum = S::sum(acc[r][c]);
                    for place in from..k {
                        sum += *a[r].add(place) * *b[c].add(place);
                    }
                    *self.c.at(rows[r], columns[c]).start = sum;
                }
            }
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
        let (start, operands) = (Shared::new(c.start), [Shared::new(a.start), Shared::new(b.start)]);
        return cpu.pool.install(|threads| {
            let a = Matrix::new(operands[0].get(), a.row, a.column);
            let b = Matrix::new(operands[1].get(), b.row, b.column);
            let c = Matrix::new(start.get(), c.row, c.column);
            // SAFETY: as the caller promises.
            unsafe { gemm(([m, k, n], a, b, c), false, T::ONE, parallelism(threads)) }
        });
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

#[cfg(feature = "threads")]
fn parallelism(threads: usize) -> Parallelism {
    if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None }
}

#[cfg(not(feature = "threads"))]
fn parallelism(_threads: usize) -> Parallelism {
    Parallelism::None
}

/// An integer, and the integer in which its products are summed.
pub(super) trait Integer: Element {
    /// What sums and results are.
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

/// The product of two arrays of integers.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn integers<T: Integer>(
    cpu: &Cpu,
    [(a, a_ty), (b, b_ty)]: [(&Array, TensorType); 2],
    result: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(result)?;
    if result.num_elements() == 0 {
        return Ok(output);
    }
    // Rows of `b` are read over and over: they must be contiguous. `a` is read once per row of the result.
    let b = cpu.contiguous(b, &b_ty)?;
    let a = cpu.contiguous(a, &a_ty)?;
    let rank = result.rank();
    let (m, n, k) = (result.shape[rank - 2], result.shape[rank - 1], a_ty.shape[rank - 1]);
    let rows = result.num_elements() / n;
    let (pa, pb) = (Shared::new(a.as_mut_ptr::<T>()), Shared::new(b.as_mut_ptr::<T>()));
    let pc = Shared::new(output.as_mut_ptr::<T::Sum>());
    cpu.pool.parallel_for(rows, (GRAIN / 2).div_ceil((n * k).max(1)), |range| {
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
    /// One row of the result: `c[j] = Σ_k a[k] b[k][j]`, in pieces that stay in registers and the first cache.
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
