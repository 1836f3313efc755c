//! Batches of matrices on the host.

use faer::traits::math_utils::{abs, conj, from_f64, from_real, imag, real, recip};
use faer::traits::{ComplexField, RealField};
use faer::{Mat, MatRef, c32, c64};
use kiln_ir::{Element, Error, Result, Shape, TensorData};

/// A real or complex scalar type of the kernels.
pub(crate) trait Scalar: ComplexField<Real: Element + Into<f64>> + Copy {
    /// Returns the nearest value of this type.
    fn of(x: f64) -> Self {
        from_f64(x)
    }

    /// Returns the quotient without intermediate overflow.
    fn over(self, divisor: Self) -> Self {
        if Self::IS_REAL { self / divisor } else { self * recip(&divisor) }
    }

    /// Returns the value divided by its magnitude; 0 for 0.
    fn sign(self) -> Self {
        let magnitude = abs(&self);
        if magnitude.into() == 0.0 {
            return Self::of(0.0);
        }
        // An infinity also has a sign.
        if Self::IS_REAL { Self::of(real(&self).into().signum()) } else { self.over(from_real(&magnitude)) }
    }
}

impl<T: ComplexField<Real: Element + Into<f64>> + Copy> Scalar for T {}

/// A real scalar type of the kernels.
pub(crate) trait Real: Element + RealField + Into<f64> + Scalar {
    /// The complex type whose parts have this type.
    type Complex: Scalar + ComplexField<Real = Self>;

    /// Returns the complex value of two parts.
    fn complex(re: Self, im: Self) -> Self::Complex;
}

impl Real for f32 {
    type Complex = c32;

    fn complex(re: f32, im: f32) -> c32 {
        c32::new(re, im)
    }
}

impl Real for f64 {
    type Complex = c64;

    fn complex(re: f64, im: f64) -> c64 {
        c64::new(re, im)
    }
}

/// The batch of matrices in the last two dimensions of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Matrices<'a, T> {
    elements: &'a [T],
    shape: &'a Shape,
    /// Number of rows of each matrix.
    pub(crate) rows: usize,
    /// Number of columns of each matrix.
    pub(crate) cols: usize,
    /// Number of matrices.
    pub(crate) count: usize,
}

impl<'a, T: Element> Matrices<'a, T> {
    /// Returns the matrices of a tensor with at least two dimensions.
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

    /// Returns the batch dimensions.
    pub(crate) fn batch(&self) -> &'a [usize] {
        &self.shape[..self.shape.rank().saturating_sub(2)]
    }

    /// Returns the elements of one matrix in row-major order.
    pub(crate) fn elements(&self, index: usize) -> &'a [T] {
        let size = self.rows * self.cols;
        &self.elements[index * size..][..size]
    }

    /// Returns one matrix.
    pub(crate) fn get(&self, index: usize) -> MatRef<'a, T> {
        MatRef::from_row_major_slice(self.elements(index), self.rows, self.cols)
    }

    /// Returns the batch dimensions followed by `last`.
    pub(crate) fn shape_with(&self, last: &[usize]) -> Shape {
        self.batch().iter().chain(last).copied().collect()
    }
}

impl<T: Real> Matrices<'_, T> {
    /// Returns whether all elements of one matrix are finite.
    pub(crate) fn is_finite(&self, index: usize) -> bool {
        self.elements(index).iter().all(|&x| x.into().is_finite())
    }

    /// Computes a result for each matrix, in parallel if it is worthwhile. Returns the first error by index.
    pub(crate) fn each<R: Send>(&self, compute: impl Fn(usize) -> Result<R> + Sync) -> Result<Vec<R>> {
        #[cfg(feature = "threads")]
        {
            use rayon::prelude::*;
            /// Minimum number of operations for which parallel tasks pay off.
            const WORTH_TASKS: usize = 1 << 20;
            let work = self.rows.saturating_mul(self.cols).saturating_mul(self.rows.min(self.cols));
            if self.count > 1 && work.saturating_mul(self.count) > WORTH_TASKS {
                // All results are collected first, so that the reported error does not depend on timing.
                let results: Vec<Result<R>> = (0..self.count).into_par_iter().map(&compute).collect();
                return results.into_iter().collect();
            }
        }
        (0..self.count).map(compute).collect()
    }

    /// Returns the error of a problem with one matrix.
    pub(crate) fn error(&self, op: &str, index: usize, problem: &str) -> Error {
        Error::value(op, format!("{} {problem}", place(self.batch(), index)))
    }

    /// Returns the error of a matrix that is not finite, on which an iteration cannot converge.
    pub(crate) fn not_finite(&self, op: &str, index: usize) -> Error {
        self.error(op, index, "contains NaN or infinity").hint("find non-finite elements with `is_finite`")
    }
}

