//! Engines: the interface that runs ops.

use crate::{
    DTypeSet, EXPANDS, Error, FAILS, FAILS_BY_INDEX, Machine, OPS, Op, OpKind, Operand, OperandType,
    Operands, Result, Role, SharedBytes, TensorData, TensorType, Value, Values, infer, wait_for,
};
use alloc::boxed::Box;
use alloc::string::String;
use core::any::{Any, TypeId};
use core::future::Future;
use core::pin::Pin;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An engine that runs ops: a device, or a layer around another engine.
///
/// The caller has run [`infer`](mod@crate::infer) on every op, so an engine may trust operands and result types. It
/// never panics on data: a failure makes the results [poisoned](Value::poisoned), poison propagates from operands to
/// results, and [`read`](Engine::read) returns the error.
///
/// **Layers.** A layer names the engine [`below`](Engine::below). Every method with a default then forwards to that
/// engine, so that a layer implements only the methods in which it differs. A layer whose values carry metadata stores
/// it in a [`Wrapped`](crate::Wrapped) payload and implements the conversions [`lower`](Engine::lower),
/// [`lift`](Engine::lift) and [`rewrap`](Engine::rewrap). A device's engine has no engine below. Its defaults are those
/// of a synchronous engine.
pub trait Engine: Any + Send + Sync {
    /// The engine's name, its machine, and the sets of supported dtypes and ops (see [`supports`](Engine::supports)).
    fn caps(&self) -> &Caps;

    /// Runs one op, or queues it. Operands are passed by value: an operand without aliases may be overwritten. `results`
    /// are the inferred types.
    ///
    /// It waits for a device only where the host needs data: for [`Op::NonZero`], whose shape is data, and for custom
    /// ops that run on the host. In a browser, their results are poisoned where they would have to wait.
    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values;

    /// Copies data to the engine.
    fn write(&self, data: TensorData) -> Value;

    /// Reads a value back, or returns the error of its computation.
    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>>;

