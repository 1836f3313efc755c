//! The functions of `kiln_linalg::any::complex`. Operands and results are real and imaginary parts, one after the other.

use super::{columns_times, graded, noise, transposed};
use crate::methods::{Method, normal};
use kiln_ir::{SliceAxis, Unary};
use kiln_linalg::any::complex;
use kiln_linalg::{QrMode, Side, Triangle};
use kiln_tensor::{AnyComplex, AnyTensor, Result};

pub(super) fn rows() -> Vec<Method> {
    [equations(), determinants(), factors(), eigenvalues()].concat()
}

fn equations() -> Vec<Method> {
    vec![
        Method::new("linalg::complex::solve", |x| {
            one(complex::solve(regular(x)?, operand(x, 1)?, Side::Left)?)
        })
        .on(&[noise(&[3, 3]), noise(&[3, 3]), normal(&[3, 2]), normal(&[3, 2])])
        .on(&[noise(&[2, 1, 3, 3]), noise(&[2, 1, 3, 3]), normal(&[2, 3, 1]), normal(&[2, 3, 1])])
        .on(&[noise(&[3, 3]), noise(&[3, 3]), normal(&[3]), normal(&[3])])
        .on(&[noise(&[2, 3, 3]), noise(&[2, 3, 3]), normal(&[2, 3]), normal(&[2, 3])])
        .on(&[noise(&[1, 1]), noise(&[1, 1]), normal(&[1, 1]), normal(&[1, 1])])
        .on(&[noise(&[0, 3, 3]), noise(&[0, 3, 3]), normal(&[0, 3, 2]), normal(&[0, 3, 2])])
        .on(&[noise(&[0, 0]), noise(&[0, 0]), normal(&[0, 2]), normal(&[0, 2])]),
        Method::new("linalg::complex::solve", |x| {
            one(complex::solve(regular(x)?, operand(x, 1)?, Side::Right)?)
        })
        .variant("right")
        .on(&[noise(&[2, 3, 3]), noise(&[2, 3, 3]), normal(&[2, 1, 3]), normal(&[2, 1, 3])])
        .on(&[noise(&[3, 3]), noise(&[3, 3]), normal(&[3]), normal(&[3])]),
        Method::new("linalg::complex::solve_triangular", |x| {
            let (a, b) = (regular(x)?, operand(x, 1)?);
            one(complex::solve_triangular(a, b, Triangle::Lower, Side::Left, false)?)
        })
        .on(&[noise(&[3, 3]), noise(&[3, 3]), normal(&[3, 2]), normal(&[3, 2])])
        .on(&[noise(&[3, 3]), noise(&[3, 3]), normal(&[2, 3, 1]), normal(&[2, 3, 1])])
        .on(&[noise(&[2, 0, 0]), noise(&[2, 0, 0]), normal(&[2, 0, 1]), normal(&[2, 0, 1])]),
        Method::new("linalg::complex::solve_triangular", |x| {
            let (a, b) = (operand(x, 0)?, operand(x, 1)?);
            one(complex::solve_triangular(a, b, Triangle::Upper, Side::Right, true)?)
        })
        .variant("unit diagonal, upper, right")
        .on(&[noise(&[3, 3]), noise(&[3, 3]), normal(&[2, 3]), normal(&[2, 3])]),
        Method::new("linalg::complex::inverse", |x| one(complex::inverse(regular(x)?)?))
            .on(&[noise(&[3, 3]), noise(&[3, 3])])
            .on(&[noise(&[2, 1, 1]), noise(&[2, 1, 1])])
            .on(&[noise(&[0, 3, 3]), noise(&[0, 3, 3])])
            .on(&[noise(&[2, 0, 0]), noise(&[2, 0, 0])]),
    ]
}

fn determinants() -> Vec<Method> {
    vec![
        Method::new("linalg::complex::det", |x| one(complex::det(operand(x, 0)?)?))
            .on(&[normal(&[3, 3]), normal(&[3, 3])])
            .on(&[normal(&[1, 1]), normal(&[1, 1])])
            .on(&[normal(&[2, 2, 2]), normal(&[2, 2, 2])])
            .on(&[normal(&[0, 3, 3]), normal(&[0, 3, 3])])
            .on(&[normal(&[2, 0, 0]), normal(&[2, 0, 0])]),
        Method::new("linalg::complex::slogdet", |x| {
            let (sign, log) = complex::slogdet(operand(x, 0)?)?;
            Ok([one(sign)?, vec![log]].concat())
        })
        .on(&[normal(&[3, 3]), normal(&[3, 3])])
        .on(&[normal(&[2, 2, 2]), normal(&[2, 2, 2])])
        .on(&[normal(&[2, 0, 0]), normal(&[2, 0, 0])]),
    ]
}

