//! Matrix norms, condition numbers and ranks.

use super::solve::count_above;
use crate::call::Call;
use crate::op::{self, run_one};
use crate::{MatrixNorm, Tolerance};
use kiln_ir::{Reduction, Result, TensorType, Var};
use kiln_tensor::AnyTensor;

/// See [`matrix_norm`](crate::matrix_norm).
///
/// # Errors
/// When the tensor has fewer than two dimensions, its dtype is not a float, or a maximum or minimum is taken over
/// matrices without elements.
#[doc(alias = "norm")]
pub fn matrix_norm(a: AnyTensor, norm: MatrixNorm) -> Result<AnyTensor> {
    let call = Call::new("matrix_norm", &[&a])?;
    let (rows, cols) = call.matrix(0)?;
    let is_sum = matches!(norm, MatrixNorm::Frobenius | MatrixNorm::Nuclear);
    if !is_sum && (rows == 0 || cols == 0) {
        return Err(call
            .error("matrices without elements have no greatest or least")
            .hint("the Frobenius and the nuclear norm of such matrices is 0"));
    }
    let result = norm_of(&call.var(&a), norm)?;
    Ok(call.done(result))
}

/// The norm of each matrix, `[..]`.
fn norm_of<'e>(a: &Var<'e>, norm: MatrixNorm) -> Result<Var<'e>> {
    let (rows, cols) = (a.rank() - 2, a.rank() - 1);
    let sums = |along: usize, reduction: Reduction, rest: usize| {
        let extreme = a.abs().sum(&[along]).reduce(reduction, &[rest]);
        extreme.reshape(a.shape().without(cols).without(rows))
    };
    Ok(match norm {
        MatrixNorm::Frobenius => {
            let squares = a.square().sum(&[rows, cols]).reshape(a.shape().without(cols).without(rows));
            root(&squares)
        }
        MatrixNorm::Nuclear => {
            let values = run_one(op::Svdvals, &[a])?;
            values.sum(&[rows]).reshape(values.shape().without(rows))
        }
        MatrixNorm::Spectral => singular_value(a, Reduction::Max)?,
        MatrixNorm::LeastSingularValue => singular_value(a, Reduction::Min)?,
        MatrixNorm::GreatestColumnSum => sums(rows, Reduction::Max, cols),
        MatrixNorm::LeastColumnSum => sums(rows, Reduction::Min, cols),
        MatrixNorm::GreatestRowSum => sums(cols, Reduction::Max, rows),
        MatrixNorm::LeastRowSum => sums(cols, Reduction::Min, rows),
    })
}

/// Square root with gradient 0 at 0.
fn root<'e>(x: &Var<'e>) -> Var<'e> {
    let is_zero = x.equal(&x.scalar(0.0));
    is_zero.select(&x.scalar(0.0), &is_zero.select(&x.scalar(1.0), x).sqrt())
}

fn singular_value<'e>(a: &Var<'e>, which: Reduction) -> Result<Var<'e>> {
    let values = run_one(op::Svdvals, &[a])?;
    let axis = values.rank() - 1;
    Ok(values.reduce(which, &[axis]).reshape(values.shape().without(axis)))
}

/// See [`cond`](crate::cond).
///
/// # Errors
/// When the tensor has fewer than two dimensions, its dtype is not a float, or matrices are not square for a norm that
/// is not computed from singular values.
pub fn cond(a: AnyTensor, norm: MatrixNorm) -> Result<AnyTensor> {
    let call = Call::new("cond", &[&a])?;
    let (rows, cols) = call.matrix(0)?;
    let by_values = matches!(norm, MatrixNorm::Spectral | MatrixNorm::LeastSingularValue);
    if !by_values {
        call.square(0)?;
    }
    let x = call.var(&a);
    if rows == 0 || cols == 0 {
        let shape = x.shape().without(x.rank() - 1).without(x.rank() - 2);
        return Ok(call.done(Var::zeros(x.engine(), TensorType::new(shape, x.dtype()))));
    }
    let result = match norm {
        MatrixNorm::Spectral | MatrixNorm::LeastSingularValue => {
            let greatest = singular_value(&x, Reduction::Max)?;
            let least = singular_value(&x, Reduction::Min)?;
            if norm == MatrixNorm::Spectral { greatest / least } else { least / greatest }
        }
        // The inverse of a singular matrix has no singular values to sum.
        MatrixNorm::Nuclear => {
            let values = run_one(op::Svdvals, &[&x])?;
            let axis = values.rank() - 1;
            (values.sum(&[axis]) * values.recip().sum(&[axis])).reshape(values.shape().without(axis))
        }
        MatrixNorm::Frobenius
        | MatrixNorm::GreatestColumnSum
        | MatrixNorm::LeastColumnSum
        | MatrixNorm::GreatestRowSum
        | MatrixNorm::LeastRowSum => {
            let inverse = run_one(op::Inverse { infinite: true }, &[&x])?;
            norm_of(&x, norm)? * norm_of(&inverse, norm)?
        }
    };
    Ok(call.done(result))
}

/// See [`matrix_rank`](crate::matrix_rank).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float. A matrix with NaN or infinity is reported
/// when the result is read.
pub fn matrix_rank(a: AnyTensor, tolerance: Tolerance) -> Result<AnyTensor> {
    let call = Call::new("matrix_rank", &[&a])?;
    let (rows, cols) = call.matrix(0)?;
    let (absolute, relative) = tolerance.resolve(rows, cols, call.epsilon());
    let values = run_one(op::Svdvals, &[&call.var(&a)])?;
    Ok(call.integers(count_above(&values, absolute, relative)))
}
