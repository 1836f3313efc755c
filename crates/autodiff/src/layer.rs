//! The reverse-mode layer: an engine that records a tape.

use crate::backward::{Around, Pass, seed};
use crate::block::{Block, BlockFn};
use crate::gradients::Gradients;
use crate::node::{Edge, Node, NodeId, NodeKind, PackedType, Parents, Recorded, SavedTensor};
use crate::recompute::{Recompute, RecomputeInput, is_cheap};
use crate::tracked::{Parts, Tracked};
use crate::transfer::{move_to, transfer};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    BoxFuture, Caps, Dispatch, Engine, Error, Gradient, LayerId, Op, Operand, OperandType, Operands, Result,
    ResultTypes, Saved, Scalar, TensorData, TensorType, Value, Values, gradient_of, imported_from, infer,
    pass_async, saved,
};
use smallvec::SmallVec;

/// A layer that records ops on a tape, around the engine that runs them.
///
/// Cheap to clone and thread-safe; two layers around the same inner engine share their values.
#[derive(Clone)]
pub struct Autodiff {
    inner: Dispatch,
    checkpointing: Checkpointing,
}

/// Activation checkpointing: the saved tensors that the tape keeps or recomputes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpointing {
    /// Keeps all saved tensors: the fastest.
    #[default]
    None,
    /// Recomputes saved tensors that cheap, memory-bound ops can compute from other saved tensors.
    Balanced,
}

impl Autodiff {
    /// Creates a layer around an engine.
    pub fn new(inner: Arc<dyn Engine>, checkpointing: Checkpointing) -> Autodiff {
        Autodiff { inner: Dispatch::new(inner), checkpointing }
    }

    /// Returns the engine below.
    pub fn inner(&self) -> &Arc<dyn Engine> {
        self.inner.engine()
    }

    /// Returns the checkpointing mode.
    pub fn checkpointing(&self) -> Checkpointing {
        self.checkpointing
    }

    /// Detaches a value and makes it a leaf: the same data with its own gradient, without the history of `value`.
    ///
    /// Only floats have gradients: for any other dtype the result is poisoned.
    pub fn require_grad(&self, value: Value) -> Value {
        let value = self.detach(value);
        if value.error().is_some() {
            return value;
        }
        let ty = *value.ty();
        if !ty.dtype.is_float() {
            let error = Error::gradient("require_grad", format!("{ty} has no gradient"));
            return Value::poisoned(ty, error.hint("cast it to a float dtype first"));
        }
        let kind = NodeKind::Leaf(self.inner().device_of(&value));
        let edge = Edge { node: Node::new(Parents::new(), kind), output: 0 };
        Tracked::wrap(self.id(), Parts { inner: value, edge, recompute: None }, true)
    }

    /// Returns whether ops on this value are recorded.
    pub fn is_tracked(&self, value: &Value) -> bool {
        Tracked::of(value, self.id()).is_some()
    }

    /// Returns the id of a leaf in [`Gradients`]; `None` for any other value.
    pub fn leaf_id(&self, value: &Value) -> Option<NodeId> {
        Tracked::of(value, self.id())?.leaf()
    }

    /// Detaches a value: the same data, untracked.
    pub fn detach(&self, value: Value) -> Value {
        Tracked::strip(value, self.id())
    }

    /// Returns the inner engine's value.
    pub fn inner_value(&self, value: &Value) -> Value {
        match Tracked::of(value, self.id()) {
            Some(tracked) => tracked.parts.inner.clone(),
            None => value.clone(),
        }
    }

    /// Returns a value of the inner engine as an untracked value of this layer.
    pub fn from_inner(&self, value: Value) -> Value {
        value
    }

    /// Computes the gradients of all leaves that `root` depends on. Keeps the tape, so that it can be traversed again.
    ///
    /// `seed`, a value of the inner engine, is the gradient of the root; ones by default, which differentiates the sum
    /// of its elements.
    ///
    /// # Errors
    /// When the root is not tracked, the seed is of another type, or an op on the path has no gradient; or the error of
    /// a poisoned root.
    pub fn backward(&self, root: &Value, seed: Option<Value>) -> Result<Gradients> {
        self.walk(root.clone(), seed)
    }

    /// Works like [`backward`](Autodiff::backward), but consumes the root: frees parts of the tape without other owners
    /// as soon as they are processed.
    ///
    /// # Errors
    /// As [`backward`](Autodiff::backward).
    pub fn backward_owned(&self, root: Value, seed: Option<Value>) -> Result<Gradients> {
        self.walk(root, seed)
    }