fn factors() -> Vec<Method> {
    vec![
        Method::new("linalg::complex::cholesky", |x| one(complex::cholesky(positive(x)?, Triangle::Lower)?))
            .on(&[noise(&[3, 3]), noise(&[3, 3])])
            .on(&[noise(&[2, 1, 1]), noise(&[2, 1, 1])])
            .on(&[noise(&[0, 3, 3]), noise(&[0, 3, 3])])
            .on(&[noise(&[2, 0, 0]), noise(&[2, 0, 0])])
            .within(64.0),
        Method::new("linalg::complex::cholesky", |x| one(complex::cholesky(positive(x)?, Triangle::Upper)?))
            .variant("upper")
            .on(&[noise(&[2, 3, 3]), noise(&[2, 3, 3])])
            .within(64.0),
        Method::new("linalg::complex::qr", |x| both(complex::qr(operand(x, 0)?, QrMode::Reduced)?))
            .on(&[normal(&[4, 3]), normal(&[4, 3])])
            .on(&[normal(&[2, 3, 3]), normal(&[2, 3, 3])])
            .on(&[normal(&[1, 1]), normal(&[1, 1])])
            .on(&[normal(&[0, 4, 3]), normal(&[0, 4, 3])])
            .on(&[normal(&[0, 0]), normal(&[0, 0])]),
        Method::new("linalg::complex::qr", |x| both(complex::qr(operand(x, 0)?, QrMode::Complete)?))
            .variant("complete, wide")
            .on(&[normal(&[3, 5]), normal(&[3, 5])]),
        Method::new("linalg::complex::qr", |x| both(complex::qr(operand(x, 0)?, QrMode::Complete)?))
            .variant("complete, tall")
            .on(&[normal(&[2, 4, 2]), normal(&[2, 4, 2])])
            .no_gradient("the last columns of `Q` are not determined"),
        Method::new("linalg::complex::qr_r", |x| one(complex::qr_r(operand(x, 0)?)?))
            .on(&[normal(&[2, 4, 3]), normal(&[2, 4, 3])])
            .on(&[normal(&[2, 3]), normal(&[2, 3])])
            .on(&[normal(&[0, 3]), normal(&[0, 3])]),
        Method::new("linalg::complex::svd", |x| singular(complex::svd(operand(x, 0)?, false)?))
            .on(&[normal(&[3, 3]), normal(&[3, 3])])
            .on(&[normal(&[4, 2]), normal(&[4, 2])])
            .on(&[normal(&[2, 2, 4]), normal(&[2, 2, 4])])
            .on(&[normal(&[1, 1]), normal(&[1, 1])])
            .on(&[normal(&[0, 3, 3]), normal(&[0, 3, 3])])
            .on(&[normal(&[0, 3]), normal(&[0, 3])])
            .within(64.0),
        Method::new("linalg::complex::svd", |x| {
            let (u, s, vh) = complex::svd(operand(x, 0)?, true)?;
            // The other columns of `U` are an arbitrary orthonormal completion.
            let u = u.each(|part| part.slice_axis(1, SliceAxis { start: 0, len: 2, step: 1 }))?;
            singular((u, s, vh))
        })
        .variant("full")
        .on(&[normal(&[4, 2]), normal(&[4, 2])])
        .within(64.0),
        Method::new("linalg::complex::svd", |x| {
            let (u, _, _) = complex::svd(operand(x, 0)?, false)?;
            Ok(vec![squares(u)?])
        })
        .variant("left vectors")
        .on(&[normal(&[3, 2]), normal(&[3, 2])])
        .within(64.0),
        Method::new("linalg::complex::svd", |x| {
            let (_, _, vh) = complex::svd(operand(x, 0)?, false)?;
            Ok(vec![squares(vh)?])
        })
        .variant("right vectors")
        .on(&[normal(&[3, 3]), normal(&[3, 3])])
        .within(64.0),
        Method::new("linalg::complex::svdvals", |x| Ok(vec![complex::svdvals(operand(x, 0)?)?]))
            .on(&[normal(&[3, 4]), normal(&[3, 4])])
            .on(&[normal(&[2, 3, 3]), normal(&[2, 3, 3])])
            .on(&[normal(&[2, 0, 0]), normal(&[2, 0, 0])]),
    ]
}

