//! An engine marked as asynchronous, so that predicted plans run speculatively on it.

use kiln_ir::{
    BoxFuture, Caps, Engine, Machine, Op, Operands, Result, TensorData, TensorType, Value, Values,
};
use std::sync::Arc;

/// The engine, behind fusion with speculative execution of repeated recordings.
pub(crate) struct AsynchronousEngine(Arc<dyn Engine>, Caps);

impl AsynchronousEngine {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> AsynchronousEngine {
        let caps = engine.caps().clone();
        let machine = Machine { asynchronous: true, ..caps.machine };
        AsynchronousEngine(engine, Caps { machine, ..caps })
    }
}

impl Engine for AsynchronousEngine {
    fn caps(&self) -> &Caps {
        &self.1
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.0)
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.0.read(value)
    }
}
