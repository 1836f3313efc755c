//! The functions of complex matrices for tensors whose rank and dtype are known at run time.
//!
//! Each has the semantics of the function of the same name in [`complex`](mod@crate::complex), and returns an error for
//! an invalid shape or dtype. Messages show the type of the real parts.

use super::solve::{check_rows, is_vector};
use crate::call::Call;
use crate::matrix::as_column;
use crate::matrix::complex::Complex;
use crate::op;
use crate::{QrMode, Side, Triangle};
use kiln_ir::Result;
use kiln_tensor::{AnyComplex, AnyTensor};

/// Checks complex operands and returns a call, which stores the types of the real parts.
fn call(name: &'static str, operands: &[&AnyComplex]) -> Result<Call> {
    let re: Vec<&AnyTensor> = operands.iter().map(|operand| operand.re()).collect();
    Call::new(name, &re)
}

/// Returns an operand as an expression.
fn expression<'c>(call: &'c Call, x: &AnyComplex) -> Complex<'c> {
    Complex::new(call.var(x.re()), call.var(x.im()))
}

/// Converts an expression to the result.
fn done(call: &Call, x: Complex<'_>) -> Result<AnyComplex> {
    AnyComplex::new(call.done(x.re), call.done(x.im))
}

/// See [`complex::solve`](crate::complex::solve).
///
/// # Errors
/// When the matrices are not square, sizes differ, batch dimensions do not broadcast, or dtypes differ. A singular
/// matrix is reported when the result is read.
pub fn solve(a: AnyComplex, b: AnyComplex, side: Side) -> Result<AnyComplex> {
    let call = call("solve", &[&a, &b])?;
    let n = call.square(0)?;
    let is_vector = is_vector(a.shape(), b.shape());
    let length = b.shape().last().copied().unwrap_or(0);
    let (a, b) = (expression(&call, &a), expression(&call, &b));
    if is_vector {
        check_rows(&call, n, length)?;
        // A row vector times the matrix is the transposed matrix times the column vector.
        let a = if side == Side::Left { a } else { a.transpose() };
        let (a, column) = together(&call, &a, &b.each(as_column))?;
        let x = a.solve(&column)?;
        return done(&call, x.each(|part| part.reshape(part.shape().without(part.rank() - 1))));
    }
    let x = on_side(&call, a, b, side, n, |a, b| a.solve(b))?;
    done(&call, x)
}

/// Broadcasts the batch dimensions of both.
fn together<'c>(call: &'c Call, a: &Complex<'c>, b: &Complex<'c>) -> Result<(Complex<'c>, Complex<'c>)> {
    let (a_re, b_re) = call.together(&a.re, &b.re)?;
    let (a_im, b_im) = call.together(&a.im, &b.im)?;
    Ok((Complex::new(a_re, a_im), Complex::new(b_re, b_im)))
}

/// Solves `A X = B`, or `X A = B` by transposing.
fn on_side<'c>(
    call: &'c Call,
    a: Complex<'c>,
    b: Complex<'c>,
    side: Side,
    n: usize,
    solve: impl FnOnce(&Complex<'c>, &Complex<'c>) -> Result<Complex<'c>>,
) -> Result<Complex<'c>> {
    let (rows, cols) = call.matrix(1)?;
    match side {
        Side::Left => {
            check_rows(call, n, rows)?;
            let (a, b) = together(call, &a, &b)?;
            solve(&a, &b)
        }
        Side::Right => {
            check_rows(call, n, cols)?;
            let (a, b) = together(call, &a.transpose(), &b.transpose())?;
            Ok(solve(&a, &b)?.transpose())
        }
    }
}

/// See [`complex::solve_triangular`](crate::complex::solve_triangular).
///
/// # Errors
/// When the matrices are not square, sizes differ, batch dimensions do not broadcast, or dtypes differ.
#[doc(alias = "triangular_solve")]
pub fn solve_triangular(
    a: AnyComplex,
    b: AnyComplex,
    triangle: Triangle,
    side: Side,
    unit_diagonal: bool,
) -> Result<AnyComplex> {
    let call = call("solve_triangular", &[&a, &b])?;
    let n = call.square(0)?;
    let upper = triangle.is_upper() != (side == Side::Right);
    let solve = op::ComplexOp(op::SolveTriangular { upper, unit: unit_diagonal });
    let (a, b) = (expression(&call, &a), expression(&call, &b));
    let x = on_side(&call, a, b, side, n, |a, b| Complex::run_one(solve, &[a, b]))?;
    done(&call, x)
}

/// See [`complex::inverse`](crate::complex::inverse).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A singular matrix is reported when the result is read.
#[doc(alias = "inv")]
pub fn inverse(a: AnyComplex) -> Result<AnyComplex> {
    let call = call("inverse", &[&a])?;
    call.square(0)?;
    done(&call, Complex::run_one(op::ComplexOp(op::Inverse { infinite: false }), &[&expression(&call, &a)])?)
}

/// See [`complex::det`](crate::complex::det).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn det(a: AnyComplex) -> Result<AnyComplex> {
    let call = call("det", &[&a])?;
    call.square(0)?;
    done(&call, Complex::run_one(op::ComplexOp(op::Det), &[&expression(&call, &a)])?)
}

