//! Matrices in 64-bit floating point on the host.

use std::num::NonZero;
use std::thread;

/// A matrix in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    rows: usize,
    columns: usize,
    elements: Vec<f64>,
}

/// With fewer multiplications than this, one thread computes a product.
const SMALL: usize = 1 << 20;

impl Matrix {
    /// A matrix of elements in row-major order.
    ///
    /// # Panics
    /// When the number of elements is not `rows * columns`.
    pub(super) fn new(rows: usize, columns: usize, elements: Vec<f64>) -> Matrix {
        assert_eq!(elements.len(), rows * columns, "a matrix of {rows} rows and {columns} columns");
        Matrix { rows, columns, elements }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.columns..][..self.columns]
    }

    pub(super) fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.columns + column]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = f64> {
        self.elements.iter().copied()
    }

    pub(super) fn trace(&self) -> f64 {
        (0..self.rows).map(|place| self.at(place, place)).sum()
    }

    /// The rows at these places.
    pub(super) fn select(&self, rows: &[usize]) -> Matrix {
        let elements = rows.iter().flat_map(|&row| self.row(row)).copied().collect();
        Matrix::new(rows.len(), self.columns, elements)
    }

    /// The product with the transpose of a matrix: all products of a row of both. It does not depend on the number of
    /// threads.
    pub(super) fn products(&self, other: &Matrix) -> Matrix {
        let mut elements = vec![0.0; self.rows * other.rows];
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if elements.len() * self.columns < SMALL { 1 } else { cores };
        let rows = self.rows.div_ceil(threads).max(1);
        let fill = |first: usize, part: &mut [f64]| {
            for (row, results) in part.chunks_mut(other.rows.max(1)).enumerate() {
                let row = self.row(first + row);
                results
                    .iter_mut()
                    .enumerate()
                    .for_each(|(place, result)| *result = dot(row, other.row(place)));
            }
        };
        thread::scope(|scope| {
            for (place, part) in elements.chunks_mut((rows * other.rows).max(1)).enumerate() {
                if threads == 1 {
                    fill(place * rows, part);
                } else {
                    scope.spawn(move || fill(place * rows, part));
                }
            }
        });
        Matrix::new(self.rows, other.rows, elements)
    }

    /// The columns of a matrix `l` with `l lᵀ` equal to this symmetric positive semidefinite matrix, as rows. There are
    /// as many as the rank: Cholesky factorization with diagonal pivoting, which ends at rounding errors.
    pub(super) fn factors(&self) -> Matrix {
        let size = self.rows;
        let mut left: Vec<f64> = (0..size).map(|place| self.at(place, place)).collect();
        let least = size as f64 * f64::EPSILON * left.iter().copied().fold(0.0, f64::max);
        // Row by row: the part of each row of `l` that is known.
        let mut rows: Vec<Vec<f64>> = vec![Vec::with_capacity(size); size];
        for _ in 0..size {
            let pivot = (0..size).fold(0, |best, place| if left[place] > left[best] { place } else { best });
            if left[pivot].is_nan() || left[pivot] <= least {
                break;
            }
            let root = left[pivot].sqrt();
            let known = rows[pivot].clone();
            for (place, row) in rows.iter_mut().enumerate() {
                let element = (self.at(place, pivot) - dot(row, &known)) / root;
                row.push(element);
                left[place] -= element * element;
            }
            left[pivot] = f64::NEG_INFINITY;
        }
        let rank = rows.first().map_or(0, Vec::len);
        let elements = (0..rank).flat_map(|column| rows.iter().map(move |row| row[column])).collect();
        Matrix::new(rank, size, elements)
    }

    /// The eigenvalues of this symmetric matrix, in no order: Householder reduction to tridiagonal form, then implicit
    /// QL (Golub and Van Loan, "Matrix computations", 8.3).
    pub(super) fn symmetric_eigenvalues(self) -> Vec<f64> {
        let (mut diagonal, mut beside) = self.tridiagonal();
        for place in 0..diagonal.len() {
            shift_out(&mut diagonal, &mut beside, place);
        }
        diagonal
    }

    /// The diagonal and the elements beside it, and a 0, of a similar tridiagonal matrix.
    fn tridiagonal(mut self) -> (Vec<f64>, Vec<f64>) {
        let size = self.rows;
        let (mut diagonal, mut beside) = (vec![0.0; size], vec![0.0; size]);
        for step in 0..size {
            diagonal[step] = self.at(step, step);
            let mut v: Vec<f64> = self.row(step)[step + 1..].to_vec();
            let Some(&first) = v.first() else { break };
            let norm = dot(&v, &v).sqrt();
            beside[step] = if first > 0.0 { -norm } else { norm };
            v[0] -= beside[step];
            let square = dot(&v, &v);
            if square > 0.0 {
                self.reflect(step + 1, &v, 2.0 / square);
            }
        }
        (diagonal, beside)
    }

    /// Applies the reflection `1 - scale v vᵀ` from both sides to the rows and columns from `first`.
    fn reflect(&mut self, first: usize, v: &[f64], scale: f64) {
        let size = self.columns;
        let mut w: Vec<f64> = (first..size).map(|row| scale * dot(&self.row(row)[first..], v)).collect();
        let along = scale / 2.0 * dot(&w, v);
        w.iter_mut().zip(v).for_each(|(w, v)| *w -= along * v);
        for (place, row) in self.elements.chunks_mut(size).skip(first).enumerate() {
            let (a, b) = (v[place], w[place]);
            row[first..].iter_mut().zip(v.iter().zip(&w)).for_each(|(x, (v, w))| *x -= a * w + b * v);
        }
    }
}

