//! The ops of complex matrices. Outputs are real and imaginary parts along a last axis.

use super::{Call, column, diagonal, first, row, square, sum_last, transpose, uplo};
use kiln_ir::{Binary, Unary};
use kiln_linalg::any::complex;
use kiln_linalg::{QrMode, Side, Triangle};
use kiln_tensor::{AnyComplex, AnyTensor, Result};

pub(super) fn compute(call: &Call<'_>, op: &str) -> Result<Vec<AnyTensor>> {
    let operand = |name: &str| {
        let part = |part: &str| call.input(&format!("{name}_{part}")).clone();
        AnyComplex::new(part("re"), part("im"))
    };
    let triangle = || if call.flag("upper") { Triangle::Upper } else { Triangle::Lower };
    let side = || if call.flag("left") { Side::Left } else { Side::Right };
    let a = operand("a")?;
    let y = match op {
        "solve" => complex::solve(a, operand("b")?, side())?,
        "solve_triangular" => {
            let unit = call.flag("unitriangular");
            complex::solve_triangular(a, operand("b")?, triangle(), side(), unit)?
        }
        "inverse" => complex::inverse(a)?,
        "det" => complex::det(a)?,
        "slogdet" => {
            let (sign, log) = complex::slogdet(a)?;
            let sign = sign.into_interleaved()?;
            return Ok(if call.text("first") == "log" { vec![log, sign] } else { vec![sign, log] });
        }
        "spd_cholesky" => complex::cholesky(positive(a)?, triangle())?,
        "qr" => qr(call, a)?,
        "svd" => return svd(call, a),
        "svd_vectors" => {
            let (u, _, vh) = complex::svd(a, false)?;
            return Ok(vec![squares(if call.text("side") == "u" { u } else { vh })?]);
        }
        "svdvals" => return Ok(vec![complex::svdvals(a)?]),
        "sym_eigh" => return eigh(call, a),
        "sym_eigvalsh" => return Ok(vec![complex::eigvalsh(hermitian(a)?, uplo(call))?]),
        "eig" => {
            let (w, v) = complex::eig(a)?;
            let weights = w.re().clone().add(w.im().clone())?.add(squares(w)?)?;
            return Ok(vec![sum_last(squares(v)?.mul(row(weights)?)?)?]);
        }
        "eigvals" => return eigvals(a),
        op => panic!("unknown op complex_{op}"),
    };
    Ok(vec![y.into_interleaved()?])
}

fn adjoint(x: AnyComplex) -> Result<AnyComplex> {
    x.each(transpose)?.conj()
}

/// `x + xᴴ`.
fn hermitian(x: AnyComplex) -> Result<AnyComplex> {
    x.clone().add(adjoint(x)?)
}

/// `x xᴴ + 1`.
fn positive(x: AnyComplex) -> Result<AnyComplex> {
    let (re, im) = x.clone().matmul(adjoint(x)?)?.into_parts();
    let identity = kiln_linalg::any::matrix_power(re.clone().detach(), 0)?;
    AnyComplex::new(re.add(identity)?, im)
}

/// The squared magnitudes of the elements.
fn squares(x: AnyComplex) -> Result<AnyTensor> {
    let (re, im) = x.into_parts();
    square(re)?.add(square(im)?)
}

/// `Q` (its first columns) or `R`, whose diagonal is positive already.
fn qr(call: &Call<'_>, a: AnyComplex) -> Result<AnyComplex> {
    let mode = if call.text("mode") == "complete" { QrMode::Complete } else { QrMode::Reduced };
    let (rank, k) = (a.shape().rank(), a.shape()[a.shape().rank() - 2].min(a.shape()[a.shape().rank() - 1]));
    let (q, r) = complex::qr(a, mode)?;
    let numbers = diagonal(r.re().clone().detach())?.into_data()?.convert(kiln_tensor::DType::F64);
    assert!(numbers.to_vec::<f64>().iter().all(|&x| x >= 0.0), "the diagonal of R is not negative");
    if call.text("first") == "q" { q.each(|part| first(part, rank - 1, k)) } else { Ok(r) }
}

/// `U diag(s² + 1) Vᴴ`, and the values.
fn svd(call: &Call<'_>, a: AnyComplex) -> Result<Vec<AnyTensor>> {
    let (u, s, vh) = complex::svd(a, call.flag("full"))?;
    let (rank, k) = (u.shape().rank(), s.shape()[s.rank() - 1]);
    let weights = row(square(s.clone())?.binary_scalar(Binary::Add, 1.0)?)?;
    let left = u.each(|part| first(part, rank - 1, k)?.mul(weights.clone()))?;
    let right = vh.each(|part| first(part, rank - 2, k))?;
    Ok(vec![left.matmul(right)?.into_interleaved()?, s])
}

/// `V diag(sin w) Vᴴ`, and the values.
fn eigh(call: &Call<'_>, a: AnyComplex) -> Result<Vec<AnyTensor>> {
    let (w, v) = complex::eigh(hermitian(a)?, uplo(call))?;
    let weights = row(w.clone().unary(Unary::Sin)?)?;
    let left = v.clone().each(|part| part.mul(weights.clone()))?;
    Ok(vec![left.matmul(adjoint(v)?)?.into_interleaved()?, w])
}

/// The sums of `w` and of `w²`, real and imaginary parts.
fn eigvals(a: AnyComplex) -> Result<Vec<AnyTensor>> {
    let w = complex::eigvals(a)?;
    let sums = |x: AnyComplex| -> Result<[AnyTensor; 2]> {
        let (re, im) = x.into_parts();
        Ok([column(sum_last(re)?)?, column(sum_last(im)?)?])
    };
    let parts = [sums(w.clone())?, sums(w.clone().mul(w)?)?].concat();
    let axis = parts[0].rank() - 1;
    Ok(vec![AnyTensor::cat(parts, axis)?])
}
