//! The variance about a known mean.

use super::{Function, widened};
use crate::{AnyTensor, Result};
use alloc::vec::Vec;
use kiln_ir::{OperandType, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// The mean squared deviation of a tensor from its mean, along the axes in which the mean has length 1.
///
/// The derivative by the mean is 0 at the mean. That rule saves the gradient a sum over the whole tensor. The rule has
/// no second derivatives in the mean and needs none: the first derivatives hold for every tensor with its mean, and are
/// differentiated in both.
#[derive(Clone, Copy, Debug)]
pub(super) struct VarianceAbout;

/// The name of [`VarianceAbout`].
pub(super) const NAME: &str = "variance_about";

impl AnyTensor {
    /// Computes the variance along the axes in which `mean`, the mean of `self`, has length 1. See
    /// [`module::variance_about`](crate::module::variance_about).
    pub(crate) fn variance_about(self, mean: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain(NAME, &mean)?;
        self.apply_with(&VarianceAbout.op(), [mean.into_value().into()])
    }
}

impl Function for VarianceAbout {
    const IS_EXPRESSION: bool = true;
    const SAVED: Saved = Saved { outputs: 0, ..Saved::ALL };

    fn name(&self) -> &str {
        NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let problem = |problem: &str| kiln_ir::Error::type_error(NAME, problem, inputs);
        let types: Vec<_> = inputs.iter().filter_map(|input| input.tensor()).collect();
        let [x, mean] = types[..] else { return Err(problem("expects a tensor and its mean")) };
        if !x.dtype.is_float() || x.dtype != mean.dtype {
            return Err(problem("needs one float dtype").hint("cast the tensors to it first"));
        }
        let is_mean = |(&of, &whole): (&usize, &usize)| of == 1 || of == whole;
        if x.rank() != mean.rank() || !mean.shape.iter().zip(x.shape.iter()).all(is_mean) {
            return Err(problem("needs a mean with the axes of the tensor")
                .hint("keep the axes that are averaged, with length 1"));
        }
        Ok(smallvec![*mean])
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        let (x, mean) = (&inputs[0], &inputs[1]);
        let (axes, count) = averaged(x, mean);
        let squares = (widened(x) - widened(mean)).square();
        let total = if axes.is_empty() { squares } else { squares.sum(&axes) };
        (total / count as f64).cast(x.dtype())
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let (x, mean) = (&inputs[0], &inputs[1]);
        let (_, count) = averaged(x, mean);
        let gradient = (widened(x) - widened(mean)) * (widened(g) * (2.0 / count as f64));
        alloc::vec![Some(gradient.cast(x.dtype())), None]
    }
}

/// Returns the axes along which a mean has length 1, and the number of elements that it averages.
fn averaged(x: &Var<'_>, mean: &Var<'_>) -> (Vec<usize>, usize) {
    let (whole, of) = (x.shape(), mean.shape());
    let axes: Vec<usize> = (0..whole.rank()).filter(|&axis| whole[axis] != of[axis]).collect();
    let count = axes.iter().map(|&axis| whole[axis]).product();
    (axes, count)
}
