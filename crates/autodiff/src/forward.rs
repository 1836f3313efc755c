//! Forward mode: values with a tangent.

mod call;
mod derive;
mod rule;

use crate::forward::call::Call;
use crate::forward::derive::Cache;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use kiln_ir::{
    BoxFuture, Caps, Engine, Error, LayerId, Op, Operand, Operands, Result, TensorData, TensorType, Value,
    Values, Wrapped, imported_from, pass_async,
};

/// A layer that computes *directional derivatives* (Jacobian-vector products) along with the values.
///
/// A [dual](Forward::dual) value has a *tangent*: a value of the inner engine, of the same type, that holds the
/// directional derivative. Every float op on duals returns duals: with `J` the derivative of the op by its operands,
/// the tangent of the result is `J` times the tangents of the operands. Values without a tangent are the inner engine's
/// own.
///
/// One forward pass costs about two or three evaluations and needs no memory for a tape. It differentiates any number
/// of results along one direction; [`Autodiff`](crate::Autodiff) differentiates one result by any number of operands.
/// The two nest in either order: a Hessian-vector product is forward over reverse.
///
/// ```
/// use kiln_autodiff::Forward;
/// use kiln_ir::{Engine, Var, block_on};
/// use kiln_reference::Reference;
/// use std::sync::Arc;
///
/// let layer = Forward::new(Arc::new(Reference::new()));
/// let x = layer.write([1.0f64, 2.0].into());
/// let direction = layer.write([1.0f64, 10.0].into());
/// let x = Var::new(&layer, layer.dual(x, direction));
/// let y = (&x * &x).into_value();
/// let tangent = layer.tangent(&y).expect("y depends on x");
/// assert_eq!(block_on(layer.read(y))?.into_vec::<f64>()?, [1.0, 4.0]);
/// assert_eq!(block_on(layer.inner().read(tangent))?.into_vec::<f64>()?, [2.0, 40.0]);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
///
/// Cheap to clone and thread-safe; two layers around the same inner engine share their values.
#[derive(Clone)]
pub struct Forward {
    inner: Arc<dyn Engine>,
    /// The engine that computes tangents.
    tangents: Arc<dyn Engine>,
    derived: Arc<Cache>,
}

/// The payload of a dual value, in a [`Wrapped`]: a value of the inner engine and its tangent, of the same type.
#[derive(Clone)]
struct Dual {
    primal: Value,
    tangent: Value,
}

impl Forward {
    /// Creates a layer around an engine.
    pub fn new(inner: Arc<dyn Engine>) -> Forward {
        Forward { tangents: inner.clone(), inner, derived: Arc::new(Cache::default()) }
    }

    /// Creates a layer around an engine, with another engine for tangents, which must accept values of the inner
    /// engine. With a vmap layer around the inner engine, one evaluation carries tangents for many directions.
    pub fn with_tangents_on(inner: Arc<dyn Engine>, tangents: Arc<dyn Engine>) -> Forward {
        Forward { inner, tangents, derived: Arc::new(Cache::default()) }
    }

    /// Returns the engine below.
    pub fn inner(&self) -> &Arc<dyn Engine> {
        &self.inner
    }

    /// Returns the engine of tangents; the inner engine by default.
    pub fn tangents(&self) -> &Arc<dyn Engine> {
        &self.tangents
    }

    /// Creates a dual value: the same data with `tangent`, a value of the engine of tangents. A previous tangent of
    /// `value` is replaced.
    ///
    /// Tangents are floats and have the type of the value; otherwise the result is poisoned.
    pub fn dual(&self, value: Value, tangent: Value) -> Value {
        let primal = self.primal(&value);
        if primal.error().is_some() {
            return primal;
        }
        let ty = *primal.ty();
        if !ty.dtype.is_float() {
            let error = Error::gradient("jvp", format!("{ty} has no derivative"));
            return Value::poisoned(ty, error.hint("cast it to a float dtype first"));
        }
        if *tangent.ty() != ty {
            let error = Error::gradient("jvp", format!("a tangent of {} for {ty}", tangent.ty()));
            return Value::poisoned(
                ty,
                error.hint("a tangent has the type of the value that changes along it"),
            );
        }
        self.wrap(primal, tangent)
    }

