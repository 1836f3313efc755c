//! Loops over steps as one op, for tensors of any rank and dtype.

use crate::{AnyTensor, Error, Result, Stack, TensorData, TensorType};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{LoopAttributes, LoopOp, Op, Operand, Operands, Recorder, Value};

/// The carried values after a step, or after the last, and the outputs: of the step, or of all steps along axis 0.
pub type LoopResults = (Vec<AnyTensor>, Vec<AnyTensor>);

/// Runs `body` once for each step along axis 0 of the scanned tensors, as one op.
///
/// `body` receives the carried values, one slice of each scanned tensor (without axis 0), and the constants. It returns
/// the new carried values, of the same types, and the outputs of the step. The result is the final carried values, and
/// each output of all steps, stacked along a new axis 0. With `reverse`, the last step runs first; the outputs are
/// still stored at the index of their step.
///
/// `body` is traced: it runs once, for all steps, and can read no elements. Every tensor that it uses must be a carried,
/// scanned or constant value; data that it creates becomes a constant. Its random numbers are the same in each step,
/// unless their key is scanned. A recording holds one op for any number of steps. Gradients run a loop in the other
/// direction.
///
/// This is [`lax.scan`](https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html);
/// [`scan`](crate::transform::scan) is the same for typed tensors.
///
/// ```
/// use kiln_backends::Device;
/// use kiln_tensor::{AnyTensor, loop_over};
///
/// // h = h w + x, for three steps.
/// let device = Device::cpu();
/// let of = |data: &[f64]| AnyTensor::from_data(data.to_vec(), &device);
/// let (h, x, w) = (of(&[1.0]), of(&[1.0, 2.0, 3.0]).reshape([3, 1])?, of(&[10.0]));
/// let (last, all) = loop_over(vec![h], vec![x], vec![w], false, |carried, slices, constants| {
///     let h = carried[0].clone().mul(constants[0].clone())?.add(slices[0].clone())?;
///     Ok((vec![h.clone()], vec![h]))
/// })?;
/// assert_eq!(last[0].to_data()?.to_vec::<f64>(), [1123.0]);
/// assert_eq!(all[0].to_data()?.to_vec::<f64>(), [11.0, 112.0, 1123.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Errors
/// The errors of `body`. When there are no scanned tensors (see [`loop_for`]), or their axes 0 differ. When a new
/// carried value has another type than the old one, or `body` uses a tensor from outside.
pub fn loop_over(
    carried: Vec<AnyTensor>,
    scanned: Vec<AnyTensor>,
    constants: Vec<AnyTensor>,
    reverse: bool,
    body: impl FnOnce(&[AnyTensor], &[AnyTensor], &[AnyTensor]) -> Result<LoopResults>,
) -> Result<LoopResults> {
    let types: Vec<_> = scanned.iter().map(|x| x.ty().into()).collect();
    let error = |problem: &str, hint| Error::type_error("loop", problem, &types).hint(hint);
    let Some(first) = scanned.first() else {
        return Err(error("there is no scanned tensor", "call `loop_for` with the number of steps"));
    };
    let Some(&steps) = first.shape().first() else {
        return Err(error("a scanned tensor has no axis of steps", "pass it as a constant"));
    };
    if scanned.iter().any(|x| x.shape().first() != Some(&steps)) {
        return Err(error(
            "the scanned tensors have different numbers of steps",
            "axis 0 of each is the axis of steps",
        ));
    }
    let attributes = LoopAttributes { carried: carried.len(), scanned: scanned.len(), steps, reverse };
    run(attributes, [carried, scanned, constants].concat(), body)
}

