//! An engine that is treated as a device which computes while a program goes on: what repeats gets a head start over it.

use kiln_ir::{
    BoxFuture, Caps, Engine, Machine, Memory, Op, Operands, Result, SharedBytes, TensorData, TensorType,
    Value, Values,
};
use std::sync::Arc;

/// The engine, behind fusion that runs what repeats before all of it is recorded.
pub(crate) struct Meanwhile(Arc<dyn Engine>, Caps);

impl Meanwhile {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Meanwhile {
        let caps = engine.caps().clone();
        let machine = Machine { asynchronous: true, ..caps.machine };
        Meanwhile(engine, Caps { machine, ..caps })
    }
}

impl Engine for Meanwhile {
    fn caps(&self) -> &Caps {
        &self.1
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        self.0.write_shared(bytes, ty)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.0.read(value)
    }

    fn mixes_precision(&self) -> bool {
        self.0.mixes_precision()
    }

    fn submit(&self) {
        self.0.submit();
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.0.sync()
    }

    fn memory(&self) -> Option<&dyn Memory> {
        self.0.memory()
    }
}
