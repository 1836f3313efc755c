//! The engine in place of a device that cannot be opened: every value is the error.

use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Machine, Op, OpSet, Operands, Result, TensorData, TensorType,
    Value, Values, poison_of, poisoned,
};

/// An engine for a missing device: every value is poisoned with the reason, which a read returns.
///
/// A program that names the device thus starts and builds its model; reading its first element returns the error.
pub struct Missing {
    caps: Caps,
    error: Error,
}

impl Missing {
    /// Creates the engine in place of the device called `name`, which is missing because of `error`.
    pub fn new(name: &str, error: Error) -> Missing {
        let (dtypes, native) = (DTypeSet::ALL, OpSet::ALL);
        // A missing device finds errors on the host.
        let caps = Caps { name: name.to_owned(), dtypes, native, machine: Machine::processor() };
        Missing { caps, error }
    }

    /// The reason why the device is missing.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl Engine for Missing {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, _: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        // An operand may have its own error, which is closer to the cause.
        poisoned(results, &poison_of(&inputs).unwrap_or_else(|| self.error.clone()))
    }

    fn write(&self, data: TensorData) -> Value {
        Value::poisoned(data.ty(), self.error.clone())
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let error = value.error().unwrap_or(&self.error).clone();
        Box::pin(async { Err(error) })
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Err(self.error.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{DType, Unary, block_on};
    use smallvec::smallvec;

    #[test]
    fn every_method_of_a_missing_device_returns_its_error() {
        let missing = Missing::new("gpu:0", Error::device("gpu:0", "is not there"));
        let x = missing.write(TensorData::new(vec![1.0f32], [1]).unwrap());
        let ty = TensorType::new([1], DType::F32);
        let y = missing.execute(&Op::Unary(Unary::Exp), smallvec![x.into()], &[ty]).remove(0);
        let said = "[gpu:0] is not there";
        assert_eq!(block_on(missing.read(y)).unwrap_err().to_string(), said);
        assert_eq!(block_on(missing.sync()).unwrap_err().to_string(), said);
    }
}
