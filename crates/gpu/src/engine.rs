//! The GPU engine: one match arm per op.

use crate::array::{Array, suspicions};
use crate::block::BlockCache;
use crate::block::tuning::Tuning;
use crate::custom::registered;
use crate::driver::{Argument, DeviceInfo, Driver, Library};
use crate::epilogue::EpilogueCache;
use crate::fourier::Roots;
use crate::index::Entries;
use crate::kernels::Kernels;
use crate::memory::Pool;
use crate::queue::{GraphUse, Queue, graphs_wanted};
use crate::region::KernelCache;
use crate::slim::Slims;
use crate::suspicion::{Pages, Suspicions};
use crate::trace::Traced;
use crate::view::view;
use kiln_ir::{
    BoxFuture, Caps, DType, Engine, Error, Machine, Memory, MemoryConfig, MemoryUse, Op, OpKind, OpSet,
    Operand, OperandType, Operands, Products, Program, Result, TensorData, TensorType, Value, Values, Var,
    expand, has_no_work, or_poisoned, poison_of, poisoned,
};
use kiln_kernel::Nest;
use kiln_kernel::print::Dialect;
use smallvec::smallvec;
use std::sync::Arc;

/// An engine for one GPU. Ops are queued in order. Only the futures of reads wait, and [`Op::NonZero`], whose shape is
/// data: [`execute_async`](Engine::execute_async) is its form that does not wait.
///
/// It runs every op on every dtype on the device: by a generated kernel, a handwritten kernel, the vendor's library, or
/// an expansion into simpler ops. Custom ops run by [registered kernels](crate::register_kernel). Every stack puts
/// [`Expand`](kiln_ir::Expand) around it, which handles other custom ops and collectives of one member.
pub struct Gpu<D: Driver> {
    caps: Caps,
    pub(crate) driver: Arc<D>,
    pub(crate) pool: Arc<Pool<D>>,
    pub(crate) kernels: Arc<Kernels<D>>,
    pub(crate) kernel_cache: KernelCache<D>,
    pub(crate) block_cache: BlockCache<D>,
    pub(crate) pages: Pages<D>,
    pub(crate) slims: Slims<D>,
    pub(crate) queue: Queue<D>,
    pub(crate) finished: EpilogueCache,
    pub(crate) fourier_roots: Roots<D>,
    pub(crate) tuning: Tuning,
    /// Whether Fourier transforms whose lines fit shared memory run by kernels rather than by the library.
    pub(crate) prefers_fourier_kernels: bool,
    /// Whether hand-written CUDA runs where it exists, rather than block kernels.
    pub(crate) prefers_native_kernels: bool,
    /// [`Driver::deterministic`].
    pub(crate) deterministic: bool,
}

/// Ops that the expanding layer handles, except custom ops with a registered kernel.
const UNSUPPORTED: &[OpKind] = &[
    // A fusion layer decodes blocks in few kernels.
    OpKind::MatMulBlocks,
    OpKind::DequantizeBlocks,
    // Connections between devices are not the engine's.
    OpKind::Collective,
    OpKind::Custom,
    OpKind::Loop,
];

impl<D: Driver> Gpu<D> {
    /// Creates the engine over a driver.
    pub fn new(driver: D, memory: MemoryConfig) -> Gpu<D> {
        let driver = Arc::new(driver);
        // A fusion layer then records the ops of the matmul's expansion.
        let has_float8 = driver.library().is_some_and(Library::has_float8);
        let lacks: &[OpKind] = if has_float8 { &[] } else { &[OpKind::MatMulFloat8] };
        let native = OpSet::KERNELS.without(UNSUPPORTED).without(lacks);
        let info = driver.info();
        let has_library = driver.library().is_some();
        let deterministic = driver.deterministic();
        // A library's algorithm depends on the epilogue.
        let has_epilogues = has_library && !deterministic;
        let machine = Machine { exact_regions: deterministic, ..machine(info, has_epilogues) };
        let dtypes = info.language.dtypes;
        let caps = Caps { name: info.name.clone(), dtypes, native, machine };
        Gpu {
            caps,
            pool: Pool::new(driver.clone(), memory),
            kernels: Arc::new(Kernels::new(driver.clone())),
            kernel_cache: KernelCache::default(),
            block_cache: BlockCache::default(),
            pages: Pages::default(),
            slims: Slims::default(),
            queue: Queue::new(driver.clone(), graphs_wanted()),
            finished: EpilogueCache::default(),
            fourier_roots: Roots::default(),
            tuning: if has_library || deterministic { Tuning::default() } else { Tuning::open(info) },
            prefers_fourier_kernels: kiln_ir::switch("KILN_FOURIER_KERNELS", true),
            prefers_native_kernels: kiln_ir::switch("KILN_NATIVE_KERNELS", true),
            deterministic,
            driver,
        }
    }