    /// As [`execute`](Engine::execute), but the future waits for the data that the host [needs](Op::may_need_host). The
    /// work starts with the call or with the first poll. The call executes any other op.
    ///
    /// By default, a layer passes [`Op::NonZero`] to the engine below by [`pass_async`]. It executes custom ops, which
    /// may wait. A layer that does not change custom ops overrides this method, and passes them too.
    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        match self.below().filter(|_| op.kind() == OpKind::NonZero) {
            Some(below) => pass_async(self, below, op, inputs, results),
            None => Box::pin(core::future::ready(self.execute(op, inputs, results))),
        }
    }

    /// The engine that this layer is around; `None` for the engine of a device.
    fn below(&self) -> Option<&dyn Engine> {
        None
    }

    /// Unwraps the value of the engine below from a value of this layer. Returns the value itself by default.
    fn lower(&self, value: Value) -> Value {
        value
    }

    /// Wraps a value of the engine below as a value of this layer without metadata. Returns the value itself by
    /// default.
    fn lift(&self, value: Value) -> Value {
        value
    }

    /// Wraps a value of the engine below with the metadata of `like`, in place of the value inside `like`. By default
    /// there is no metadata, as with [`lift`](Engine::lift).
    fn rewrap(&self, like: &Value, value: Value) -> Value {
        let _ = like;
        self.lift(value)
    }

    /// Whether the engine runs this op on operands of these types natively. [`Expand`](crate::Expand) decomposes the
    /// others into simpler ops. The default is [`Caps::supports`].
    ///
    /// The sets hold the ops that the engine runs without conditions. Callers may trust them without calling this
    /// method, which must return true wherever [`Caps::supports`] does. An op with support for some dtypes, shapes or
    /// attributes only is not in [`Caps::native`], and a dtype with support in some ops only is not in
    /// [`Caps::dtypes`]. This method adds the supported cases:
    ///
    /// ```
    /// # use kiln_ir::{Caps, DType, DTypeSet, Machine, Op, OpKind, OperandType, OpSet};
    /// // Matmuls, but not of `i8`.
    /// # let (name, machine) = ("example".to_string(), Machine::processor());
    /// let native = OpSet::ALL.without(&[OpKind::MatMul]);
    /// let caps = Caps { name, dtypes: DTypeSet::ALL, native, machine };
    /// let supports = |op: &Op, operands: &[OperandType<'_>]| {
    ///     let is_i8 = |operand: &OperandType<'_>| operand.tensor().is_some_and(|ty| ty.dtype == DType::I8);
    ///     caps.supports(op, operands) || (*op == Op::MatMul && !operands.iter().any(is_i8))
    /// };
    /// # let _ = supports;
    /// ```
    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        match self.below() {
            Some(below) => below.supports(op, operands),
            None => self.caps().supports(op, operands),
        }
    }

    /// Imports elements that are in host memory already and stay there, such as those of a memory-mapped file. An
    /// engine that computes in host memory reads them in place, if they are aligned for their type, and never writes
    /// there. Other engines copy them, as the default does. Bytes that are invalid for the type poison the value.
    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        if let Some(below) = self.below() {
            return self.lift(below.write_shared(bytes, ty));
        }
        match TensorData::from_bytes(bytes.as_slice(), ty) {
            Ok(data) => self.write(data),
            Err(error) => Value::poisoned(ty, error),
        }
    }

    /// Imports a value of another engine. A value whose engine is this one, or a layer around this one, is
    /// [lowered](Engine::lower) to it. Any other is read, which blocks, and written. An error of the value becomes
    /// poison.
    ///
    /// A layer whose values carry metadata, such as gradients, transfers it too.
    fn import(&self, from: &dyn Engine, value: Value) -> Value {
        let this = (core::ptr::from_ref(self).addr(), self.type_id());
        let value = match lowered_to(from, this, value) {
            Ok(value) => return value,
            Err(value) => value,
        };
        if let Some(below) = self.below() {
            return self.lift(below.import(from, value));
        }
        copied(from, value, |data| self.write(data))
    }

    /// The outcome of a value's computation, if it is known without waiting: success or its error; `None` if it is not
    /// known.
    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        match self.below() {
            Some(below) => below.outcome(&self.lower(value.clone())),
            None => Some(value.error().map_or(Ok(()), |error| Err(error.clone()))),
        }
    }

    /// The tensor to save for the backward pass: `value`, the operand of `op` at `place`, which the gradient rule
    /// reads. Default: `value` itself. A mixed-precision layer whose op reads a narrower copy returns that copy, so
    /// that the wide tensor is freed.
    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        match self.below() {
            Some(below) => {
                self.rewrap(value, below.saved_for_backward(op, place, &self.lower(value.clone())))
            }
            None => value.clone(),
        }
    }

    /// Whether values may be stored in fewer bits than their dtype, as under mixed precision. A [cast](Op::Cast) to the
    /// dtype that a value already has then restores full precision; otherwise it is a no-op.
    fn mixes_precision(&self) -> bool {
        self.below().is_some_and(|below| below.mixes_precision())
    }

    /// Hints that a unit of work ends here, such as a training step. An engine that batches ops may then run the ops up
    /// to here together. Does nothing on other engines.
    fn submit(&self) {
        if let Some(below) = self.below() {
            below.submit();
        }
    }

    /// Waits until all queued work is done. Returns device errors that no value carries. Ready at once on a synchronous
    /// engine.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        match self.below() {
            Some(below) => below.sync(),
            None => Box::pin(core::future::ready(Ok(()))),
        }
    }

    /// The number of the device that a value is on, for an engine that stands for several devices. `None` on engines of
    /// one device, and for values that are on no device yet, such as constants.
    fn device_of(&self, value: &Value) -> Option<usize> {
        self.below()?.device_of(&self.lower(value.clone()))
    }

    /// The value on another device of an engine that stands for several. On engines of one device, the value itself.
    ///
    /// A layer whose values carry metadata that lives on a device, such as tangents, moves it too.
    fn to_device(&self, value: Value, device: usize) -> Value {
        let Some(below) = self.below() else { return value };
        let moved = below.to_device(self.lower(value.clone()), device);
        self.rewrap(&value, moved)
    }

    /// The memory statistics of the engine, if it tracks them.
    fn memory(&self) -> Option<&dyn crate::Memory> {
        self.below()?.memory()
    }

    /// Explains how the engine computed a value, as text: the kernels, and the reasons why they end. `None` if ops run
    /// one by one. Runs queued ops.
    fn explain(&self, value: &Value) -> Option<String> {
        self.below()?.explain(&self.lower(value.clone()))
    }
}

