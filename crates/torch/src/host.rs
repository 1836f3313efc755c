//! Ops that LibTorch lacks, by the CPU engine.

use crate::data::{download, upload};
use crate::ffi::Place;
use crate::tensor::Tensor;
use kiln_ir::{
    Engine, Error, Expand, Op, Operand, Operands, Result, TensorData, TensorType, Value, Values, block_on,
};

/// The CPU engine, which runs ops on copies of LibTorch's tensors in host memory.
pub(crate) struct Host(Expand);

impl Host {
    pub(crate) fn new() -> Host {
        Host(Expand::new(kiln_cpu::Cpu::new()))
    }

    /// Runs an op on the host and copies the results to the device.
    pub(crate) fn run(
        &self,
        op: &Op,
        inputs: &Operands,
        types: &[TensorType],
        place: Place,
    ) -> Result<Values> {
        let operands: Result<Operands> = inputs.iter().map(|operand| self.operand(operand)).collect();
        let results = self.0.execute(op, operands?, types);
        results.into_iter().map(|value| value_of(&block_on(self.0.read(value))?, place)).collect()
    }

    fn operand(&self, operand: &Operand) -> Result<Operand> {
        Ok(match operand {
            Operand::Value(value) => Operand::Value(self.0.write(data_of(value)?)),
            Operand::Scalar(scalar) => Operand::Scalar(*scalar),
        })
    }
}

/// The elements of a value.
pub(crate) fn data_of(value: &Value) -> Result<TensorData> {
    if let Some(error) = value.error() {
        return Err(error.clone());
    }
    let tensor = value.payload::<Tensor>().ok_or_else(|| {
        let problem = format!("the value {} is of another engine, or holds no data", value.ty());
        Error::unsupported("libtorch", problem).hint("read it there and write it here")
    })?;
    download(tensor, *value.ty())
}

/// A value with these elements.
pub(crate) fn value_of(data: &TensorData, place: Place) -> Result<Value> {
    let ty = data.ty();
    let tensor = upload(data, place)
        .map_err(|failure| Error::device("libtorch", format!("writing {ty} failed: {failure}")))?;
    Ok(Value::new(ty, tensor))
}
