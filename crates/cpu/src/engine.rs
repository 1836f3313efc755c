//! The engine: one arm per op.

use crate::array::Array;
use crate::buffer::Buffer;
use crate::isa::Level;
use crate::layout::Layout;
use crate::threads::Pool;
use crate::{composite, contraction};
use alloc::boxed::Box;
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Op, OpSet, Operands, Result, TensorData, TensorType, Value,
    Values, poison_of, poisoned,
};

/// The eager engine for the processor: every op runs when it is executed, on the caller's thread and, for large
/// tensors, on a fixed number of others. Cheap to make; engines share one pool of threads unless told otherwise.
///
/// It runs every op natively, on every dtype.
pub struct Cpu {
    caps: Caps,
    pub(crate) pool: Pool,
    pub(crate) level: Level,
}

impl Cpu {
    /// An engine on the process's shared threads: as many as `KILN_NUM_THREADS` says, or as the process may run at once.
    pub fn new() -> Cpu {
        Cpu::with_pool(Pool::shared())
    }

    /// An engine on that many threads of its own. With 1 (and at most 1 without the feature `threads`) everything
    /// runs on the caller's thread.
    pub fn with_threads(threads: usize) -> Cpu {
        Cpu::with_pool(Pool::new(threads))
    }

    fn with_pool(pool: Pool) -> Cpu {
        let caps = Caps { name: "cpu".into(), dtypes: DTypeSet::ALL, native: OpSet::ALL };
        Cpu { caps, pool, level: Level::detect() }
    }

    /// The number of threads that share the work of one op.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    // NOTE TO THE OWNER OF THIS FILE: another helper is writing src/view.rs (Reshape Permute Broadcast Slice Pad Concat
    // Windows Copy Bitcast), src/index.rs (Take Gather Put Scatter SliceUpdate NonZero) and src/order.rs (Scan Sort
    // TopK ArgReduce) right now and will wire those arms. Do not write them; do the rest. Delete this note at the end.
    fn run(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        match op {
            Op::Full(_)
            | Op::Iota { .. }
            | Op::Random { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Bitcast(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Broadcast(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat { .. }
            | Op::Windows { .. }
            | Op::Copy
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::Scan { .. }
            | Op::Sort { .. }
            | Op::TopK { .. }
            | Op::Take { .. }
            | Op::Gather { .. }
            | Op::Put { .. }
            | Op::Scatter { .. }
            | Op::SliceUpdate { .. }
            | Op::NonZero { .. }
            | Op::Collective(_)
            | Op::Custom(_)
            | Op::Fused(_) => Err(Error::unsupported("cpu", op.name())),
            Op::MatMul => contraction::matmul(self, inputs, results),
            Op::Conv { spec, pass } => contraction::conv(self, spec, pass, inputs, results),
            Op::Pool(spec) => contraction::pool(self, spec, inputs, results),
            Op::PoolGrad { spec, size } => contraction::pool_grad(self, spec, size, inputs, results),
            Op::Softmax { axis, log } => composite::softmax(self, *axis, *log, inputs, results),
            Op::Norm { kind, axes, epsilon } => {
                composite::norm(self, *kind, *axes, epsilon.0, inputs, results)
            }
            Op::Attention(spec) => composite::attention(self, spec, inputs, results),
            Op::AttentionGrad(spec) => composite::attention_grad(self, spec, inputs, results),
            Op::Resize { mode, size, align_corners } => {
                composite::resize(self, *mode, size, *align_corners, inputs, results)
            }
            Op::Fft { axis, inverse } => composite::fft(self, *axis, *inverse, inputs, results),
            Op::Quantize { dtype } => composite::quantize(self, *dtype, inputs, results),
            Op::Dequantize => composite::dequantize(self, inputs, results),
        }
    }

    fn read_now(&self, mut value: Value) -> Result<TensorData> {
        let ty = *value.ty();
        let array = match value.payload_mut::<Array>() {
            // The value dies here: taking its buffer lets a vector come back without a copy.
            Some(array) => core::mem::replace(
                array,
                Array { buffer: Buffer::uninit(0)?, layout: Layout::contiguous([0].into()) },
            ),
            None => Array::of(&value)?.clone(),
        };
        let mut array = if array.is_contiguous() { array } else { self.copied(&array, &ty)? };
        if array.layout.offset == 0
            && array.buffer.len() == ty.num_bytes()
            && let Some(elements) = array.buffer.take_elements(ty.dtype)
        {
            return TensorData::from_elements(elements, ty.shape);
        }
        // SAFETY: a contiguous array holds all its elements.
        let bytes = unsafe { core::slice::from_raw_parts(array.as_ptr::<u8>(), ty.num_bytes()) };
        TensorData::from_bytes(bytes, ty)
    }
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new()
    }
}

impl Engine for Cpu {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if let Some(error) = poison_of(&inputs) {
            return poisoned(results, &error);
        }
        self.run(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        match Buffer::from_elements(data.into_elements()) {
            Ok(buffer) => Array { buffer, layout: Layout::contiguous(ty.shape) }.into_value(ty),
            Err(error) => Value::poisoned(ty, error),
        }
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let data = self.read_now(value);
        Box::pin(async move { data })
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
