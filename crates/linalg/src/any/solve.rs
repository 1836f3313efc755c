//! Linear systems and least squares.

use crate::call::Call;
use crate::matrix::{as_column, eye};
use crate::op::{self, ldl_pivots_fit, leading, pivots_fit, run, run_one};
use crate::{Side, Triangle};
use kiln_ir::{DType, Reduction, Result, Shape, Var};
use kiln_tensor::AnyTensor;

/// See [`solve`](crate::solve).
///
/// # Errors
/// When the matrices are not square, sizes differ, batch dimensions do not broadcast, or dtypes differ. A singular
/// matrix is reported when the result is read.
pub fn solve(a: AnyTensor, b: AnyTensor, side: Side) -> Result<AnyTensor> {
    let call = Call::new("solve", &[&a, &b])?;
    let n = call.square(0)?;
    let is_vector = is_vector(a.shape(), b.shape());
    let (a, b) = (call.var(&a), call.var(&b));
    if is_vector {
        check_rows(&call, n, b.shape()[b.rank() - 1])?;
        // A row vector times the matrix is the transposed matrix times the column vector.
        let a = if side == Side::Left { a } else { a.transpose() };
        let (a, column) = call.together(&a, &as_column(&b))?;
        let x = run_one(op::Solve, &[&a, &column])?;
        let shape = x.shape();
        return Ok(call.done(x.reshape(shape.without(shape.rank() - 1))));
    }
    let x = on_side(&call, &a, &b, side, n, |a, b| run_one(op::Solve, &[a, b]))?;
    Ok(call.done(x))
}

/// Whether `b` is a batch of vectors, by PyTorch's rule: it has rank 1, or one dimension less than `a` and the same
/// batch dimensions.
pub(super) fn is_vector(a: &Shape, b: &Shape) -> bool {
    b.rank() == 1 || (b.rank() + 1 == a.rank() && b[..] == a[..a.rank() - 1])
}

pub(super) fn check_rows(call: &Call, n: usize, found: usize) -> Result<()> {
    if n == found {
        return Ok(());
    }
    Err(call.error("sizes differ").hint(format!(
        "the matrices are {n} x {n} and the right sides have {found} elements along that dimension: both must be equal"
    )))
}

/// Solves `A X = B`, or `X A = B` by transposing.
fn on_side<'c>(
    call: &'c Call,
    a: &Var<'c>,
    b: &Var<'c>,
    side: Side,
    n: usize,
    solve: impl FnOnce(&Var<'c>, &Var<'c>) -> Result<Var<'c>>,
) -> Result<Var<'c>> {
    let (rows, cols) = call.matrix(1)?;
    match side {
        Side::Left => {
            check_rows(call, n, rows)?;
            let (a, b) = call.together(a, b)?;
            solve(&a, &b)
        }
        Side::Right => {
            check_rows(call, n, cols)?;
            let (a, b) = call.together(&a.transpose(), &b.transpose())?;
            Ok(solve(&a, &b)?.transpose())
        }
    }
}

/// See [`solve_triangular`](crate::solve_triangular).
///
/// # Errors
/// When the matrices are not square, sizes differ, batch dimensions do not broadcast, or dtypes differ.
#[doc(alias = "triangular_solve")]
pub fn solve_triangular(
    a: AnyTensor,
    b: AnyTensor,
    triangle: Triangle,
    side: Side,
    unit_diagonal: bool,
) -> Result<AnyTensor> {
    let call = Call::new("solve_triangular", &[&a, &b])?;
    let n = call.square(0)?;
    let upper = triangle.is_upper() != (side == Side::Right);
    let solve = op::SolveTriangular { upper, unit: unit_diagonal };
    let x = on_side(&call, &call.var(&a), &call.var(&b), side, n, |a, b| run_one(solve, &[a, b]))?;
    Ok(call.done(x))
}

/// See [`cholesky_solve`](crate::cholesky_solve).
///
/// # Errors
/// When the factors are not square, sizes differ, batch dimensions do not broadcast, or dtypes differ.
#[doc(alias = "cho_solve")]
pub fn cholesky_solve(b: AnyTensor, factor: AnyTensor, triangle: Triangle) -> Result<AnyTensor> {
    let call = Call::new("cholesky_solve", &[&factor, &b])?;
    let n = call.square(0)?;
    let (rows, _) = call.matrix(1)?;
    check_rows(&call, n, rows)?;
    let (factor, b) = call.together(&call.var(&factor), &call.var(&b))?;
    let x = with_factor(&factor, &b, triangle)?;
    Ok(call.done(x))
}

/// See [`cholesky_inverse`](crate::cholesky_inverse).
///
/// # Errors
/// When the factors are not square or the dtype is not a float.
pub fn cholesky_inverse(factor: AnyTensor, triangle: Triangle) -> Result<AnyTensor> {
    let call = Call::new("cholesky_inverse", &[&factor])?;
    let n = call.square(0)?;
    let factor = call.var(&factor);
    let x = with_factor(&factor, &eye(&factor, n, n).broadcast(factor.shape()), triangle)?;
    Ok(call.done(x))
}

/// Solves `L Lᵀ X = B` or `Uᵀ U X = B`.
fn with_factor<'c>(factor: &Var<'c>, b: &Var<'c>, triangle: Triangle) -> Result<Var<'c>> {
    let (lower, upper) = match triangle {
        Triangle::Lower => (factor.clone(), factor.transpose()),
        Triangle::Upper => (factor.transpose(), factor.clone()),
    };
    let half = run_one(op::SolveTriangular { upper: false, unit: false }, &[&lower, b])?;
    run_one(op::SolveTriangular { upper: true, unit: false }, &[&upper, &half])
}