/// See [`complex::slogdet`](crate::complex::slogdet).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn slogdet(a: AnyComplex) -> Result<(AnyComplex, AnyTensor)> {
    let call = call("slogdet", &[&a])?;
    call.square(0)?;
    let parts = Complex::run(op::ComplexOp(op::Slogdet), &[&expression(&call, &a)])?;
    Ok((done(&call, Complex::at(&parts, 0))?, call.done(parts[2].clone())))
}

/// See [`complex::cholesky`](crate::complex::cholesky).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix that is not positive definite is reported
/// when the result is read.
#[doc(alias = "cho_factor")]
pub fn cholesky(a: AnyComplex, triangle: Triangle) -> Result<AnyComplex> {
    let call = call("cholesky", &[&a])?;
    call.square(0)?;
    let factor =
        Complex::run_one(op::ComplexOp(op::Cholesky), &[&read_from(&expression(&call, &a), triangle)])?;
    done(&call, if triangle.is_upper() { factor.adjoint() } else { factor })
}

/// The Hermitian matrix whose lower triangle is read.
fn read_from<'e>(a: &Complex<'e>, triangle: Triangle) -> Complex<'e> {
    match triangle {
        Triangle::Lower => a.clone(),
        Triangle::Upper => a.adjoint(),
    }
}

/// See [`complex::qr`](crate::complex::qr).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float.
pub fn qr(a: AnyComplex, mode: QrMode) -> Result<(AnyComplex, AnyComplex)> {
    let call = call("qr", &[&a])?;
    call.matrix(0)?;
    let qr = op::ComplexOp(op::Qr { complete: mode == QrMode::Complete });
    let parts = Complex::run(qr, &[&expression(&call, &a)])?;
    Ok((done(&call, Complex::at(&parts, 0))?, done(&call, Complex::at(&parts, 2))?))
}

/// See [`complex::qr_r`](crate::complex::qr_r).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float.
#[doc(alias = "qr")]
pub fn qr_r(a: AnyComplex) -> Result<AnyComplex> {
    qr(a, QrMode::Reduced).map(|(_, r)| r)
}

/// See [`complex::svd`](crate::complex::svd).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float. A matrix with NaN or infinity is reported
/// when a result is read.
pub fn svd(a: AnyComplex, full: bool) -> Result<(AnyComplex, AnyTensor, AnyComplex)> {
    let call = call("svd", &[&a])?;
    call.matrix(0)?;
    let parts = Complex::run(op::ComplexOp(op::Svd { full }), &[&expression(&call, &a)])?;
    let (u, v) = (done(&call, Complex::at(&parts, 0))?, done(&call, Complex::at(&parts, 3))?);
    Ok((u, call.done(parts[2].clone()), v))
}

/// See [`complex::svdvals`](crate::complex::svdvals).
///
/// # Errors
/// See [`svd`].
pub fn svdvals(a: AnyComplex) -> Result<AnyTensor> {
    let call = call("svdvals", &[&a])?;
    call.matrix(0)?;
    let parts = Complex::run(op::ComplexOp(op::Svdvals), &[&expression(&call, &a)])?;
    Ok(call.done(parts[0].clone()))
}

/// See [`complex::eigh`](crate::complex::eigh).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix with NaN or infinity is reported when a
/// result is read.
pub fn eigh(a: AnyComplex, triangle: Triangle) -> Result<(AnyTensor, AnyComplex)> {
    let call = call("eigh", &[&a])?;
    call.square(0)?;
    let parts = Complex::run(op::ComplexOp(op::Eigh), &[&read_from(&expression(&call, &a), triangle)])?;
    Ok((call.done(parts[0].clone()), done(&call, Complex::at(&parts, 1))?))
}

/// See [`complex::eigvalsh`](crate::complex::eigvalsh).
///
/// # Errors
/// See [`eigh`].
pub fn eigvalsh(a: AnyComplex, triangle: Triangle) -> Result<AnyTensor> {
    let call = call("eigvalsh", &[&a])?;
    call.square(0)?;
    let parts = Complex::run(op::ComplexOp(op::Eigvalsh), &[&read_from(&expression(&call, &a), triangle)])?;
    Ok(call.done(parts[0].clone()))
}

/// See [`complex::eig`](crate::complex::eig).
///
/// # Errors
/// See [`eigh`].
pub fn eig(a: AnyComplex) -> Result<(AnyComplex, AnyComplex)> {
    let call = call("eig", &[&a])?;
    call.square(0)?;
    let parts = Complex::run(op::ComplexOp(op::Eig), &[&expression(&call, &a)])?;
    Ok((done(&call, Complex::at(&parts, 0))?, done(&call, Complex::at(&parts, 2))?))
}

/// See [`complex::eigvals`](crate::complex::eigvals).
///
/// # Errors
/// See [`eigh`].
pub fn eigvals(a: AnyComplex) -> Result<AnyComplex> {
    let call = call("eigvals", &[&a])?;
    call.square(0)?;
    // Without vectors, values could be in another order than in the gradient, which needs the vectors.
    let parts = Complex::run(op::ComplexOp(op::Eig), &[&expression(&call, &a)])?;
    done(&call, Complex::at(&parts, 0))
}
