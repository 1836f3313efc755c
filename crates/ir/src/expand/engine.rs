//! The layer that expands the ops that its engine does not run.

#[cfg(feature = "std")]
use super::group::is_of_threads;
use super::kernels::Kernels;
use super::{MINIMAL, expand};
use crate::{
    BoxFuture, Caps, CollectiveKind, DType, DTypeSet, Engine, Error, Machine, Op, OpKind, OpSet, Operand,
    OperandType, Operands, Program, Recorder, Result, TensorData, TensorType, Value, Values, Var,
    or_poisoned, poison_of, poisoned,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A layer that runs every op on an engine that runs some. Ops that the engine [supports](Engine::supports) are
/// forwarded; all others are [expanded](expand) until the engine supports them.
///
/// Every stack has it around the engine of its device ([`expanding`]), so engines need neither of these:
///
/// * **Custom ops** run by the first of these that exists: a [registered kernel](Expand::register_kernel), the engine
///   if it supports them, their [equivalent](crate::CustomOp::equivalent), their
///   [expansion](crate::CustomOp::expand), or their [evaluation](crate::CustomOp::evaluate) on the host.
/// * **Collectives** of a single-member group return their operand. Those of a `ThreadGroup` exchange operands with the
///   other threads and wait for them. Those of other groups need an engine that supports them.
/// * **Fused regions** that the engine does not support as a whole run op by op.
/// * **Loops** run step by step, unless the engine supports them with all ops of their body.
///
/// The layer has the name, the dtypes and the machine of the engine, and all ops in its [`Caps`]. An op that is neither
/// supported nor expandable, or of a dtype that the engine lacks, returns poisoned results. The error names engine, op
/// and operand types.
///
/// Values are those of the engine.
pub struct Expand {
    pub(super) inner: Arc<dyn Engine>,
    caps: Caps,
    /// The ops that the engine runs directly for all operands, if it has the dtypes.
    direct: OpSet,
    has_all_dtypes: bool,
    pub(super) kernels: Kernels,
}

/// Returns an engine that runs every op: this one if it is or contains an [`Expand`], else this one with [`Expand`]
/// around it.
pub fn expanding(engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    if engine.find::<Expand>().is_some() {
        return engine;
    }
    Arc::new(Expand::around(engine))
}

impl Expand {
    /// Wraps an engine.
    pub fn new(engine: impl Engine) -> Expand {
        Expand::around(Arc::new(engine))
    }

    /// Wraps a shared engine.
    pub fn around(engine: Arc<dyn Engine>) -> Expand {
        let caps = engine.caps();
        let direct = caps.native.without(&[OpKind::Fused, OpKind::Loop, OpKind::Custom, OpKind::Collective]);
        let has_all_dtypes = caps.dtypes == DTypeSet::ALL;
        let caps = Caps { native: OpSet::ALL, ..caps.clone() };
        Expand { inner: engine, caps, direct, has_all_dtypes, kernels: Kernels::default() }
    }

    /// Returns the engine below.
    pub fn inner(&self) -> &Arc<dyn Engine> {
        &self.inner
    }

    /// The ops that the engine runs directly for all operands.
    pub(super) fn always_direct(&self) -> OpSet {
        if self.has_all_dtypes { self.direct } else { OpSet::default() }
    }

    /// Whether the engine's sets contain an op, so that [`Engine::supports`] need not be called. The bit of the kind
    /// decides for most ops.
    #[inline]
    fn is_direct(&self, op: &Op, inputs: &Operands, results: &[TensorType]) -> bool {
        let is_direct = self.direct.contains(op.kind())
            && (self.has_all_dtypes || self.missing_dtype(inputs, results).is_none());
        debug_assert!(
            !is_direct || self.inner.supports(op, &OperandType::list(inputs)),
            "[{}] `{}` is in `Caps::native`, but `supports` declines it for {}",
            self.caps.name,
            op.name(),
            types(&OperandType::list(inputs))
        );
        is_direct
    }

    /// Runs an op that is not in the engine's sets: by the engine if it supports it, else expanded.
    #[inline(never)]
    fn execute_any(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        // Registered kernels of custom ops have priority over the engine's.
        let is_asked = op.kind() != OpKind::Custom && !is_alone(op);
        if is_asked && self.inner.supports(op, &OperandType::list(&inputs)) {
            return self.inner.execute(op, inputs, results);
        }
        self.expanded(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    /// A dtype among operands and results that the engine lacks.
    fn missing_dtype(&self, inputs: &Operands, results: &[TensorType]) -> Option<DType> {
        let operands = inputs.iter().filter_map(|operand| Some(operand.value()?.dtype()));
        operands.chain(results.iter().map(|ty| ty.dtype)).find(|dtype| !self.caps.dtypes.contains(*dtype))
    }

    /// The error of an op that does not run.
    pub(super) fn unsupported(&self, op: &Op, operands: &[OperandType<'_>], problem: &str) -> Error {
        let problem = format!("does not run `{}`: {problem} (operands: {})", op.name(), types(operands));
        Error::unsupported(&self.caps.name, problem)
    }

    fn expanded(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        if let Op::Fused(region) = op {
            // Poison affects only the results that depend on it.
            return Ok(region.program().run_region(self, inputs));
        }
        // Before errors of operands: the other members wait, and get the error too.
        #[cfg(feature = "std")]
        if let Op::Collective(call) = op
            && call.size > 1
            && let Some(outcome) = self.collective(call, &inputs)
        {
            return outcome;
        }
        if let Some(error) = poison_of(&inputs) {
            return Err(error);
        }
        if let Op::Custom(custom) = op {
            return self.custom(op, custom, inputs, results);
        }
        if let Some(dtype) = self.missing_dtype(&inputs, results) {
            let error =
                self.unsupported(op, &OperandType::list(&inputs), &format!("{dtype} is not supported"));
            return Err(error.hint("cast to another dtype first"));
        }
        let variables: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(self, operand.clone())).collect();
        let Some(outputs) = expand(self, op, &variables) else {
            return Err(self.refused(op, &inputs));
        };
        drop((inputs, variables));
        Ok(outputs.into_iter().map(Var::into_value).collect())
    }

    /// The error of an op that has no expansion.
    fn refused(&self, op: &Op, inputs: &Operands) -> Error {
        let Op::Collective(collective) = op else {
            return self.unsupported(
                op,
                &OperandType::list(inputs),
                "the engine has no kernel for it, and it has no expansion",
            );
        };
        let problem = match collective.size {
            1 => "a group of one member has no sender".into(),
            size => format!("the engine does not connect a group of {size} members"),
        };
        self.unsupported(op, &OperandType::list(inputs), &problem)
            .hint("use a group of 1 member, a registered `ThreadGroup`, or an engine that communicates")
    }
}

impl Engine for Expand {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        #[cfg(feature = "std")]
        if crate::profile::counts(op) {
            return crate::profile::counted(self, op, inputs, results);
        }
        if self.is_direct(op, &inputs, results) {
            return self.inner.execute(op, inputs, results);
        }
        self.execute_any(op, inputs, results)
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        #[cfg(feature = "std")]
        if crate::profile::counts(op) {
            return crate::profile::counted_async(self, op, inputs, results);
        }
        if let Op::Custom(custom) = op
            && poison_of(&inputs).is_none()
        {
            return or_poisoned(Ok(self.custom_async(op, custom, inputs, results)), results);
        }
        let is_passed = op.kind() == OpKind::NonZero && self.inner.supports(op, &OperandType::list(&inputs));
        match is_passed {
            true => self.inner.execute_async(op, inputs, results),
            false => Box::pin(core::future::ready(self.execute(op, inputs, results))),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.inner)
    }

    /// As the default, but without a clone on the way: autodiff calls it for each saved operand.
    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        self.inner.saved_for_backward(op, place, value)
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        let has_expansion = || !MINIMAL.contains(op.kind()) || is_alone(op) || is_of_threads(op);
        let has_dtypes = || self.has_all_dtypes || self.caps.supports(op, operands);
        self.inner.supports(op, operands) || (has_expansion() && has_dtypes())
    }
}

/// Whether this is a collective of a single member, which needs no communication.
fn is_alone(op: &Op) -> bool {
    matches!(op, Op::Collective(c) if c.size == 1 && !matches!(c.kind, CollectiveKind::Recv { .. }))
}

/// Without threads there are no thread groups.
#[cfg(not(feature = "std"))]
fn is_of_threads(_op: &Op) -> bool {
    false
}

/// The types of operands, for messages.
fn types(operands: &[OperandType<'_>]) -> String {
    let types: Vec<String> = operands.iter().map(ToString::to_string).collect();
    if types.is_empty() { "none".into() } else { types.join(" x ") }
}

/// Expands a program: ops in `native` are kept, and all others are [expanded](expand) until only these and [`MINIMAL`]
/// are left.
///
/// # Errors
/// When the program contains a custom op that is outside `native` and has no expansion.
pub fn expand_program(program: &Program, native: OpSet) -> Result<Program> {
    let recorder = Recorder::new(&program.inputs);
    let inputs = recorder.inputs();
    let kinds: Vec<OpKind> = native.iter().chain(MINIMAL.iter()).collect();
    let native = OpSet::of(&kinds);
    let machine = Machine::processor();
    let caps = Caps { name: "expand".into(), dtypes: DTypeSet::ALL, native, machine };
    let restricted = Arc::new(Restricted { recorder, caps });
    let engine = Expand::around(restricted.clone());
    let outputs = program.run(&engine, inputs.into_iter().collect());
    if let Some(error) = outputs.iter().find_map(Value::error) {
        return Err(error.clone());
    }
    let outputs: Vec<Operand> = outputs.into_iter().map(Operand::Value).collect();
    Ok(restricted.recorder.finish(&outputs))
}

/// A recorder that supports only some ops.
struct Restricted {
    recorder: Recorder,
    caps: Caps,
}

impl Engine for Restricted {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        match poison_of(&inputs) {
            Some(error) => poisoned(results, &error),
            None => self.recorder.execute(op, inputs, results),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        self.recorder.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.recorder.read(value)
    }
}
