//! `L D Lᵀ` factorisation of symmetric indefinite matrices: J. Bunch and L. Kaufman, *Some stable methods for
//! calculating inertia and solving symmetric linear systems*, Math. Comp. 31 (1977), algorithm A. The storage is that
//! of LAPACK's `sytrf`.
//!
//! `A = M D Mᵀ` with `M = P₁ L₁ P₂ L₂ …`: row exchanges `P` and unit lower triangular matrices `L`, each with the
//! columns of one block of `D`. `D` has diagonal blocks of size 1 or 2.

use crate::host::{Real, identity};
use faer::{Mat, MatRef};

/// A block of `D`, and the exchange before its elimination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The first row of the block.
    start: usize,
    /// Whether the block has size 2.
    double: bool,
    /// The row that was exchanged with the last row of the block.
    swap: usize,
}

impl Block {
    /// Returns the last row of the block.
    fn last(self) -> usize {
        self.start + usize::from(self.double)
    }
}

/// `L` and `D` in the lower triangle, zeros above; and LAPACK's pivots.
pub(crate) struct Ldl<T: Real> {
    pub(crate) factors: Mat<T>,
    /// Counted from 1. `p`: a block of size 1 that was exchanged with row `p`. Two equal values `-p`: a block of size 2
    /// whose second row was exchanged with row `p`.
    pub(crate) pivots: Vec<i32>,
}

/// Factorises a symmetric matrix. Reads the lower triangle.
pub(crate) fn factor<T: Real>(a: MatRef<'_, T>) -> Ldl<T> {
    let n = a.nrows();
    let zero = T::of(0.0);
    let mut factors = Mat::from_fn(n, n, |i, j| if i >= j { a[(i, j)] } else { zero });
    let mut pivots = Vec::with_capacity(n);
    while pivots.len() < n {
        let block = choose(&factors, pivots.len());
        exchange(&mut factors, block);
        let pivot = block.swap as i32 + 1;
        if block.double {
            eliminate_two(&mut factors, block.start);
            pivots.extend([-pivot, -pivot]);
        } else {
            eliminate_one(&mut factors, block.start);
            pivots.push(pivot);
        }
    }
    Ldl { factors, pivots }
}

/// Chooses the next block such that the growth of the remaining elements is bounded.
fn choose<T: Real>(a: &Mat<T>, start: usize) -> Block {
    let n = a.nrows();
    let magnitude = |i: usize, j: usize| Into::<f64>::into(a[(i.max(j), i.min(j))]).abs();
    let alpha = (1.0 + 17f64.sqrt()) / 8.0;
    let single = |swap| Block { start, double: false, swap };
    let here = magnitude(start, start);
    let mut far = start;
    let mut greatest = 0.0;
    for row in start + 1..n {
        if magnitude(row, start) > greatest {
            (far, greatest) = (row, magnitude(row, start));
        }
    }
    if here >= alpha * greatest || here.is_nan() {
        return single(start);
    }
    let others = (start..n).filter(|&j| j != far).map(|j| magnitude(far, j));
    let of_row = others.fold(0.0, f64::max);
    if here >= alpha * greatest * (greatest / of_row) {
        single(start)
    } else if magnitude(far, far) >= alpha * of_row {
        single(far)
    } else {
        Block { start, double: true, swap: far }
    }
}

/// Exchanges rows and columns of the remaining matrix, in the lower triangle.
fn exchange<T: Real>(a: &mut Mat<T>, block: Block) {
    let (n, from, to) = (a.nrows(), block.last(), block.swap);
    if from == to {
        return;
    }
    let mut swap = |one: (usize, usize), two: (usize, usize)| {
        let x = a[one];
        a[one] = a[two];
        a[two] = x;
    };
    swap((from, from), (to, to));
    (from + 1..to).for_each(|k| swap((k, from), (to, k)));
    (to + 1..n).for_each(|k| swap((k, from), (k, to)));
    if block.double {
        swap((from, block.start), (to, block.start));
    }
}

/// Eliminates with a pivot block of size 1. A zero column does not change.
fn eliminate_one<T: Real>(a: &mut Mat<T>, start: usize) {
    let (n, pivot) = (a.nrows(), a[(start, start)]);
    if pivot == T::of(0.0) {
        return;
    }
    for j in start + 1..n {
        let quotient = a[(j, start)] / pivot;
        for i in j..n {
            let less = a[(i, j)] - a[(i, start)] * quotient;
            a[(i, j)] = less;
        }
    }
    for i in start + 1..n {
        let quotient = a[(i, start)] / pivot;
        a[(i, start)] = quotient;
    }
}

