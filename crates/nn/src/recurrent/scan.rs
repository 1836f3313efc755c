//! Iteration over the steps of a sequence.

use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Result};

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

impl Order {
    fn nth(self, count: usize, length: usize) -> usize {
        match self {
            Order::FirstToLast => count,
            Order::LastToFirst => length - 1 - count,
        }
    }
}

/// Runs a body once per step: `(carried, slices of the scanned tensors, constants) -> (carried, outputs)`. Returns the
/// carried tensors after the last step, and each output of all steps, stacked along a new axis 0.
///
/// The scanned tensors have the step as axis 0, at least one, of one length above 0. The body is a pure function of its
/// operands: every tensor that it reads is passed to it. The bounds enforce this, since a closure that holds a tensor
/// is not `Copy + 'static`. It may hold plain data.
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
    let length = scanned[0].shape()[0];
    let (mut carried, mut collected) = (carried, Vec::<Vec<AnyTensor>>::new());
    for count in 0..length {
        let place = order.nth(count, length);
        let slices = scanned.iter().map(|all| all.clone().select_dim(0, place as i64));
        let step = body(carried, slices.collect::<Result<_>>()?, constants);
        carried = step.carried;
        collected.resize_with(step.outputs.len(), || Vec::with_capacity(length));
        collected.iter_mut().zip(step.outputs).for_each(|(all, output)| all.push(output));
    }
    let outputs = collected.into_iter().map(|outputs| stacked(order, outputs));
    Ok(Step { carried, outputs: outputs.collect::<Result<_>>()? })
}

fn stacked(order: Order, mut outputs: Vec<AnyTensor>) -> Result<AnyTensor> {
    match order {
        Order::FirstToLast => {}
        Order::LastToFirst => outputs.reverse(),
    }
    AnyTensor::stack_tensors(outputs, 0)
}
