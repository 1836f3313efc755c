//! The reference engine: one match over all ops.

use crate::call::{Call, data_of};
use crate::{
    attention, contraction, elementwise, index, loops, normal, order, pool, quantize, random, reduce, signal,
    view,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, FusedOp, Machine, Op, OpKind, OpSet, Operand, OperandType,
    Operands, Result, TensorData, TensorType, Value, Values, has_no_work, infer, poison_of, poisoned,
    recovered,
};

/// The reference engine: a naive implementation that defines the semantics of every op. See the [crate's tour](crate).
///
/// `Reference` engines share one value type: each accepts values of the others.
pub struct Reference {
    caps: Caps,
}

impl Reference {
    /// Creates a reference engine.
    pub fn new() -> Reference {
        let (dtypes, native) = (DTypeSet::ALL, OpSet::ALL.without(&[OpKind::Collective, OpKind::Custom]));
        let caps = Caps { name: "reference".into(), dtypes, native, machine: Machine::processor() };
        Reference { caps }
    }

    /// Runs one op whose operands are not poisoned.
    ///
    /// Result types are inferred again: after [`Op::NonZero`], actual shapes are smaller than the recorded ones.
    fn run(&self, op: &Op, inputs: &Operands) -> Result<Values> {
        let types = infer(op, &OperandType::list(inputs))?;
        if has_no_work(op, &types) {
            return Ok(values(types.iter().map(|ty| TensorData::zeros(*ty)).collect()));
        }
        fits_in_memory(&types).map_err(|error| error.out_of_memory_in(op, &types))?;
        let call = &Call { op, inputs, types: &types };
        let x = || call.data(0);
        let one = match op {
            Op::Full(_) => view::filled(call),
            Op::Iota { ty, axis } => view::iota(*ty, *axis),
            Op::Random { distribution, .. } => random::random(call, *distribution),
            Op::Unary(function) => elementwise::unary(x()?, *function),
            Op::Binary(function) => elementwise::binary(call, *function),
            Op::Compare(comparison) => elementwise::compare(call, *comparison),
            Op::Select => match elementwise::past_poison(inputs) {
                Some(Operand::Value(value)) => return Ok([value.clone()].into_iter().collect()),
                Some(Operand::Scalar(scalar)) => {
                    let op = Op::Full(types[0]);
                    return self.run(&op, &[Operand::Scalar(*scalar)].into_iter().collect());
                }
                None => elementwise::select(call),
            },
            Op::Cast(dtype) => elementwise::cast(x()?, *dtype),
            Op::Bitcast(dtype) => view::bitcast(x()?, *dtype),
            Op::Reshape(shape) => view::reshape(x()?, *shape),
            Op::Permute(axes) => view::permute(x()?, axes, call.ty().shape),
            Op::Broadcast(shape) => view::broadcast(x()?, *shape),
            Op::Slice(slices) => view::slice(x()?, slices, call.ty().shape),
            Op::Pad(pads) => view::pad(call, pads),
            Op::Concat { axis } => view::concat(&call.all()?, *axis, call.ty().shape),
            Op::Windows { axis, step, dilation, .. } => {
                view::windows(x()?, *axis, *step, *dilation, call.ty().shape)
            }
            Op::Copy => x().cloned(),
            Op::Reduce { reduction, axes } => reduce::reduce(x()?, *reduction, axes, call.ty()),
            Op::ArgReduce { extremum, axis, .. } => reduce::arg_reduce(x()?, *extremum, *axis, call.ty()),
            Op::Scan { reduction, axis, reverse, exclusive } => {
                reduce::scan(x()?, *reduction, *axis, *reverse, *exclusive)
            }
            Op::Sort { axis, descending, .. } => {
                return order::sort(x()?, *axis, *descending, call.types).map(values);
            }
            Op::TopK { axis, largest, .. } => {
                return order::sort(x()?, *axis, *largest, call.types).map(values);
            }
            Op::Take { axis } => index::take(call, *axis),
            Op::Gather { axis } => index::gather(call, *axis),
            Op::Put { axis, mode } => index::put(call, *axis, *mode),
            Op::Scatter { axis, mode } => index::scatter(call, *axis, *mode),
            Op::SliceUpdate { slices, mode } => index::slice_update(call, slices, *mode),
            Op::NonZero { index } => index::nonzero(x()?, *index),
            Op::CheckIndex { length, user } => index::check(x()?, *length, *user),
            Op::Recover { .. } => {
                return Ok(recovered(inputs.clone(), &types, |data| Value::new(data.ty(), data)));
            }
            Op::MatMul => contraction::matmul(x()?, call.data(1)?, call.ty()),
            Op::MatMulFloat8 { formats, .. } => contraction::matmul_float8(call, *formats),
            Op::MatMulBlocks { format } => contraction::matmul_blocks(call, *format),
            Op::Conv { spec, pass } => contraction::conv(x()?, call.data(1)?, spec, pass, call.ty()),
            Op::Pool(spec) => pool::pool(x()?, spec, call.ty()),
            Op::PoolGrad { spec, .. } => pool::pool_grad(x()?, call.optional(1)?, spec, call.ty()),
            Op::Softmax { axis, log } => normal::softmax(x()?, *axis, *log),
            Op::LogSumExp { axis } => normal::log_sum_exp(x()?, *axis, call.ty()),
            Op::Norm { kind, axes, epsilon } => normal::norm(call, *kind, *axes, epsilon.0),
            Op::Attention(spec) => return attention::attention(call, spec).map(values),
            Op::AttentionGrad(spec) => return attention::attention_grad(call, spec).map(values),
            Op::Resize { mode, align_corners, .. } => signal::resize(x()?, *mode, *align_corners, call.ty()),
            Op::Fft { kind, axis, inverse } => {
                return signal::fft(call, *kind, *axis, *inverse).map(values);
            }
            Op::Quantize { .. } => quantize::quantize(call),
            Op::Dequantize => quantize::dequantize(call),
            Op::DequantizeBlocks { format, .. } => quantize::dequantize_blocks(call, *format),
            Op::Collective(_) | Op::Custom(_) => return Err(self.caps.unsupported(op)),
            Op::Fused(fused) => return self.fused(fused, inputs),
            Op::Loop(op) => return loops::looped(self, op, inputs, &types),
        };
        Ok(values(vec![one?]))
    }