    fn walk(&self, root: Value, given: Option<Value>) -> Result<Gradients> {
        if let Some(error) = root.error() {
            return Err(error.clone());
        }
        let parts = Tracked::open(root, self.id()).map_err(|root| {
            let problem = format!("{} does not depend on a tensor that requires a gradient", root.ty());
            Error::gradient("backward", problem).hint(
                "call `require_grad` on the parameters before they are used, and check that the path to the root \
                 is of floats and not detached",
            )
        })?;
        let seed = seed(&**self.inner(), *parts.inner.ty(), given)?;
        let mut pass = Pass::new(self, &**self.inner(), None);
        pass.push(Pass::START, parts.edge, seed);
        pass.run()
    }

    /// Computes the gradients of all leaves that several results depend on, given the gradient of each (VJP). Results
    /// that depend on no leaf are ignored.
    ///
    /// `engine` computes the gradients. It is the inner engine, or a layer around it that accepts its values. With a
    /// vmap layer, one pass carries a batch of gradients. If values moved between engines, use
    /// [`pull_back_around`](Autodiff::pull_back_around) for such gradients.
    ///
    /// # Errors
    /// When a gradient is of another type than its result, or an op on the path has no gradient. When gradients of a
    /// layer around the inner engine would move to another engine. Also the error of a poisoned result.
    pub fn pull_back(&self, engine: &dyn Engine, results: Vec<(Value, Value)>) -> Result<Gradients> {
        self.pull(Pass::new(self, engine, None), engine, results)
    }

    /// Works like [`pull_back`](Autodiff::pull_back) with a layer around the inner engine, which `around` creates. If
    /// values moved between engines, it creates such a layer around each of these engines.
    ///
    /// # Errors
    /// When a gradient is of another type than its result, or an op on the path has no gradient; or the error of a
    /// poisoned result.
    pub fn pull_back_around(&self, around: &Around<'_>, results: Vec<(Value, Value)>) -> Result<Gradients> {
        let engine = around(self.inner());
        self.pull(Pass::new(self, &*engine, Some(around)), &*engine, results)
    }

    fn pull(
        &self,
        mut pass: Pass<'_>,
        engine: &dyn Engine,
        results: Vec<(Value, Value)>,
    ) -> Result<Gradients> {
        for (result, gradient) in results {
            if let Some(error) = result.error() {
                return Err(error.clone());
            }
            let Ok(parts) = Tracked::open(result, self.id()) else { continue };
            let gradient = seed(engine, *parts.inner.ty(), Some(gradient))?;
            pass.push(Pass::START, parts.edge, gradient);
        }
        pass.run()
    }

    /// Runs a block with checkpointing: discards its intermediates and recomputes them in the backward pass, trading
    /// time for memory.
    ///
    /// Tracked values that the function captures get their gradients too. The function must be deterministic: create
    /// random keys outside of it. During the first run, its intermediates are held until it returns.
    pub fn checkpoint(&self, inputs: Vec<Value>, run: BlockFn) -> Vec<Value> {
        Block::record(self, inputs, run)
    }

    /// Runs `body` with recording of this layer disabled on this thread: all results are untracked.
    #[cfg(feature = "std")]
    pub fn no_grad<T>(&self, body: impl FnOnce() -> T) -> T {
        crate::pause::scoped(Some(self.id()), false, body)
    }

    /// Runs `body` with recording of this layer enabled, in every scope of this thread.
    pub fn recording<T>(&self, body: impl FnOnce() -> T) -> T {
        #[cfg(feature = "std")]
        return crate::pause::scoped(Some(self.id()), true, body);
        #[cfg(not(feature = "std"))]
        return body();
    }

    /// The identity of the layer, by the engine below: two layers around one engine are the same.
    #[inline]
    pub(crate) fn id(&self) -> LayerId {
        LayerId::around(&**self.inner())
    }

    pub(crate) fn is_paused(&self) -> bool {
        #[cfg(feature = "std")]
        return !crate::pause::records(self.id());
        #[cfg(not(feature = "std"))]
        return false;
    }

    fn tracks(&self, operand: &Operand) -> bool {
        operand.value().is_some_and(|value| self.is_tracked(value))
    }

    fn records(&self, op: &Op, results: &[TensorType]) -> bool {
        results.iter().any(|ty| ty.dtype.is_float())
            && gradient_of(op) != Gradient::Constant
            && !self.is_paused()
    }

    fn record(&self, op: &Op, mut inputs: Operands, wanted: &[bool], results: &[TensorType]) -> Values {
        if let Some((op, types)) = with_residuals(op, &inputs, wanted) {
            let mut values = self.record(&op, inputs, wanted, &types);
            values.truncate(results.len());
            return values;
        }
        let mut recording = Recording::start(self, op, &mut inputs, wanted, results);
        let recompute = recording.recompute(op, results);
        let values = self.inner.execute(op, inputs, results);
        recording.end(op, recompute, values)
    }

