//! Loops: the body runs once for each step, and the bytes of its outputs are stored at the index of the step.

use crate::Reference;
use crate::call::data_of;
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{LoopAttributes, LoopOp, Operand, Operands, Result, TensorData, TensorType, Value, Values};

/// Runs a loop whose results have these types.
pub(crate) fn looped(
    engine: &Reference,
    op: &LoopOp,
    inputs: &Operands,
    types: &[TensorType],
) -> Result<Values> {
    let attributes = op.attributes();
    let LoopAttributes { carried, scanned, .. } = attributes;
    let values: Vec<Value> = inputs.iter().filter_map(Operand::value).cloned().collect();
    let (state, rest) = values.split_at(carried);
    let (scanned, constants) = rest.split_at(scanned);
    let scanned: Vec<&TensorData> = scanned.iter().map(data_of).collect::<Result<_>>()?;
    let mut stacks: Vec<Vec<u8>> = types[carried..].iter().map(|ty| vec![0; ty.num_bytes()]).collect();
    let mut state: Values = state.iter().cloned().collect();
    for step in attributes.order() {
        for x in &scanned {
            state.push(slice(x, step)?);
        }
        state.extend(constants.iter().cloned());
        let mut results = op.body().run(engine, state);
        for (stack, output) in stacks.iter_mut().zip(results.drain(carried..)) {
            let bytes = data_of(&output)?.bytes();
            stack[step * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        }
        state = results;
    }
    for (stack, ty) in stacks.iter().zip(&types[carried..]) {
        let data = TensorData::from_bytes(stack, *ty)?;
        state.push(Value::new(*ty, data));
    }
    Ok(state)
}

/// One step of a scanned tensor, without the axis of the steps.
fn slice(x: &TensorData, step: usize) -> Result<Value> {
    let ty = x.ty().with_shape(x.shape().without(0));
    let bytes = ty.num_bytes();
    let data = TensorData::from_bytes(&x.bytes()[step * bytes..][..bytes], ty)?;
    Ok(Value::new(ty, data))
}
