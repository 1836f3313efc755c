//! The functions of `kiln_linalg::any`. They are free functions, so their names here begin with `linalg::`.
//!
//! Rows of functions that need regular matrices add a diagonal to noise operands. Rows with non-unique results, such as
//! the signs of singular vectors and the phases of complex eigenvectors, return invariants.

mod complex;

use super::{Argument, Method, away, normal, one, two, uniform};
use kiln_ir::{SliceAxis, TensorData, Unary};
use kiln_linalg::any as linalg;
use kiln_linalg::any::LeastSquares;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_tensor::{AnyTensor, Result};

const PIECEWISE: &str = "piecewise linear";

pub(super) fn rows() -> Vec<Method> {
    [
        factors(),
        eigenvalues(),
        equations(),
        inverses(),
        determinants(),
        norms(),
        conditions(),
        products(),
        complex::rows(),
    ]
    .concat()
}

/// Noise that is small relative to the added diagonals.
fn noise(shape: &'static [usize]) -> Argument {
    uniform(-1.0, 1.0, shape)
}

fn factors() -> Vec<Method> {
    vec![
        Method::new("linalg::cholesky", |x| one(linalg::cholesky(positive(&x[0])?, Triangle::Lower)))
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[2, 1, 1])])
            .on(&[noise(&[0, 3, 3])])
            .on(&[noise(&[2, 0, 0])])
            .within(64.0),
        Method::new("linalg::cholesky", |x| one(linalg::cholesky(positive(&x[0])?, Triangle::Upper)))
            .variant("upper")
            .on(&[noise(&[2, 3, 3])])
            .within(64.0),
        Method::new("linalg::qr", |x| two(linalg::qr(x[0].clone(), QrMode::Reduced)))
            .on(&[normal(&[4, 3])])
            .on(&[normal(&[2, 3, 3])])
            .on(&[normal(&[1, 1])])
            .on(&[normal(&[0, 4, 3])])
            .on(&[normal(&[0, 0])]),
        Method::new("linalg::qr", |x| two(linalg::qr(x[0].clone(), QrMode::Complete)))
            .variant("complete, wide")
            .on(&[normal(&[3, 5])]),
        Method::new("linalg::qr", |x| two(linalg::qr(x[0].clone(), QrMode::Complete)))
            .variant("complete, tall")
            .on(&[normal(&[2, 4, 2])])
            .no_gradient("the last columns of `Q` are not determined"),
        Method::new("linalg::qr_r", |x| one(linalg::qr_r(x[0].clone())))
            .on(&[normal(&[2, 4, 3])])
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0, 3])]),
        Method::new("linalg::lu", |x| three(linalg::lu(x[0].clone())))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[3, 5])])
            .on(&[normal(&[2, 5, 3])])
            .on(&[normal(&[1, 1])])
            .on(&[normal(&[2, 0, 0])]),
        Method::new("linalg::lu_factor", |x| two(linalg::lu_factor(x[0].clone())))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[2, 4, 2])])
            .on(&[normal(&[0, 3, 3])]),
        Method::new("linalg::ldl", |x| two(linalg::ldl(symmetric(&x[0])?)))
            .on(&[normal(&[4, 4])])
            .on(&[normal(&[2, 3, 3])])
            .on(&[normal(&[1, 1])])
            .on(&[normal(&[0, 0])])
            .no_gradient("the factorisation has none"),
        Method::new("linalg::ldl_factor", |x| two(linalg::ldl_factor(symmetric(&x[0])?)))
            .on(&[normal(&[4, 4])])
            .on(&[normal(&[2, 3, 3])])
            .on(&[normal(&[0, 3, 3])])
            .no_gradient("the factorisation has none"),
        Method::new("linalg::svd", |x| singular(linalg::svd(x[0].clone(), false)?))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[4, 2])])
            .on(&[normal(&[2, 2, 4])])
            .on(&[normal(&[1, 1])])
            .on(&[normal(&[0, 3, 3])])
            .on(&[normal(&[0, 3])])
            .within(64.0),
        Method::new("linalg::svd", |x| {
            let (u, s, vt) = linalg::svd(x[0].clone(), true)?;
            // The other columns of `U` are an arbitrary orthonormal completion.
            singular((u.slice_axis(1, SliceAxis { start: 0, len: 2, step: 1 })?, s, vt))
        })
        .variant("full")
        .on(&[normal(&[4, 2])])
        .within(64.0),
        Method::new("linalg::svdvals", |x| one(linalg::svdvals(x[0].clone())))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[2, 3, 3])])
            .on(&[normal(&[2, 0, 0])]),
    ]
}

