//! The CPU engine: one match arm per op.

use crate::array::Array;
use crate::buffer::{self, Buffer};
use crate::isa::Level;
use crate::threads::Pool;
use crate::{composite, contraction, elementwise, fill, index, order, reduce, tile, view};
use alloc::boxed::Box;
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Layout, Machine, Memory, MemoryConfig, MemoryUse, Op, OpKind, OpSet,
    Operand, Operands, Result, SharedBytes, TensorData, TensorType, Value, Values, has_no_work, poison_of,
    poisoned, recovered,
};

/// The eager engine for the processor. Every op runs immediately, on the caller's thread and, for large tensors, on a
/// fixed number of other threads. Cheap to create; engines share one thread pool by default.
///
/// It runs ops natively on every dtype. [`Expand`](kiln_ir::Expand), which every stack puts around it, handles custom
/// ops, collectives of one member and matmuls of 8-bit floats.
pub struct Cpu {
    caps: Caps,
    pub(crate) pool: Pool,
    pub(crate) level: Level,
    pub(crate) plans: tile::Cache,
    /// Whether matmuls with quantized blocks round activations to one byte.
    pub(crate) int8_activations: bool,
}

/// The bytes from which on the allocation of a list is tried before.
const LARGE_LIST: usize = 1 << 20;

/// The ops left to the expanding layer.
const UNSUPPORTED: &[OpKind] = &[
    // A layer that fuses decodes 8-bit floats in the kernels beside the product.
    OpKind::MatMulFloat8,
    OpKind::Collective,
    OpKind::Custom,
    // Step by step in `Expand`; a native loop would run a body without an op call for each step.
    OpKind::Loop,
];

impl Cpu {
    /// Creates an engine on the process-wide threads: `KILN_NUM_THREADS` of them, or as many as the process may run at
    /// once.
    ///
    /// # Panics
    /// When `KILN_NUM_THREADS`, `KILN_CPU_ISA`, `KILN_CPU_POOL_BYTES`, `KILN_PLAN_CACHE_BYTES` or
    /// `KILN_INT8_ACTIVATIONS` has a value that is not [accepted](crate).
    pub fn new() -> Cpu {
        Cpu::with_pool(Pool::shared())
    }

    /// Creates an engine with that many threads of its own. With 1, and always without the feature
    /// `threads`, everything runs on the caller's thread.
    ///
    /// # Panics
    /// With 0 threads or more than [`MAX_THREADS`](crate::MAX_THREADS), or when `KILN_CPU_ISA`, `KILN_CPU_POOL_BYTES`,
    /// `KILN_PLAN_CACHE_BYTES` or `KILN_INT8_ACTIVATIONS` has a value that is not [accepted](crate).
    #[track_caller]
    pub fn with_threads(threads: usize) -> Cpu {
        Cpu::with_pool(Pool::new(threads))
    }

    fn with_pool(pool: Pool) -> Cpu {
        crate::buffer::check_settings();
        let native = OpSet::KERNELS.without(UNSUPPORTED);
        let machine = Machine { threads: pool.threads(), ..Machine::processor() };
        let caps = Caps { name: "cpu".into(), dtypes: DTypeSet::ALL, native, machine };
        #[cfg(feature = "std")]
        let int8_activations = kiln_ir::switch("KILN_INT8_ACTIVATIONS", false);
        #[cfg(not(feature = "std"))]
        let int8_activations = false;
        Cpu { caps, pool, level: Level::detect(), plans: tile::Cache::default(), int8_activations }
    }

    /// The same engine with kernels for one instruction set, named as in `KILN_CPU_ISA`: `scalar`, `avx2` or `avx512`.
    /// `None` for other names, and if this processor lacks the instructions.
    ///
    /// ```
    /// let plain = kiln_cpu::Cpu::with_threads(1).with_instructions("scalar");
    /// assert!(plain.is_some());
    /// ```
    pub fn with_instructions(self, name: &str) -> Option<Cpu> {
        let level = Level::from_name(name).filter(|level| *level <= Level::of_processor())?;
        Some(Cpu { level, ..self })
    }

    /// The same engine with 8-bit activations in [`Op::MatMulBlocks`]: the other operand of weights in quantized blocks is
    /// rounded to signed bytes, with a scale for each 32 elements, as in llama.cpp. Default: off, unless the environment has
    /// `KILN_INT8_ACTIVATIONS=on`; each element then has two bytes. `f64` is never rounded.
    ///
    /// One byte is faster and less exact: an element has an error of at most 1/254 of the greatest magnitude of its 32, and
    /// of 1/64,516 with two bytes. With one byte, small language models select other tokens.
    ///
    /// ```
    /// let fast = kiln_cpu::Cpu::with_threads(1).with_int8_activations(true);
    /// # let _ = fast;
    /// ```
    #[must_use]
    pub fn with_int8_activations(self, on: bool) -> Cpu {
        Cpu { int8_activations: on, ..self }
    }

