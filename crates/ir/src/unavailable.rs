//! The engine in place of a device that cannot be opened.

use crate::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Machine, Op, OpSet, Operands, Result, TensorData, TensorType,
    Value, Values, poison_of, poisoned,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::ready;

/// The engine of a device that cannot be opened: every value is poisoned with the reason, which a read returns.
///
/// A program that names the device thus starts and builds its model; reading its first element returns the error.
///
/// ```
/// use kiln_ir::{Engine, Error, TensorData, Unavailable, block_on};
///
/// let error = Error::device("gpu:9", "is not there");
/// let engine = Unavailable::new("gpu:9", error.clone());
/// let x = engine.write(TensorData::from([1.0f32]));
/// assert_eq!(block_on(engine.read(x)).unwrap_err(), error);
/// ```
pub struct Unavailable {
    caps: Caps,
    error: Error,
}

impl Unavailable {
    /// Creates the engine of the device called `name`, which cannot be opened because of `error`.
    pub fn new(name: &str, error: Error) -> Unavailable {
        // Errors are found on the host.
        let (dtypes, native, machine) = (DTypeSet::ALL, OpSet::ALL, Machine::processor());
        Unavailable { caps: Caps { name: name.into(), dtypes, native, machine }, error }
    }
}

/// Returns the engine, or [`Unavailable`] with the error of opening the device called `name`.
pub fn or_unavailable<E: Engine>(engine: Result<Arc<E>>, name: &str) -> Arc<dyn Engine> {
    match engine {
        Ok(engine) => engine,
        Err(error) => Arc::new(Unavailable::new(name, error)),
    }
}

impl Engine for Unavailable {
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
        Box::pin(ready(Err(value.error().unwrap_or(&self.error).clone())))
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(ready(Err(self.error.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Unary, block_on};
    use alloc::string::ToString;
    use smallvec::smallvec;

    #[test]
    fn every_method_returns_the_error() {
        let engine = Unavailable::new("gpu:0", Error::device("gpu:0", "is not there"));
        let x = engine.write(TensorData::from([1.0f32]));
        let ty = TensorType::new([1], DType::F32);
        let y = engine.execute(&Op::Unary(Unary::Exp), smallvec![x.into()], &[ty]).remove(0);
        let said = "[gpu:0] is not there";
        assert_eq!(block_on(engine.read(y)).unwrap_err().to_string(), said);
        assert_eq!(block_on(engine.sync()).unwrap_err().to_string(), said);
        assert!(engine.caps().machine.host_errors, "errors are known at once");
    }
}
