//! Iteration over the steps of a sequence.

use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Result, loop_over};

/// The tensors that a step returns.
pub(super) struct Step {
    /// The carried tensors for the next step, of the types of the operands.
    pub(super) carried: Vec<AnyTensor>,
    /// The outputs of this step.
    pub(super) outputs: Vec<AnyTensor>,
}

/// The order in which the steps run. Outputs are in sequence order in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    FirstToLast,
    LastToFirst,
}

/// Runs a body once per step, as one op: `(carried, slices of the scanned tensors, constants) -> (carried, outputs)`. Returns
/// the carried tensors after the last step, and each output of all steps, stacked along a new axis 0.
///
/// The scanned tensors have the step as axis 0, of one length. The body is a pure function of its operands: every tensor
/// that it reads is passed to it. The bounds enforce this, since a closure that holds a tensor is not `Copy + 'static`. It
/// may hold plain data.
pub(super) fn scan<F>(
    order: Order,
    carried: Vec<AnyTensor>,
    scanned: Vec<AnyTensor>,
    constants: &[AnyTensor],
    body: F,
) -> Result<Step>
where
    F: Fn(Vec<AnyTensor>, Vec<AnyTensor>, &[AnyTensor]) -> Step + Copy + 'static,
{
    let reverse = order == Order::LastToFirst;
    let step = |carried: &[AnyTensor], slices: &[AnyTensor], constants: &[AnyTensor]| {
        let Step { carried, outputs } = body(carried.to_vec(), slices.to_vec(), constants);
        Ok((carried, outputs))
    };
    let (carried, outputs) = loop_over(carried, scanned, constants.to_vec(), reverse, step)?;
    Ok(Step { carried, outputs })
}
