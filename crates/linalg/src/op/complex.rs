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

use super::{Gradients, MatrixOp, OpText, Signature};
use crate::host::Number;
use crate::matrix::complex::Complex;
use kiln_ir::{Result, ResultTypes, TensorData, Var};

/// The name of an op on complex matrices, from the table of ops.
pub(crate) trait ComplexName {
    /// The full name.
    const COMPLEX_NAME: &'static str;
}

/// An op that is also an op on complex matrices.
pub(crate) trait ComplexRule: MatrixOp + ComplexName {
    /// Whether each result is complex, that is, two results. Default: all are.
    const IS_COMPLEX: &'static [bool] = &[];

    /// Returns the attributes of the complex op as text. Default: those of the op.
    fn complex_attributes(&self) -> String {
        self.attributes()
    }

    /// Parses the attributes of the complex op.
    fn complex_parse(attributes: &str) -> Option<Self> {
        Self::parse(attributes)
    }

    /// Computes the gradients of the operands of the complex op.
    fn complex_vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e>;
}

/// An op on complex matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComplexOp<O>(pub(crate) O);

impl<O: ComplexRule> OpText for ComplexOp<O> {
    const NAME: &'static str = O::COMPLEX_NAME;

    fn attributes(&self) -> String {
        self.0.complex_attributes()
    }

    fn parse(attributes: &str) -> Option<Self> {
        O::complex_parse(attributes).map(ComplexOp)
    }
}

impl<O: ComplexRule> MatrixOp for ComplexOp<O> {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        let types = self.0.infer(operands.complex()?)?.into_iter().enumerate();
        let parts =
            |place: usize| if O::IS_COMPLEX.get(place).is_none_or(|&is_complex| is_complex) { 2 } else { 1 };
        Ok(types.flat_map(|(place, ty)| core::iter::repeat_n(ty, parts(place))).collect())
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        self.0.evaluate::<T::Complex>(inputs)
    }

    fn vjp<'e>(&self, x: &[Var<'e>], y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        self.0.complex_vjp(x, y, g)
    }
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
