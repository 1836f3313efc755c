//! Ops from outside, and collectives.

use crate::call::{Call, data_of};
use crate::engine::Reference;
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    Collective, CollectiveKind, Custom, Error, Operands, Result, TensorData, TensorType, Value, Values,
};

/// A kernel for custom ops: given the op and its operands, computes its results.
pub type Kernel = dyn Fn(&Custom, &[TensorData]) -> Result<Vec<TensorData>> + Send + Sync;

/// Runs a custom op by its kernel here, by its expansion, or by its evaluation on the host: the first there is.
pub(crate) fn custom(
    engine: &Reference,
    op: &Custom,
    inputs: &Operands,
    types: &[TensorType],
) -> Result<Values> {
    let on_host = || Custom::on_host(inputs.clone(), |value| data_of(&value).cloned());
    let written =
        |outputs: Vec<TensorData>| Ok(outputs.into_iter().map(|data| Value::new(data.ty(), data)).collect());
    if let Some(kernel) = engine.kernel(op.name()) {
        return written(op.agreed("kernel", kernel(op, &on_host()?)?, types)?);
    }
    if let Some(values) = op.expand_values(engine, inputs, types) {
        return values;
    }
    if let Some(outputs) = op.evaluate_as(&on_host()?, types) {
        return written(outputs?);
    }
    let problem = format!("the custom op `{}` has no kernel here, no expansion and no evaluation", op.name());
    Err(Error::unsupported("reference", problem)
        .hint("implement `CustomOp::expand` or `CustomOp::evaluate`, or use `Reference::with_kernel`"))
}

/// A group of one: what is exchanged stays as it is.
pub(crate) fn collective(call: &Call<'_>, collective: &Collective) -> Result<TensorData> {
    let problem = match collective.kind {
        CollectiveKind::Recv { .. } => "nothing can be received: this engine has no other members",
        CollectiveKind::AllReduce(_)
        | CollectiveKind::AllGather { .. }
        | CollectiveKind::ReduceScatter { .. }
        | CollectiveKind::Broadcast { .. }
        | CollectiveKind::Send { .. } => {
            if collective.size == 1 {
                return call.data(0).cloned();
            }
            "this engine communicates with nobody"
        }
    };
    let problem = format!("[{}] {problem}: a group of {} was asked for", call.name(), collective.size);
    Err(Error::unsupported("reference", problem).hint("use a group of one member, or another engine"))
}
