//! Matrix inverses, powers and the exponential.

use crate::Tolerance;
use crate::call::Call;
use crate::matrix::eye;
use crate::op::{self, run_one};
use kiln_ir::{DType, Result, Shape, Var};
use kiln_tensor::AnyTensor;

/// See [`inverse`](crate::inverse).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A singular matrix is reported when the result is read.
#[doc(alias = "inv")]
pub fn inverse(a: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("inverse", &[&a])?;
    call.square(0)?;
    let result = run_one(op::Inverse { infinite: false }, &[&call.var(&a)])?;
    Ok(call.done(result))
}

/// See [`pinv`](crate::pinv).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float. A matrix with NaN or infinity is reported
/// when the result is read.
#[doc(alias = "pinverse")]
pub fn pinv(a: AnyTensor, tolerance: Tolerance) -> Result<AnyTensor> {
    let call = Call::new("pinv", &[&a])?;
    let (rows, cols) = call.matrix(0)?;
    let (atol, rtol) = tolerance.resolve(rows, cols, call.epsilon());
    let result = run_one(op::Pinv { atol, rtol }, &[&call.var(&a)])?;
    Ok(call.done(result))
}

/// See [`matrix_power`](crate::matrix_power).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. With a negative exponent a singular matrix is reported
/// when the result is read.
pub fn matrix_power(a: AnyTensor, exponent: i32) -> Result<AnyTensor> {
    let call = Call::new("matrix_power", &[&a])?;
    let n = call.square(0)?;
    let a = call.var(&a);
    let mut base = if exponent < 0 { run_one(op::Inverse { infinite: false }, &[&a])? } else { a.clone() };
    let mut rest = exponent.unsigned_abs();
    let mut result = None;
    while rest > 0 {
        if rest % 2 == 1 {
            result = Some(match result {
                None => base.clone(),
                Some(product) => base.matmul(&product),
            });
        }
        rest /= 2;
        if rest > 0 {
            base = base.matmul(&base);
        }
    }
    // The identity does not depend on the matrix, but its gradient is 0 and not absent.
    let constant = || {
        let never = Var::zeros(a.engine(), a.ty().with_dtype(DType::Bool));
        never.select(&a, &eye(&a, n, n).broadcast(a.shape()))
    };
    Ok(call.done(result.unwrap_or_else(constant)))
}

/// See [`matrix_exp`](crate::matrix_exp).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
#[doc(alias = "expm")]
pub fn matrix_exp(a: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("matrix_exp", &[&a])?;
    call.square(0)?;
    let result = run_one(op::MatrixExp, &[&call.var(&a)])?;
    Ok(call.done(result))
}

/// See [`tensorinv`](crate::tensorinv).
///
/// # Errors
/// When the product of the first `first` dimensions differs from that of the others, `first` is not in `1..rank`, or
/// the dtype is not a float. A singular tensor is reported when the result is read.
pub fn tensorinv(a: AnyTensor, first: usize) -> Result<AnyTensor> {
    let call = Call::new("tensorinv", &[&a])?;
    let shape = *a.shape();
    if first == 0 || first >= shape.rank() {
        let problem = format!("cannot split {} dimensions after the first {first}", shape.rank());
        return Err(call.error(problem).hint("at least one dimension must be on either side"));
    }
    let (rows, cols) = shape.split_at(first);
    let (m, n): (usize, usize) = (rows.iter().product(), cols.iter().product());
    if m != n {
        let problem = format!("the first {first} dimensions have {m} elements and the others {n}");
        return Err(call.error(problem).hint("both products must be equal"));
    }
    let inverse = run_one(op::Inverse { infinite: false }, &[&call.var(&a).reshape([m, n])])?;
    let turned: Shape = cols.iter().chain(rows).copied().collect();
    Ok(call.done(inverse.reshape(turned)))
}

/// See [`tensorsolve`](crate::tensorsolve).
///
/// # Errors
/// When the first dimensions of `a` are not those of `b`, the products of the other dimensions differ, or dtypes
/// differ. A singular tensor is reported when the result is read.
pub fn tensorsolve(a: AnyTensor, b: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("tensorsolve", &[&a, &b])?;
    let (left, right) = (*a.shape(), *b.shape());
    let count = right.num_elements();
    if left.rank() < right.rank() || left[..right.rank()] != right[..] {
        return Err(call
            .error("the first dimensions differ")
            .hint("the first operand must begin with the dimensions of the second"));
    }
    let unknowns = &left[right.rank()..];
    if unknowns.iter().product::<usize>() != count {
        let problem = format!("{count} equations for {} unknowns", unknowns.iter().product::<usize>());
        return Err(call.error(problem).hint("the numbers of equations and unknowns must be equal"));
    }
    let (matrix, column) = (call.var(&a).reshape([count, count]), call.var(&b).reshape([count, 1]));
    let x = run_one(op::Solve, &[&matrix, &column])?;
    Ok(call.done(x.reshape(Shape::new(unknowns))))
}
