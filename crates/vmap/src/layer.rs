//! The vmap layer: an engine of batched values.

use crate::call::Call;
use crate::rules;
use crate::scope::{self, Randomness, Scope};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    BoxFuture, Caps, Engine, Error, LayerId, Op, Operands, RandomKind, Result, TensorData, TensorType, Value,
    Values, Var, Wrapped, imported_from, poison_of, poisoned,
};

/// A layer that runs ops of one example on all examples at once, around the engine that runs them.
///
/// Cheap to clone and thread-safe; two layers around the same inner engine share their values. One layer may process
/// batches of different sizes, but the operands of one op have one batch size.
#[derive(Clone)]
pub struct Vmap {
    inner: Arc<dyn Engine>,
}

/// The payload of a batched value, in a [`Wrapped`]: the inner engine's value, with the batch as leading axis.
#[derive(Clone)]
struct Batched(Value);

impl Vmap {
    /// Creates a layer around an engine.
    pub fn new(inner: Arc<dyn Engine>) -> Vmap {
        Vmap { inner }
    }

    /// Returns the engine below.
    pub fn inner(&self) -> &Arc<dyn Engine> {
        &self.inner
    }

    /// Creates a batched value from a value of the inner engine; `axis` is the batch axis.
    ///
    /// The result is poisoned if there is no such axis.
    pub fn batch(&self, value: Value, axis: usize) -> Value {
        let rank = value.shape().rank();
        if axis >= rank {
            let problem = format!("no axis {axis} for the examples");
            let error = Error::type_error("vmap", problem, &[value.ty().into()]);
            return Value::poisoned(*value.ty(), error.hint("name the axis of the examples, or `None`"));
        }
        self.wrap(moved(&*self.inner, value, axis, 0))
    }

    /// Returns the inner engine's value with the batch as `axis`. A value that is shared by all examples is broadcast.
    ///
    /// The result is poisoned if the batch size differs, or if the axis is out of range or exceeds the maximum rank. A
    /// poisoned result has the expected type if there is one.
    pub fn unbatch(&self, value: &Value, examples: usize, axis: usize) -> Value {
        let ty = *value.ty();
        let wrong = |problem| Error::type_error("vmap", problem, &[(&ty).into()]);
        if axis > ty.rank() {
            let problem = format!("a result of {} axes has no axis {axis} for the examples", ty.rank());
            return Value::poisoned(ty, wrong(problem));
        }
        if let Err(error) = self.check_rank(ty.rank()) {
            return Value::poisoned(ty, error);
        }
        let poisoned = |error| Value::poisoned(ty.with_shape(ty.shape.inserted(axis, examples)), error);
        if let Some(error) = value.error() {
            return poisoned(error.clone());
        }
        let all = match self.examples_of(value) {
            Some(all) if all.shape()[0] == examples => all.clone(),
            Some(all) => {
                return poisoned(wrong(format!("is of {} examples, not {examples}", all.shape()[0])));
            }
            None => {
                let shape = ty.shape.inserted(0, examples);
                Var::new(&*self.inner, value.clone()).broadcast(shape).into_value()
            }
        };
        moved(&*self.inner, all, 0, axis)
    }

    /// Returns whether the value differs between examples.
    pub fn is_batched(&self, value: &Value) -> bool {
        self.examples_of(value).is_some()
    }

    /// Returns the batch size of the value; `None` if it is shared by all examples.
    pub fn num_examples(&self, value: &Value) -> Option<usize> {
        Some(self.examples_of(value)?.shape()[0])
    }

    /// Returns a value of the inner engine as a value that is shared by all examples.
    pub fn from_inner(&self, value: Value) -> Value {
        value
    }

    /// Runs a function of one example with a batch size of `examples`, which only random ops need: see [`Randomness`].
    /// The scope belongs to this thread; without the feature `std` to the process.
    pub fn scope<T>(&self, examples: usize, randomness: Randomness, body: impl FnOnce() -> T) -> T {
        scope::within(Scope { layers: Vec::from([self.id()]), examples, randomness }, body)
    }

    /// The identity of the layer, by the engine below: two layers around one engine are the same.
    pub(crate) fn id(&self) -> LayerId {
        LayerId::around(&*self.inner)
    }

