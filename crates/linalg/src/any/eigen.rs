//! Eigenvalue decompositions.

use super::Pair;
use crate::Triangle;
use crate::call::Call;
use crate::op::{self, run, run_one};
use kiln_ir::{Result, Var};
use kiln_tensor::AnyTensor;

/// See [`eigh`](crate::eigh).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix with NaN or infinity is reported when a
/// result is read.
pub fn eigh(a: AnyTensor, triangle: Triangle) -> Result<(AnyTensor, AnyTensor)> {
    let call = Call::new("eigh", &[&a])?;
    call.square(0)?;
    let parts = run(op::Eigh, &[&read_from(&call.var(&a), triangle)])?;
    Ok((call.done(parts[0].clone()), call.done(parts[1].clone())))
}

/// See [`eigvalsh`](crate::eigvalsh).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix with NaN or infinity is reported when the
/// result is read.
pub fn eigvalsh(a: AnyTensor, triangle: Triangle) -> Result<AnyTensor> {
    let call = Call::new("eigvalsh", &[&a])?;
    call.square(0)?;
    let values = run_one(op::Eigvalsh, &[&read_from(&call.var(&a), triangle)])?;
    Ok(call.done(values))
}

/// The symmetric matrix whose lower triangle is read.
fn read_from<'e>(a: &Var<'e>, triangle: Triangle) -> Var<'e> {
    match triangle {
        Triangle::Lower => a.clone(),
        Triangle::Upper => a.transpose(),
    }
}

/// See [`eig`](crate::eig).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix with NaN or infinity is reported when a
/// result is read.
pub fn eig(a: AnyTensor) -> Result<(Pair, Pair)> {
    let call = Call::new("eig", &[&a])?;
    call.square(0)?;
    let parts = run(op::Eig, &[&call.var(&a)])?;
    let done = |place: usize| call.done(parts[place].clone());
    Ok(((done(0), done(1)), (done(2), done(3))))
}

/// See [`eigvals`](crate::eigvals).
///
/// # Errors
/// When the matrices are not square or the dtype is not a float. A matrix with NaN or infinity is reported when a
/// result is read.
pub fn eigvals(a: AnyTensor) -> Result<Pair> {
    let call = Call::new("eigvals", &[&a])?;
    call.square(0)?;
    // Without vectors, values could be in another order than in the gradient, which needs the vectors.
    let parts = run(op::Eig, &[&call.var(&a)])?;
    Ok((call.done(parts[0].clone()), call.done(parts[1].clone())))
}
