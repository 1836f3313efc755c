//! Matrix decompositions.

use crate::call::Call;
use crate::op::{self, run, run_one};
use crate::{QrMode, Triangle};
use kiln_ir::{Result, Var};
use kiln_tensor::AnyTensor;

/// See [`cholesky`](crate::cholesky).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix that is not positive definite is reported
/// when the result is read.
#[doc(alias = "cho_factor")]
pub fn cholesky(a: AnyTensor, triangle: Triangle) -> Result<AnyTensor> {
    let call = Call::new("cholesky", &[&a])?;
    call.square(0)?;
    let a = call.var(&a);
    let factor = match triangle {
        Triangle::Lower => run_one(op::Cholesky, &[&a])?,
        Triangle::Upper => run_one(op::Cholesky, &[&a.transpose()])?.transpose(),
    };
    Ok(call.done(factor))
}

/// See [`qr`](crate::qr).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float.
pub fn qr(a: AnyTensor, mode: QrMode) -> Result<(AnyTensor, AnyTensor)> {
    let call = Call::new("qr", &[&a])?;
    call.matrix(0)?;
    let mut parts = run(op::Qr { complete: mode == QrMode::Complete }, &[&call.var(&a)])?.into_iter();
    Ok((take(&call, &mut parts), take(&call, &mut parts)))
}

/// See [`qr_r`](crate::qr_r).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float.
#[doc(alias = "qr")]
pub fn qr_r(a: AnyTensor) -> Result<AnyTensor> {
    qr(a, QrMode::Reduced).map(|(_, r)| r)
}

/// See [`lu`](crate::lu).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float.
pub fn lu(a: AnyTensor) -> Result<(AnyTensor, AnyTensor, AnyTensor)> {
    let call = Call::new("lu", &[&a])?;
    let (rows, _) = call.matrix(0)?;
    let factors = run(op::LuFactor, &[&call.var(&a)])?;
    let p = op::permutation(&factors[1], rows, &factors[0])?;
    let (l, u) = op::unpack(&factors[0]);
    Ok((call.done(p), call.done(l), call.done(u)))
}

/// See [`lu_factor`](crate::lu_factor).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float.
pub fn lu_factor(a: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
    let call = Call::new("lu_factor", &[&a])?;
    call.matrix(0)?;
    let mut parts = run(op::LuFactor, &[&call.var(&a)])?.into_iter();
    let factors = take(&call, &mut parts);
    Ok((factors, call.integers(parts.next().expect("two results"))))
}

/// See [`ldl_factor`](crate::ldl_factor).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn ldl_factor(a: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
    let call = Call::new("ldl_factor", &[&a])?;
    call.square(0)?;
    let mut parts = run(op::LdlFactor, &[&call.var(&a)])?.into_iter();
    let factors = take(&call, &mut parts);
    Ok((factors, call.integers(parts.next().expect("two results"))))
}

/// See [`ldl`](crate::ldl).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn ldl(a: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
    let call = Call::new("ldl", &[&a])?;
    call.square(0)?;
    let packed = run(op::LdlFactor, &[&call.var(&a)])?;
    let mut parts = run(op::LdlUnpack, &[&packed[0], &packed[1]])?.into_iter();
    Ok((take(&call, &mut parts), take(&call, &mut parts)))
}

/// See [`svd`](crate::svd).
///
/// # Errors
/// When the tensor has fewer than two dimensions or its dtype is not a float. A matrix with NaN or infinity is reported
/// when a result is read.
pub fn svd(a: AnyTensor, full: bool) -> Result<(AnyTensor, AnyTensor, AnyTensor)> {
    let call = Call::new("svd", &[&a])?;
    call.matrix(0)?;
    let mut parts = run(op::Svd { full }, &[&call.var(&a)])?.into_iter();
    Ok((take(&call, &mut parts), take(&call, &mut parts), take(&call, &mut parts)))
}

/// See [`svdvals`](crate::svdvals).
///
/// # Errors
/// See [`svd`].
pub fn svdvals(a: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("svdvals", &[&a])?;
    call.matrix(0)?;
    let values = run_one(op::Svdvals, &[&call.var(&a)])?;
    Ok(call.done(values))
}

fn take<'c>(call: &'c Call, parts: &mut impl Iterator<Item = Var<'c>>) -> AnyTensor {
    call.done(parts.next().expect("the op has the inferred number of results"))
}