    /// The same engine with hand-written CUDA kernels where they exist, or with block kernels, which devices of all
    /// vendors run, in their place. The default is on, unless the environment has `KILN_NATIVE_KERNELS=off`.
    ///
    /// Engines of other languages have no hand-written kernels, and ignore it. Off, matmuls of few rows and attention with
    /// its gradients run by block kernels, without the vendor's library. Long Fourier transforms run in several passes,
    /// without the library too.
    #[must_use]
    pub fn with_native_kernels(mut self, on: bool) -> Gpu<D> {
        self.prefers_native_kernels = on;
        self
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Compiles kernel sources ahead of their first use, in parallel, which takes a fraction of the time. A source that
    /// does not compile is reported at its first use. A [driver without a device](crate::DryDriver) with the same
    /// [`DeviceInfo`](crate::DeviceInfo) collects the sources that a program will need. WGSL is left to its first use.
    pub fn prepare(&self, sources: &[Arc<str>]) {
        self.kernels.prepare(sources);
    }

    /// Kernels compiled since the engine was made, without those found in the disk cache.
    pub fn compiled_kernels(&self) -> u64 {
        self.kernels.compiled()
    }

    /// Usage counts of graph capture and replay.
    pub fn graphs(&self) -> GraphUse {
        self.queue.graphs()
    }

    /// Starts or stops recording the executed steps. Steps are then queued one by one, and timed where the device has a
    /// clock. `KILN_PROFILE=on` in the environment enables it from the start, and prints a [table](crate::table) at
    /// each synchronization.
    pub fn trace(&self, on: bool) {
        // The next read reports a failure.
        let _ = self.queue.drain();
        self.queue.trace.switch(on);
    }

    /// The steps executed since the last call, while they were [traced](Gpu::trace).
    pub fn traced(&self) -> Vec<Traced> {
        let _ = self.queue.drain();
        self.queue.trace.take()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "`Expand` runs the ops without an arm")]
    fn run(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        if has_no_work(op, results) {
            return self.empty(&inputs, results);
        }
        match op {
            Op::Reshape(shape) => self.reshape(shape, &inputs),
            Op::Permute(axes) => view::<D>(&inputs, None, |layout| layout.permute(axes)),
            Op::Broadcast(shape) => view::<D>(&inputs, None, |layout| layout.broadcast(shape)),
            Op::Slice(slices) => view::<D>(&inputs, None, |layout| layout.slice(slices)),
            Op::Windows { axis, size, step, dilation } => {
                view::<D>(&inputs, None, |layout| layout.windows(*axis, *size, *step, *dilation))
            }
            Op::Bitcast(dtype) => view::<D>(&inputs, Some(*dtype), |layout| *layout),
            Op::Copy => self.copy(&inputs),
            Op::Pad(pads) => self.pad(pads, &inputs, results),
            Op::Concat { axis } => self.concat(*axis, &inputs, results),
            Op::SliceUpdate { slices, mode } => self.slice_update(slices, *mode, inputs, results),
            Op::Take { axis } => self.take(Entries::List, *axis, &inputs, results),
            Op::Gather { axis } => self.take(Entries::Each, *axis, &inputs, results),
            Op::Put { axis, mode } => self.put(Entries::List, *axis, *mode, inputs, results),
            Op::Scatter { axis, mode } => self.put(Entries::Each, *axis, *mode, inputs, results),
            Op::ArgReduce { extremum, axis, .. } => self.arg_reduce(*extremum, *axis, &inputs, results),
            Op::NonZero { index } => self.nonzero(*index, inputs),
            Op::CheckIndex { length, user } => self.check_user_index(*length, *user, &inputs),
            Op::Recover { .. } => self.recover(inputs, results),
            Op::MatMul => self.matmul(inputs, results),
            Op::MatMulFloat8 { formats, .. } => self.matmul_float8(op, *formats, inputs, results),
            Op::Fused(fused) if fused.has_empty_slots() => Ok(fused.program().run_region(self, inputs)),
            Op::Fused(fused) => self.fused(fused, inputs, results),
            Op::Custom(custom) => self.custom(custom, inputs, results),
            Op::Full(ty) => {
                let number = inputs.first().and_then(Operand::scalar);
                let number =
                    number.ok_or_else(|| self.unsupported("the operand of `full` must be a number"))?;
                Ok(smallvec![self.full(ty, number)?.into_value(*ty)])
            }
            Op::Iota { ty, axis } => Ok(smallvec![self.iota(ty, *axis)?.into_value(*ty)]),
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Reduce { .. }
            | Op::Softmax { .. }
            | Op::Norm { .. }
            | Op::Quantize { .. }
            | Op::Dequantize => self.computed(op, inputs, results),
            Op::Random { distribution, .. } => self.random(*distribution, &inputs, results),
            Op::Sort { axis, descending, .. } => self.sort(op, *axis, *descending, inputs, results),
            Op::TopK { axis, largest, .. } => self.sort(op, *axis, *largest, inputs, results),
            Op::Scan { .. } => self.scan(op, inputs, results),
            Op::Pool(spec) => self.pool(op, spec, inputs, results),
            Op::PoolGrad { spec, .. } => self.pool_grad(op, spec, inputs, results),
            Op::Resize { mode, align_corners, .. } => self.resize(*mode, *align_corners, &inputs, results),
            Op::Conv { .. } => self.conv(op, inputs, results),
            Op::Attention(spec) | Op::AttentionGrad(spec) => self.attention(op, *spec, inputs, results),
            Op::Fft { .. } => self.fourier(op, inputs, results),
            _ => Err(self.caps.unsupported(op)),
        }
    }

