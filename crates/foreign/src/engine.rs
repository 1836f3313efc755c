//! The engine: poison, the choice between the library and the host, transfers.

use crate::call::Call;
use crate::dispatch::dispatch;
use crate::library::{Kernels, Library};
use core::any::Any;
use kiln_cpu::Cpu;
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Expand, Machine, Op, OpKind, Operand, OperandType, Operands,
    Result, TensorData, TensorType, Value, Values, block_on, infer, poison_of, poisoned, recovered,
    select_unpoisoned,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of [`Library::NATIVE`] that run under conditions, which [`Engine::supports`] states.
const CONDITIONAL: &[OpKind] = &[OpKind::Conv, OpKind::Pool];

/// The engine of a device of a library. See the [crate's tour](crate).
///
/// Engines of one device share one type of values: each accepts values of the others.
pub struct Foreign<L: Library> {
    caps: Caps,
    device: L::Device,
    library: L,
    /// The CPU engine, which runs ops on copies in host memory.
    host: Expand,
}

impl<L: Kernels> Foreign<L> {
    /// Returns the engine of a device.
    ///
    /// # Errors
    /// When the library or the device is missing.
    pub fn open(device: L::Device) -> Result<Foreign<L>> {
        let library = L::open(device)?;
        let native = L::NATIVE.without(CONDITIONAL).union(L::ON_HOST);
        let machine = Machine { threads: library.threads(), ..Machine::processor() };
        let caps = Caps { name: device.to_string(), dtypes: DTypeSet::ALL, native, machine };
        Ok(Foreign { caps, device, library, host: Expand::new(Cpu::new()) })
    }

    /// Returns the engine of a device, opened once for the process.
    ///
    /// # Errors
    /// Those of [`Foreign::open`]; the next call tries again.
    pub fn shared(device: L::Device) -> Result<Arc<Foreign<L>>> {
        static OPENED: Mutex<Vec<Arc<dyn Any + Send + Sync>>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut engines = opened.iter().filter_map(|engine| engine.clone().downcast::<Foreign<L>>().ok());
        if let Some(engine) = engines.find(|engine| engine.device == device) {
            return Ok(engine);
        }
        let engine = Arc::new(Foreign::open(device)?);
        opened.push(engine.clone());
        Ok(engine)
    }

    /// Runs an op by the library's kernels, on operands that are neither empty nor poisoned; `None` where the host must run it.
    ///
    /// # Errors
    /// Those of the library, with the op and the types of its operands.
    pub fn native(&self, op: &Op, inputs: &Operands, types: &[TensorType]) -> Result<Option<Vec<L::Tensor>>> {
        let call = Call { library: &self.library, inputs, types };
        dispatch(op, &call).map_err(|error| {
            let operands: Vec<String> = inputs.iter().map(|operand| operand.ty().to_string()).collect();
            let (name, reason) = (op.name(), L::message(&error));
            let problem = format!("`{name}` failed: {reason} (operands: {})", operands.join(" x "));
            Error::device(&self.caps.name, problem)
        })
    }

    /// Runs an op on operands without poison: by the library where it can, otherwise on the host.
    ///
    /// Result types are inferred again: after [`Op::NonZero`], actual shapes are smaller than the recorded ones.
    fn run(&self, op: &Op, inputs: &Operands) -> Result<Values> {
        let types = infer(op, &OperandType::list(inputs))?;
        let is_empty = |ty: &TensorType| ty.num_elements() == 0;
        let nothing = inputs.iter().filter_map(Operand::value).any(|value| is_empty(value.ty()))
            || types.iter().any(is_empty);
        self.check_memory(op, &types)?;
        let native = if nothing { None } else { self.native(op, inputs, &types)? };
        let Some(tensors) = native else { return self.run_on_host(op, inputs, &types) };
        let value = |(ty, tensor): (&TensorType, L::Tensor)| {
            // The lengths of `Op::NonZero` follow from the elements.
            Value::new(TensorType::new(L::dims(&tensor).as_slice(), ty.dtype), tensor)
        };
        Ok(types.iter().zip(tensors).map(value).collect())
    }

