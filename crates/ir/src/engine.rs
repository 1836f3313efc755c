//! Machines that run ops.

use crate::{
    DTypeSet, Error, Machine, Op, OpKind, Operand, Operands, Result, SharedBytes, TensorData, TensorType,
    Value, Values,
};
use alloc::boxed::Box;
use alloc::string::String;
use core::any::Any;
use core::future::Future;
use core::pin::Pin;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A machine that runs ops: a device, or a layer around another engine.
///
/// The caller has run [`infer`](mod@crate::infer) on every op, so an engine may trust operands and result types. It never
/// panics on data: a failure makes the results [poisoned](Value::poisoned), poison passes from operands to
/// results, and [`read`](Engine::read) returns the error.
pub trait Engine: Any + Send + Sync {
    /// What the engine runs natively. Ops outside go through [`Expand`](crate::Expand).
    fn caps(&self) -> &Caps;

    /// Runs one op, or queues it; never waits for a device. Operands are passed by value: one that arrives as
    /// the only clone may be overwritten. `results` are the types that inference gave.
    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values;

    /// Brings data to the engine.
    fn write(&self, data: TensorData) -> Value;

    /// Brings elements that lie in memory already and stay there, such as those of a file that is mapped. An engine that
    /// computes in the same memory reads them in place, if they are aligned for their type, and never writes there;
    /// any other copies them, as this does unless an engine says otherwise. Bytes that are not those of the type
    /// poison the value.
    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        match TensorData::from_bytes(bytes.as_slice(), ty) {
            Ok(data) => self.write(data),
            Err(error) => Value::poisoned(ty, error),
        }
    }

    /// Brings a value back, or the error that its computation met.
    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>>;

    /// Whether a value was computed, as far as that is known without waiting: its error, nothing wrong, or `None` while it is
    /// not known. A layer passes on the answer of the engine below for the value inside.
    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        Some(value.error().map_or(Ok(()), |error| Err(error.clone())))
    }

    /// What to keep of an operand of `op` for the op's gradient rule, which reads the operand at `place`. The value itself
    /// by default; a layer under which the op reads less than the value holds gives that less, so that the rest is freed.
    fn kept(&self, op: &Op, place: usize, value: &Value) -> Value {
        let _ = (op, place);
        value.clone()
    }

    /// Whether values may be held in fewer bits than their dtype says, as under a layer of mixed precision. A
    /// [cast](Op::Cast) to the dtype that a value has already then brings it to full precision; elsewhere it changes nothing.
    /// Layers pass on what the engine below says.
    fn mixes_precision(&self) -> bool {
        false
    }

    /// A hint that a unit of work ends here, such as a training step: an engine that gathers ops before it runs them may
    /// take the ops up to here together. Does nothing by default; layers pass it on.
    fn submit(&self) {}

    /// Waits until everything queued is done; returns an error of the device that no value carries.
    fn sync(&self) -> BoxFuture<'_, Result<()>>;

    /// The memory that the engine keeps account of, if it does. A layer passes on what the engine below says.
    fn memory(&self) -> Option<&dyn Memory> {
        None
    }

    /// How the engine computed a value, as text for reading: which kernels, and why they end where they do. `None` where ops
    /// run one by one. A layer passes on what the engine below says of the value inside. Runs queued ops.
    fn explain(&self, value: &Value) -> Option<String> {
        let _ = value;
        None
    }
}

/// The memory of an engine that keeps what is freed for what comes next.
pub trait Memory: Send + Sync {
    /// How much there is.
    fn usage(&self) -> MemoryUse;

    /// Starts [`peak_live_bytes`](MemoryUse::peak_live_bytes) again from what lives now.
    fn reset_peak(&self);

    /// Gives memory that is kept but not used back to the system.
    fn trim(&self);
}

/// What an engine's memory comes to. Bytes are those of the blocks in which tensors lie, which may be a little longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that tensors hold.
    pub live_bytes: usize,
    /// Bytes that tensors held before, kept for others.
    pub kept_bytes: usize,
    /// The greatest number of bytes that tensors held at once.
    pub peak_live_bytes: usize,
    /// How often memory was asked of the system.
    pub system_allocations: u64,
    /// How often memory that was kept was used again instead.
    pub reuses: u64,
}

/// What an engine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The engine's name, for messages.
    pub name: String,
    /// The dtypes it computes with.
    pub dtypes: DTypeSet,
    /// The ops that it runs natively.
    pub native: OpSet,
    /// The machine that it computes on.
    pub machine: Machine,
}

/// A set of op kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpSet(u64);

impl OpSet {
    /// Every op.
    pub const ALL: OpSet = OpSet::of(&OpKind::ALL);

    /// The set of these ops.
    pub const fn of(kinds: &[OpKind]) -> OpSet {
        let mut bits = 0;
        let mut i = 0;
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u64;
            i += 1;
        }
        OpSet(bits)
    }

    /// Whether the op is in the set.
    pub const fn contains(self, kind: OpKind) -> bool {
        self.0 & (1 << kind as u64) != 0
    }

    /// The set without these ops.
    #[must_use]
    pub const fn without(self, kinds: &[OpKind]) -> OpSet {
        OpSet(self.0 & !OpSet::of(kinds).0)
    }

    /// The ops of the set, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = OpKind> {
        OpKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

/// The results of an op that failed: each of its type, poisoned with the error.
pub fn poisoned(results: &[TensorType], error: &Error) -> Values {
    results.iter().map(|ty| Value::poisoned(*ty, error.clone())).collect()
}

/// The error of the first poisoned operand, if there is one.
pub fn poison_of(inputs: &Operands) -> Option<Error> {
    inputs.iter().find_map(|operand| operand.value()?.error().cloned())
}

/// The results of [`Op::Recover`] on an engine that knows which values are poisoned once they are there. `write` makes a value of
/// data; zeros take the place of poisoned values.
pub fn recovered(inputs: Operands, results: &[TensorType], write: impl Fn(TensorData) -> Value) -> Values {
    let error = poison_of(&inputs);
    let mut values = Values::new();
    // The last two results are the flags.
    for (operand, ty) in inputs.into_iter().zip(&results[..results.len().saturating_sub(2)]) {
        values.push(match operand {
            Operand::Value(value) if value.error().is_none() => value,
            Operand::Value(_) | Operand::Scalar(_) => write(TensorData::zeros(*ty)),
        });
    }
    let ok = write(TensorData::from([error.is_none()]));
    let cause = error.map_or_else(|| ok.clone(), |error| Value::poisoned(*ok.ty(), error));
    values.extend([ok, cause]);
    values
}

/// For [`Op::Select`] with one poisoned operand: the other, if the condition picks it everywhere. `holds` says whether a condition
/// is true of all elements or of none.
pub fn picked_past_poison(inputs: &Operands, holds: impl Fn(&Value) -> Option<bool>) -> Option<&Operand> {
    let is_poisoned = |operand: &Operand| operand.value().is_some_and(|value| value.error().is_some());
    let [condition, a, b] = inputs.as_slice() else { return None };
    let condition = condition.value().filter(|condition| condition.error().is_none())?;
    match (is_poisoned(a), is_poisoned(b)) {
        (true, false) => (holds(condition) == Some(false)).then_some(b),
        (false, true) => (holds(condition) == Some(true)).then_some(a),
        (true, true) | (false, false) => None,
    }
}