/// The batch of complex matrices in the last two dimensions of two tensors, the real and imaginary parts.
#[derive(Clone, Copy)]
pub(crate) struct ComplexMatrices<'a, T> {
    /// The real parts.
    pub(crate) re: Matrices<'a, T>,
    /// The imaginary parts, of the same shape.
    pub(crate) im: Matrices<'a, T>,
}

impl<'a, T: Real> ComplexMatrices<'a, T> {
    /// Returns the matrices of tensors with at least two dimensions.
    pub(crate) fn of(re: &'a TensorData, im: &'a TensorData) -> Result<ComplexMatrices<'a, T>> {
        Ok(ComplexMatrices { re: Matrices::of(re)?, im: Matrices::of(im)? })
    }

    /// Returns one matrix.
    pub(crate) fn get(&self, index: usize) -> Mat<T::Complex> {
        let (re, im) = (self.re.get(index), self.im.get(index));
        Mat::from_fn(self.re.rows, self.re.cols, |i, j| T::complex(re[(i, j)], im[(i, j)]))
    }

    /// Returns whether both parts of all elements of one matrix are finite.
    pub(crate) fn is_finite(&self, index: usize) -> bool {
        self.re.is_finite(index) && self.im.is_finite(index)
    }
}

/// Describes the index of a matrix in a message.
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

/// The elements of a matrix in row-major order.
pub(crate) fn row_major<T: Copy>(matrix: MatRef<'_, T>) -> Vec<T> {
    let (rows, cols) = matrix.shape();
    let mut elements = Vec::with_capacity(rows * cols);
    for i in 0..rows {
        elements.extend((0..cols).map(|j| matrix[(i, j)]));
    }
    elements
}

/// The elements of the conjugate transpose of a matrix in row-major order.
pub(crate) fn adjoint_row_major<T: Scalar>(matrix: MatRef<'_, T>) -> Vec<T> {
    let (rows, cols) = matrix.shape();
    let mut elements = Vec::with_capacity(rows * cols);
    for j in 0..cols {
        elements.extend((0..rows).map(|i| conj(&matrix[(i, j)])));
    }
    elements
}

/// A matrix with ones on the diagonal.
pub(crate) fn identity<T: Scalar>(rows: usize, cols: usize) -> Mat<T> {
    Mat::from_fn(rows, cols, |i, j| T::of(f64::from(i == j)))
}

/// `count` NaNs.
pub(crate) fn nans<T: Scalar>(count: usize) -> Vec<T> {
    vec![T::of(f64::NAN); count]
}

/// Concatenates the results of all matrices to a tensor.
pub(crate) fn joined<T: Element>(
    parts: impl IntoIterator<Item = Vec<T>>,
    shape: Shape,
) -> Result<TensorData> {
    TensorData::new(parts.into_iter().flatten().collect(), shape)
}

/// Concatenates complex results of all matrices to tensors of real and imaginary parts.
pub(crate) fn joined_complex<T: Scalar>(parts: Vec<Vec<T>>, shape: Shape) -> Result<[TensorData; 2]> {
    let part = |of: fn(&T) -> T::Real| TensorData::new(parts.iter().flatten().map(of).collect(), shape);
    Ok([part(real)?, part(imag)?])
}

/// Unzips two results per matrix.
pub(crate) fn split<A, B>(pairs: Vec<(A, B)>) -> (Vec<A>, Vec<B>) {
    pairs.into_iter().unzip()
}