    /// Refuses results that memory does not hold. Views take no memory.
    fn check_memory(&self, op: &Op, types: &[TensorType]) -> Result<()> {
        let bytes_of = |ty: &TensorType| ty.num_elements().saturating_mul(ty.dtype.size());
        let bytes = types.iter().map(bytes_of).fold(0, usize::saturating_add);
        if matches!(op, Op::Broadcast(_) | Op::Permute(_)) || self.library.has_memory(bytes) {
            return Ok(());
        }
        let problem =
            format!("`{}` needs {bytes} bytes of memory, which the system does not give", op.name());
        Err(Error::device(&self.caps.name, problem).hint("use a smaller batch"))
    }

    /// Runs an op on the host and copies the results to the device.
    fn run_on_host(&self, op: &Op, inputs: &Operands, types: &[TensorType]) -> Result<Values> {
        let copied = |operand: &Operand| {
            Ok(match operand {
                Operand::Value(value) => Operand::Value(self.host.write(data_of::<L>(value)?)),
                Operand::Scalar(scalar) => Operand::Scalar(*scalar),
            })
        };
        let operands: Result<Operands> = inputs.iter().map(copied).collect();
        let results = self.host.execute(op, operands?, types);
        results.into_iter().map(|value| self.value_of(block_on(self.host.read(value))?)).collect()
    }

    /// A value with these elements.
    fn value_of(&self, data: TensorData) -> Result<Value> {
        let ty = data.ty();
        let tensor = self.library.write(data).map_err(|error| {
            Error::device(L::NAME, format!("writing {ty} failed: {}", L::message(&error)))
        })?;
        Ok(Value::new(ty, tensor))
    }

    /// The operand that a select returns although the other one is poisoned.
    fn past_poison(&self, inputs: &Operands, ty: TensorType) -> Option<Result<Values>> {
        let holds = |condition: &Value| {
            let elements = data_of::<L>(condition).ok()?.to_vec::<bool>();
            let first = *elements.first()?;
            elements.iter().all(|element| *element == first).then_some(first)
        };
        Some(match select_unpoisoned(inputs, holds)? {
            Operand::Value(value) => Ok([value.clone()].into_iter().collect()),
            Operand::Scalar(scalar) => {
                self.run(&Op::Full(ty), &[Operand::Scalar(*scalar)].into_iter().collect())
            }
        })
    }

    fn executed(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        if let Op::Recover { .. } = op {
            return Ok(recovered(inputs, results, |data| self.write(data)));
        }
        if let (Op::Select, Some(values)) =
            (op, results.first().and_then(|ty| self.past_poison(&inputs, *ty)))
        {
            return values;
        }
        if let Some(error) = poison_of(&inputs) {
            return Err(error);
        }
        if !self.supports(op, &OperandType::list(&inputs)) {
            return Err(self.caps.unsupported(op));
        }
        self.run(op, &inputs)
    }
}

impl<L: Kernels> Engine for Foreign<L> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.executed(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        self.value_of(data).unwrap_or_else(|error| Value::poisoned(ty, error))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async move { data_of::<L>(&value) })
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        let are_floats =
            || operands.iter().all(|operand| operand.tensor().is_some_and(|ty| ty.dtype.is_float()));
        if let Op::Conv { spec, pass } = op {
            return L::has_conv(spec, pass) && are_floats();
        }
        if let Op::Pool(spec) = op {
            return L::has_pool(spec) && are_floats();
        }
        self.caps.supports(op, operands)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        let done = self.library.synchronize();
        let done = done.map_err(|error| Error::device(&self.caps.name, L::message(&error)));
        Box::pin(core::future::ready(done))
    }
}

/// The elements of a value.
fn data_of<L: Library>(value: &Value) -> Result<TensorData> {
    if let Some(error) = value.error() {
        return Err(error.clone());
    }
    let tensor = value.payload::<L::Tensor>().ok_or_else(|| {
        let problem = format!("the value {} is of another engine, or holds no data", value.ty());
        Error::unsupported(L::NAME, problem).hint("read it there and write it here")
    })?;
    let ty = *value.ty();
    if ty.num_elements() == 0 {
        return Ok(TensorData::zeros(ty));
    }
    L::read(tensor, ty)
        .map_err(|error| Error::device(L::NAME, format!("reading {ty} failed: {}", L::message(&error))))
}
