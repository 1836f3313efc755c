//! Fused kernels: each program is compiled once per operand layout, cached, and launched on its operands' memory.

mod reuse;
mod sources;

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Argument, Arguments, Driver, Grid, parts};
use crate::joint::Joint;
use crate::kernels::Source;
use crate::memory::Block;
use crate::strided::begins_aligned;
use crate::suspicion::{Suspicion, Suspicions, Wrong};
use crate::trace::Label;
use half::{bf16, f16};
use kiln_ir::{
    Binary, DType, Error, FxBuildHasher, Instruction, Layout, MAX_RANK, Op, Operand, Operands, Program,
    ProgramOperand, Result, Scalar, Shape, TensorType, Values,
};
use kiln_kernel::print::{Dialect, GpuArgument, print};
use kiln_kernel::{Check, GpuSchedule, Kernel, KernelKind, Launch, Lowered, Nest, ParamKind};
use reuse::{reusable, reusable_operands};
use smallvec::SmallVec;
use sources::{Sources, checks_of, operands_of};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// The part of an operand's layout that a kernel depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum OperandLayout {
    Number,
    /// Its strides, and whether the address of its first element is a multiple of 16.
    Tensor(SmallVec<[isize; 6]>, bool),
}

/// The cache key of a region: the address of a fused op's program, which the entry keeps alive, or a single op with its
/// types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Fused(usize),
    Single(Box<(Op, SmallVec<[TensorType; 3]>)>),
}

/// The compiled kernels of an engine, by program and operand layouts.
pub(crate) struct KernelCache<D: Driver>(Mutex<CacheMaps<D>>);

struct CacheMaps<D: Driver> {
    programs: HashMap<(Key, SmallVec<[OperandLayout; 4]>), Entry<D>, FxBuildHasher>,
    built: HashMap<KernelKey, Arc<Region<D>>, FxBuildHasher>,
}

struct Entry<D: Driver> {
    /// Keeps the address from being reused by another program.
    _program: Arc<Program>,
    region: Option<Arc<Region<D>>>,
}

/// A kernel that the engine builds directly, not from a program.
pub(crate) struct BuiltKernel {
    pub(crate) kernel: Kernel,
    pub(crate) launch: Launch,
}

/// The cache key of a [`BuiltKernel`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelKey {
    pub(crate) kind: CopyKind,
    pub(crate) dtype: DType,
    /// The shape of the written tensor.
    pub(crate) shape: Shape,
    /// The strides of all operands in memory, and of the result.
    pub(crate) strides: SmallVec<[isize; 16]>,
    /// Whether all addresses are multiples of 16.
    pub(crate) aligned: bool,
}

/// The operation of a [`BuiltKernel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CopyKind {
    /// Copies elements.
    Copy,
    /// Combines elements with those in memory.
    Combine(Binary),
    /// Fills with a number.
    Full,
    /// Writes the index along the middle of three axes.
    Iota,
}

/// The maximum number of cached regions; beyond it all are dropped, and their kernels are looked up by source. A
/// training step has some ten for each set of shapes, about 5 KiB each.
const MOST: usize = 1 << 14;

impl<D: Driver> Default for KernelCache<D> {
    fn default() -> Self {
        KernelCache(Mutex::new(CacheMaps { programs: HashMap::default(), built: HashMap::default() }))
    }
}

/// Pairs of an input and an output parameter that share memory.
type Aliases = SmallVec<[(u32, u32); 2]>;

/// A compiled kernel with its parameters.
struct Variant<D: Driver> {
    arguments: Vec<GpuArgument>,
    /// The functions in launch order, with the number of blocks of each.
    functions: Vec<(Arc<D::Function>, usize)>,
}

