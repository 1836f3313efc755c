//! GEMV-like matmuls with few rows or few columns: a matrix times one or a few vectors.
//!
//! They are bound by memory bandwidth. The larger operand is read once, in place and contiguously; the other one fits
//! the cache.

use super::gemm::{Gemm, Operand};
use super::matrix::Matrix;
use super::pack::PackRows;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Float, Kernel, Simd, Source};
use crate::isa::Level;
use crate::threads::Pool;
use core::ops::Range;

/// The maximum number of rows for which whole rows of the result are accumulated in memory (axpy).
const MAX_AXPY_ROWS: usize = 8;

/// The maximum number of rows for which every element is a separate dot product.
const MAX_DOT_ROWS: usize = 24;

/// The size in bytes below which the larger operand stays in cache, and tiles are faster.
const LARGE: usize = 256 << 10;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// Elements per task of an epilogue.
const FINISHED: usize = 1 << 14;

/// The minimum number of rows of `k` per thread: the sum is split along `k`, so that each thread reads one contiguous
/// part of the memory.
const MIN_DEPTH: usize = 64;

/// A matmul with few rows, or one with few columns transposed.
pub(super) struct Gemv<'a, T: Float> {
    sizes: [usize; 3],
    /// `[m, k]`.
    small: Operand<'a, T>,
    /// `[k, n]`.
    large: Operand<'a, T>,
    transposed: bool,
    method: Method,
}

/// The contiguous axis of the larger operand.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    /// Along `n`: its rows are added to the result's rows, each times an element of the other operand (axpy).
    Rows,
    /// Along `k`: dot products of its columns with rows of the other operand.
    Dots,
}

impl<'a, T: Float> Gemv<'a, T> {
    /// Matches a matmul that is narrow and whose larger operand can be read in place.
    pub(super) fn of(gemm: &Gemm<'a, T>) -> Option<Gemv<'a, T>> {
        let [m, k, n] = gemm.sizes;
        if gemm.accumulate || gemm.scale != T::ONE || m.min(n) > MAX_DOT_ROWS || m.min(n) == 0 || k == 0 {
            return None;
        }
        let transposed = n < m;
        let (sizes, small, large) = if transposed {
            ([n, k, m], gemm.b.transposed()?, gemm.a.transposed()?)
        } else {
            (gemm.sizes, gemm.a, gemm.b)
        };
        let [rows, _, columns] = sizes;
        small.strides()?;
        let [down, across] = large.strides()?;
        let bytes = k.saturating_mul(columns).saturating_mul(size_of::<T>());
        let dots = if rows == 1 { k >= 16 || across != 1 } else { k >= 32 && rows * columns > 256 };
        let method = if down == 1 && dots {
            Method::Dots
        } else if across == 1 && rows <= MAX_AXPY_ROWS && (rows == 1 || bytes >= LARGE) {
            Method::Rows
        } else {
            return None;
        };
        Some(Gemv { sizes, small, large, transposed, method })
    }

    /// Computes the product, multithreaded if worthwhile, and runs the epilogue.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    pub(super) unsafe fn run(&self, gemm: &Gemm<'a, T>, level: Level, pool: &Pool) {
        let [rows, columns] = [gemm.sizes[0], gemm.sizes[2]];
        let mut local = Scratch::<T>::new(if gemm.c.is_none() { rows * columns } else { 0 });
        let c = gemm.c.unwrap_or_else(|| Matrix::new(local.as_mut_ptr(), columns as isize, 1));
        // SAFETY: as the caller promises.
        unsafe {
            let to = if self.transposed { c.transposed() } else { c };
            match self.small {
                Operand::Matrix(small) => self.with_small(small, to, level, pool),
                Operand::F16(small) => self.with_small(small, to, level, pool),
                Operand::BF16(small) => self.with_small(small, to, level, pool),
                Operand::Computed(_) => {}
            }
        }
        let Some(finish) = gemm.epilogue else { return };
        let [down, across] = [rows.div_ceil(96), columns.div_ceil(256)];
        let grain = FINISHED.div_ceil(rows.min(96) * columns.min(256));
        pool.parallel_for(down * across, grain, |blocks| {
            for block in blocks {
                let (first, start) = (block / across * 96, block % across * 256);
                let (down, across) = (first..(first + 96).min(rows), start..(start + 256).min(columns));
                finish(down, across, c.at(first, start).start, c.row as usize);
            }
        });
    }

