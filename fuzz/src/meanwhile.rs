//! An engine that is treated as a device which computes while a program goes on: what repeats gets a head start over it.

use kiln_ir::{
    BoxFuture, Caps, Engine, Memory, Op, Operands, Regions, Result, SharedBytes, TensorData, TensorType,
    Value, Values,
};
use std::sync::Arc;

/// The engine, behind fusion that runs what repeats before all of it is recorded.
pub(crate) struct Meanwhile(pub(crate) Arc<dyn Engine>);

impl Engine for Meanwhile {
    fn caps(&self) -> &Caps {
        self.0.caps()
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

    fn regions(&self) -> Regions {
        Regions { head_start: true, ..self.0.regions() }
    }
}