impl dyn Engine {
    /// This engine and those below it, from the outermost down.
    pub fn layers(&self) -> impl Iterator<Item = &dyn Engine> {
        core::iter::successors(Some(self), |engine| engine.below())
    }

    /// Returns the outermost layer of this type.
    pub fn find<E: Engine>(&self) -> Option<&E> {
        self.layers().find_map(|engine| (engine as &dyn Any).downcast_ref())
    }
}

/// Implements [`Engine::execute_async`] for a layer that passes ops to the engine below. An op that
/// [may need the host](Op::may_need_host) runs by that method of the engine below: its operands are
/// [lowered](Engine::lower), and its results [lifted](Engine::lift). The layer executes any other op.
pub fn pass_async<'e, E: Engine + ?Sized>(
    layer: &'e E,
    below: &'e dyn Engine,
    op: &Op,
    inputs: Operands,
    results: &[TensorType],
) -> BoxFuture<'e, Values> {
    if !op.may_need_host() {
        return Box::pin(core::future::ready(layer.execute(op, inputs, results)));
    }
    let lowered = |operand: Operand| match operand {
        Operand::Value(value) => Operand::Value(layer.lower(value)),
        Operand::Scalar(scalar) => Operand::Scalar(scalar),
    };
    let started = below.execute_async(op, inputs.into_iter().map(lowered).collect(), results);
    Box::pin(async move {
        let values: Values = started.await.into_iter().map(|value| layer.lift(value)).collect();
        values
    })
}

/// Returns the future of an op whose work has started. An error of the start or of the work poisons the results.
pub fn or_poisoned<'e>(
    started: Result<impl Future<Output = Result<Values>> + Send + 'e>,
    results: &[TensorType],
) -> BoxFuture<'e, Values> {
    let types = results.to_vec();
    Box::pin(async move {
        let found = match started {
            Ok(work) => work.await,
            Err(error) => Err(error),
        };
        found.unwrap_or_else(|error| poisoned(&types, &error))
    })
}

/// The capabilities of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The engine's name, for messages.
    pub name: String,
    /// The dtypes that it supports in all ops. A dtype that only some ops support is not included: see
    /// [`Engine::supports`].
    pub dtypes: DTypeSet,
    /// The ops that it runs natively, on all these dtypes and with all attributes. An op with conditions is not
    /// included: see [`Engine::supports`]. [`Op::Fused`] stands for regions of any of these ops.
    pub native: OpSet,
    /// The description of its machine.
    pub machine: Machine,
}

impl Caps {
    /// Returns whether the sets contain an op on operands of these types: its kind (of fused regions and loops also the
    /// kinds inside), and the dtypes of operands and results.
    pub fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        self.native.contains(op.kind())
            && self.native.contains_all(op.kinds_inside())
            && (self.dtypes == DTypeSet::ALL || self.has_dtypes(op, operands))
    }

    /// Returns the error of an engine for an op that it leaves to [`Expand`](crate::Expand).
    pub fn unsupported(&self, op: &Op) -> Error {
        let problem = alloc::format!("does not run `{}`", op.name());
        Error::unsupported(&self.name, problem)
            .hint("put `kiln_ir::Expand` around the engine, as every stack does")
    }

    fn has_dtypes(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        let has = |ty: &TensorType| self.dtypes.contains(ty.dtype);
        operands.iter().all(|operand| operand.tensor().is_none_or(has))
            && infer(op, operands).is_ok_and(|results| results.iter().all(has))
    }
}

