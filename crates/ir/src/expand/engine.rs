//! The engine that expands what the engine below does not run.

use super::{MINIMAL, expand};
use crate::{
    BoxFuture, Caps, Custom, DType, DTypeSet, Engine, Error, Machine, Memory, Op, OpKind, OpSet, Operand,
    Operands, Program, Recorder, Result, SharedBytes, TensorData, TensorType, Value, Values, Var, poison_of,
    poisoned,
};
use alloc::format;
use alloc::vec::Vec;

/// An engine around another: ops that the inner one runs natively pass, all others are [expanded](expand) until
/// they are native.
///
/// It names itself as the inner engine does, computes with its dtypes, and runs every op. An op that is neither native
/// nor expandable, or of a dtype that the inner engine lacks, gives poisoned results whose error names engine and
/// op. A custom op passes where the inner engine runs [`Op::Custom`]; otherwise its
/// [expansion](crate::CustomOp::expand) runs, or it is [evaluated](crate::CustomOp::evaluate) on the host.
///
/// Values are those of the inner engine.
pub struct Expand<E: Engine> {
    inner: E,
    caps: Caps,
}

impl<E: Engine> Expand<E> {
    /// The layer around an engine.
    pub fn new(inner: E) -> Expand<E> {
        let caps = Caps { native: OpSet::ALL, ..inner.caps().clone() };
        Expand { inner, caps }
    }

    /// The engine below.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// The dtype among operands and results that the inner engine lacks.
    fn missing_dtype(&self, inputs: &Operands, results: &[TensorType]) -> Option<DType> {
        let operands = inputs.iter().filter_map(|operand| Some(operand.value()?.dtype()));
        operands.chain(results.iter().map(|ty| ty.dtype)).find(|dtype| !self.caps.dtypes.contains(*dtype))
    }

    fn unsupported(&self, op: &Op, problem: &str) -> Error {
        Error::unsupported(&self.caps.name, format!("does not run `{}`: {problem}", op.name()))
    }

    fn expanded(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        if let Some(error) = poison_of(&inputs) {
            return Err(error);
        }
        if let Op::Custom(custom) = op {
            return match custom.expand_values(self, &inputs, results) {
                Some(values) => values,
                None => self.evaluated(op, custom, inputs, results),
            };
        }
        let variables: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(self, operand.clone())).collect();
        let outputs = expand(self, op, &variables)
            .ok_or_else(|| self.unsupported(op, "the engine has no kernel and the op no expansion"))?;
        drop((inputs, variables));
        Ok(outputs.into_iter().map(Var::into_value).collect())
    }

    fn evaluated(
        &self,
        op: &Op,
        custom: &Custom,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let data = Custom::on_host(inputs, |value| {
            read_now(self.inner.read(value))
                .unwrap_or_else(|| Err(self.unsupported(op, "its operands cannot be read without waiting")))
        })?;
        let hint = "give the op `expand` or `evaluate`, or register a kernel with the engine";
        let outputs = custom.evaluate_as(&data, results).unwrap_or_else(|| {
            Err(self.unsupported(op, "no kernel, no expansion, no evaluation").hint(hint))
        })?;
        Ok(outputs.into_iter().map(|data| self.inner.write(data)).collect())
    }
}

impl<E: Engine> Engine for Expand<E> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let native = self.inner.caps().native.contains(op.kind());
        if native && matches!(op, Op::Custom(_)) {
            return self.inner.execute(op, inputs, results);
        }
        if !matches!(op, Op::Custom(_) | Op::Fused(_))
            && let Some(dtype) = self.missing_dtype(&inputs, results)
        {
            let error = poison_of(&inputs).unwrap_or_else(|| {
                self.unsupported(op, &format!("{dtype} is not supported")).hint("cast to another dtype first")
            });
            return poisoned(results, &error);
        }
        if native && !alone(op) {
            return self.inner.execute(op, inputs, results);
        }
        self.expanded(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        self.inner.write_shared(bytes, ty)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }

    fn mixes_precision(&self) -> bool {
        self.inner.mixes_precision()
    }

    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        self.inner.outcome(value)
    }

    fn submit(&self) {
        self.inner.submit();
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }

    fn memory(&self) -> Option<&dyn Memory> {
        self.inner.memory()
    }
}

/// Whether this is a group operation of one member that needs no communication.
fn alone(op: &Op) -> bool {
    use crate::CollectiveKind;
    matches!(op, Op::Collective(c) if c.size == 1 && !matches!(c.kind, CollectiveKind::Recv { .. }))
}

/// The program in simpler ops: those of `native` stay, all others are [expanded](expand) until only these and
/// [`MINIMAL`] are left.
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
    let engine = Expand::new(Restricted { recorder, caps });
    let outputs = program.run(&engine, inputs.into_iter().collect());
    if let Some(error) = outputs.iter().find_map(Value::error) {
        return Err(error.clone());
    }
    let outputs: Vec<Operand> = outputs.into_iter().map(Operand::Value).collect();
    Ok(engine.inner.recorder.finish(&outputs))
}

/// A recorder that claims to run some ops only.
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

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.recorder.sync()
    }
}

/// What a read gives: by waiting where threads can wait, otherwise only if it is ready.
fn read_now(future: BoxFuture<'_, Result<TensorData>>) -> Option<Result<TensorData>> {
    if cfg!(all(feature = "std", not(target_family = "wasm"))) {
        return Some(crate::block_on(future));
    }
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    match core::pin::pin!(future).poll(&mut context) {
        core::task::Poll::Ready(data) => Some(data),
        core::task::Poll::Pending => None,
    }
}