fn eigenvalues() -> Vec<Method> {
    vec![
        Method::new("linalg::eigh", |x| spectral(linalg::eigh(symmetric(&x[0])?, Triangle::Lower)?))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[2, 2, 2])])
            .on(&[normal(&[1, 1])])
            .on(&[normal(&[0, 3, 3])])
            .on(&[normal(&[2, 0, 0])])
            .within(64.0),
        Method::new("linalg::eigh", |x| spectral(linalg::eigh(symmetric(&x[0])?, Triangle::Upper)?))
            .variant("upper")
            .on(&[normal(&[3, 3])])
            .within(64.0),
        Method::new("linalg::eigvalsh", |x| one(linalg::eigvalsh(symmetric(&x[0])?, Triangle::Lower)))
            .on(&[normal(&[2, 3, 3])])
            .on(&[normal(&[0, 0])]),
        Method::new("linalg::eigvalsh", |x| one(linalg::eigvalsh(symmetric(&x[0])?, Triangle::Upper)))
            .variant("upper")
            .on(&[normal(&[3, 3])]),
        Method::new("linalg::eig", |x| without_phases(linalg::eig(graded(&x[0])?)?))
            .on(&[noise(&[4, 4])])
            .on(&[noise(&[1, 1])])
            .on(&[noise(&[0, 3, 3])])
            .on(&[noise(&[2, 0, 0])]),
        Method::new("linalg::eig", |x| without_phases(linalg::eig(turning(&x[0])?)?))
            .variant("complex")
            .on(&[noise(&[5, 5])])
            .on(&[noise(&[2, 3, 3])]),
        Method::new("linalg::eigvals", |x| two(linalg::eigvals(graded(&x[0])?)))
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[0, 3, 3])]),
        Method::new("linalg::eigvals", |x| two(linalg::eigvals(turning(&x[0])?)))
            .variant("complex")
            .on(&[noise(&[4, 4])])
            .on(&[noise(&[2, 3, 3])]),
    ]
}

fn equations() -> Vec<Method> {
    vec![
        Method::new("linalg::solve", |x| one(linalg::solve(graded(&x[0])?, x[1].clone(), Side::Left)))
            .on(&[noise(&[3, 3]), normal(&[3, 2])])
            .on(&[noise(&[2, 1, 3, 3]), normal(&[2, 3, 1])])
            .on(&[noise(&[3, 3]), normal(&[3])])
            .on(&[noise(&[2, 3, 3]), normal(&[2, 3])])
            .on(&[noise(&[1, 1]), normal(&[1, 1])])
            .on(&[noise(&[0, 3, 3]), normal(&[0, 3, 2])])
            .on(&[noise(&[0, 0]), normal(&[0, 2])]),
        Method::new("linalg::solve", |x| one(linalg::solve(graded(&x[0])?, x[1].clone(), Side::Right)))
            .variant("right")
            .on(&[noise(&[2, 3, 3]), normal(&[2, 1, 3])])
            .on(&[noise(&[3, 3]), normal(&[3])]),
        Method::new("linalg::solve_triangular", |x| {
            let (a, b) = (graded(&x[0])?, x[1].clone());
            one(linalg::solve_triangular(a, b, Triangle::Lower, Side::Left, false))
        })
        .on(&[noise(&[3, 3]), normal(&[3, 2])])
        .on(&[noise(&[3, 3]), normal(&[2, 3, 1])])
        .on(&[noise(&[2, 0, 0]), normal(&[2, 0, 1])]),
        Method::new("linalg::solve_triangular", |x| {
            let (a, b) = (graded(&x[0])?, x[1].clone());
            one(linalg::solve_triangular(a, b, Triangle::Upper, Side::Left, false))
        })
        .variant("upper")
        .on(&[noise(&[3, 3]), normal(&[3, 2])]),
        Method::new("linalg::solve_triangular", |x| {
            let (a, b) = (x[0].clone(), x[1].clone());
            one(linalg::solve_triangular(a, b, Triangle::Upper, Side::Right, true))
        })
        .variant("unit diagonal, right")
        .on(&[noise(&[3, 3]), normal(&[2, 3])]),
        Method::new("linalg::cholesky_solve", |x| {
            one(linalg::cholesky_solve(x[1].clone(), graded(&x[0])?, Triangle::Lower))
        })
        .on(&[noise(&[3, 3]), normal(&[3, 2])])
        .on(&[noise(&[3, 3]), normal(&[2, 3, 1])])
        .on(&[noise(&[0, 3, 3]), normal(&[0, 3, 1])]),
        Method::new("linalg::cholesky_solve", |x| {
            one(linalg::cholesky_solve(x[1].clone(), graded(&x[0])?, Triangle::Upper))
        })
        .variant("upper")
        .on(&[noise(&[3, 3]), normal(&[3, 2])]),
        Method::new("linalg::lu_solve", |x| {
            let (factors, pivots) = linalg::lu_factor(graded(&x[0])?)?;
            one(linalg::lu_solve(factors, pivots, x[1].clone(), Side::Left))
        })
        .on(&[noise(&[3, 3]), normal(&[3, 2])])
        .on(&[noise(&[2, 1, 3, 3]), normal(&[2, 3, 1])])
        .on(&[noise(&[0, 0]), normal(&[0, 1])])
        .within(64.0),
        Method::new("linalg::lu_solve", |x| {
            let (factors, pivots) = linalg::lu_factor(graded(&x[0])?)?;
            one(linalg::lu_solve(factors, pivots, x[1].clone(), Side::Right))
        })
        .variant("right")
        .on(&[noise(&[3, 3]), normal(&[2, 3])])
        .within(64.0),
        Method::new("linalg::ldl_solve", |x| {
            let (factors, pivots) = linalg::ldl_factor(symmetric(&x[0])?)?;
            one(linalg::ldl_solve(factors, pivots, x[1].clone()))
        })
        .on(&[normal(&[3, 3]).constant(), normal(&[3, 2])])
        .on(&[normal(&[2, 1, 3, 3]).constant(), normal(&[2, 3, 1])])
        .on(&[normal(&[0, 0]).constant(), normal(&[0, 1])])
        .within(64.0),
        Method::new("linalg::lstsq", |x| {
            linalg::lstsq(graded(&x[0])?, x[1].clone(), None).map(parts_of_least_squares)
        })
        .on(&[noise(&[5, 2]), normal(&[5, 3])])
        .on(&[noise(&[2, 4, 2]), normal(&[4, 1])])
        .on(&[noise(&[3, 3]), normal(&[3, 1])])
        .on(&[noise(&[2, 4]), normal(&[2, 1])])
        .on(&[noise(&[0, 4, 2]), normal(&[0, 4, 1])])
        .within(64.0),
        Method::new("linalg::tensorsolve", |x| {
            let a = graded(&x[0])?.reshape([2, 3, 6])?;
            one(linalg::tensorsolve(a, x[1].clone()))
        })
        .on(&[noise(&[6, 6]), normal(&[2, 3])]),
    ]
}