    /// Runs the program of a fused region op by op.
    fn fused(&self, fused: &FusedOp, inputs: &Operands) -> Result<Values> {
        Ok(fused.program().run_region(self, inputs.clone()))
    }
}

impl Default for Reference {
    fn default() -> Reference {
        Reference::new()
    }
}

impl Engine for Reference {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        // In a region, poison affects only the results that depend on it.
        if let Op::Fused(region) = op
            && poison_of(&inputs).is_some()
        {
            return region.program().run_region(self, inputs);
        }
        let poison = if op.stops_poison() { None } else { poison_of(&inputs) };
        let outcome = poison.map_or_else(|| self.run(op, &inputs), Err);
        outcome.unwrap_or_else(|error| poisoned(results, &error))
    }

    fn write(&self, data: TensorData) -> Value {
        Value::new(data.ty(), data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async move { data_of(&value).cloned() })
    }
}

/// Checks that the results, and intermediates of eight times their bytes, can be allocated. The ops themselves use vectors,
/// whose failed allocations end the process.
fn fits_in_memory(types: &[TensorType]) -> Result<()> {
    let bytes = types.iter().fold(0usize, |sum, ty| sum.saturating_add(ty.num_bytes()));
    let reserved = Vec::<u8>::new().try_reserve_exact(bytes.saturating_mul(9));
    reserved.map_err(|_| {
        Error::device("reference", format!("out of memory: {bytes} bytes could not be allocated"))
            .hint("use smaller tensors")
    })
}

/// Wraps results as values.
fn values(results: Vec<TensorData>) -> Values {
    results.into_iter().map(|data| Value::new(data.ty(), data)).collect()
}