    /// Makes the rows of the smaller operand contiguous.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn with_small<N: Source<T>>(&self, from: Matrix<N>, c: Matrix<T>, level: Level, pool: &Pool) {
        let [rows, depth, _] = self.sizes;
        if let (1, Some(start)) = (from.column, N::as_is(from.start)) {
            // SAFETY: as the caller promises.
            return unsafe { self.with_rows(Matrix::new(start, from.row, 1), c, level, pool) };
        }
        let mut copy = Scratch::<T>::new(rows * depth);
        let to = copy.as_mut_ptr();
        // SAFETY: as the caller promises; the copy has room for all rows.
        unsafe {
            T::dispatch(level, PackRows { from, rows, depth, to, stride: depth });
            self.with_rows(Matrix::new(to, depth as isize, 1), c, level, pool);
        }
    }

    /// # Safety
    /// As [`Gemm::run`]; the rows of `small` are contiguous.
    unsafe fn with_rows(&self, small: Matrix<T>, c: Matrix<T>, level: Level, pool: &Pool) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.large {
                Operand::Matrix(large) => self.with_both(small, large, c, level, pool),
                Operand::F16(large) => self.with_both(small, large, c, level, pool),
                Operand::BF16(large) => self.with_both(small, large, c, level, pool),
                Operand::Computed(_) => {}
            }
        }
    }

    /// # Safety
    /// As [`with_rows`](Self::with_rows).
    unsafe fn with_both<N: Source<T>>(
        &self,
        a: Matrix<T>,
        b: Matrix<N>,
        c: Matrix<T>,
        level: Level,
        pool: &Pool,
    ) {
        let [m, k, n] = self.sizes;
        if self.method == Method::Dots {
            return pool.parallel_for(n, GRAIN.div_ceil(m * k).next_multiple_of(8), |columns| {
                let (b, c) = (b.at(0, columns.start), c.at(0, columns.start));
                // SAFETY: as the caller promises; each column is computed once.
                unsafe { T::dispatch(level, Dots { sizes: [m, k, columns.len()], a, b, c }) };
            });
        }
        // The lengths depend on the sizes alone, so that sums do not depend on the number of threads.
        let parts = (k * n / GRAIN).min(k / MIN_DEPTH).clamp(1, 16);
        if parts == 1 && c.column == 1 {
            // SAFETY: as the caller promises.
            return unsafe { add_rows([m, k, n], a, b, c, level, pool) };
        }
        // An odd number of cache lines, so that rows do not map to the same cache sets.
        let row = n.next_multiple_of(1024) + 5 * 64 / size_of::<T>();
        let mut sums = Scratch::<T>::new(parts * m * row);
        let sums = Matrix::new(sums.as_mut_ptr(), row as isize, 1);
        let depth = k.div_ceil(parts);
        let compute = |part: usize, pool: &Pool| {
            let range = (part * depth).min(k)..((part + 1) * depth).min(k);
            let (a, b) = (a.at(0, range.start), b.at(range.start, 0));
            // SAFETY: as the caller promises; every part has its own rows.
            unsafe { add_rows([m, range.len(), n], a, b, sums.at(part * m, 0), level, pool) };
        };
        if parts == 1 {
            compute(0, pool);
        } else {
            pool.parallel_for(parts, 1, |range| range.for_each(|part| compute(part, &Pool::new(1))));
        }
        for i in 0..m {
            for j in 0..n {
                // SAFETY: elements of the sums and of the result.
                unsafe {
                    let mut sum = *sums.at(i, j).start;
                    for part in 1..parts {
                        sum += *sums.at(part * m + i, j).start;
                    }
                    *c.at(i, j).start = sum;
                }
            }
        }
    }
}

/// `c = a · b` by [`AddRows`], multithreaded if worthwhile.
///
/// # Safety
/// As [`AddRows`].
unsafe fn add_rows<T: Float, N: Source<T>>(
    [m, k, n]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<N>,
    c: Matrix<T>,
    level: Level,
    pool: &Pool,
) {
    let grain = GRAIN.div_ceil(m * k.max(1)).next_multiple_of(256);
    pool.parallel_for(n, grain, |columns| {
        // SAFETY: as the caller promises; each column is computed once.
        unsafe { T::dispatch(level, AddRows { depth: k, rows: m, columns, a, b, c }) };
    });
}

/// `c[i] = Σ_p a[i][p] · b[p]`, with contiguous rows of `b` and `c`.
struct AddRows<T, N> {
    rows: usize,
    depth: usize,
    columns: Range<usize>,
    a: Matrix<T>,
    b: Matrix<N>,
    c: Matrix<T>,
}

impl<T: Float, N: Source<T>> Kernel<T> for AddRows<T, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        // SAFETY: the caller upholds the conditions.
        unsafe {
            // Loops over one and two rows are unrolled, since their inner loops are the shortest.
            match self.rows {
                1 => self.all::<S>(1),
                2 => self.all::<S>(2),
                rows => self.all::<S>(rows),
            }
        }
    }
}