/// Runs `body` for a number of steps without scanned tensors. As [`loop_over`] otherwise.
///
/// ```
/// use kiln_backends::Device;
/// use kiln_tensor::{AnyTensor, loop_for};
///
/// let x = AnyTensor::from_data(vec![1.0f64], &Device::cpu());
/// let (last, _) = loop_for(10, vec![x], vec![], |carried, _| {
///     let x = carried[0].clone();
///     Ok((vec![x.clone().add(x)?], vec![]))
/// })?;
/// assert_eq!(last[0].to_data()?.to_vec::<f64>(), [1024.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Errors
/// As [`loop_over`]. When there are neither carried values nor constants.
pub fn loop_for(
    steps: usize,
    carried: Vec<AnyTensor>,
    constants: Vec<AnyTensor>,
    body: impl FnOnce(&[AnyTensor], &[AnyTensor]) -> Result<LoopResults>,
) -> Result<LoopResults> {
    let attributes = LoopAttributes { carried: carried.len(), scanned: 0, steps, reverse: false };
    run(attributes, [carried, constants].concat(), |carried, _, constants| body(carried, constants))
}

fn run(
    attributes: LoopAttributes,
    operands: Vec<AnyTensor>,
    body: impl FnOnce(&[AnyTensor], &[AnyTensor], &[AnyTensor]) -> Result<LoopResults>,
) -> Result<LoopResults> {
    let Some(stack) = operands.first().map(|first| first.stack().clone()) else {
        return Err(Error::type_error("loop", "there is no operand", &[]));
    };
    operands.iter().try_for_each(|operand| operands[0].in_same_domain("loop", operand))?;
    let (op, data) = traced(attributes, &operands, &stack, body)?;
    let data = data.into_iter().map(|data| stack.place(stack.engine().write(data)).into());
    let values = operands.into_iter().map(|operand| Operand::Value(operand.into_value()));
    let operands: Operands = values.chain(data).collect();
    let mut results: Vec<AnyTensor> = AnyTensor::emit(&stack, &Op::Loop(op), operands)?
        .into_iter()
        .map(|value| AnyTensor::new(stack.clone(), value))
        .collect();
    let outputs = results.split_off(attributes.carried);
    Ok((results, outputs))
}

/// Traces the body. The data that it creates are further constants.
fn traced(
    attributes: LoopAttributes,
    operands: &[AnyTensor],
    like: &Stack,
    body: impl FnOnce(&[AnyTensor], &[AnyTensor], &[AnyTensor]) -> Result<LoopResults>,
) -> Result<(LoopOp, Vec<TensorData>)> {
    let LoopAttributes { carried, scanned, .. } = attributes;
    let is_scanned = |place: usize| (carried..carried + scanned).contains(&place);
    let ty = |(place, operand): (usize, &AnyTensor)| {
        if is_scanned(place) { operand.ty().with_shape(operand.shape().without(0)) } else { *operand.ty() }
    };
    let types: Vec<TensorType> = operands.iter().enumerate().map(ty).collect();
    let recorder = Arc::new(Recorder::with_constants(&types));
    let stack = Stack::new(recorder.clone(), "the body of a loop", like.float_dtype(), like.int_dtype());
    let wrap = |value: Value| AnyTensor::new(stack.clone(), value);
    let inputs: Vec<AnyTensor> = recorder.inputs().into_iter().map(wrap).collect();
    let (state, rest) = inputs.split_at(carried);
    let (slices, constants) = rest.split_at(scanned);
    let (new, outputs) = body(state, slices, constants)?;
    if new.len() != carried {
        let problem = format!("the body returns {} carried values instead of {carried}", new.len());
        return Err(Error::type_error("loop", problem, &[]));
    }
    let outputs: Vec<AnyTensor> = new.into_iter().chain(outputs).collect();
    if let Some(other) = outputs.iter().find(|output| !output.stack().same_domain(&stack)) {
        let problem = format!("a result of the body is on {:?}", other.stack());
        return Err(Error::type_error("loop", problem, &[other.ty().into()])
            .hint("pass tensors from outside to the body as constants of the loop"));
    }
    let outputs: Vec<Operand> = outputs.into_iter().map(|output| output.into_value().into()).collect();
    Ok((LoopOp::new(recorder.finish(&outputs), attributes)?, recorder.constants()))
}