    /// As [`record`](Autodiff::record), for an op that may need the host. It is never a loop.
    fn record_async(
        &self,
        op: &Op,
        mut inputs: Operands,
        wanted: &[bool],
        results: &[TensorType],
    ) -> BoxFuture<'_, Values> {
        let mut recording = Recording::start(self, op, &mut inputs, wanted, results);
        let recompute = recording.recompute(op, results);
        let started = self.inner().execute_async(op, inputs, results);
        let op = op.clone();
        Box::pin(async move {
            let values = started.await;
            recording.end(&op, recompute, values)
        })
    }

    /// The checkpointing mode of this thread, or that of the layer.
    #[inline]
    fn mode(&self) -> Checkpointing {
        #[cfg(feature = "std")]
        if let Some(mode) = crate::pause::checkpointing() {
            return mode;
        }
        self.checkpointing
    }

    fn records_recompute(&self, op: &Op, results: &[TensorType]) -> bool {
        match self.mode() {
            Checkpointing::None => false,
            Checkpointing::Balanced => results.len() == 1 && is_cheap(op),
        }
    }
}

impl Engine for Autodiff {
    fn caps(&self) -> &Caps {
        self.inner().caps()
    }

    fn execute(&self, op: &Op, mut inputs: Operands, results: &[TensorType]) -> Values {
        // A loop of pushes: collecting into a small vector costs several times as much.
        let mut tracked: SmallVec<[bool; 8]> = SmallVec::new();
        for operand in &inputs {
            tracked.push(self.tracks(operand));
        }
        if !tracked.contains(&true) {
            return self.inner.execute(op, inputs, results);
        }
        if self.records(op, results) {
            return self.record(op, inputs, &tracked, results);
        }
        for (operand, tracked) in inputs.iter_mut().zip(tracked) {
            if tracked {
                let tracked = core::mem::replace(operand, Operand::Scalar(false.into()));
                if let Operand::Value(value) = tracked {
                    *operand = self.detach(value).into();
                }
            }
        }
        self.inner.execute(op, inputs, results)
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        let tracked: SmallVec<[bool; 8]> = inputs.iter().map(|operand| self.tracks(operand)).collect();
        match op.may_need_host() && tracked.contains(&true) && self.records(op, results) {
            true => self.record_async(op, inputs, &tracked, results),
            false => pass_async(self, &**self.inner(), op, inputs, results),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner().write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner().read(self.detach(value))
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&**self.inner())
    }

    fn lower(&self, value: Value) -> Value {
        self.detach(value)
    }

    /// Imports a value. If another autodiff layer tracks it, this layer tracks it too, and its gradient is transferred
    /// back to its engine. In a scope without recording, of either layer, imports only the data.
    fn import(&self, from: &dyn Engine, value: Value) -> Value {
        match imported_from::<Autodiff>(&**self.inner(), from, value) {
            Ok((source, value)) => transfer(self, source, value),
            Err(value) => self.inner().import(from, value),
        }
    }

    /// Moves a value. The gradient of a tracked one flows back to the device from which it comes.
    fn to_device(&self, value: Value, device: usize) -> Value {
        move_to(self, value, device)
    }

    /// Tracked by the node of `like`, if `like` is tracked.
    fn rewrap(&self, like: &Value, value: Value) -> Value {
        match Tracked::of(like, self.id()) {
            Some(tracked) if tracked.parts.inner.same(&value) => like.clone(),
            Some(tracked) => {
                let parts = Parts { inner: value, ..tracked.parts.clone() };
                Tracked::wrap(self.id(), parts, tracked.is_kept())
            }
            None => value,
        }
    }
}

/// The loop that also returns the intermediates that its gradient reads, with its result types. `None` for any other op.
fn with_residuals(op: &Op, inputs: &Operands, wanted: &[bool]) -> Option<(Op, ResultTypes)> {
    let Op::Loop(looped) = op else { return None };
    let op = Op::Loop(looped.with_residuals(wanted)?);
    let types = infer(&op, &OperandType::list(inputs)).ok()?;
    Some((op, types))
}

/// An op being recorded.
struct Recording<'a> {
    layer: &'a Autodiff,
    saved: Saved,
    parents: Parents,
    kept: SmallVec<[SavedTensor; 2]>,
    recompute: Option<RecomputeBuilder>,
}

/// A [`Recompute`] under construction.
#[derive(Default)]
struct RecomputeBuilder {
    inputs: SmallVec<[RecomputeInput; 2]>,
    /// The bytes of inputs that nothing else keeps alive.
    extra: usize,
}