/// A set of op kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpSet([u64; OpSet::WORDS]);

impl OpSet {
    const WORDS: usize = OpKind::ALL.len().div_ceil(64);

    /// Every op.
    pub const ALL: OpSet = OpSet::of(&OpKind::ALL);

    /// The ops that an engine has kernels of unless it states otherwise: those that do not [expand](EXPANDS) everywhere.
    pub const KERNELS: OpSet = OpSet::ALL.difference(OpSet::having(EXPANDS));

    /// Returns the set of these ops.
    pub const fn of(kinds: &[OpKind]) -> OpSet {
        let mut words = [0; OpSet::WORDS];
        let mut i = 0;
        while i < kinds.len() {
            words[kinds[i] as usize / 64] |= 1 << (kinds[i] as u64 % 64);
            i += 1;
        }
        OpSet(words)
    }

    /// Returns the ops with all these [properties](crate::OpInfo::properties).
    pub const fn having(properties: u16) -> OpSet {
        let mut set = OpSet([0; OpSet::WORDS]);
        let mut i = 0;
        while i < OPS.len() {
            if OPS[i].is(properties) {
                set = set.with(OPS[i].kind);
            }
            i += 1;
        }
        set
    }

    /// Returns the ops with this role in fused regions.
    pub const fn of_role(role: Role) -> OpSet {
        let mut set = OpSet([0; OpSet::WORDS]);
        let mut i = 0;
        while i < OPS.len() {
            if OPS[i].role as u8 == role as u8 {
                set = set.with(OPS[i].kind);
            }
            i += 1;
        }
        set
    }

    /// Returns whether the op is in the set.
    #[inline]
    pub const fn contains(self, kind: OpKind) -> bool {
        self.0[kind as usize / 64] & (1 << (kind as u64 % 64)) != 0
    }

    /// Returns whether all ops of `other` are in the set.
    pub const fn contains_all(self, other: OpSet) -> bool {
        let mut i = 0;
        while i < OpSet::WORDS {
            if other.0[i] & !self.0[i] != 0 {
                return false;
            }
            i += 1;
        }
        true
    }

    /// Returns the set without these ops.
    #[must_use]
    pub const fn without(self, kinds: &[OpKind]) -> OpSet {
        self.difference(OpSet::of(kinds))
    }

    /// Returns the ops of this set that are not in the other.
    #[must_use]
    pub const fn difference(self, other: OpSet) -> OpSet {
        let mut words = self.0;
        let mut i = 0;
        while i < OpSet::WORDS {
            words[i] &= !other.0[i];
            i += 1;
        }
        OpSet(words)
    }

    /// Returns the set with this op.
    #[must_use]
    pub const fn with(self, kind: OpKind) -> OpSet {
        self.union(OpSet::of(&[kind]))
    }

    /// Returns the ops of either set.
    #[must_use]
    pub const fn union(self, other: OpSet) -> OpSet {
        let mut words = self.0;
        let mut i = 0;
        while i < OpSet::WORDS {
            words[i] |= other.0[i];
            i += 1;
        }
        OpSet(words)
    }

    /// Returns the ops of both sets.
    #[must_use]
    pub const fn intersection(self, other: OpSet) -> OpSet {
        let mut words = self.0;
        let mut i = 0;
        while i < OpSet::WORDS {
            words[i] &= other.0[i];
            i += 1;
        }
        OpSet(words)
    }

