//! Collectives of one member, and custom ops.

use crate::Cpu;
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{
    Collective, CollectiveKind, Custom, Engine, Error, Op, Operand, Operands, Result, TensorData, TensorType,
    Values, block_on, expand_values,
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

/// By the registered kernel, else the equivalent op, else the expansion, else on the host.
pub(crate) fn custom(cpu: &Cpu, op: &Custom, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let on_host = |inputs| Custom::on_host(inputs, |value| block_on(cpu.read(value)));
    let written = |outputs: Vec<TensorData>| Ok(outputs.into_iter().map(|data| cpu.write(data)).collect());
    if let Some(kernel) = cpu.kernel(op.name()) {
        return written(op.agreed("kernel", kernel(op, &on_host(inputs)?)?, results)?);
    }
    if let Some(equivalent) = op.equivalent_for(&inputs, results) {
        return cpu.run(&equivalent?, inputs, results);
    }
    if let Some(values) = op.expand_values(cpu, &inputs, results) {
        return values;
    }
    match op.evaluate_as(&on_host(inputs)?, results) {
        Some(outputs) => written(outputs?),
        None => Err(Error::unsupported("cpu", format!("no way to run the custom op `{}`", op.name()))
            .hint("give it an `expand` or an `evaluate`, or register a kernel with `Cpu::register_kernel`")),
    }
}

/// An op by its expansion, which it has.
pub(crate) fn expanded(cpu: &Cpu, op: &Op, inputs: &Operands, results: &[TensorType]) -> Result<Values> {
    let missing = || Error::unsupported("cpu", format!("no way to run `{}`", op.name()));
    expand_values(cpu, op, inputs, results).ok_or_else(missing)
}
