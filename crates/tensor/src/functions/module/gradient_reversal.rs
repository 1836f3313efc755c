//! Gradient reversal.

use super::custom;
use crate::special::{Function, Special};
use crate::{Backend, Float, Number, Tensor};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{Error, OperandType, Result, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// Returns the tensor unchanged, and multiplies the gradient by `-lambda` in the backward pass: the gradient reversal
/// layer of domain-adversarial training ([Ganin and Lempitsky 2015](https://arxiv.org/abs/1409.7495)). Input of any shape;
/// the output has the same shape.
///
/// `lambda` may change from step to step; the paper raises it from 0 to 1.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Autodiff, Tensor, module};
///
/// let features = Tensor::<Autodiff<Flex>, 1>::from([1.0, -2.0]).require_grad();
/// let reversed = module::gradient_reversal(features.clone(), 0.5);
/// assert_eq!(reversed.to_vec::<f32>(), [1.0, -2.0]);
/// let gradients = (reversed * 3).sum().backward();
/// assert_eq!(features.grad(&gradients).unwrap().to_vec::<f32>(), [-1.5, -1.5]);
/// ```
///
/// # Panics
/// When `lambda` is NaN or infinite.
#[doc(alias = "GradientReversalLayer")]
#[track_caller]
pub fn gradient_reversal<B: Backend, const D: usize>(x: Tensor<B, D>, lambda: impl Number) -> Tensor<B, D> {
    custom::<B, D, D, Float>(Special(GradientReversal { lambda: lambda.scalar().to_f64() }), vec![x])
}

#[derive(Clone, Copy, Debug)]
struct GradientReversal {
    lambda: f64,
}

const NAME: &str = "gradient_reversal";

impl Function for GradientReversal {
    const IS_EXPRESSION: bool = true;
    const SAVED: Saved = Saved::NONE;

    fn name(&self) -> &str {
        NAME
    }

    fn attributes(&self) -> String {
        self.lambda.to_string()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        if !self.lambda.is_finite() {
            let problem = format!("the factor {} of the gradient is not finite", self.lambda);
            return Err(Error::value(NAME, problem).hint("`lambda` is a number such as 1.0"));
        }
        match inputs {
            [OperandType::Tensor(ty)] if ty.dtype.is_float() => Ok(smallvec![**ty]),
            _ => Err(Error::type_error(NAME, "expects a tensor of floats", inputs)),
        }
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        inputs[0].clone()
    }

    fn gradients<'e>(&self, _: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        vec![Some(g * -self.lambda)]
    }
}

/// Registers the op by name, for programs that are parsed from text or received from the network.
#[cfg(feature = "std")]
pub(crate) fn register() {
    kiln_ir::Custom::register(NAME, |attributes| match attributes.parse() {
        Ok(lambda) => Ok(GradientReversal { lambda }.custom()),
        Err(_) => Err(Error::value(NAME, format!("the factor `{attributes}` is not a number"))),
    });
}