impl<T: Float, N: Source<T>> AddRows<T, N> {
    /// Iterates over ranges of columns whose sums stay in the L1 cache.
    #[inline(always)]
    unsafe fn all<S: Simd<T>>(&self, rows: usize) {
        let stretch = ((128 << 10) / size_of::<T>() / rows).next_multiple_of(S::LANES);
        for start in self.columns.clone().step_by(stretch) {
            let len = (self.columns.end - start).min(stretch);
            for i in 0..rows {
                // SAFETY: a part of a row of the result.
                unsafe { core::slice::from_raw_parts_mut(self.c.at(i, start).start, len) }.fill(T::ZERO);
            }
            let mut p = 0;
            // SAFETY: the caller upholds the conditions.
            unsafe {
                // Rows of `b` are often a multiple of 4 KiB apart, and then map to the same cache set with 8 ways.
                if rows <= 2 {
                    while p + 8 <= self.depth {
                        self.add::<S, 8>(rows, p, start, len);
                        p += 8;
                    }
                }
                while p + 4 <= self.depth {
                    self.add::<S, 4>(rows, p, start, len);
                    p += 4;
                }
                while p < self.depth {
                    self.add::<S, 1>(rows, p, start, len);
                    p += 1;
                }
            }
        }
    }

    /// Adds `STEPS` rows of `b`.
    #[inline(always)]
    unsafe fn add<S: Simd<T>, const STEPS: usize>(&self, rows: usize, p: usize, start: usize, len: usize) {
        let b: [*const N; STEPS] = core::array::from_fn(|step| self.b.at(p + step, start).start.cast_const());
        // SAFETY: parts of rows of the operands and of the result.
        unsafe {
            let mut x = [[T::ZERO; STEPS]; MAX_AXPY_ROWS];
            let x = &mut x[..rows];
            for (i, x) in x.iter_mut().enumerate() {
                for step in 0..STEPS {
                    x[step] = *self.a.at(i, p + step).start;
                }
            }
            let mut j = 0;
            while j + S::LANES <= len {
                let mut y = [S::splat(T::ZERO); STEPS];
                for step in 0..STEPS {
                    y[step] = N::load::<S>(b[step].add(j));
                    S::prefetch(b[step].wrapping_add(j + 16 * S::LANES).cast());
                }
                for (i, x) in x.iter().enumerate() {
                    let c = self.c.at(i, start + j).start;
                    let mut sum = S::load(c);
                    for step in 0..STEPS {
                        sum = S::mul_add(S::splat(x[step]), y[step], sum);
                    }
                    S::store(c, sum);
                }
                j += S::LANES;
            }
            while j < len {
                for (i, x) in x.iter().enumerate() {
                    let c = self.c.at(i, start + j).start;
                    for step in 0..STEPS {
                        *c += x[step] * (*b[step].add(j)).widen();
                    }
                }
                j += 1;
            }
        }
    }
}

/// `c[i][j] = Σ_p a[i][p] · b[p][j]`, with contiguous rows of `a` and columns of `b`.
struct Dots<T, N> {
    sizes: [usize; 3],
    a: Matrix<T>,
    b: Matrix<N>,
    c: Matrix<T>,
}

impl<T: Float, N: Source<T>> Kernel<T> for Dots<T, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let [m, _, n] = self.sizes;
        for j in (0..n).step_by(4) {
            let mut i = 0;
            // SAFETY: the caller upholds the conditions.
            unsafe {
                while i + 4 <= m {
                    self.block::<S, 4>(i, j);
                    i += 4;
                }
                if i + 2 <= m {
                    self.block::<S, 2>(i, j);
                    i += 2;
                }
                if i < m {
                    self.block::<S, 1>(i, j);
                }
            }
        }
    }
}

impl<T: Float, N: Source<T>> Dots<T, N> {
    /// Computes some rows by four columns of the result; at the edge some columns are computed twice, into the same
    /// place.
    ///
    /// # Safety
    /// As [`Gemm::run`]; `i` and `j` are within the result.
    #[inline(always)]
    unsafe fn block<S: Simd<T>, const ROWS: usize>(&self, i: usize, j: usize) {
        let [_, k, n] = self.sizes;
        let columns: [usize; 4] = core::array::from_fn(|c| (j + c).min(n - 1));
        let a: [*const T; ROWS] = core::array::from_fn(|r| self.a.at(i + r, 0).start.cast_const());
        let b = columns.map(|column| self.b.at(0, column).start.cast_const());
        // SAFETY: rows of `a` and columns of `b` are contiguous along `k`; elements of `c`.
        unsafe {
            let mut acc = [[S::splat(T::ZERO); 4]; ROWS];
            let mut from = 0;
            while from + S::LANES <= k {
                let mut y = [S::splat(T::ZERO); 4];
                for c in 0..4 {
                    y[c] = N::load::<S>(b[c].add(from));
                }
                for r in 0..ROWS {
                    let x = S::load(a[r].add(from));
                    for c in 0..4 {
                        acc[r][c] = S::mul_add(x, y[c], acc[r][c]);
                    }
                }
                from += S::LANES;
            }
            for r in 0..ROWS {
                for c in 0..4 {
                    let mut sum = S::sum(acc[r][c]);
                    for place in from..k {
                        sum += *a[r].add(place) * (*b[c].add(place)).widen();
                    }
                    *self.c.at(i + r, columns[c]).start = sum;
                }
            }
        }
    }
}