fn eigenvalues() -> Vec<Method> {
    vec![
        Method::new("linalg::complex::eigh", |x| spectral(complex::eigh(hermitian(x)?, Triangle::Lower)?))
            .on(&[normal(&[3, 3]), normal(&[3, 3])])
            .on(&[normal(&[2, 2, 2]), normal(&[2, 2, 2])])
            .on(&[normal(&[1, 1]), normal(&[1, 1])])
            .on(&[normal(&[0, 3, 3]), normal(&[0, 3, 3])])
            .on(&[normal(&[2, 0, 0]), normal(&[2, 0, 0])])
            .within(64.0),
        Method::new("linalg::complex::eigh", |x| spectral(complex::eigh(hermitian(x)?, Triangle::Upper)?))
            .variant("upper")
            .on(&[normal(&[3, 3]), normal(&[3, 3])])
            .within(64.0),
        Method::new("linalg::complex::eigvalsh", |x| {
            Ok(vec![complex::eigvalsh(hermitian(x)?, Triangle::Lower)?])
        })
        .on(&[normal(&[2, 3, 3]), normal(&[2, 3, 3])])
        .on(&[normal(&[0, 0]), normal(&[0, 0])]),
        Method::new("linalg::complex::eigvalsh", |x| {
            Ok(vec![complex::eigvalsh(hermitian(x)?, Triangle::Upper)?])
        })
        .variant("upper")
        .on(&[normal(&[3, 3]), normal(&[3, 3])]),
        Method::new("linalg::complex::eig", |x| {
            let (w, v) = complex::eig(regular(x)?)?;
            Ok([one(w)?, vec![squares(v)?]].concat())
        })
        .on(&[noise(&[4, 4]), noise(&[4, 4])])
        .on(&[noise(&[1, 1]), noise(&[1, 1])])
        .on(&[noise(&[0, 3, 3]), noise(&[0, 3, 3])])
        .on(&[noise(&[2, 0, 0]), noise(&[2, 0, 0])]),
        Method::new("linalg::complex::eigvals", |x| one(complex::eigvals(regular(x)?)?))
            .on(&[noise(&[3, 3]), noise(&[3, 3])])
            .on(&[noise(&[2, 2, 2]), noise(&[2, 2, 2])])
            .on(&[noise(&[0, 3, 3]), noise(&[0, 3, 3])]),
    ]
}

/// The complex operand at an index.
fn operand(x: &[AnyTensor], place: usize) -> Result<AnyComplex> {
    AnyComplex::new(x[2 * place].clone(), x[2 * place + 1].clone())
}

/// The first operand, made well-conditioned.
fn regular(x: &[AnyTensor]) -> Result<AnyComplex> {
    AnyComplex::new(graded(&x[0])?, x[1].clone())
}

fn one(x: AnyComplex) -> Result<Vec<AnyTensor>> {
    let (re, im) = x.into_parts();
    Ok(vec![re, im])
}

fn both((a, b): (AnyComplex, AnyComplex)) -> Result<Vec<AnyTensor>> {
    Ok([one(a)?, one(b)?].concat())
}

fn adjoint(x: AnyComplex) -> Result<AnyComplex> {
    x.each(|part| transposed(&part))?.conj()
}

/// `x + xᴴ`.
fn hermitian(x: &[AnyTensor]) -> Result<AnyComplex> {
    let x = operand(x, 0)?;
    x.clone().add(adjoint(x)?)
}

/// `x xᴴ` with a diagonal.
fn positive(x: &[AnyTensor]) -> Result<AnyComplex> {
    let x = operand(x, 0)?;
    let (re, im) = x.clone().matmul(adjoint(x)?)?.into_parts();
    AnyComplex::new(graded(&re)?, im)
}

/// The squared magnitudes of the elements, which do not depend on phases.
fn squares(x: AnyComplex) -> Result<AnyTensor> {
    let (re, im) = x.into_parts();
    re.clone().mul(re)?.add(im.clone().mul(im)?)
}

/// `U diag(s²) Vᴴ`, which does not depend on the phases of the vectors, and the values.
fn singular((u, s, vh): (AnyComplex, AnyTensor, AnyComplex)) -> Result<Vec<AnyTensor>> {
    let squares = s.clone().mul(s.clone())?;
    let left = u.each(|part| columns_times(part, squares.clone()))?;
    Ok([one(left.matmul(vh)?)?, vec![s]].concat())
}

/// `V diag(sin w) Vᴴ`, which does not depend on the phases of the vectors, and the values.
fn spectral((w, v): (AnyTensor, AnyComplex)) -> Result<Vec<AnyTensor>> {
    let sines = w.clone().unary(Unary::Sin)?;
    let left = v.clone().each(|part| columns_times(part, sines.clone()))?;
    Ok([one(left.matmul(adjoint(v)?)?)?, vec![w]].concat())
}
