//! The ops on complex matrices. Operands are all real parts, then all imaginary parts. A complex result is two
//! consecutive results.
//!
//! The gradient of a real function of `z` is the pair of its derivatives with respect to the real and imaginary part.
//! With `⟨G, Z⟩ = Re tr(Gᴴ Z)` it is the `G` for which the function changes by `⟨G, dZ⟩`. The rules are derived from
//! this.

mod determinant;
mod eigen;
mod factor;
mod solve;
mod svd;

pub(crate) use determinant::{ComplexCofactor, ComplexDet, ComplexSlogdet};
pub(crate) use eigen::{ComplexEig, ComplexEigh, ComplexEigvalsh};
pub(crate) use factor::{ComplexCholesky, ComplexQr};
pub(crate) use solve::{ComplexInverse, ComplexSolve, ComplexSolveTriangular};
pub(crate) use svd::{ComplexSvd, ComplexSvdvals};

use super::Gradients;
use crate::matrix::complex::Complex;
use kiln_ir::ResultTypes;

/// The types of complex results: real and imaginary part of each.
fn in_parts(types: ResultTypes) -> ResultTypes {
    types.into_iter().flat_map(|ty| [ty, ty]).collect()
}

/// The gradients of the operands as an op returns them: all real parts, then all imaginary parts.
fn parts<'e>(gradients: &[Complex<'e>]) -> Gradients<'e> {
    let re = gradients.iter().map(|gradient| Some(gradient.re.clone()));
    Ok(re.chain(gradients.iter().map(|gradient| Some(gradient.im.clone()))).collect())
}

/// No gradients for this number of operands.
fn none<'e>(operands: usize) -> Gradients<'e> {
    Ok((0..2 * operands).map(|_| None).collect())
}

fn plus<'e>(a: Option<Complex<'e>>, b: Complex<'e>) -> Option<Complex<'e>> {
    Some(match a {
        Some(a) => a + b,
        None => b,
    })
}