    /// Returns the ops of the set, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = OpKind> {
        OpKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<OpKind> for OpSet {
    fn from_iter<I: IntoIterator<Item = OpKind>>(kinds: I) -> OpSet {
        let mut set = OpSet::default();
        for kind in kinds {
            set.0[kind as usize / 64] |= 1 << (kind as u64 % 64);
        }
        set
    }
}

/// Whether an engine has this address and type. Zero-sized engines may share an address, so the type is compared too.
pub(crate) fn is_same(a: &dyn Engine, b: (usize, TypeId)) -> bool {
    (core::ptr::from_ref(a).addr(), a.type_id()) == b
}

/// Unwraps the value of the engine `target`, given by address and type, from a value of `from`. Returns the value
/// itself if `from` does not wrap that engine, or if the inner value has another type, such as the batch of an example.
pub(crate) fn lowered_to(
    from: &dyn Engine,
    target: (usize, TypeId),
    value: Value,
) -> core::result::Result<Value, Value> {
    if !from.layers().any(|engine| is_same(engine, target)) {
        return Err(value);
    }
    let above = from.layers().take_while(|engine| !is_same(*engine, target));
    let inside = above.fold(value.clone(), |value, layer| layer.lower(value));
    if inside.ty() == value.ty() { Ok(inside) } else { Err(value) }
}

/// Returns a copy of another engine's value: its data is read, which blocks, and passed to `write`. An error of the
/// value becomes poison.
pub fn copied(from: &dyn Engine, value: Value, write: impl FnOnce(TensorData) -> Value) -> Value {
    match data_of(from, value) {
        Ok(data) => write(data),
        Err((ty, error)) => Value::poisoned(ty, error),
    }
}

/// Reads the data of a value; blocks.
fn data_of(from: &dyn Engine, value: Value) -> core::result::Result<TensorData, (TensorType, Error)> {
    let ty = *value.ty();
    wait_for(from.read(value), "moving a tensor to another device", MOVED).map_err(|error| (ty, error))
}

/// The hint of a move between devices that would have to wait in a browser.
const MOVED: &str = "await `into_data_async`, and create a tensor from the data on the other device";

/// Returns the results of a failed op: poisoned values of these types.
pub fn poisoned(results: &[TensorType], error: &Error) -> Values {
    results.iter().map(|ty| Value::poisoned(*ty, error.clone())).collect()
}

/// Returns whether an op without poisoned operands need not run: its results have no elements, and it cannot fail. An
/// engine then returns empty tensors. Kernels may loop over the other axes, which can be of any length.
#[inline]
pub fn has_no_work(op: &Op, results: &[TensorType]) -> bool {
    let is_empty = !results.is_empty() && results.iter().all(|ty| ty.shape.has_no_elements());
    is_empty && !op.is(FAILS) && !op.is(FAILS_BY_INDEX)
}

/// Returns the error of the first poisoned operand, if there is one.
pub fn poison_of(inputs: &Operands) -> Option<Error> {
    inputs.iter().find_map(|operand| operand.value()?.error().cloned())
}

/// Returns the results of [`Op::Recover`] on an engine that finds errors on the host. `write` creates a value from
/// data; zeros replace poisoned values.
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

/// Returns, for [`Op::Select`] with one poisoned operand, the other operand, if the condition selects it everywhere.
/// `holds` returns whether a condition is true or false for all elements.
pub fn select_unpoisoned(inputs: &Operands, holds: impl Fn(&Value) -> Option<bool>) -> Option<&Operand> {
    let is_poisoned = |operand: &Operand| operand.value().is_some_and(|value| value.error().is_some());
    let [condition, a, b] = inputs.as_slice() else { return None };
    let condition = condition.value().filter(|condition| condition.error().is_none())?;
    match (is_poisoned(a), is_poisoned(b)) {
        (true, false) => (holds(condition) == Some(false)).then_some(b),
        (false, true) => (holds(condition) == Some(true)).then_some(a),
        (true, true) | (false, false) => None,
    }
}