    /// Returns the inner engine's value.
    pub fn primal(&self, value: &Value) -> Value {
        self.dual_of(value).map_or_else(|| value.clone(), |dual| dual.primal.clone())
    }

    /// Returns the tangent of the value; `None` if it has none. An op without a derivative returns a poisoned tangent.
    pub fn tangent(&self, value: &Value) -> Option<Value> {
        Some(self.dual_of(value)?.tangent.clone())
    }

    /// Returns a value of the inner engine as a constant of this layer.
    pub fn from_inner(&self, value: Value) -> Value {
        value
    }

    /// The identity of the layer, by the engine below: two layers around one engine are the same.
    fn id(&self) -> LayerId {
        LayerId::around(&*self.inner)
    }

    fn dual_of<'v>(&self, value: &'v Value) -> Option<&'v Dual> {
        Wrapped::of(value, self.id())
    }

    fn wrap(&self, primal: Value, tangent: Value) -> Value {
        let ty = *primal.ty();
        Wrapped::wrap(self.id(), ty, Dual { primal, tangent })
    }

    /// The value and its tangent, moved out if there are no other clones, so that the inner engine may overwrite both.
    fn open(&self, value: Value) -> (Value, Option<Value>) {
        match Wrapped::open(value, self.id()) {
            Ok(Dual { primal, tangent }) => (primal, Some(tangent)),
            Err(value) => (value, None),
        }
    }

    fn changes(&self, operand: &Operand) -> bool {
        operand.value().is_some_and(|value| self.dual_of(value).is_some())
    }
}

impl Engine for Forward {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if !inputs.iter().any(|operand| self.changes(operand)) {
            return self.inner.execute(op, inputs, results);
        }
        Call::execute(self, op, inputs, results)
    }

    /// A custom op on duals is executed, which may wait: its results have tangents.
    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        let has_tangents = matches!(op, Op::Custom(_)) && inputs.iter().any(|operand| self.changes(operand));
        match has_tangents {
            true => Box::pin(core::future::ready(self.execute(op, inputs, results))),
            false => pass_async(self, &*self.inner, op, inputs, results),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(self.open(value).0)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.inner)
    }

    fn lower(&self, value: Value) -> Value {
        self.open(value).0
    }

    /// Imports a value. A dual of another forward-mode layer keeps its tangent.
    fn import(&self, from: &dyn Engine, value: Value) -> Value {
        let (source, value) = match imported_from::<Forward>(&*self.inner, from, value) {
            Ok(found) => found,
            Err(value) => return self.inner.import(from, value),
        };
        if source.id() == self.id() {
            return value;
        }
        let (primal, tangent) = source.open(value);
        let primal = self.inner.import(&*source.inner, primal);
        match tangent {
            Some(tangent) if primal.error().is_none() => {
                self.wrap(primal, self.tangents.import(&*source.tangents, tangent))
            }
            Some(_) | None => primal,
        }
    }

    /// The tangent moves along.
    fn to_device(&self, value: Value, device: usize) -> Value {
        let (primal, tangent) = self.open(value);
        let primal = self.inner.to_device(primal, device);
        match tangent {
            Some(tangent) => self.wrap(primal, self.tangents.to_device(tangent, device)),
            None => primal,
        }
    }

    /// Keeps the tangent of `like`.
    fn rewrap(&self, like: &Value, value: Value) -> Value {
        match self.dual_of(like) {
            Some(dual) if dual.primal.same(&value) => like.clone(),
            Some(dual) => self.wrap(value, dual.tangent.clone()),
            None => value,
        }
    }
}