fn parts_of_least_squares(found: LeastSquares) -> Vec<AnyTensor> {
    vec![found.solution, found.residuals, found.rank, found.singular_values]
}

fn inverses() -> Vec<Method> {
    vec![
        Method::new("linalg::inverse", |x| one(linalg::inverse(graded(&x[0])?)))
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[2, 1, 1])])
            .on(&[noise(&[0, 3, 3])])
            .on(&[noise(&[2, 0, 0])]),
        Method::new("linalg::cholesky_inverse", |x| {
            one(linalg::cholesky_inverse(graded(&x[0])?, Triangle::Lower))
        })
        .on(&[noise(&[3, 3])])
        .on(&[noise(&[2, 2, 2])])
        .on(&[noise(&[0, 0])]),
        Method::new("linalg::cholesky_inverse", |x| {
            one(linalg::cholesky_inverse(graded(&x[0])?, Triangle::Upper))
        })
        .variant("upper")
        .on(&[noise(&[3, 3])]),
        Method::new("linalg::pinv", |x| one(linalg::pinv(graded(&x[0])?, Tolerance::default())))
            .on(&[noise(&[3, 2])])
            .on(&[noise(&[2, 2, 3])])
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[0, 2])])
            .within(64.0),
        Method::new("linalg::tensorinv", |x| one(linalg::tensorinv(graded(&x[0])?.reshape([2, 3, 6])?, 2)))
            .on(&[noise(&[6, 6])]),
        Method::new("linalg::matrix_power", |x| one(linalg::matrix_power(x[0].clone(), 5)))
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[2, 1, 1])])
            .on(&[noise(&[2, 0, 0])])
            .within(64.0),
        Method::new("linalg::matrix_power", |x| one(linalg::matrix_power(graded(&x[0])?, -2)))
            .variant("negative")
            .on(&[noise(&[3, 3])]),
        Method::new("linalg::matrix_power", |x| one(linalg::matrix_power(x[0].clone(), 0)))
            .variant("zero")
            .on(&[noise(&[2, 3, 3])])
            .no_gradient("does not depend on the matrix"),
        Method::new("linalg::matrix_exp", |x| one(linalg::matrix_exp(x[0].clone())))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[2, 1, 1])])
            .on(&[normal(&[0, 3, 3])])
            .on(&[normal(&[0, 0])]),
    ]
}