    /// Results without elements.
    fn empty(&self, inputs: &Operands, results: &[TensorType]) -> Result<Values> {
        let all = suspicions::<D>(inputs);
        let empty = |ty: &TensorType| suspected(self.uninit(ty)?.into_value(*ty), &all);
        results.iter().map(empty).collect()
    }

    /// Runs a region as one kernel, or op by op if there is no kernel for it.
    pub(crate) fn kernel_or_ops(
        &self,
        program: &Arc<Program>,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        match self.run_fused(program, &inputs, results)? {
            Some(values) => Ok(values),
            None => Ok(program.run_region(self, inputs)),
        }
    }

    /// Runs an op by a generated kernel, or expands it into simpler ops.
    pub(crate) fn computed(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        match self.run_single(op, &inputs, results)? {
            Some(values) => Ok(values),
            None => self.expanded(op, inputs, results),
        }
    }

    pub(crate) fn expanded(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let variables: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(self, operand.clone())).collect();
        let all = suspicions::<D>(&inputs);
        let unbound = self.unbound(op, &inputs, results);
        drop(inputs);
        let Some(outputs) = expand(self, op, &variables) else {
            if let Some(error) = unbound {
                return Err(error);
            }
            // Only a reduction over no elements has no expansion.
            return self.identity(op, results)?.into_iter().map(|value| suspected(value, &all)).collect();
        };
        drop(variables);
        let values = outputs.into_iter().zip(results).map(|(output, ty)| self.value_of(output, ty));
        values.map(|value| suspected(value?, &all)).collect()
    }

    /// A reduction over no elements.
    fn identity(&self, op: &Op, results: &[TensorType]) -> Result<Values> {
        let Op::Reduce { reduction, .. } = op else {
            return Err(self.unsupported(&format!("does not run `{}` of such operands", op.name())));
        };
        let identity = reduction.identity(results[0].dtype);
        Ok(smallvec![self.full(&results[0], identity)?.into_value(results[0])])
    }

    fn value_of(&self, output: Var<'_>, ty: &TensorType) -> Result<Value> {
        match output.into_operand() {
            Operand::Value(value) => Ok(value),
            Operand::Scalar(scalar) => Ok(self.full(ty, scalar)?.into_value(*ty)),
        }
    }

    fn unsupported(&self, problem: &str) -> Error {
        Error::unsupported(&self.caps.name, problem)
    }

    /// Starts to copy a value and its flags from the device, in one submission. The future waits for them and checks the
    /// flags.
    fn start_read(&self, value: &Value) -> Result<BoxFuture<'_, Result<TensorData>>> {
        let ty = *value.ty();
        let array = self.contiguous(Array::<D>::of(value)?, ty.dtype)?;
        let from = Some((array.at(ty.dtype.size()), ty.num_bytes())).filter(|(_, bytes)| *bytes > 0);
        let copied = self.read_checked(from, &array.suspicions)?;
        Ok(Box::pin(async move { TensorData::from_bytes(&copied.await?, ty) }))
    }
}

