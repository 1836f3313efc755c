//! A device that could not be opened.

use crate::LibTorchDevice;
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Machine, Op, OpSet, Operands, Result, TensorData, TensorType,
    Value, Values, poisoned,
};

/// The engine of a device that could not be opened. Every value on it is the error.
///
/// ```
/// use kiln_torch::{LibTorchDevice, Missing};
/// use kiln_ir::{Engine, Error, TensorData, block_on};
///
/// let error = Error::device("libtorch:cuda:9", "no such GPU");
/// let engine = Missing::new(LibTorchDevice::Cuda(9), error.clone());
/// let x = engine.write(TensorData::from([1.0f32]));
/// assert_eq!(block_on(engine.read(x)).unwrap_err(), error);
/// ```
pub struct Missing {
    caps: Caps,
    error: Error,
}

impl Missing {
    /// The engine of a device with the error of opening it.
    pub fn new(device: LibTorchDevice, error: Error) -> Missing {
        let (dtypes, native, machine) = (DTypeSet::ALL, OpSet::ALL, Machine::processor());
        Missing { caps: Caps { name: device.to_string(), dtypes, native, machine }, error }
    }
}

impl Engine for Missing {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, _op: &Op, _inputs: Operands, results: &[TensorType]) -> Values {
        poisoned(results, &self.error)
    }

    fn write(&self, data: TensorData) -> Value {
        Value::poisoned(data.ty(), self.error.clone())
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let error = value.error().unwrap_or(&self.error).clone();
        Box::pin(core::future::ready(Err(error)))
    }
}
