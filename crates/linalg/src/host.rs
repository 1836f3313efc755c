//! Batches of matrices on the host.

use faer::traits::RealField;
use faer::{Mat, MatRef};
use kiln_ir::{Element, Error, Result, Shape, TensorData};

/// A number that the kernels compute with.
pub(crate) trait Real: Element + RealField + Into<f64> {
    /// The nearest number of this type.
    fn of(x: f64) -> Self;
}

impl Real for f32 {
    fn of(x: f64) -> f32 {
        x as f32
    }
}

impl Real for f64 {
    fn of(x: f64) -> f64 {
        x
    }
}

/// The matrices in the last two axes of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Matrices<'a, T> {
    elements: &'a [T],
    shape: &'a Shape,
    /// The number of rows of each.
    pub(crate) rows: usize,
    /// The number of columns of each.
    pub(crate) cols: usize,
    /// How many there are.
    pub(crate) count: usize,
}

impl<'a, T: Element> Matrices<'a, T> {
    /// The matrices of a tensor with at least two axes.
    pub(crate) fn of(data: &'a TensorData) -> Result<Matrices<'a, T>> {
        let shape = data.shape();
        let outer = shape.rank().saturating_sub(2);
        let length = |axis: usize| shape.get(axis).copied().unwrap_or(1);
        Ok(Matrices {
            elements: data.as_slice()?,
            shape,
            rows: length(outer),
            cols: length(outer + 1),
            count: shape[..outer].iter().product(),
        })
    }

    /// The leading axes.
    pub(crate) fn batch(&self) -> &'a [usize] {
        &self.shape[..self.shape.rank().saturating_sub(2)]
    }

    /// The elements of one matrix, row by row.
    pub(crate) fn elements(&self, index: usize) -> &'a [T] {
        let size = self.rows * self.cols;
        &self.elements[index * size..][..size]
    }

    /// One matrix.
    pub(crate) fn get(&self, index: usize) -> MatRef<'a, T> {
        MatRef::from_row_major_slice(self.elements(index), self.rows, self.cols)
    }

    /// The leading axes with others behind them.
    pub(crate) fn shape_with(&self, last: &[usize]) -> Shape {
        self.batch().iter().chain(last).copied().collect()
    }
}

impl<T: Real> Matrices<'_, T> {
    /// Whether every element of one matrix is finite.
    pub(crate) fn is_finite(&self, index: usize) -> bool {
        self.elements(index).iter().all(|&x| x.into().is_finite())
    }

    /// Computes something for each matrix, on several cores where that pays. The first error counts.
    pub(crate) fn each<R: Send>(&self, compute: impl Fn(usize) -> Result<R> + Sync) -> Result<Vec<R>> {
        #[cfg(feature = "threads")]
        {
            use rayon::prelude::*;
            /// Below this many operations starting tasks costs more than it saves.
            const WORTH_TASKS: usize = 1 << 20;
            let work = self.rows.saturating_mul(self.cols).saturating_mul(self.rows.min(self.cols));
            if self.count > 1 && work.saturating_mul(self.count) > WORTH_TASKS {
                // Collected before the first error is looked for, so that it does not depend on timing.
                let results: Vec<Result<R>> = (0..self.count).into_par_iter().map(&compute).collect();
                return results.into_iter().collect();
            }
        }
        (0..self.count).map(compute).collect()
    }

    /// The error that something is wrong with one matrix.
    pub(crate) fn error(&self, op: &str, index: usize, problem: &str) -> Error {
        Error::value(op, format!("{} {problem}", place(self.batch(), index)))
    }

    /// The error of a matrix that an iteration cannot work on.
    pub(crate) fn not_finite(&self, op: &str, index: usize) -> Error {
        self.error(op, index, "holds a NaN or an infinity")
            .hint("look for what made it: `is_finite` tells which elements are numbers")
    }
}

/// The name of a matrix in a message.
fn place(batch: &[usize], index: usize) -> String {
    match batch {
        [] => "the matrix".into(),
        [_] => format!("matrix {index} of the batch"),
        _ => {
            let mut rest = index;
            let mut places: Vec<usize> = Vec::new();
            for &length in batch.iter().rev() {
                places.push(rest % length.max(1));
                rest /= length.max(1);
            }
            places.reverse();
            format!("matrix {places:?} of the batch")
        }
    }
}

/// The elements of a matrix, row by row.
pub(crate) fn row_major<T: Real>(matrix: MatRef<'_, T>) -> Vec<T> {
    let (rows, cols) = matrix.shape();
    let mut elements = Vec::with_capacity(rows * cols);
    for i in 0..rows {
        elements.extend((0..cols).map(|j| matrix[(i, j)]));
    }
    elements
}

/// A matrix with ones on the diagonal.
pub(crate) fn identity<T: Real>(rows: usize, cols: usize) -> Mat<T> {
    Mat::from_fn(rows, cols, |i, j| T::of(f64::from(i == j)))
}

/// NaN as often as asked.
pub(crate) fn nans<T: Real>(count: usize) -> Vec<T> {
    vec![T::of(f64::NAN); count]
}

/// Results of all matrices one after the other, as a tensor.
pub(crate) fn joined<T: Element>(
    parts: impl IntoIterator<Item = Vec<T>>,
    shape: Shape,
) -> Result<TensorData> {
    TensorData::new(parts.into_iter().flatten().collect(), shape)
}

/// The first of two results per matrix, and the second.
pub(crate) fn split<A, B>(pairs: Vec<(A, B)>) -> (Vec<A>, Vec<B>) {
    pairs.into_iter().unzip()
}