/// The machine description of a device. `KILN_EPILOGUES` and `KILN_HEAD_START` in the environment can disable two of
/// its facts.
fn machine(info: &DeviceInfo, has_epilogues: bool) -> Machine {
    Machine {
        threads: info.multiprocessors * info.multiprocessor_threads,
        workgroup: info.block_threads,
        subgroup: info.warp_threads,
        shared_bytes: info.shared_bytes,
        // A kernel also binds its bounds-check flag.
        bindings: info.bindings.map(|most| most.saturating_sub(1)),
        memory_bytes: Some(info.memory as u64),
        dtypes: info.language.dtypes,
        // A row belongs to one block, and its registers hold no more.
        row_elements: 1 << 14,
        kernel_ops: Nest::MAX_VALUES,
        // Without a library, matmuls are block kernels, which store their results as a library does.
        products: Products::Library { epilogues: has_epilogues && kiln_ir::switch("KILN_EPILOGUES", true) },
        // On CUDA devices the hand-written kernels of these ops run, against which fused ones were not measured.
        indexed_loads: info.language.dialect != Dialect::Cuda,
        asynchronous: kiln_ir::switch("KILN_HEAD_START", true),
        // Kernels find errors while the program continues.
        host_errors: false,
        exact_regions: false,
    }
}

/// A value with these flags added: an expansion may not use all operands.
fn suspected<D: Driver>(value: Value, all: &Suspicions<D>) -> Result<Value> {
    if all.is_empty() || value.error().is_some() {
        return Ok(value);
    }
    let mut array = Array::<D>::of(&value)?.clone();
    array.suspicions.join(all);
    Ok(array.into_value(*value.ty()))
}

impl<D: Driver> Array<D> {
    /// The pointer to its first element, as an argument.
    pub(crate) fn place(&self, dtype: DType) -> Argument<D::Memory> {
        Argument::Pointer(self.at(dtype.size()))
    }
}

impl<D: Driver> Engine for Gpu<D> {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let _running = self.pages.run();
        let found = match poison_of(&inputs) {
            Some(error) if !op.stops_poison() => {
                // A poisoned input of a region poisons only the results that depend on it.
                if let Op::Fused(region) = op {
                    return region.program().run_region(self, inputs);
                }
                Err(error)
            }
            Some(_) | None => self.run(op, inputs, results),
        };
        found.unwrap_or_else(|error| poisoned(results, &error))
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        let (Op::NonZero { index }, None) = (op, poison_of(&inputs)) else {
            return Box::pin(core::future::ready(self.execute(op, inputs, results)));
        };
        let _running = self.pages.run();
        let started = self.start_nonzero(*index, inputs);
        or_poisoned(started.map(|started| self.end_nonzero(started)), results)
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        if let Op::Custom(custom) = op {
            return registered(custom.name(), self.driver.info().language.dialect).is_some();
        }
        self.caps.supports(op, operands)
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        let written = self.uninit(&ty).and_then(|array| {
            let bytes = data.bytes();
            if !bytes.is_empty() {
                self.queue.write(&array.at(ty.dtype.size()), bytes)?;
            }
            Ok(array.into_value(ty))
        });
        written.unwrap_or_else(|error| Value::poisoned(ty, error))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let started = match value.error() {
            Some(error) => Err(error.clone()),
            None => self.start_read(&value),
        };
        Box::pin(async move { started?.await })
    }

    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        match Array::<D>::of(value) {
            Ok(array) => array.suspicions.is_empty().then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn submit(&self) {
        self.queue.submit();
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        let done = self.queue.synchronize();
        Box::pin(async move { done?.await })
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }
}

/// Freed blocks are cached, by default all of them ([`CacheStrategy`](kiln_ir::CacheStrategy)).
impl<D: Driver> Memory for Gpu<D> {
    fn usage(&self) -> MemoryUse {
        self.pool.usage()
    }

    fn reset_peak(&self) {
        self.pool.reset_peak();
    }

    fn trim(&self) {
        // Pending steps hold memory.
        let _ = self.queue.drain();
        self.pool.trim();
    }

    fn configure(&self, config: MemoryConfig) {
        let _ = self.queue.drain();
        self.pool.configure(config);
    }
}