    /// The number of threads that share the work of one op.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Sets the maximum size of cached fused regions in bytes, and drops the least recently used regions above it.
    /// Default: `KILN_PLAN_CACHE_BYTES`, or 128 MiB. A region of ten instructions takes about 5 KiB for each set of shapes
    /// and layouts. A region that is not cached is compiled again at each run.
    ///
    /// ```
    /// let cpu = kiln_cpu::Cpu::with_threads(1);
    /// cpu.set_plan_limit(1 << 20);
    /// assert_eq!(cpu.plan_bytes(), 0);
    /// ```
    pub fn set_plan_limit(&self, bytes: usize) {
        self.plans.set_limit(bytes);
    }

    /// The size of the cached fused regions in bytes. A region larger than the [limit](Cpu::set_plan_limit) stays until
    /// the next one.
    pub fn plan_bytes(&self) -> usize {
        self.plans.bytes()
    }

    /// The number of compiled fused regions in the cache, one for each set of operand layouts. The cache is bounded:
    /// the least recently used regions are dropped.
    ///
    /// ```
    /// assert_eq!(kiln_cpu::Cpu::with_threads(1).compiled_regions(), 0);
    /// ```
    pub fn compiled_regions(&self) -> usize {
        self.plans.compiled()
    }

    /// Runs an op on operands without poison; `results` are the inferred types.
    #[inline(never)]
    #[expect(clippy::wildcard_enum_match_arm, reason = "`Expand` runs the ops without an arm")]
    pub(crate) fn run(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let lists = list_bytes(op, &inputs);
        if lists > LARGE_LIST {
            buffer::vector::<u8>(lists)?;
        }
        match op {
            Op::Full(ty) => fill::full(self, ty, &inputs),
            Op::Iota { ty, axis } => fill::iota(self, ty, *axis),
            Op::Random { ty, distribution } => fill::random(self, ty, *distribution, &inputs),
            Op::Unary(function) => elementwise::unary(self, *function, inputs, results),
            Op::Binary(function) => elementwise::binary(self, *function, inputs, results),
            Op::Compare(comparison) => elementwise::compare(self, *comparison, inputs, results),
            Op::Select => elementwise::select(self, inputs, results),
            Op::Cast(_) => elementwise::cast(self, inputs, results),
            Op::Bitcast(dtype) => view::bitcast(*dtype, inputs),
            Op::Reshape(shape) => view::reshape(self, shape, inputs),
            Op::Permute(axes) => view::permute(axes, inputs),
            Op::Broadcast(shape) => view::broadcast(shape, inputs),
            Op::Slice(slices) => view::slice(slices, inputs),
            Op::Pad(pads) => view::pad(self, pads, inputs),
            Op::Concat { axis } => view::concat(self, *axis, inputs),
            Op::Windows { axis, size, step, dilation } => {
                view::windows(*axis, *size, *step, *dilation, inputs)
            }
            Op::Copy => view::copy(self, inputs),
            Op::Reduce { reduction, axes } => reduce::reduce(self, *reduction, axes, &inputs, &results[0]),
            Op::ArgReduce { extremum, axis, index } => {
                order::arg_reduce(self, *extremum, *axis, *index, inputs)
            }
            Op::Scan { reduction, axis, reverse, exclusive } => {
                order::scan(self, *reduction, *axis, *reverse, *exclusive, inputs)
            }
            Op::Sort { axis, descending, index } => order::sort(self, *axis, *descending, *index, inputs),
            Op::TopK { axis, k, largest, index } => order::topk(self, *axis, *k, *largest, *index, inputs),
            Op::Take { axis } => index::take(self, *axis, inputs),
            Op::Gather { axis } => index::gather(self, *axis, inputs),
            Op::Put { axis, mode } => index::put(self, op, *axis, *mode, inputs, results),
            Op::Scatter { axis, mode } => index::scatter(self, op, *axis, *mode, inputs, results),
            Op::SliceUpdate { slices, mode } => index::slice_update(self, slices, *mode, inputs, results),
            Op::NonZero { index } => index::nonzero(self, *index, inputs),
            Op::Fused(fused) if fused.has_empty_slots() => Ok(fused.program().run_region(self, inputs)),
            Op::Fused(fused) => tile::fused(self, fused, inputs, results),
            Op::CheckIndex { length, user } => index::check(self, *length, *user, inputs),
            Op::Recover { .. } => Ok(recovered(inputs, results, |data| self.write(data))),
            Op::MatMul => contraction::matmul(self, inputs, results),
            Op::MatMulBlocks { format } => contraction::matmul_blocks(self, *format, inputs, results),
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
            Op::Fft { kind, axis, inverse } => {
                composite::fft(self, (*kind, *axis, *inverse), inputs, results)
            }
            Op::Quantize { dtype } => composite::quantize(self, *dtype, inputs, results),
            Op::Dequantize => composite::dequantize(self, inputs, results),
            Op::DequantizeBlocks { format, .. } => {
                contraction::dequantize_blocks(self, *format, inputs, results)
            }
            _ => Err(self.caps.unsupported(op)),
        }
    }

