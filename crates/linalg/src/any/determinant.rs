//! Determinants.

use crate::call::Call;
use crate::op::{self, run, run_one};
use kiln_ir::Result;
use kiln_tensor::AnyTensor;

/// See [`det`](crate::det).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn det(a: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("det", &[&a])?;
    call.square(0)?;
    let result = run_one(op::Det, &[&call.var(&a)])?;
    Ok(call.done(result))
}

/// See [`slogdet`](crate::slogdet).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn slogdet(a: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
    let call = Call::new("slogdet", &[&a])?;
    call.square(0)?;
    let parts = run(op::Slogdet, &[&call.var(&a)])?;
    Ok((call.done(parts[0].clone()), call.done(parts[1].clone())))
}

/// See [`logdet`](crate::logdet).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float.
pub fn logdet(a: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("logdet", &[&a])?;
    call.square(0)?;
    let parts = run(op::Slogdet, &[&call.var(&a)])?;
    let (sign, log) = (&parts[0], &parts[1]);
    let negative = sign.less(&sign.scalar(0.0));
    Ok(call.done(negative.select(&log.scalar(f64::NAN), log)))
}
