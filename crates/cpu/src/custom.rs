//! Collectives of one member, and custom ops.

use crate::Cpu;
use crate::scalar::scalar_bytes;
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    Collective, CollectiveKind, Custom, DType, Engine, Error, Op, Operand, Operands, Result, Scalar,
    TensorData, TensorType, Value, Values, Var, block_on, expand_values,
};

/// In a group of one, everything that is sent comes back.
pub(crate) fn collective(collective: &Collective, inputs: Operands) -> Result<Values> {
    if collective.size != 1 {
        let problem = format!("a group of {} members needs a layer that connects them", collective.size);
        return Err(Error::unsupported("cpu", problem).hint("this engine alone is a group of 1"));
    }
    match collective.kind {
        CollectiveKind::AllReduce(_)
        | CollectiveKind::AllGather { .. }
        | CollectiveKind::ReduceScatter { .. }
        | CollectiveKind::Broadcast { .. }
        | CollectiveKind::Send { .. } => Ok(values(inputs)),
        CollectiveKind::Recv { .. } => {
            Err(Error::unsupported("cpu", "the only member of a group has nobody to receive from"))
        }
    }
}

fn values(inputs: Operands) -> Values {
    let value = |operand| match operand {
        Operand::Value(value) => Some(value),
        Operand::Scalar(_) => None,
    };
    inputs.into_iter().filter_map(value).collect()
}

/// By the registered kernel, else the expansion, else on the host.
pub(crate) fn custom(cpu: &Cpu, op: &Custom, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    if let Some(kernel) = cpu.kernel(op.name()) {
        let outputs = kernel(op, &on_host(cpu, inputs)?)?;
        return checked(cpu, op, outputs, results);
    }
    let variables: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(cpu, operand.clone())).collect();
    if let Some(outputs) = op.expand(&variables) {
        return outputs.into_iter().zip(results).map(|(output, ty)| into_value(cpu, output, ty)).collect();
    }
    drop(variables);
    match op.evaluate(&on_host(cpu, inputs)?) {
        Some(outputs) => checked(cpu, op, outputs?, results),
        None => Err(Error::unsupported("cpu", format!("no way to run the custom op `{}`", op.name()))
            .hint("give it an `expand` or an `evaluate`, or register a kernel with `Cpu::register_kernel`")),
    }
}

/// An op by its expansion, which it has.
pub(crate) fn expanded(cpu: &Cpu, op: &Op, inputs: &Operands, results: &[TensorType]) -> Result<Values> {
    let missing = || Error::unsupported("cpu", format!("no way to run `{}`", op.name()));
    expand_values(cpu, op, inputs, results).ok_or_else(missing)
}

fn into_value(cpu: &Cpu, output: Var<'_>, ty: &TensorType) -> Result<Value> {
    match output.into_operand() {
        Operand::Value(value) => Ok(value),
        Operand::Scalar(scalar) => Ok(cpu.write(number(scalar, ty.dtype)?)),
    }
}

/// The operands as data. A plain number takes the dtype of the first tensor where it fits.
fn on_host(cpu: &Cpu, inputs: Operands) -> Result<Vec<TensorData>> {
    let beside = inputs.iter().find_map(Operand::value).map(Value::dtype);
    let data = |operand| match operand {
        Operand::Value(value) => block_on(cpu.read(value)),
        Operand::Scalar(scalar) => {
            let dtype = beside.filter(|&dtype| scalar.fits(dtype));
            number(scalar, dtype.unwrap_or(scalar.default_dtype()))
        }
    };
    inputs.into_iter().map(data).collect()
}

/// The number as a tensor without axes.
fn number(scalar: Scalar, dtype: DType) -> Result<TensorData> {
    let bytes = scalar_bytes(scalar, dtype);
    TensorData::from_bytes(&bytes[..dtype.size()], TensorType::new([], dtype))
}

fn checked(cpu: &Cpu, op: &Custom, outputs: Vec<TensorData>, results: &[TensorType]) -> Result<Values> {
    let agree = outputs.len() == results.len() && outputs.iter().zip(results).all(|(y, ty)| y.ty() == *ty);
    if !agree {
        let made: Vec<TensorType> = outputs.iter().map(TensorData::ty).collect();
        let list =
            |types: &[TensorType]| types.iter().map(|ty| format!("{ty}")).collect::<Vec<_>>().join(", ");
        let problem = format!("its kernel made ({}) instead of ({})", list(&made), list(results));
        return Err(Error::value(op.name(), problem).hint("`infer` and the kernel must agree"));
    }
    Ok(outputs.into_iter().map(|data| cpu.write(data)).collect())
}