/// Eliminates with a pivot block of size 2.
fn eliminate_two<T: Real>(a: &mut Mat<T>, start: usize) {
    let (n, next) = (a.nrows(), start + 1);
    let pivot = Pair::of(a.as_ref(), start);
    for j in start + 2..n {
        let (left, right) = pivot.solve(a[(j, start)], a[(j, next)]);
        for i in j..n {
            let less = a[(i, j)] - a[(i, start)] * left - a[(i, next)] * right;
            a[(i, j)] = less;
        }
        // Rows above `j` are not read again.
        (a[(j, start)], a[(j, next)]) = (left, right);
    }
}

/// A symmetric 2x2 block, divided by its off-diagonal element, which is the largest.
struct Pair<T> {
    off: T,
    first: T,
    second: T,
}

impl<T: Real> Pair<T> {
    fn of(a: MatRef<'_, T>, start: usize) -> Pair<T> {
        let off = a[(start + 1, start)];
        Pair { off, first: a[(start, start)] / off, second: a[(start + 1, start + 1)] / off }
    }

    /// Solves the 2x2 system for these right-hand sides.
    fn solve(&self, one: T, two: T) -> (T, T) {
        let (one, two) = (one / self.off, two / self.off);
        let determinant = self.first * self.second - T::of(1.0);
        ((self.second * one - two) / determinant, (self.first * two - one) / determinant)
    }
}

/// Decodes pivots into blocks. The error is the first invalid pivot.
pub(crate) fn blocks(pivots: &[i32]) -> Result<Vec<Block>, i32> {
    let n = pivots.len();
    let mut blocks = Vec::with_capacity(n);
    let mut start = 0;
    while start < n {
        let pivot = pivots[start];
        let double = pivot < 0;
        let last = start + usize::from(double);
        // An exchange is with a row that is not yet eliminated.
        let swap = (pivot.unsigned_abs() as usize).wrapping_sub(1);
        if swap < last || swap >= n || (double && pivots.get(last) != Some(&pivot)) {
            return Err(pivot);
        }
        blocks.push(Block { start, double, swap });
        start = last + 1;
    }
    Ok(blocks)
}

/// Solves `A X = B` in place.
pub(crate) fn solve<T: Real>(factors: MatRef<'_, T>, blocks: &[Block], x: &mut Mat<T>) {
    let (n, cols) = x.shape();
    for &block in blocks {
        swap_rows(x, block);
        for col in 0..cols {
            for k in block.start..=block.last() {
                for i in block.last() + 1..n {
                    let less = x[(i, col)] - factors[(i, k)] * x[(k, col)];
                    x[(i, col)] = less;
                }
            }
            if block.double {
                let pair = Pair::of(factors, block.start);
                let solved = pair.solve(x[(block.start, col)], x[(block.start + 1, col)]);
                (x[(block.start, col)], x[(block.start + 1, col)]) = solved;
            } else {
                let quotient = x[(block.start, col)] / factors[(block.start, block.start)];
                x[(block.start, col)] = quotient;
            }
        }
    }
    for &block in blocks.iter().rev() {
        for col in 0..cols {
            for k in block.start..=block.last() {
                for i in block.last() + 1..n {
                    let less = x[(k, col)] - factors[(i, k)] * x[(i, col)];
                    x[(k, col)] = less;
                }
            }
        }
        swap_rows(x, block);
    }
}

fn swap_rows<T: Real>(x: &mut Mat<T>, block: Block) {
    let (from, to) = (block.last(), block.swap);
    if from == to {
        return;
    }
    for col in 0..x.ncols() {
        let one = x[(from, col)];
        x[(from, col)] = x[(to, col)];
        x[(to, col)] = one;
    }
}

/// `M` and `D` of `A = M D Mᵀ`.
pub(crate) fn unpack<T: Real>(factors: MatRef<'_, T>, blocks: &[Block]) -> (Mat<T>, Mat<T>) {
    let n = factors.nrows();
    let (mut m, mut d) = (identity::<T>(n, n), Mat::zeros(n, n));
    for &block in blocks.iter().rev() {
        let (start, last) = (block.start, block.last());
        for k in start..=last {
            for col in start..n {
                for i in last + 1..n {
                    let more = m[(i, col)] + factors[(i, k)] * m[(k, col)];
                    m[(i, col)] = more;
                }
            }
            d[(k, k)] = factors[(k, k)];
        }
        if block.double {
            let off = factors[(last, start)];
            (d[(last, start)], d[(start, last)]) = (off, off);
        }
        swap_rows(&mut m, block);
    }
    (m, d)
}