fn determinants() -> Vec<Method> {
    vec![
        Method::new("linalg::det", |x| one(linalg::det(x[0].clone())))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[1, 1])])
            .on(&[normal(&[2, 2, 2])])
            .on(&[normal(&[0, 3, 3])])
            .on(&[normal(&[2, 0, 0])]),
        Method::new("linalg::slogdet", |x| two(linalg::slogdet(x[0].clone())))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[2, 2, 2])])
            .on(&[normal(&[2, 0, 0])]),
        Method::new("linalg::logdet", |x| one(linalg::logdet(graded(&x[0])?)))
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[2, 2, 2])])
            .on(&[noise(&[0, 0])]),
        Method::new("linalg::matrix_rank", |x| one(linalg::matrix_rank(x[0].clone(), Tolerance::default())))
            .on(&[normal(&[3, 3])])
            .on(&[normal(&[2, 2, 4])])
            .on(&[normal(&[0, 3, 3])])
            .no_gradient("counts"),
    ]
}

fn norms() -> Vec<Method> {
    vec![
        Method::new("linalg::matrix_norm", |x| one(linalg::matrix_norm(x[0].clone(), MatrixNorm::Frobenius)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 2, 2])])
            .on(&[normal(&[0, 3, 3])])
            .on(&[normal(&[2, 0, 3])]),
        Method::new("linalg::matrix_norm", |x| one(linalg::matrix_norm(x[0].clone(), MatrixNorm::Nuclear)))
            .variant("nuclear")
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0, 3])]),
        Method::new("linalg::matrix_norm", |x| one(linalg::matrix_norm(x[0].clone(), MatrixNorm::Spectral)))
            .variant("spectral")
            .on(&[normal(&[3, 2])]),
        Method::new("linalg::matrix_norm", |x| {
            one(linalg::matrix_norm(x[0].clone(), MatrixNorm::LeastSingularValue))
        })
        .variant("least singular value")
        .on(&[normal(&[2, 3, 3])]),
        Method::new("linalg::matrix_norm", |x| {
            one(linalg::matrix_norm(x[0].clone(), MatrixNorm::GreatestColumnSum))
        })
        .variant("greatest column sum")
        .on(&[away(&[2, 3, 2])])
        .once(PIECEWISE),
        Method::new("linalg::matrix_norm", |x| {
            one(linalg::matrix_norm(x[0].clone(), MatrixNorm::LeastColumnSum))
        })
        .variant("least column sum")
        .on(&[away(&[3, 2])])
        .once(PIECEWISE),
        Method::new("linalg::matrix_norm", |x| {
            one(linalg::matrix_norm(x[0].clone(), MatrixNorm::GreatestRowSum))
        })
        .variant("greatest row sum")
        .on(&[away(&[2, 3, 2])])
        .once(PIECEWISE),
        Method::new("linalg::matrix_norm", |x| {
            one(linalg::matrix_norm(x[0].clone(), MatrixNorm::LeastRowSum))
        })
        .variant("least row sum")
        .on(&[away(&[3, 2])])
        .once(PIECEWISE),
    ]
}

fn conditions() -> Vec<Method> {
    vec![
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::Spectral)))
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[2, 3, 2])])
            .on(&[noise(&[0, 3, 3])])
            // Zero for any contents.
            .on(&[noise(&[2, 0, 0]).constant()]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::LeastSingularValue)))
            .variant("least singular value")
            .on(&[noise(&[3, 3])]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::Frobenius)))
            .variant("Frobenius")
            .on(&[noise(&[3, 3])])
            .on(&[noise(&[2, 2, 2])]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::Nuclear)))
            .variant("nuclear")
            .on(&[noise(&[3, 3])]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::GreatestColumnSum)))
            .variant("greatest column sum")
            .on(&[noise(&[3, 3])]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::LeastColumnSum)))
            .variant("least column sum")
            .on(&[noise(&[3, 3])]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::GreatestRowSum)))
            .variant("greatest row sum")
            .on(&[noise(&[3, 3])]),
        Method::new("linalg::cond", |x| one(linalg::cond(graded(&x[0])?, MatrixNorm::LeastRowSum)))
            .variant("least row sum")
            .on(&[noise(&[3, 3])]),
    ]
}

