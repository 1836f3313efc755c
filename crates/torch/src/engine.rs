//! The engine: one arm per op.

use crate::call::{Call, Native};
use crate::device::LibTorchDevice;
use crate::ffi::{self, Place};
use crate::host::{Host, data_of, value_of};
use crate::index::is_empty;
use crate::tensor::Tensor;
use crate::{composite, contraction, elementwise, index, order, reduce, view};
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Machine, Op, OpKind, OpSet, Operand, OperandType, Operands,
    Result, TensorData, TensorType, Value, Values, infer, picked_past_poison, poison_of, poisoned, recovered,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of ops that LibTorch's kernels run, on `f32` at least.
pub const NATIVE: OpSet = OpSet::of(&[
    OpKind::Full,
    OpKind::Iota,
    OpKind::Unary,
    OpKind::Binary,
    OpKind::Compare,
    OpKind::Select,
    OpKind::Cast,
    OpKind::Bitcast,
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
    OpKind::Scan,
    OpKind::Sort,
    OpKind::TopK,
    OpKind::Take,
    OpKind::Gather,
    OpKind::Put,
    OpKind::Scatter,
    OpKind::SliceUpdate,
    OpKind::NonZero,
    OpKind::CheckIndex,
    OpKind::MatMul,
    OpKind::Conv,
    OpKind::Pool,
    OpKind::Softmax,
    OpKind::LogSumExp,
    OpKind::Norm,
]);

/// The kinds that run on the host for every operand: LibTorch draws other random numbers, and the expansions of a cubic resize and of
/// a Fourier transform round more often than the suite allows.
const ON_HOST: &[OpKind] = &[OpKind::Random, OpKind::Recover, OpKind::Resize, OpKind::Fft];

/// The kinds of [`NATIVE`] that run under conditions, which [`Engine::supports`] states.
const CONDITIONAL: &[OpKind] = &[OpKind::Conv, OpKind::Pool];

/// The engine of a device of LibTorch. See the [crate's tour](crate).
///
/// Engines of one device share one type of values: each accepts values of the others.
pub struct LibTorch {
    caps: Caps,
    place: Place,
    host: Host,
}

impl LibTorch {
    /// The engine of a device.
    ///
    /// # Errors
    /// When LibTorch or the device is missing; the error lists the searched places and the line to run.
    ///
    /// ```
    /// use kiln_torch::{LibTorch, LibTorchDevice, version};
    ///
    /// assert_eq!(LibTorch::open(LibTorchDevice::Cpu).is_ok(), version().is_ok());
    /// ```
    pub fn open(device: LibTorchDevice) -> Result<LibTorch> {
        let native = NATIVE.without(CONDITIONAL).union(OpSet::of(ON_HOST));
        let place = device.open()?;
        let threads = if place.is_processor() { ffi::threads()? } else { 1 };
        let machine = Machine { threads, ..Machine::processor() };
        let caps = Caps { name: device.to_string(), dtypes: DTypeSet::ALL, native, machine };
        Ok(LibTorch { caps, place, host: Host::new() })
    }

    /// Runs an op on operands without poison: by LibTorch where it can, otherwise on the host.
    ///
    /// Result types are inferred again: after [`Op::NonZero`], actual shapes are smaller than the recorded ones.
    fn run(&self, op: &Op, inputs: &Operands) -> Result<Values> {
        let types = infer(op, &OperandType::list(inputs))?;
        let nothing = inputs.iter().any(is_empty) || types.iter().any(|ty| ty.num_elements() == 0);
        let native = if nothing { None } else { self.native(op, inputs, &types)? };
        match native {
            Some(tensors) => Ok(types.iter().zip(tensors).map(|(ty, tensor)| value(*ty, tensor)).collect()),
            None => self.host.run(op, inputs, &types, self.place),
        }
    }

    /// Runs an op by LibTorch's kernels; `None` where the host must run it.
    pub(crate) fn native(
        &self,
        op: &Op,
        inputs: &Operands,
        types: &[TensorType],
    ) -> Result<Option<Vec<Tensor>>> {
        let call = Call { inputs, types, place: self.place };
        self.dispatch(op, &call).map_err(|error| {
            let operands: Vec<String> = inputs.iter().map(|operand| operand.ty().to_string()).collect();
            let problem = format!("`{}` failed: {error} (operands: {})", op.name(), operands.join(" x "));
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
            Op::Scan { reduction, axis, reverse, exclusive } => {
                reduce::scan(call, *reduction, *axis, *reverse, *exclusive)
            }
            Op::NonZero { .. } => view::non_zero(call),
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
            Op::Conv { spec, pass } => contraction::conv(call, spec, pass),
            Op::Pool(spec) => contraction::pool(call, spec),
            Op::Softmax { axis, log } => composite::softmax(call, *axis, *log),
            Op::LogSumExp { axis } => composite::log_sum_exp(call, *axis),
            Op::Norm { kind, axes, epsilon } => composite::norm(call, *kind, *axes, epsilon.0),
            Op::Random { .. }
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
/// Those of [`LibTorch::open`]; the next call tries again.
///
/// ```
/// use kiln_torch::{LibTorchDevice, shared};
/// use std::sync::Arc;
///
/// if let (Ok(a), Ok(b)) = (shared(LibTorchDevice::Cpu), shared(LibTorchDevice::Cpu)) {
///     assert!(Arc::ptr_eq(&a, &b));
/// }
/// ```
pub fn shared(device: LibTorchDevice) -> Result<Arc<LibTorch>> {
    static OPENED: Mutex<Vec<(LibTorchDevice, Arc<LibTorch>)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, engine)) = opened.iter().find(|(other, _)| *other == device) {
        return Ok(engine.clone());
    }
    let engine = Arc::new(LibTorch::open(device)?);
    opened.push((device, engine.clone()));
    Ok(engine)
}

impl Engine for LibTorch {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.executed(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        value_of(&data, self.place).unwrap_or_else(|error| Value::poisoned(ty, error))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async move { data_of(&value) })
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        if let Op::Conv { spec, .. } = op {
            return contraction::has_conv(spec, operands);
        }
        if let Op::Pool(spec) = op {
            return contraction::has_pool(spec, operands);
        }
        self.caps.supports(op, operands)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        let done =
            ffi::synchronize(self.place).map_err(|error| Error::device(&self.caps.name, error.to_string()));
        Box::pin(core::future::ready(done))
    }
}

/// A value of a type, with the lengths that the tensor has: those of [`Op::NonZero`] follow from the elements.
fn value(ty: TensorType, tensor: Tensor) -> Value {
    Value::new(TensorType::new(tensor.dims().as_slice(), ty.dtype), tensor)
}