    fn examples_of<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        Some(&Wrapped::<Batched>::of(value, self.id())?.0)
    }

    /// The inner engine's value of a batched value, moved out if there are no other clones, so that the inner engine
    /// may overwrite it. Returns a shared value unchanged.
    pub(crate) fn open(&self, value: Value) -> core::result::Result<Value, Value> {
        Wrapped::open(value, self.id()).map(|Batched(examples)| examples)
    }

    /// Wraps a value with the examples as leading axis. Poison stays visible.
    pub(crate) fn wrap(&self, examples: Value) -> Value {
        let ty = examples.ty().with_shape(examples.shape().without(0));
        match examples.error() {
            Some(error) => Value::poisoned(ty, error.clone()),
            None => Wrapped::wrap(self.id(), ty, Batched(examples)),
        }
    }

    /// Checks that a tensor of that rank leaves room for the batch axis.
    pub(crate) fn check_rank(&self, rank: usize) -> Result<()> {
        if rank < kiln_ir::MAX_RANK {
            return Ok(());
        }
        let problem = format!("one example has {rank} axes, which leaves none for the examples");
        Err(Error::unsupported("vmap", problem)
            .hint(format!("a tensor has at most {} axes: reshape it to fewer", kiln_ir::MAX_RANK)))
    }

    /// Random numbers from a key that is shared by all examples.
    fn draw(&self, ty: &TensorType, distribution: RandomKind, key: Operands) -> Result<Values> {
        let run = |ty: TensorType| self.inner.execute(&Op::Random { ty, distribution }, key, &[ty]);
        let Some(scope) = scope::current(self.id()) else { return Ok(run(*ty)) };
        match scope.randomness {
            Randomness::Same => Ok(run(*ty)),
            Randomness::Error => Err(Error::unsupported("vmap", "random ops inside `vmap`")
                .hint("choose `Randomness::Different` or `Randomness::Same`, or draw outside")),
            Randomness::Different => {
                self.check_rank(ty.rank())?;
                let drawn = run(ty.with_shape(ty.shape.inserted(0, scope.examples)));
                Ok(drawn.into_iter().map(|value| self.wrap(value)).collect())
            }
        }
    }
}

/// The value with one axis moved.
fn moved(engine: &dyn Engine, value: Value, from: usize, to: usize) -> Value {
    if from == to {
        return value;
    }
    let mut axes: Vec<usize> = (0..value.shape().rank()).collect();
    let axis = axes.remove(from);
    axes.insert(to, axis);
    Var::new(engine, value).permute(&axes).into_value()
}

impl Engine for Vmap {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let is_batched =
            inputs.iter().any(|operand| operand.value().is_some_and(|value| self.is_batched(value)));
        let found = if is_batched {
            let poison = if op.stops_poison() { None } else { poison_of(&inputs) };
            poison.map_or(Ok(()), Err).and_then(|()| rules::execute(self, op, inputs, results))
        } else if let Op::Random { ty, distribution } = op {
            self.draw(ty, *distribution, inputs)
        } else {
            Ok(self.inner.execute(op, inputs, results))
        };
        found.unwrap_or_else(|error| poisoned(results, &error))
    }

    /// An op on batched operands is executed, which may wait.
    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        let is_batched =
            inputs.iter().any(|operand| operand.value().is_some_and(|value| self.is_batched(value)));
        match is_batched || !op.may_need_host() {
            true => Box::pin(core::future::ready(self.execute(op, inputs, results))),
            false => self.inner.execute_async(op, inputs, results),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        match self.open(value) {
            Err(shared) => self.inner.read(shared),
            Ok(examples) => {
                let problem = format!("a batched tensor of {} examples is read", examples.shape()[0]);
                let hint = "inside `vmap` there is no single value to read: return the tensor from the function, \
                            and choose between values with `mask_where` instead of `if`";
                Box::pin(async move { Err(Error::unsupported("vmap", problem).hint(hint)) })
            }
        }
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.inner)
    }

    /// The value of all examples.
    fn lower(&self, value: Value) -> Value {
        self.open(value).unwrap_or_else(|shared| shared)
    }

    /// Imports the batch of a value from another vmap layer.
    fn import(&self, from: &dyn Engine, value: Value) -> Value {
        let (source, value) = match imported_from::<Vmap>(&*self.inner, from, value) {
            Ok(found) => found,
            Err(value) => return self.inner.import(from, value),
        };
        if source.id() == self.id() {
            return value;
        }
        match source.open(value) {
            Ok(examples) => {
                scope::follow(source.id(), self.id());
                self.wrap(self.inner.import(&*source.inner, examples))
            }
            Err(shared) => self.inner.import(&*source.inner, shared),
        }
    }

    /// Batched if `like` is.
    fn rewrap(&self, like: &Value, value: Value) -> Value {
        match self.examples_of(like) {
            Some(examples) if examples.same(&value) => like.clone(),
            Some(_) => self.wrap(value),
            None => value,
        }
    }
}

impl Vmap {
    /// The op with its operands unwrapped.
    pub(crate) fn call<'a>(
        &'a self,
        op: &'a Op,
        inputs: Operands,
        results: &'a [TensorType],
    ) -> Result<Call<'a>> {
        Call::open(self, op, inputs, results)
    }
}
