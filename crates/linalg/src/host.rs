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

/// A scalar type whose matrices tensors store. Complex ones are a tensor of real and one of imaginary parts.
pub(crate) trait Number: Scalar {
    /// The type of the elements of tensors.
    type Part: Real + Number;
    /// The complex type with these parts.
    type Complex: Number;

    /// Returns a matrix from its parts in row-major order.
    fn matrix<'a>(re: &'a [Self::Part], im: &'a [Self::Part], rows: usize, cols: usize) -> Matrix<'a, Self>;

    /// Concatenates the results of all matrices to a tensor for each part.
    fn joined(results: Vec<Vec<Self>>, shape: Shape) -> Result<Vec<TensorData>>;
}

/// A real scalar type of the kernels.
pub(crate) trait Real: Element + RealField + Into<f64> + Scalar {}

/// A matrix of real elements in a tensor, or of complex elements from two tensors.
pub(crate) enum Matrix<'a, T> {
    View(MatRef<'a, T>),
    Owned(Mat<T>),
}

impl<T> Matrix<'_, T> {
    pub(crate) fn as_ref(&self) -> MatRef<'_, T> {
        match self {
            Matrix::View(matrix) => *matrix,
            Matrix::Owned(matrix) => matrix.as_ref(),
        }
    }
}

macro_rules! numbers {
    ($($real:ident $complex:ident;)*) => {$(
        impl Real for $real {}

        impl Number for $real {
            type Part = $real;
            type Complex = $complex;

            fn matrix<'a>(re: &'a [$real], _im: &'a [$real], rows: usize, cols: usize) -> Matrix<'a, $real> {
                Matrix::View(MatRef::from_row_major_slice(re, rows, cols))
            }

            fn joined(results: Vec<Vec<$real>>, shape: Shape) -> Result<Vec<TensorData>> {
                Ok(vec![joined(results, shape)?])
            }
        }

        impl Number for $complex {
            type Part = $real;
            type Complex = $complex;

            fn matrix<'a>(re: &'a [$real], im: &'a [$real], rows: usize, cols: usize) -> Matrix<'a, $complex> {
                let element = |i: usize, j: usize| $complex::new(re[i * cols + j], im[i * cols + j]);
                Matrix::Owned(Mat::from_fn(rows, cols, element))
            }

            fn joined(results: Vec<Vec<$complex>>, shape: Shape) -> Result<Vec<TensorData>> {
                let part = |of: fn(&$complex) -> $real| {
                    TensorData::new(results.iter().flatten().map(of).collect(), shape)
                };
                Ok(vec![part(real)?, part(imag)?])
            }
        }
    )*};
}

numbers! {
    f32 c32;
    f64 c64;
}

/// The batch of matrices in the last two dimensions of an operand.
#[derive(Clone, Copy)]
pub(crate) struct Matrices<'a, T: Number> {
    re: &'a [T::Part],
    /// Empty for real matrices.
    im: &'a [T::Part],
    shape: &'a Shape,
    /// Number of rows of each matrix.
    pub(crate) rows: usize,
    /// Number of columns of each matrix.
    pub(crate) cols: usize,
    /// Number of matrices.
    pub(crate) count: usize,
}

impl<'a, T: Number> Matrices<'a, T> {
    /// Returns the matrices of an operand with at least two dimensions. The operands are all real parts, and for
    /// complex matrices then all imaginary parts.
    pub(crate) fn of(operands: &'a [TensorData], place: usize) -> Result<Matrices<'a, T>> {
        let shape = operands[place].shape();
        let outer = shape.rank().saturating_sub(2);
        let length = |axis: usize| shape.get(axis).copied().unwrap_or(1);
        Ok(Matrices {
            re: operands[place].as_slice()?,
            im: if T::IS_REAL { &[] } else { operands[operands.len() / 2 + place].as_slice()? },
            shape,
            rows: length(outer),
            cols: length(outer + 1),
            count: shape[..outer].iter().product(),
        })
    }

    /// Returns the batch dimensions.
    fn batch(&self) -> &'a [usize] {
        &self.shape[..self.shape.rank().saturating_sub(2)]
    }

    /// Returns the elements of one matrix in row-major order; none for absent imaginary parts.
    fn elements(&self, part: &'a [T::Part], index: usize) -> &'a [T::Part] {
        let size = self.rows * self.cols;
        part.get(index * size..(index + 1) * size).unwrap_or_default()
    }

    /// Returns one matrix.
    pub(crate) fn get(&self, index: usize) -> Matrix<'a, T> {
        T::matrix(self.elements(self.re, index), self.elements(self.im, index), self.rows, self.cols)
    }

    /// Returns the batch dimensions followed by `last`.
    pub(crate) fn shape_with(&self, last: &[usize]) -> Shape {
        self.batch().iter().chain(last).copied().collect()
    }

    /// Returns whether all elements of one matrix are finite.
    pub(crate) fn is_finite(&self, index: usize) -> bool {
        let parts = [self.re, self.im];
        parts.iter().all(|part| self.elements(part, index).iter().all(|&x| x.into().is_finite()))
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

    /// Computes a result for each matrix by an iteration, which returns `None` if it does not converge.
    pub(crate) fn each_converged<R: Send>(
        &self,
        op: &str,
        compute: impl Fn(usize) -> Option<R> + Sync,
    ) -> Result<Vec<R>> {
        self.each(|index| {
            if !self.is_finite(index) {
                let error = self.error(op, index, "contains NaN or infinity");
                return Err(error.hint("find non-finite elements with `is_finite`"));
            }
            compute(index).ok_or_else(|| {
                self.error(op, index, "the iteration did not converge")
                    .hint("scale the matrix so that its elements are near 1, or use f64")
            })
        })
    }

    /// Returns the error of a problem with one matrix.
    pub(crate) fn error(&self, op: &str, index: usize, problem: &str) -> Error {
        Error::value(op, format!("{} {problem}", place(self.batch(), index)))
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

/// Lists the tensors of several results.
pub(crate) fn listed<const N: usize>(results: [Vec<TensorData>; N]) -> Vec<TensorData> {
    results.into_iter().flatten().collect()
}

/// Unzips two results per matrix.
pub(crate) fn split<A, B>(pairs: Vec<(A, B)>) -> (Vec<A>, Vec<B>) {
    pairs.into_iter().unzip()
}
