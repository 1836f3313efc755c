//! An engine that knows what lives.

use kiln_ir::{
    BoxFuture, Caps, Engine, Op, Operand, Operands, Result, TensorData, TensorType, Value, Values,
};
use kiln_reference::Reference;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reference engine, counting ops and the bytes of all values that live.
pub(crate) struct Counting {
    inner: Reference,
    live: Arc<AtomicUsize>,
    executed: AtomicUsize,
}

struct Counted {
    inner: Value,
    live: Arc<AtomicUsize>,
}

impl Counting {
    pub(crate) fn new() -> Arc<Counting> {
        Arc::new(Counting { inner: Reference::new(), live: Arc::default(), executed: AtomicUsize::new(0) })
    }

    /// The bytes of all values that live.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// How many ops ran.
    pub(crate) fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }

    fn count(&self, inner: Value) -> Value {
        if inner.error().is_some() {
            return inner;
        }
        let ty = *inner.ty();
        self.live.fetch_add(ty.num_bytes(), Ordering::SeqCst);
        Value::new(ty, Counted { inner, live: self.live.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(self.inner.ty().num_bytes(), Ordering::SeqCst);
    }
}

fn uncounted(value: Value) -> Value {
    match value.payload::<Counted>() {
        Some(counted) => counted.inner.clone(),
        None => value,
    }
}

impl Engine for Counting {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.executed.fetch_add(1, Ordering::SeqCst);
        let strip = |operand| match operand {
            Operand::Value(value) => Operand::Value(uncounted(value)),
            Operand::Scalar(scalar) => Operand::Scalar(scalar),
        };
        let inputs = inputs.into_iter().map(strip).collect();
        self.inner.execute(op, inputs, results).into_iter().map(|value| self.count(value)).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        self.count(self.inner.write(data))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(uncounted(value))
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }
}