/// Makes `beside[place]` 0 by implicit QL steps.
fn shift_out(diagonal: &mut [f64], beside: &mut [f64], place: usize) {
    const MAX_STEPS: usize = 100;
    for _ in 0..MAX_STEPS {
        let small =
            |at: usize| beside[at].abs() <= f64::EPSILON * (diagonal[at].abs() + diagonal[at + 1].abs());
        let end = (place..diagonal.len() - 1).find(|&at| small(at)).unwrap_or(diagonal.len() - 1);
        if end == place {
            return;
        }
        ql_step(diagonal, beside, place, end);
    }
}

/// One implicit QL step with Wilkinson's shift on the block from `place` to `end`.
fn ql_step(diagonal: &mut [f64], beside: &mut [f64], place: usize, end: usize) {
    let slope = (diagonal[place + 1] - diagonal[place]) / (2.0 * beside[place]);
    let root = slope.hypot(1.0);
    let mut g = diagonal[end] - diagonal[place] + beside[place] / (slope + root.copysign(slope));
    let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
    for at in (place..end).rev() {
        let (f, b) = (sine * beside[at], cosine * beside[at]);
        let length = f.hypot(g);
        beside[at + 1] = length;
        if length == 0.0 {
            diagonal[at + 1] -= shift;
            beside[end] = 0.0;
            return;
        }
        (sine, cosine) = (f / length, g / length);
        g = diagonal[at + 1] - shift;
        let r = (diagonal[at] - g) * sine + 2.0 * cosine * b;
        shift = sine * r;
        diagonal[at + 1] = g + shift;
        g = cosine * r - b;
    }
    diagonal[place] -= shift;
    beside[place] = g;
    beside[end] = 0.0;
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut numbers: Vec<f64>) -> Vec<f64> {
        numbers.sort_by(f64::total_cmp);
        numbers
    }

    #[test]
    fn eigenvalues_of_a_path_are_cosines() {
        // The adjacency matrix of a path of n nodes has the eigenvalues 2 cos(π k / (n + 1)).
        let size = 12;
        let element = |place: usize| f64::from(u8::from((place / size).abs_diff(place % size) == 1));
        let matrix = Matrix::new(size, size, (0..size * size).map(element).collect());
        let angle = |k: usize| std::f64::consts::PI * k as f64 / (size + 1) as f64;
        let expected = sorted((1..=size).map(|k| 2.0 * angle(k).cos()).collect());
        let found = sorted(matrix.symmetric_eigenvalues());
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-13), "{found:?} {expected:?}");
    }

    #[test]
    fn factors_have_the_rank_and_the_eigenvalues() {
        let (size, rank) = (20, 7);
        let rows = Matrix::new(
            size,
            rank,
            (0..size * rank).map(|place| ((place * place) as f64 * 0.37).sin()).collect(),
        );
        let matrix = rows.products(&rows);
        let factors = matrix.factors();
        assert_eq!(factors.rows(), rank);
        let found = sorted(matrix.clone().symmetric_eigenvalues());
        let expected = sorted(factors.products(&factors).symmetric_eigenvalues());
        assert!(found[..size - rank].iter().all(|value| value.abs() < 1e-12));
        assert!(found[size - rank..].iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12));
        assert!((found.iter().sum::<f64>() - matrix.trace()).abs() < 1e-12);
    }

    #[test]
    fn threads_do_not_change_products() {
        let a = Matrix::new(300, 130, (0..300 * 130).map(|place| (place as f64).sin()).collect());
        let products = a.products(&a);
        assert!((0..300).all(|row| products.at(row, 7) == dot(a.row(row), a.row(7))));
    }
}
