//! The engine: one arm per op.

use crate::call::{Call, Native};
use crate::data::message;
use crate::device::CandleDevice;
use crate::host::{Host, data_of, value_of};
use crate::index::is_empty;
use crate::{composite, contraction, elementwise, index, order, reduce, view};
use candle_core::{Device, Tensor};
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Machine, Op, OpKind, OpSet, Operand, OperandType, Operands,
    Result, TensorData, TensorType, Value, Values, infer, picked_past_poison, poison_of, poisoned, recovered,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of ops that candle's kernels run, on `f32` at least. Arithmetic on dtypes that candle lacks runs on the host.
pub const NATIVE: OpSet = OpSet::of(&[
    OpKind::Full,
    OpKind::Iota,
    OpKind::Unary,
    OpKind::Binary,
    OpKind::Compare,
    OpKind::Select,
    OpKind::Cast,
    OpKind::Reshape,
    OpKind::Permute,
    OpKind::Broadcast,
    OpKind::Slice,
    OpKind::Pad,
    OpKind::Concat,
    OpKind::Windows,
    OpKind::Copy,
    OpKind::Reduce,
    OpKind::ArgReduce,
    OpKind::Sort,
    OpKind::TopK,
    OpKind::Take,
    OpKind::Gather,
    OpKind::Put,
    OpKind::Scatter,
    OpKind::SliceUpdate,
    OpKind::CheckIndex,
    OpKind::MatMul,
    OpKind::Conv,
    OpKind::Pool,
    OpKind::Softmax,
    OpKind::LogSumExp,
    OpKind::Norm,
]);

/// The kinds that run on the host for every operand, since candle lacks them and an expansion needs many ops that it lacks.
/// The expansion of a cubic resize rounds more often than the suite allows.
const ON_HOST: &[OpKind] =
    &[OpKind::Bitcast, OpKind::Random, OpKind::NonZero, OpKind::Recover, OpKind::Resize];

/// The kinds of [`NATIVE`] that run under conditions, which [`Engine::supports`] states.
const CONDITIONAL: &[OpKind] = &[OpKind::Conv, OpKind::Pool];

/// Bytes of results from which on memory is tried before an op runs.
const LARGE: usize = 64 << 20;

/// The engine of a device of candle. See the [crate's tour](crate).
///
/// Engines of one device share one type of values: each accepts values of the others.
pub struct Candle {
    caps: Caps,
    device: Device,
    host: Host,
}

impl Candle {
    /// The engine of a device.
    ///
    /// # Errors
    /// When the device is missing, or this build lacks its kernels; the error says which feature adds them.
    ///
    /// ```
    /// use kiln_candle::{Candle, CandleDevice};
    ///
    /// assert!(Candle::open(CandleDevice::Cpu).is_ok());
    /// ```
    pub fn open(device: CandleDevice) -> Result<Candle> {
        let native = NATIVE.without(CONDITIONAL).union(OpSet::of(ON_HOST));
        let threads = match device {
            CandleDevice::Cpu => candle_core::utils::get_num_threads(),
            CandleDevice::Cuda(_) | CandleDevice::Metal(_) => 1,
        };
        let machine = Machine { threads, ..Machine::processor() };
        let caps = Caps { name: device.to_string(), dtypes: DTypeSet::ALL, native, machine };
        Ok(Candle { caps, device: device.open()?, host: Host::new() })
    }

    /// Runs an op on operands without poison: by candle where it can, otherwise on the host.
    ///
    /// Result types are inferred again: after [`Op::NonZero`], actual shapes are smaller than the recorded ones.
    fn run(&self, op: &Op, inputs: &Operands) -> Result<Values> {
        let types = infer(op, &OperandType::list(inputs))?;
        let nothing = inputs.iter().any(is_empty) || types.iter().any(|ty| ty.num_elements() == 0);
        if !matches!(op, Op::Broadcast(_) | Op::Permute(_)) {
            self.check_memory(op, &types)?;
        }
        let native = if nothing { None } else { self.native(op, inputs, &types)? };
        match native {
            Some(tensors) => {
                Ok(types.iter().zip(tensors).map(|(ty, tensor)| Value::new(*ty, tensor)).collect())
            }
            None => self.host.run(op, inputs, &types, &self.device),
        }
    }