fn products() -> Vec<Method> {
    vec![
        Method::new("linalg::multi_dot", |x| one(linalg::multi_dot(x.to_vec())))
            .on(&[normal(&[2, 3]), normal(&[3, 4]), normal(&[4, 2])])
            .on(&[normal(&[3]), normal(&[3, 2]), normal(&[2])])
            .on(&[normal(&[2, 3]), normal(&[3, 2])])
            .on(&[normal(&[2, 0]), normal(&[0, 3])])
            .within(64.0),
        Method::new("linalg::vander", |x| one(linalg::vander(x[0].clone(), Some(4))))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[1])])
            .on(&[normal(&[2, 0])]),
        Method::new("linalg::vander", |x| one(linalg::vander(x[0].clone(), None)))
            .variant("square")
            .on(&[normal(&[3])]),
        Method::new("linalg::householder_product", |x| {
            one(linalg::householder_product(x[0].clone(), x[1].clone()))
        })
        .on(&[noise(&[4, 3]), noise(&[3])])
        .on(&[noise(&[2, 3, 3]), noise(&[2, 2])])
        .on(&[noise(&[0, 3, 2]), noise(&[0, 2])])
        .within(64.0),
    ]
}

/// Three results of a function.
fn three(result: Result<(AnyTensor, AnyTensor, AnyTensor)>) -> Result<Vec<AnyTensor>> {
    result.map(|(a, b, c)| vec![a, b, c])
}

/// `U diag(s²) Vᵀ`, which does not depend on the signs of the vectors, and the values.
fn singular((u, s, vt): (AnyTensor, AnyTensor, AnyTensor)) -> Result<Vec<AnyTensor>> {
    let squares = s.clone().mul(s.clone())?;
    Ok(vec![columns_times(u, squares)?.matmul(vt)?, s])
}

/// `V diag(sin w) Vᵀ`, which does not depend on the signs of the vectors, and the values.
fn spectral((w, v): (AnyTensor, AnyTensor)) -> Result<Vec<AnyTensor>> {
    let turned = transposed(&v)?;
    Ok(vec![columns_times(v, w.clone().unary(Unary::Sin)?)?.matmul(turned)?, w])
}

/// Scales each column of matrices.
fn columns_times(x: AnyTensor, numbers: AnyTensor) -> Result<AnyTensor> {
    let rows = numbers.shape().inserted(numbers.rank() - 1, 1);
    x.mul(numbers.reshape(rows)?)
}

/// The eigenvalues and the squared magnitudes of the elements of the eigenvectors, which depend on no phase.
fn without_phases(((w_re, w_im), (v_re, v_im)): (linalg::Pair, linalg::Pair)) -> Result<Vec<AnyTensor>> {
    let squares = v_re.clone().mul(v_re)?.add(v_im.clone().mul(v_im)?)?;
    Ok(vec![w_re, w_im, squares])
}

/// `x` with 4, 8, 12, ... added to the diagonal: with noise, the matrices are well-conditioned, and their eigenvalues
/// and singular values are well separated.
fn graded(x: &AnyTensor) -> Result<AnyTensor> {
    plus(x, |i, j| if i == j { 4.0 * (i + 1) as f64 } else { 0.0 })
}

/// `x` with blocks of 2 rows added on the diagonal, each a multiple of a quarter turn and of the identity: with noise,
/// most eigenvalues are complex and all are well separated.
fn turning(x: &AnyTensor) -> Result<AnyTensor> {
    plus(x, |i, j| match (i == j, i ^ 1 == j, i % 2 == 0) {
        (true, _, _) => 6.0 * (i / 2) as f64,
        (false, true, true) => -3.0,
        (false, true, false) => 3.0,
        (false, false, _) => 0.0,
    })
}

/// `x` plus a function of row and column.
fn plus(x: &AnyTensor, number: impl Fn(usize, usize) -> f64) -> Result<AnyTensor> {
    let (rows, cols) = (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]);
    let numbers: Vec<f64> = (0..rows * cols).map(|place| number(place / cols, place % cols)).collect();
    let data = TensorData::new(numbers, [rows, cols])?.convert(x.dtype());
    x.clone().add(AnyTensor::from_data(data, x.stack()))
}

fn transposed(x: &AnyTensor) -> Result<AnyTensor> {
    x.clone().swap_dims(x.rank() - 2, x.rank() - 1)
}

fn symmetric(x: &AnyTensor) -> Result<AnyTensor> {
    x.clone().add(transposed(x)?)
}

/// `x xᵀ` with a diagonal.
fn positive(x: &AnyTensor) -> Result<AnyTensor> {
    graded(&x.clone().matmul(transposed(x)?)?)
}