/// A compiled kernel of a program.
pub(crate) struct Region<D: Driver> {
    kernel: Arc<Kernel>,
    launch: Launch,
    schedule: GpuSchedule,
    /// The kernel for results in memory of their own.
    plain: Variant<D>,
    /// The kernels for results that take operands' memory, by input and output parameter. Only WebGPU needs them: it
    /// refuses to bind one buffer twice if a kernel writes to it.
    aliased: Mutex<HashMap<Aliases, Arc<Variant<D>>, FxBuildHasher>>,
    checks: Vec<Arc<Check>>,
    /// The operands and checks that each result depends on.
    sources: Vec<Sources>,
    /// Horizontal fusion of this kernel with equal ones, if possible.
    joint: Option<Arc<Joint<D>>>,
    /// The layouts of results; empty if the kernel is [built](Gpu::run_built) into an existing array.
    results: Vec<Layout>,
    /// The operands whose memory each result may reuse. Repeated steps then have stable addresses.
    takes: Vec<SmallVec<[usize; 2]>>,
}

impl<D: Driver> Gpu<D> {
    /// Runs a fused region as one kernel; `None` if the program has no kernel, or the operands need too many bindings.
    pub(crate) fn run_fused(
        &self,
        program: &Arc<Program>,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Option<Values>> {
        let expected = inputs.iter().zip(&program.inputs);
        if expected.into_iter().any(|(operand, ty)| operand.value().is_some_and(|value| value.ty() != ty)) {
            return Ok(None);
        }
        let key = Key::Fused(Arc::as_ptr(program).addr());
        self.run_program(key, inputs, results, || program.clone())
    }

    /// Runs one op as one kernel; `None` if the op has no kernel, or the operands need too many bindings.
    pub(crate) fn run_single(
        &self,
        op: &Op,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Option<Values>> {
        let beside = inputs.iter().find_map(|operand| Some(operand.value()?.dtype()));
        // A plain number has the dtype of the tensor operands, or of the result if there are none. The first operand of
        // a selection is a condition.
        let number = if *op == Op::Select { results[0].dtype } else { beside.unwrap_or(results[0].dtype) };
        let ty = |operand: &Operand| operand.value().map_or(TensorType::new([], number), |value| *value.ty());
        let types: SmallVec<[TensorType; 3]> = inputs.iter().map(ty).collect();
        let key = Key::Single(Box::new((op.clone(), types.clone())));
        self.run_program(key, inputs, results, || Arc::new(single_op_program(op, &types, inputs, results)))
    }

    fn run_program(
        &self,
        key: Key,
        inputs: &Operands,
        results: &[TensorType],
        program: impl FnOnce() -> Arc<Program>,
    ) -> Result<Option<Values>> {
        let mut given = SmallVec::<[OperandLayout; 4]>::new();
        for operand in inputs {
            given.push(match operand {
                Operand::Scalar(_) => OperandLayout::Number,
                Operand::Value(value) => {
                    let layout = &Array::<D>::of(value)?.layout;
                    let aligned = begins_aligned(layout, value.dtype());
                    OperandLayout::Tensor(layout.strides().iter().copied().collect(), aligned)
                }
            });
        }
        let key = (key, given);
        let known =
            self.kernel_cache.with(|known| known.programs.get(&key).map(|entry| entry.region.clone()));
        let region = match known {
            Some(region) => region,
            None => {
                let program = program();
                let region = Region::new(self, &program, &key.1)?.map(Arc::new);
                self.kernel_cache.with(|known| {
                    if known.programs.len() >= MOST {
                        known.programs.clear();
                    }
                    known.programs.insert(key, Entry { _program: program, region: region.clone() });
                });
                region
            }
        };
        match region {
            Some(region) => region.run(self, inputs, results),
            None => Ok(None),
        }
    }
}

impl<D: Driver> Gpu<D> {
    /// Launches the kernel of a key, and builds it on a cache miss.
    ///
    /// # Errors
    /// When the kernel does not compile, or the device is out of memory.
    pub(crate) fn run_built(
        &self,
        key: KernelKey,
        make: impl FnOnce() -> BuiltKernel,
        inputs: &Operands,
        output: &Array<D>,
    ) -> Result<()> {
        let is_combined = matches!(key.kind, CopyKind::Combine(_));
        let known = self.kernel_cache.with(|known| known.built.get(&key).cloned());
        let region = match known {
            Some(region) => region,
            None => {
                let BuiltKernel { mut kernel, launch } = make();
                if is_combined && self.driver.info().language.dialect == Dialect::Wgsl {
                    // Tiles of a transpose could not read the target through the result's binding.
                    kernel.kind = KernelKind::Map;
                }
                let mut schedule = GpuSchedule::choose(&kernel, &launch);
                if !key.aligned {
                    schedule = schedule.unaligned(&kernel, &launch);
                }
                let schedule = self.limited(schedule, &kernel, &launch)?;
                let lowered = Lowered { kernel, launch, checks: Vec::new() };
                let region = Region::compile(self, lowered, schedule, Vec::new(), &[])?;
                let region =
                    Arc::new(region.ok_or_else(|| Error::unsupported("gpu", "a copy has no kernel"))?);
                self.kernel_cache.with(|known| {
                    if known.built.len() >= MOST {
                        known.built.clear();
                    }
                    known.built.insert(key, region.clone());
                });
                region
            }
        };
        // The first operand of a combination is its target.
        let aliases = match is_combined {
            true => Aliases::from_slice(&[(0, 2)]),
            false => Aliases::new(),
        };
        region.launch(self, inputs, core::slice::from_ref(output), &aliases, None)
    }

    /// A schedule within the limits of the device.
    fn limited(&self, schedule: GpuSchedule, kernel: &Kernel, launch: &Launch) -> Result<GpuSchedule> {
        let info = self.driver.info();
        let limited =
            schedule.limited(kernel, launch, info.block_threads as u32, info.shared_bytes, info.bindings);
        limited.ok_or_else(|| {
            let problem = "a kernel does not fit the device's threads, shared memory and bindings";
            Error::unsupported(&info.name, problem)
        })
    }
}

impl<D: Driver> KernelCache<D> {
    fn with<R>(&self, body: impl FnOnce(&mut CacheMaps<D>) -> R) -> R {
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<D: Driver> Region<D> {
    /// Compiles a program; `None` if it has no kernel.
    ///
    /// # Errors
    /// When the kernel does not compile.
    fn new(gpu: &Gpu<D>, program: &Program, given: &[OperandLayout]) -> Result<Option<Region<D>>> {
        let numbers: Vec<bool> = given.iter().map(|given| *given == OperandLayout::Number).collect();
        let Ok((nest, outputs)) = Nest::of_program_with_columns(program, &numbers) else { return Ok(None) };
        let layouts: Vec<kiln_kernel::Layout> = given.iter().map(layout).collect();
        // The order of most operands depends on the ops of the region, and with it the kernels that read the results.
        let row_major = |&output: &kiln_kernel::Slot| kiln_kernel::Layout::row_major(&nest.ty(output).shape);
        let results = match gpu.deterministic {
            true => outputs.iter().map(row_major).collect(),
            false => nest.result_layouts(&outputs, &layouts),
        };
        let Ok(lowered) = nest.lower_to(&outputs, &layouts, &results) else { return Ok(None) };
        let (kernel, launch) = (&lowered.kernel, &lowered.launch);
        let multiprocessors = gpu.driver.info().multiprocessors;
        let mut schedule = GpuSchedule::choose(kernel, launch).filling(kernel, launch, multiprocessors);
        if given.iter().any(|given| matches!(given, OperandLayout::Tensor(_, false))) {
            schedule = schedule.unaligned(kernel, launch);
        }
        let Ok(schedule) = gpu.limited(schedule, kernel, launch) else { return Ok(None) };
        let results = outputs.iter().zip(&results).map(|(&output, layout)| {
            let mut strides = [0; MAX_RANK];
            strides[..layout.0.len()].copy_from_slice(&layout.0);
            Layout::strided(nest.ty(output).shape, strides, 0)
        });
        let results = results.collect();
        Region::compile(gpu, lowered, schedule, results, &operands_of(program))
    }

    /// Compiles the kernel with that schedule; `None` if it cannot be printed.
    ///
    /// # Errors
    /// When the kernel does not compile.
    fn compile(
        gpu: &Gpu<D>,
        Lowered { kernel, launch, checks }: Lowered,
        schedule: GpuSchedule,
        results: Vec<Layout>,
        operands: &[Vec<bool>],
    ) -> Result<Option<Region<D>>> {
        let Some(plain) = Variant::compile(gpu, &kernel, &launch, &schedule, &[])? else { return Ok(None) };
        let takes = (0..results.len()).map(|place| reusable_operands(&kernel, &launch, place)).collect();
        let sources = |(place, operands): (usize, &Vec<bool>)| Sources {
            checks: checks_of(&kernel, &launch, &checks, place),
            operands: operands.clone(),
        };
        let sources = operands.iter().enumerate().map(sources).collect();
        let checks = checks.into_iter().map(Arc::new).collect();
        let kernel = Arc::new(kernel);
        let joint =
            Joint::of(gpu, (&kernel, schedule), &plain.arguments, &plain.functions[0].0).map(Arc::new);
        Ok(Some(Region {
            kernel,
            launch,
            schedule,
            plain,
            aliased: Mutex::default(),
            checks,
            sources,
            joint,
            results,
            takes,
        }))
    }

    /// Runs the kernel; `None` if the operands and results need too many bindings.
    fn run(&self, gpu: &Gpu<D>, inputs: &Operands, results: &[TensorType]) -> Result<Option<Values>> {
        let mut targets: SmallVec<[Array<D>; 2]> = SmallVec::new();
        let mut taken = SmallVec::<[usize; 2]>::new();
        let mut aliases = Aliases::new();
        for (place, ((ty, layout), takes)) in results.iter().zip(&self.results).zip(&self.takes).enumerate() {
            let free = takes.iter().filter(|operand| !taken.contains(operand));
            let free = free.filter_map(|&operand| Some((operand, reusable::<D>(&inputs[operand], ty)?)));
            // Values that persist from step to step thus move to the first blocks and stay there.
            let array = match free.min_by_key(|(_, array)| array.block.number()) {
                Some((operand, array)) => {
                    taken.push(operand);
                    aliases.extend(self.alias(operand, place));
                    Array { suspicions: Suspicions::new(), ..array.clone() }
                }
                None => gpu.uninit(ty)?,
            };
            targets.push(Array { layout: *layout, ..array });
        }
        if !self.binds(gpu, inputs, &targets, &aliases)? {
            return Ok(None);
        }
        let of_all = suspicions::<D>(inputs);
        let own = match self.checks.is_empty() {
            true => SmallVec::new(),
            false => gpu.consecutive(self.checks.iter().cloned().map(Wrong::Fused))?,
        };
        self.launch(gpu, inputs, &targets, &aliases, own.first())?;
        let values = targets.into_iter().zip(results).zip(&self.sources).map(|((array, ty), sources)| {
            let suspicions = sources.suspicions(inputs, &of_all, &own);
            Array { suspicions, ..array }.into_value(*ty)
        });
        Ok(Some(values.collect()))
    }

    /// Whether a kernel has enough bindings: one for each tensor, several for those that exceed the limit of one.
    fn binds(
        &self,
        gpu: &Gpu<D>,
        inputs: &Operands,
        outputs: &[Array<D>],
        aliases: &Aliases,
    ) -> Result<bool> {
        let info = gpu.driver.info();
        let (Some(most), Some(limit)) = (info.bindings, info.binding_bytes) else { return Ok(true) };
        let scratch = self.schedule.scratch_len(&self.kernel, &self.launch);
        let mut needed = 0;
        for argument in &self.plain.arguments {
            needed += match *argument {
                GpuArgument::Tensor(param) if aliases.iter().any(|(input, _)| *input == param) => 0,
                GpuArgument::Tensor(param) => {
                    let size = self.kernel.params[param as usize].dtype.size();
                    self.array(param, inputs, outputs)?.bindings(size)
                }
                GpuArgument::Scratch(dtype) => parts(scratch * dtype.size(), limit),
                GpuArgument::Failed => 1,
                GpuArgument::Offset(_)
                | GpuArgument::Number(_)
                | GpuArgument::Extent(_)
                | GpuArgument::Stride(..) => 0,
            };
        }
        Ok(needed <= most)
    }

    /// The array of a parameter.
    fn array<'a>(&self, param: u32, inputs: &'a Operands, outputs: &'a [Array<D>]) -> Result<&'a Array<D>> {
        let place = self.launch.bindings[param as usize].place;
        match self.kernel.params[param as usize].kind {
            ParamKind::Output => Ok(&outputs[place]),
            ParamKind::Input | ParamKind::Number => array(&inputs[place]),
        }
    }

    /// The parameters of an operand and of a result.
    fn alias(&self, operand: usize, result: usize) -> Option<(u32, u32)> {
        let find = |kind: ParamKind, place: usize| {
            let mut all = self.kernel.params.iter().zip(&self.launch.bindings);
            all.position(|(param, binding)| param.kind == kind && binding.place == place)
        };
        Some((find(ParamKind::Input, operand)? as u32, find(ParamKind::Output, result)? as u32))
    }

    /// The trace label of one of the kernel's functions.
    fn label(&self, pass: usize) -> Label {
        let mut label = Label { name: String::new(), read: 0, written: 0 };
        let shared = self.shared_bytes();
        if self.plain.functions.len() > 1 {
            *(if pass == 0 { &mut label.written } else { &mut label.read }) += shared;
        }
        let mut types = [String::new(), String::new()];
        for (number, (param, binding)) in self.kernel.params.iter().zip(&self.launch.bindings).enumerate() {
            if !self.touches(number as u32, pass) {
                continue;
            }
            let crossed =
                self.launch.extents.iter().zip(&binding.strides).filter(|(_, stride)| **stride != 0);
            let bytes = crossed.map(|(extent, _)| extent).product::<usize>() * param.dtype.size();
            let (sum, list) = match param.kind {
                ParamKind::Input => (&mut label.read, &mut types[0]),
                ParamKind::Output => (&mut label.written, &mut types[1]),
                ParamKind::Number => continue,
            };
            *sum += bytes;
            let _ = write!(list, " {}:{bytes}", param.dtype);
        }
        let mut functions = String::new();
        for instruction in &self.kernel.body {
            if instruction.compute.param().is_none() {
                let text = instruction.compute.to_string();
                let _ = write!(functions, " {}", text.split(' ').next().unwrap_or_default());
            }
        }
        let [reads, writes] = types;
        let (kind, extents) = (self.kernel.kind.name(), &self.launch.extents);
        let end = if pass == 0 { "" } else { ", its end:" };
        label.name = format!("{kind} {extents:?}{end}{reads} ->{writes} |{functions}");
        label
    }

    /// Whether a function accesses the elements of a parameter. Of two functions, the first visits all points, and the
    /// second finishes their reductions.
    fn touches(&self, param: u32, pass: usize) -> bool {
        let reduced = self.kernel.reduced();
        let through = if self.kernel.has_columns() { self.kernel.all_axes() & !reduced } else { reduced };
        self.plain.functions.len() == 1 || (self.kernel.crossed(param) & through != 0) == (pass == 0)
    }

    /// Bytes of scratch memory that the two functions share.
    fn shared_bytes(&self) -> usize {
        let elements = self.schedule.scratch_len(&self.kernel, &self.launch);
        let sizes = self.plain.arguments.iter().map(|argument| match argument {
            GpuArgument::Scratch(dtype) => dtype.size(),
            GpuArgument::Tensor(_)
            | GpuArgument::Offset(_)
            | GpuArgument::Number(_)
            | GpuArgument::Extent(_)
            | GpuArgument::Stride(..)
            | GpuArgument::Failed => 0,
        });
        elements * sizes.sum::<usize>()
    }

    /// Queues the kernel.
    fn launch(
        &self,
        gpu: &Gpu<D>,
        inputs: &Operands,
        outputs: &[Array<D>],
        aliases: &Aliases,
        suspicion: Option<&Suspicion<D>>,
    ) -> Result<()> {
        let aliased = self.variant(gpu, aliases)?;
        let variant = aliased.as_deref().unwrap_or(&self.plain);
        let mut scratch: SmallVec<[Block<D>; 2]> = SmallVec::new();
        for argument in &variant.arguments {
            if let GpuArgument::Scratch(dtype) = argument {
                let elements = self.schedule.scratch_len(&self.kernel, &self.launch);
                scratch.push(gpu.block(elements * dtype.size())?);
            }
        }
        let mut scratch = scratch.iter();
        let mut arguments = Arguments::<D::Memory>::new();
        for argument in &variant.arguments {
            arguments.push(match *argument {
                GpuArgument::Tensor(param) => {
                    let size = self.kernel.params[param as usize].dtype.size();
                    Argument::Pointer(self.array(param, inputs, outputs)?.at(size))
                }
                GpuArgument::Number(param) => {
                    let place = self.launch.bindings[param as usize].place;
                    Argument::Word(number(&inputs[place], self.kernel.params[param as usize].dtype)?)
                }
                GpuArgument::Extent(axis) => whole(self.launch.extents[axis as usize] as i64),
                GpuArgument::Stride(param, axis) => {
                    whole(self.launch.bindings[param as usize].strides[axis as usize] as i64)
                }
                GpuArgument::Offset(param) => whole(self.launch.bindings[param as usize].offset as i64),
                GpuArgument::Scratch(_) => match scratch.next() {
                    Some(block) => Argument::Pointer(block.at(0)),
                    None => return Err(missing()),
                },
                GpuArgument::Failed => suspicion.ok_or_else(missing)?.place(),
            });
        }
        let launch = |pass: usize, arguments: Arguments<D::Memory>| {
            let (function, blocks) = &variant.functions[pass];
            let grid = Grid { blocks: *blocks, threads: self.schedule.block };
            gpu.launch_joint(function, grid, arguments, self.joint.as_ref(), || self.label(pass))
        };
        let last = variant.functions.len() - 1;
        for pass in 0..last {
            launch(pass, arguments.clone())?;
        }
        launch(last, arguments)
    }
}

impl<D: Driver> Region<D> {
    /// The kernel for these aliases, compiled at its first use; `None` if it is the plain one.
    fn variant(&self, gpu: &Gpu<D>, aliases: &Aliases) -> Result<Option<Arc<Variant<D>>>> {
        if aliases.is_empty() || gpu.driver.info().language.dialect != Dialect::Wgsl {
            return Ok(None);
        }
        let known = || self.aliased.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(variant) = known().get(aliases) {
            return Ok(Some(variant.clone()));
        }
        let compiled = Variant::compile(gpu, &self.kernel, &self.launch, &self.schedule, aliases)?;
        let variant = Arc::new(compiled.ok_or_else(missing)?);
        known().insert(aliases.clone(), variant.clone());
        Ok(Some(variant))
    }
}

impl<D: Driver> Variant<D> {
    /// Compiles a kernel; `None` if it cannot be printed.
    fn compile(
        gpu: &Gpu<D>,
        kernel: &Kernel,
        launch: &Launch,
        schedule: &GpuSchedule,
        aliases: &[(u32, u32)],
    ) -> Result<Option<Variant<D>>> {
        let Ok(printed) = print(kernel, schedule, &gpu.driver.info().language, aliases) else {
            return Ok(None);
        };
        let source = Source { text: printed.text.into(), entries: printed.entries };
        let grid = schedule.grid(kernel, launch);
        let functions = (0..source.entries.len()).zip(grid);
        let functions =
            functions.map(|(number, blocks)| Ok((gpu.kernels.function(&source, number)?, blocks)));
        Ok(Some(Variant { arguments: printed.arguments, functions: functions.collect::<Result<_>>()? }))
    }
}

/// The program of one op. Plain numbers are scalar inputs, so that the program does not depend on their values.
fn single_op_program(op: &Op, types: &[TensorType], inputs: &Operands, results: &[TensorType]) -> Program {
    let mut instructions = Vec::new();
    let mut operands: Vec<ProgramOperand> = (0..types.len()).map(ProgramOperand::Slot).collect();
    for place in (0..inputs.len()).filter(|&place| inputs[place].scalar().is_some()) {
        operands[place] = ProgramOperand::Slot(types.len() + instructions.len());
        instructions.push(Instruction {
            op: Op::Broadcast(results[0].shape),
            operands: vec![ProgramOperand::Slot(place)],
            results: vec![types[place].with_shape(results[0].shape)],
        });
    }
    let first = types.len() + instructions.len();
    instructions.push(Instruction { op: op.clone(), operands, results: results.to_vec() });
    let outputs = (0..results.len()).map(|i| ProgramOperand::Slot(first + i)).collect();
    Program { inputs: types.to_vec(), instructions, outputs }
}

#[cold]
fn missing() -> Error {
    Error::unsupported("gpu", "a kernel lacks an argument")
}

fn whole<M>(x: i64) -> Argument<M> {
    Argument::Word(x.to_le_bytes())
}

fn layout(given: &OperandLayout) -> kiln_kernel::Layout {
    kiln_kernel::Layout(match given {
        OperandLayout::Number => Vec::new(),
        OperandLayout::Tensor(strides, _) => strides.to_vec(),
    })
}

fn array<D: Driver>(operand: &Operand) -> Result<&Array<D>> {
    match operand {
        Operand::Value(value) => Array::of(value),
        Operand::Scalar(_) => Err(missing()),
    }
}

/// A plain number as a kernel argument: converted to the dtype, in the type of the parameter.
fn number(operand: &Operand, dtype: DType) -> Result<[u8; 8]> {
    let Operand::Scalar(scalar) = operand else { return Err(missing()) };
    Ok(number_bytes(*scalar, dtype))
}

/// As [`number`], for a scalar.
pub(crate) fn number_bytes(scalar: Scalar, dtype: DType) -> [u8; 8] {
    let float = |x: f32| u64::from(x.to_bits()).to_le_bytes();
    let whole = |x: i64| x.to_le_bytes();
    match dtype {
        DType::F64 => scalar.element::<f64>().to_le_bytes(),
        DType::F32 => float(scalar.element()),
        DType::F16 => float(scalar.element::<f16>().to_f32()),
        DType::BF16 => float(scalar.element::<bf16>().to_f32()),
        DType::I64 => whole(scalar.element()),
        DType::I32 => whole(scalar.element::<i32>().into()),
        DType::I16 => whole(scalar.element::<i16>().into()),
        DType::I8 => whole(scalar.element::<i8>().into()),
        DType::U64 => scalar.element::<u64>().to_le_bytes(),
        DType::U32 => whole(scalar.element::<u32>().into()),
        DType::U16 => whole(scalar.element::<u16>().into()),
        DType::U8 => whole(scalar.element::<u8>().into()),
        DType::Bool => whole(scalar.element::<bool>().into()),
    }
}

impl<D: Driver> Gpu<D> {
    /// An uninitialized contiguous array of that type.
    pub(crate) fn uninit(&self, ty: &TensorType) -> Result<Array<D>> {
        let block = Arc::new(self.block(ty.num_bytes())?);
        Ok(Array { block, layout: Layout::contiguous(ty.shape), suspicions: Suspicions::new() })
    }
}