    fn read_blocking(&self, mut value: Value) -> Result<TensorData> {
        let ty = *value.ty();
        let array = match value.payload_mut::<Array>() {
            // The value is dropped here: taking its buffer returns a vector without a copy.
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
        // SAFETY: a contiguous array contains all its elements.
        let bytes = unsafe { core::slice::from_raw_parts(array.address(ty.dtype.size()), ty.num_bytes()) };
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
        let found = if has_no_work(op, results) {
            empty(&inputs, results)
        } else if let Op::Binary(function) = op {
            // The most frequent ops detect poison when they read their operands' payload, and bypass the large function
            // of all other ops.
            elementwise::binary(self, *function, inputs, results)
        } else if let Op::Unary(function) = op {
            elementwise::unary(self, *function, inputs, results)
        } else if !op.stops_poison()
            && let Some(error) = poison_of(&inputs)
        {
            // A poisoned input of a region poisons only the results that depend on it.
            if let Op::Fused(region) = op {
                return region.program().run_region(self, inputs);
            }
            Err(error)
        } else {
            self.run(op, inputs, results)
        };
        found.unwrap_or_else(|error| poisoned(results, &error.out_of_memory_in(op, results)))
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        match Buffer::from_elements(data.into_elements()) {
            Ok(buffer) => Array { buffer, layout: Layout::contiguous(ty.shape) }.into_value(ty),
            Err(error) => Value::poisoned(ty, error),
        }
    }

    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        let value =
            Buffer::from_shared(&bytes, |bytes| reads_in_place(bytes, &ty)).and_then(|buffer| match buffer {
                Some(buffer) => Ok(Array { buffer, layout: Layout::contiguous(ty.shape) }.into_value(ty)),
                None => Ok(self.write(TensorData::from_bytes(bytes.as_slice(), ty)?)),
            });
        value.unwrap_or_else(|error| Value::poisoned(ty, error))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let data = self.read_blocking(value);
        Box::pin(async move { data })
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }
}

/// The bytes of the lists that a kernel makes for its lines or indices, if it makes any: their allocation cannot fail in the
/// kernel without ending the process, so it is tried before.
fn list_bytes(op: &Op, inputs: &Operands) -> usize {
    let shape = |place: usize| inputs.get(place).and_then(Operand::value).map(|value| *value.shape());
    let along = |axis: usize| shape(0).map_or(0, |shape| shape[axis]);
    if let Op::Sort { axis, .. } | Op::TopK { axis, .. } = op {
        // Two lists of keys with positions.
        along(*axis).saturating_mul(2 * 16)
    } else if let Op::Put { axis, .. } | Op::Scatter { axis, .. } = op {
        // The order of the indices, and the first of each target.
        let indices = shape(1).map_or(0, |shape| shape.num_elements());
        indices.saturating_add(along(*axis)).saturating_mul(8)
    } else if let Op::Fft { kind, axis, .. } = op {
        // Roots, and the factors of a transform of four times the length.
        kind.points(along(*axis)).saturating_mul(4 * 4 * 16)
    } else {
        0
    }
}

/// Results without elements.
fn empty(inputs: &Operands, results: &[TensorType]) -> Result<Values> {
    match poison_of(inputs) {
        Some(error) => Err(error),
        None => results.iter().map(|ty| Ok(Array::uninit(ty)?.into_value(*ty))).collect(),
    }
}

/// Whether a kernel may read the bytes as elements of a type in place. Bytes of `bool` may differ from 0 and 1, and are
/// normalized by a copy.
fn reads_in_place(bytes: &[u8], ty: &TensorType) -> bool {
    let expected = ty.checked_num_bytes();
    expected == Some(bytes.len())
        && !ty.dtype.is_bool()
        && bytes.as_ptr().addr().is_multiple_of(ty.dtype.size())
}

/// All CPU engines share one pool: the statistics are those of the process.
///
/// Freed buffers are cached for later ones, in size classes. By default ([`CacheStrategy::Automatic`]), live and cached
/// bytes together stay within five quarters of the peak of live bytes (since [`reset_peak`](Memory::reset_peak)) plus
/// 32 MiB. The environment variable `KILN_CPU_POOL_BYTES`, read once, sets [`CacheStrategy::AtMost`] instead. The least
/// recently freed blocks are released first. Without the feature `std` nothing is cached.
///
/// Counts are exact while no op runs, except the peak: a thread's small buffers count for it once they reach 64 KiB.
/// A vector that was [written](Engine::write) is live and not counted as an allocation. Headers of buffers are not
/// counted, nor is memory with other owners that tensors only [read](Engine::write_shared), such as mapped files.
///
/// [`CacheStrategy::Automatic`]: kiln_ir::CacheStrategy::Automatic
/// [`CacheStrategy::AtMost`]: kiln_ir::CacheStrategy::AtMost
impl Memory for Cpu {
    fn usage(&self) -> MemoryUse {
        buffer::usage()
    }

    fn reset_peak(&self) {
        buffer::reset_peak();
    }

    /// Applies to all CPU engines of the process. The limit counts buffers of the engine and vectors that were written; a
    /// thread's small buffers count once they reach 64 KiB.
    fn configure(&self, config: MemoryConfig) {
        buffer::configure(config);
    }

    /// Other threads than the caller's keep some small blocks, at most 1 MiB each, until they next use one.
    fn trim(&self) {
        buffer::trim();
    }
}
