//! Ops from outside, and collectives.

use crate::call::{Call, data_of, full};
use crate::engine::Reference;
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    Collective, CollectiveKind, Custom, Engine, Error, Operand, Operands, Result, TensorData, TensorType,
    Value, Values, Var,
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
    if let Some(kernel) = engine.kernel(op.name()) {
        return finished(op, kernel(op, &host_operands(inputs)?)?, types);
    }
    let variables: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(engine, operand.clone())).collect();
    if let Some(results) = op.expand(&variables) {
        return expanded(op, engine, results, types);
    }
    if let Some(results) = op.evaluate(&host_operands(inputs)?) {
        return finished(op, results?, types);
    }
    let problem = format!("the custom op `{}` has no kernel here, no expansion and no evaluation", op.name());
    Err(Error::unsupported("reference", problem)
        .hint("implement `CustomOp::expand` or `CustomOp::evaluate`, or use `Reference::with_kernel`"))
}

/// The operands as data. A scalar takes the dtype of the first tensor, or its own default.
fn host_operands(inputs: &Operands) -> Result<Vec<TensorData>> {
    let beside = inputs.iter().find_map(Operand::value).map(Value::dtype);
    let data = |operand: &Operand| match operand {
        Operand::Value(value) => data_of(value).cloned(),
        Operand::Scalar(scalar) => {
            let dtype = beside.filter(|&dtype| scalar.fits(dtype)).unwrap_or(scalar.default_dtype());
            full(*scalar, TensorType::new([], dtype))
        }
    };
    inputs.iter().map(data).collect()
}

fn finished(op: &Custom, results: Vec<TensorData>, types: &[TensorType]) -> Result<Values> {
    check_types(op, results.iter().map(TensorData::ty).collect(), types)?;
    Ok(results.into_iter().map(|data| Value::new(data.ty(), data)).collect())
}

fn expanded(op: &Custom, engine: &Reference, results: Vec<Var<'_>>, types: &[TensorType]) -> Result<Values> {
    let value = |(place, result): (usize, Var<'_>)| match result.into_operand() {
        Operand::Value(value) => Ok(value),
        Operand::Scalar(scalar) => {
            let dtype = types.get(place).map_or(scalar.default_dtype(), |ty| ty.dtype);
            full(scalar, TensorType::new([], dtype)).map(|data| engine.write(data))
        }
    };
    let values: Values = results.into_iter().enumerate().map(value).collect::<Result<_>>()?;
    check_types(op, values.iter().map(|value| *value.ty()).collect(), types)?;
    Ok(values)
}

fn check_types(op: &Custom, found: Vec<TensorType>, expected: &[TensorType]) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let list = |types: &[TensorType]| types.iter().map(|ty| format!("{ty}")).collect::<Vec<_>>().join(", ");
    let problem = format!("computed ({}), but its inference says ({})", list(&found), list(expected));
    Err(Error::value(op.name(), problem))
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