    /// Refuses results that memory does not hold: candle ends the process when an allocation on the host fails.
    fn check_memory(&self, op: &Op, types: &[TensorType]) -> Result<()> {
        let bytes = types.iter().map(bytes_of).fold(0, usize::saturating_add);
        if bytes < LARGE || !self.device.is_cpu() || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
            return Ok(());
        }
        let problem =
            format!("`{}` needs {bytes} bytes of memory, which the system does not give", op.name());
        Err(Error::device(&self.caps.name, problem).hint("use a smaller batch"))
    }

    /// Runs an op by candle's kernels; `None` where the host must run it.
    pub(crate) fn native(
        &self,
        op: &Op,
        inputs: &Operands,
        types: &[TensorType],
    ) -> Result<Option<Vec<Tensor>>> {
        let call = Call { inputs, types, device: &self.device };
        self.dispatch(op, &call).map_err(|error| {
            let operands: Vec<String> = inputs.iter().map(|operand| operand.ty().to_string()).collect();
            let (name, reason) = (op.name(), message(&error));
            let problem = format!("`{name}` failed: {reason} (operands: {})", operands.join(" x "));
            Error::device(&self.caps.name, problem)
        })
    }

    fn dispatch(&self, op: &Op, call: &Call<'_>) -> Native<Vec<Tensor>> {
        let one = match op {
            Op::Full(_) => view::full(call),
            Op::Iota { ty, axis } => view::iota(call, *ty, *axis),
            Op::Unary(function) => elementwise::unary(call, *function),
            Op::Binary(function) => elementwise::binary(call, *function),
            Op::Compare(comparison) => elementwise::compare(call, *comparison),
            Op::Select => elementwise::select(call),
            Op::Cast(dtype) => elementwise::cast(call, *dtype),
            Op::Bitcast(dtype) => elementwise::bitcast(call, *dtype),
            Op::Reshape(_) => view::reshape(call),
            Op::Permute(axes) => view::permute(call, axes),
            Op::Broadcast(_) => view::broadcast(call),
            Op::Slice(slices) => view::slice(call, slices),
            Op::Pad(pads) => view::pad(call, pads),
            Op::Concat { axis } => view::concat(call, *axis),
            Op::Windows { axis, size, step, dilation } => view::windows(call, *axis, *size, *step, *dilation),
            Op::Copy => call.tensor(0)?.contiguous().map(Some),
            Op::Reduce { reduction, axes } => reduce::reduce(call, *reduction, axes),
            Op::ArgReduce { extremum, axis, .. } => reduce::arg_reduce(call, *extremum, *axis),
            Op::Sort { axis, descending, index } => {
                let length = call.dims()[*axis];
                return Ok(order::sort(call, *axis, length, *descending, *index)?.map(Vec::from));
            }
            Op::TopK { axis, k, largest, index } => {
                return Ok(order::sort(call, *axis, *k, *largest, *index)?.map(Vec::from));
            }
            Op::Take { axis } => index::take(call, *axis),
            Op::Gather { axis } => index::gather(call, *axis),
            Op::Put { axis, mode } => index::put(call, *axis, *mode),
            Op::Scatter { axis, mode } => index::scatter(call, *axis, *mode),
            Op::SliceUpdate { slices, mode } => view::slice_update(call, slices, *mode),
            Op::CheckIndex { length, .. } => index::check(call, *length),
            Op::MatMul => contraction::matmul(call),
            Op::Conv { spec, .. } => contraction::conv(call, spec),
            Op::Pool(spec) => contraction::pool(call, spec),
            Op::Softmax { axis, log } => composite::softmax(call, *axis, *log),
            Op::LogSumExp { axis } => composite::log_sum_exp(call, *axis),
            Op::Norm { kind, axes, epsilon } => composite::norm(call, *kind, *axes, epsilon.0),
            Op::Random { .. }
            | Op::Scan { .. }
            | Op::NonZero { .. }
            | Op::Recover { .. }
            | Op::MatMulFloat8 { .. }
            | Op::MatMulBlocks { .. }
            | Op::PoolGrad { .. }
            | Op::Attention(_)
            | Op::AttentionGrad(_)
            | Op::Resize { .. }
            | Op::Fft { .. }
            | Op::Quantize { .. }
            | Op::Dequantize
            | Op::DequantizeBlocks { .. }
            | Op::Collective(_)
            | Op::Custom(_)
            | Op::Fused(_)
            | Op::Loop(_) => Ok(None),
        };
        Ok(one?.map(|tensor| vec![tensor]))
    }

    /// The operand that a select returns although the other one is poisoned.
    fn past_poison(&self, inputs: &Operands, ty: TensorType) -> Option<Result<Values>> {
        let holds = |condition: &Value| {
            let elements = data_of(condition).ok()?.to_vec::<bool>();
            let first = *elements.first()?;
            elements.iter().all(|element| *element == first).then_some(first)
        };
        Some(match picked_past_poison(inputs, holds)? {
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
            return Err(self.caps.left_out(op));
        }
        self.run(op, &inputs)
    }
}

/// The engine of a device, opened once for the process.
///
/// # Errors
/// Those of [`Candle::open`]; the next call tries again.
///
/// ```
/// use kiln_candle::{CandleDevice, shared};
/// use std::sync::Arc;
///
/// let (a, b) = (shared(CandleDevice::Cpu)?, shared(CandleDevice::Cpu)?);
/// assert!(Arc::ptr_eq(&a, &b));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub fn shared(device: CandleDevice) -> Result<Arc<Candle>> {
    static OPENED: Mutex<Vec<(CandleDevice, Arc<Candle>)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, engine)) = opened.iter().find(|(other, _)| *other == device) {
        return Ok(engine.clone());
    }
    let engine = Arc::new(Candle::open(device)?);
    opened.push((device, engine.clone()));
    Ok(engine)
}

impl Engine for Candle {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.executed(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        value_of(data, &self.device).unwrap_or_else(|error| Value::poisoned(ty, error))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async move { data_of(&value) })
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        if let Op::Conv { spec, pass } = op {
            return contraction::has_conv(spec, pass, operands);
        }
        if let Op::Pool(spec) = op {
            return contraction::has_pool(spec, operands);
        }
        self.caps.supports(op, operands)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        let done = self.device.synchronize().map_err(|error| Error::device(&self.caps.name, message(&error)));
        Box::pin(core::future::ready(done))
    }
}

/// The bytes of a tensor, at most [`usize::MAX`].
fn bytes_of(ty: &TensorType) -> usize {
    ty.num_elements().saturating_mul(ty.dtype.size())
}
