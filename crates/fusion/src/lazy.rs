//! Lazy values: recorded, and computed when they are read.

use crate::plan::Plan;
use crate::queue::Queue;
use alloc::sync::Arc;
use kiln_ir::{TensorType, Value};
use spin::Once;

/// The payload of the layer's values: a reference to a lazily computed result.
pub(crate) struct Lazy(pub(crate) Arc<Cell>);

/// A result of a recorded op.
///
/// The queue holds one reference until the op has run, so a cell with only one is dead.
pub(crate) struct Cell {
    /// The value of the engine below.
    pub(crate) ready: Once<Value>,
    /// The queue of the pending op.
    pub(crate) queue: Arc<Queue>,
    /// The index of the result among all results of the queue.
    pub(crate) number: u64,
    /// The plan that computed the value, and the index of the result in it.
    pub(crate) origin: Once<(Arc<Plan>, usize)>,
}

impl Cell {
    pub(crate) fn new(queue: Arc<Queue>, number: u64) -> Cell {
        Cell { ready: Once::new(), queue, number, origin: Once::new() }
    }

    /// The computed value; runs the queue if it is pending.
    pub(crate) fn force(&self) -> &Value {
        if let Some(value) = self.ready.get() {
            return value;
        }
        self.queue.flush();
        self.ready.wait()
    }
}

impl Lazy {
    pub(crate) fn of(value: &Value) -> Option<&Arc<Cell>> {
        value.payload::<Lazy>().map(|lazy| &lazy.0)
    }

    pub(crate) fn value(ty: TensorType, cell: Arc<Cell>) -> Value {
        Value::new(ty, Lazy(cell))
    }
}

/// The engine's value of a cell; without aliases if the cell has no other owner.
pub(crate) fn take(cell: Arc<Cell>) -> Value {
    cell.force();
    match Arc::try_unwrap(cell) {
        Ok(cell) => cell.ready.try_into_inner().expect("a forced cell is ready"),
        Err(cell) => cell.force().clone(),
    }
}

/// Converts a value of the layer to the engine's value; without aliases if this is the only clone.
pub(crate) fn into_inner(mut value: Value) -> Value {
    let Some(cell) = Lazy::of(&value).cloned() else { return value };
    if value.payload_mut::<Lazy>().is_some() {
        drop(value);
    }
    take(cell)
}
