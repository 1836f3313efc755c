//! An engine that counts live values.

use kiln_ir::{
    BoxFuture, Caps, Engine, Fact, Op, OpClass, Operand, Operands, Result, Reuse, TensorData, TensorType,
    Traffic, Value, Values,
};
use kiln_reference::Reference;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reference engine with counts of ops, live bytes and touched elements.
pub(crate) struct Counting {
    inner: Reference,
    live: Arc<AtomicUsize>,
    executed: AtomicUsize,
    touched: AtomicUsize,
}

struct Counted {
    inner: Value,
    live: Arc<AtomicUsize>,
}

impl Counting {
    pub(crate) fn new() -> Arc<Counting> {
        Arc::new(Counting {
            inner: Reference::new(),
            live: Arc::default(),
            executed: 0.into(),
            touched: 0.into(),
        })
    }

    /// The bytes of all live values.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// The number of executed ops.
    pub(crate) fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }

    /// The number of elements that a strided engine would read and write for the executed ops: none for views, and only
    /// those of the source for writes into an unshared base.
    pub(crate) fn touched(&self) -> usize {
        self.touched.load(Ordering::SeqCst)
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

fn touches(op: &Op, inputs: &Operands, results: &[TensorType]) -> usize {
    let elements = |operand: &Operand| operand.value().map_or(0, |value| value.ty().num_elements());
    if op.is_view() {
        return 0;
    }
    let is_write =
        op.info().class == OpClass::Indexing && matches!(op.info().reuse, Fact::Fixed(Reuse::First));
    if is_write && inputs[0].value().is_some_and(Value::is_unique) {
        return 2 * inputs[1..].iter().map(elements).sum::<usize>();
    }
    if op.info().traffic == Traffic::Picked {
        return inputs[1..].iter().map(elements).sum::<usize>()
            + 2 * results.iter().map(TensorType::num_elements).sum::<usize>();
    }
    inputs.iter().map(elements).sum::<usize>() + results.iter().map(TensorType::num_elements).sum::<usize>()
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
        self.touched.fetch_add(touches(op, &inputs, results), Ordering::SeqCst);
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

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.inner)
    }

    fn lower(&self, value: Value) -> Value {
        uncounted(value)
    }

    fn lift(&self, value: Value) -> Value {
        self.count(value)
    }

    fn saved_for_backward(&self, _op: &Op, _place: usize, value: &Value) -> Value {
        value.clone()
    }
}