/// See [`lu_solve`](crate::lu_solve).
///
/// # Errors
/// When the factors are not square, the pivots have the wrong dtype or shape, sizes differ, batch dimensions do not
/// broadcast, or dtypes differ.
pub fn lu_solve(factors: AnyTensor, pivots: AnyTensor, b: AnyTensor, side: Side) -> Result<AnyTensor> {
    let call = Call::new("lu_solve", &[&factors, &b])?;
    let n = call.square(0)?;
    call.in_domain(&pivots)?;
    if !pivots.dtype().is_int() || !pivots_fit(factors.ty(), pivots.ty()) {
        return Err(call
            .error(format!("pivots of {} do not belong to these factors", pivots.ty()))
            .hint("pass the pivots that `lu_factor` returned with the factors"));
    }
    let (packed, b) = (call.var(&factors), call.var(&b));
    let p = op::permutation(&call.plain(&pivots).cast(DType::I32), n, &packed)?;
    let (rows, cols) = call.matrix(1)?;
    let triangular = |upper, unit| op::SolveTriangular { upper, unit };
    let x = match side {
        Side::Left => {
            check_rows(&call, n, rows)?;
            let (packed, b) = call.together(&packed, &p.transpose().matmul(&b))?;
            let half = run_one(triangular(false, true), &[&packed, &b])?;
            run_one(triangular(true, false), &[&packed, &half])?
        }
        // `X P L U = B`, transposed: `Uᵀ Lᵀ Pᵀ Xᵀ = Bᵀ`.
        Side::Right => {
            check_rows(&call, n, cols)?;
            let (turned, b) = call.together(&packed.transpose(), &b.transpose())?;
            let half = run_one(triangular(false, false), &[&turned, &b])?;
            p.matmul(&run_one(triangular(true, true), &[&turned, &half])?).transpose()
        }
    };
    Ok(call.done(x))
}

/// See [`ldl_solve`](crate::ldl_solve).
///
/// # Errors
/// When the factors are not square, the pivots have the wrong dtype or shape, sizes differ, batch dimensions do not
/// broadcast, or dtypes differ. Invalid pivots are reported when the result is read.
pub fn ldl_solve(factors: AnyTensor, pivots: AnyTensor, b: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("ldl_solve", &[&factors, &b])?;
    let n = call.square(0)?;
    let (rows, _) = call.matrix(1)?;
    call.in_domain(&pivots)?;
    if !pivots.dtype().is_int() || !ldl_pivots_fit(factors.ty(), pivots.ty()) {
        return Err(call
            .error(format!("pivots of {} do not belong to these factors", pivots.ty()))
            .hint("pass the pivots that `ldl_factor` returned with the factors"));
    }
    check_rows(&call, n, rows)?;
    let (packed, b) = call.together(&call.var(&factors), &call.var(&b))?;
    let shape: Shape = leading(&packed.shape()).iter().copied().chain([n]).collect();
    let pivots = call.plain(&pivots).cast(DType::I32).broadcast(shape);
    let x = run_one(op::LdlSolve, &[&packed, &pivots, &b])?;
    Ok(call.done(x))
}

/// The result of [`lstsq`].
#[derive(Clone, Debug)]
pub struct LeastSquares {
    /// The solution `X`, `[.., n, k]`.
    pub solution: AnyTensor,
    /// The squared 2-norm of each column of `A X - B`, `[.., k]`; `[.., 0]` unless `m > n`.
    pub residuals: AnyTensor,
    /// The ranks of the matrices, `[..]`, integers.
    pub rank: AnyTensor,
    /// The singular values of the matrices in descending order, `[.., min(m, n)]`.
    pub singular_values: AnyTensor,
}

/// See [`lstsq`](crate::lstsq).
///
/// # Errors
/// When a tensor has fewer than two dimensions, the numbers of rows differ, batch dimensions do not broadcast, or
/// dtypes differ. A matrix with NaN or infinity is reported when a result is read.
pub fn lstsq(a: AnyTensor, b: AnyTensor, rcond: Option<f64>) -> Result<LeastSquares> {
    let call = Call::new("lstsq", &[&a, &b])?;
    let ((m, n), (rows, _)) = (call.matrix(0)?, call.matrix(1)?);
    if m != rows {
        return Err(call
            .error("sizes differ")
            .hint(format!("the matrices have {m} rows and the right sides {rows}: both must be equal")));
    }
    let rcond = rcond.unwrap_or(call.epsilon() * m.max(n) as f64);
    let (a, b) = call.together(&call.var(&a), &call.var(&b))?;
    let parts = run(op::Lstsq { rcond }, &[&a, &b])?;
    let (x, values) = (&parts[0], &parts[1]);
    let residuals = if m > n {
        let difference = a.matmul(x) - &b;
        let shape = difference.shape();
        difference.square().sum(&[shape.rank() - 2]).reshape(shape.without(shape.rank() - 2))
    } else {
        let shape: Shape = leading(&b.shape()).iter().copied().chain([0]).collect();
        Var::zeros(b.engine(), b.ty().with_shape(shape))
    };
    let rank = count_above(values, 0.0, rcond);
    Ok(LeastSquares {
        solution: call.done(x.clone()),
        residuals: call.done(residuals),
        rank: call.integers(rank),
        singular_values: call.done(values.clone()),
    })
}

/// The number of values above `max(absolute, relative * maximum)`. The first value is the maximum.
pub(super) fn count_above<'e>(values: &Var<'e>, absolute: f64, relative: f64) -> Var<'e> {
    let axis = values.rank() - 1;
    let shape = values.shape().without(axis);
    let greatest = values.reduce(Reduction::Max, &[axis]);
    let least = (greatest * relative).max(&values.scalar(absolute));
    least.less(values).cast(DType::I32).sum(&[axis]).reshape(shape)
}