impl<'a> Recording<'a> {
    /// Records the operands, and replaces them by their inner values.
    #[inline]
    fn start(
        layer: &'a Autodiff,
        op: &Op,
        inputs: &mut Operands,
        wanted: &[bool],
        results: &[TensorType],
    ) -> Recording<'a> {
        let mut recording = Recording {
            layer,
            saved: saved(op, inputs, wanted),
            parents: Parents::new(),
            kept: SmallVec::new(),
            recompute: layer.records_recompute(op, results).then(RecomputeBuilder::default),
        };
        for operand in inputs {
            recording.add(op, operand);
        }
        recording
    }

    /// Records an operand, and replaces it by its inner value.
    #[inline]
    fn add(&mut self, op: &Op, operand: &mut Operand) {
        let place = self.kept.len();
        let saves = self.saved.input(place);
        let value = match core::mem::replace(operand, Operand::Scalar(Scalar::Bool(false))) {
            Operand::Value(value) => value,
            Operand::Scalar(scalar) => {
                if let Some(builder) = &mut self.recompute {
                    builder.inputs.push(RecomputeInput::Operand(scalar.into()));
                }
                self.parents.push(None);
                self.kept.push(SavedTensor::Scalar(scalar));
                *operand = scalar.into();
                return;
            }
        };
        let mut kept = saves;
        if self.recompute.is_some()
            && let Some(tracked) = Tracked::of(&value, self.layer.id())
        {
            if saves && tracked.parts.recompute.is_none() {
                tracked.keep();
            }
            kept = tracked.is_kept();
        }
        let (inner, edge, recompute) = match Tracked::open(value, self.layer.id()) {
            Ok(parts) => (parts.inner, Some(parts.edge), parts.recompute),
            Err(value) => (value, None, None),
        };
        if let Some(builder) = &mut self.recompute {
            builder.add(&inner, recompute.as_ref(), kept);
        }
        self.kept.push(match recompute {
            Some(recompute) if saves => SavedTensor::Recompute(recompute),
            None if saves => SavedTensor::Value(self.layer.inner().saved_for_backward(op, place, &inner)),
            Some(_) | None => SavedTensor::Type(PackedType::new(inner.ty())),
        });
        self.parents.push(edge);
        *operand = inner.into();
    }

    /// The op itself instead of its result, if the tape recomputes it.
    #[inline]
    fn recompute(&mut self, op: &Op, results: &[TensorType]) -> Option<Arc<Recompute>> {
        let builder = self.recompute.take()?;
        Recompute::new(op, builder.inputs, builder.extra, results[0])
    }

    /// Records the results. Takes the op by reference: a move is measurable for small ops.
    #[inline]
    fn end(&mut self, op: &Op, recompute: Option<Arc<Recompute>>, values: Values) -> Values {
        let layer = self.layer;
        let saved = self.saved;
        let mut outputs = SmallVec::new();
        for (place, value) in values.iter().enumerate() {
            outputs.push(match &recompute {
                Some(recompute) if saved.output(place) => SavedTensor::Recompute(recompute.clone()),
                None if saved.output(place) => SavedTensor::Value(value.clone()),
                Some(_) | None => SavedTensor::Type(PackedType::new(value.ty())),
            });
        }
        let recorded = Recorded { op: op.clone(), inputs: core::mem::take(&mut self.kept), outputs };
        let node = Node::new(core::mem::take(&mut self.parents), NodeKind::Op(recorded));
        let (mut wrapped, last) = (Values::new(), values.len() - 1);
        let mut node = Some(node);
        for (place, inner) in values.into_iter().enumerate() {
            if !inner.dtype().is_float() || inner.error().is_some() {
                wrapped.push(inner);
                continue;
            }
            let is_kept = recompute.is_none() && saved.output(place);
            // The last result takes over the node, since reference counting is a large part of a small op's time.
            let owner = if place == last { node.take() } else { node.clone() };
            let Some(node) = owner else { continue };
            let edge = Edge { node, output: place as u32 };
            let parts = Parts { inner, edge, recompute: recompute.clone() };
            wrapped.push(Tracked::wrap(layer.id(), parts, is_kept));
        }
        wrapped
    }
}

impl RecomputeBuilder {
    fn add(&mut self, value: &Value, recompute: Option<&Arc<Recompute>>, kept: bool) {
        self.inputs.push(match recompute {
            Some(recompute) => RecomputeInput::Recompute(recompute.clone()),
            None => {
                if !kept {
                    self.extra = self.extra.saturating_add(value.ty().num_bytes());
                }
                RecomputeInput::Operand(value.into())
            }
        });
    }
}
