//! Fused regions: compiled once, run on the operands' memory.

use super::cache::{Lock, OperandLayout, OperandLayouts};
use super::code::{Code, Param};
use super::compile::{Taken, compile, number_bytes};
use super::frame::{Frame, LaunchState};
use super::guarded::Guarded;
use super::run;
use super::split::Split;
use super::stage::{Staged, stage};
use crate::Cpu;
use crate::array::{Array, is_reusable};
use crate::buffer::Buffer;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::{
    DType, Error, FusedOp, Layout, Op, Operand, Operands, Program, Result, TensorType, Value, Values,
};
use kiln_kernel::{Compute, Kernel, KernelKind, Launch, Nest, ParamKind, StrideClass};
use smallvec::SmallVec;

/// Runs a region: by the tile machine if it supports the region as a kernel, otherwise op by op.
pub(crate) fn fused(cpu: &Cpu, op: &FusedOp, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    run_shared(cpu, op, inputs, results, Plan::new)
}

/// Runs a region by the cached plan, or by the plan that `make` returns.
pub(super) fn run_shared(
    cpu: &Cpu,
    op: &FusedOp,
    inputs: Operands,
    results: &[TensorType],
    make: fn(&FusedOp, &OperandLayouts) -> Plan,
) -> Result<Values> {
    let program = op.program();
    let Some(layouts) = operand_layouts(program, &inputs)? else {
        return Ok(program.run_region(cpu, inputs));
    };
    let plan = cpu.plans.plan(op, layouts, |layouts| make(op, layouts));
    plan.run(cpu, program, inputs, results)
}

/// The kinds and layouts of the operands; `None` if they are not of the program's types.
fn operand_layouts(program: &Program, inputs: &Operands) -> Result<Option<OperandLayouts>> {
    let mut all = OperandLayouts::new();
    for (operand, ty) in inputs.iter().zip(&program.inputs) {
        all.push(match operand {
            Operand::Scalar(_) => OperandLayout::Number,
            Operand::Value(value) if value.ty() != ty => return Ok(None),
            Operand::Value(value) => {
                let array = Array::of(value)?;
                if array.is_contiguous() {
                    OperandLayout::Contiguous
                } else {
                    OperandLayout::Strided(array.strides().iter().copied().collect())
                }
            }
        });
    }
    Ok(Some(all))
}

/// The execution plan of a region.
pub(super) enum Plan {
    /// One kernel.
    Kernel(Box<Region>),
    /// An anchor op (matmul or convolution) by its own kernel, then the rest.
    Anchor(Box<Split>),
    /// A single op with its own kernel.
    Native,
    /// One of two forms, selected by flags.
    Guarded(Box<Guarded>),
    /// Op by op.
    Unfused,
}

impl Plan {
    fn new(op: &FusedOp, layouts: &OperandLayouts) -> Plan {
        let guarded = Guarded::new(op, layouts).map(|guarded| Plan::Guarded(Box::new(guarded)));
        guarded.unwrap_or_else(|| Plan::unguarded(op, layouts))
    }

    /// The plan without guards.
    pub(super) fn unguarded(op: &FusedOp, layouts: &OperandLayouts) -> Plan {
        if is_native(op.program()) {
            return Plan::Native;
        }
        if let Some(region) = Region::new(op.program(), layouts) {
            return Plan::Kernel(Box::new(region));
        }
        Split::new(op, layouts).map_or(Plan::Unfused, |split| Plan::Anchor(Box::new(split)))
    }

    /// Whether it is more than op by op: the machine runs it or a part of it, or it is a single op.
    pub(super) fn is_compiled(&self) -> bool {
        match self {
            Plan::Kernel(_) | Plan::Anchor(_) | Plan::Native => true,
            // The programs that it runs have their own plans.
            Plan::Guarded(_) | Plan::Unfused => false,
        }
    }

    /// The size in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Plan::Kernel(region) => region.bytes(),
            Plan::Anchor(split) => split.bytes(),
            Plan::Guarded(guarded) => guarded.bytes(),
            Plan::Native | Plan::Unfused => 0,
        }
    }

    fn run(&self, cpu: &Cpu, program: &Program, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        match self {
            // Only op-by-op execution determines which results an index out of range poisons, and the error message.
            Plan::Kernel(region) if region.checks() => {
                with_unfused_fallback(cpu, program, inputs, |inputs| region.run(cpu, inputs, results))
            }
            Plan::Anchor(split) if split.checks() => {
                with_unfused_fallback(cpu, program, inputs, |inputs| split.run(cpu, inputs, results))
            }
            Plan::Kernel(region) => region.run(cpu, inputs, results),
            Plan::Anchor(split) => split.run(cpu, inputs, results),
            Plan::Guarded(guarded) => guarded.run(cpu, inputs, results),
            Plan::Native | Plan::Unfused => Ok(program.run_region(cpu, inputs)),
        }
    }
}

/// Runs a region again, op by op, if it fails. It keeps the operands alive, so nothing overwrites them.
fn with_unfused_fallback(
    cpu: &Cpu,
    program: &Program,
    inputs: Operands,
    run: impl FnOnce(Operands) -> Result<Values>,
) -> Result<Values> {
    let kept = inputs.clone();
    run(inputs).or_else(|_| Ok(program.run_region(cpu, kept)))
}

/// Whether a program is one op whose own kernel reads a row fewer times than the machine.
fn is_native(program: &Program) -> bool {
    let [instruction] = program.instructions.as_slice() else { return false };
    let ty = &instruction.results[0];
    let last = |axis: usize| axis + 1 == ty.rank();
    let row = matches!(instruction.op, Op::Norm { .. })
        || matches!(instruction.op, Op::Softmax { axis, .. } if last(axis));
    row && ty.dtype == DType::F32
}

/// A region as one kernel.
pub(super) struct Region {
    kernel: Kernel,
    launch: Launch,
    /// Operands that are copied first, since they are contiguous along another axis than results.
    staged: Vec<Staged>,
    /// For each result, the parameters of the operands whose memory it may reuse, with their indices.
    takes: Vec<Vec<(usize, usize)>>,
    plain: Arc<Code>,
    /// Code for launches that overwrite operands, by the set of their parameters.
    taking: Lock<Vec<(u64, Arc<Code>)>>,
}

impl Region {
    pub(super) fn new(program: &Program, layouts: &OperandLayouts) -> Option<Region> {
        let numbers: Vec<bool> = layouts.iter().map(|layout| *layout == OperandLayout::Number).collect();
        let (nest, outputs) = Nest::of_program_exactly(program, &numbers).ok()?;
        let layouts = layouts.iter().zip(&program.inputs).map(|(layout, ty)| {
            kiln_kernel::Layout(match layout {
                OperandLayout::Number => Vec::new(),
                OperandLayout::Contiguous => Layout::contiguous(ty.shape).strides().to_vec(),
                OperandLayout::Strided(strides) => strides.to_vec(),
            })
        });
        let lowered = nest.lower(&outputs, &layouts.collect::<Vec<_>>()).ok()?;
        let (kernel, mut launch) = (lowered.kernel, lowered.launch);
        let staged = stage(&kernel, &mut launch);
        let plain = Arc::new(compile(&kernel, &launch, &[])?);
        let mut takes = takes(&kernel, &launch, &plain, program.outputs.len());
        for takes in &mut takes {
            takes.retain(|&(param, _)| staged.iter().all(|staged| staged.param != param));
        }
        Some(Region { kernel, launch, staged, takes, plain, taking: Lock::default() })
    }

    /// The size in bytes, with code for launches that overwrite operands.
    pub(super) fn bytes(&self) -> usize {
        let Kernel { body, params, .. } = &self.kernel;
        let bindings = self
            .launch
            .bindings
            .iter()
            .map(|binding| size_of_val(binding) + size_of_val(&binding.strides[..]) + size_of::<usize>());
        size_of::<Region>()
            + size_of_val(&body[..])
            + size_of_val(&params[..])
            + bindings.sum::<usize>()
            + 2 * self.plain.bytes()
    }

    /// Whether the kernel checks indices.
    pub(super) fn checks(&self) -> bool {
        self.kernel.body.iter().any(|instruction| matches!(instruction.compute, Compute::Checked(..)))
    }

    pub(super) fn run(&self, cpu: &Cpu, mut inputs: Operands, types: &[TensorType]) -> Result<Values> {
        let (taken, overwritten) = self.taken(&inputs);
        let code = self.code(&taken, overwritten);
        let mut arrays: SmallVec<[Option<Array>; 2]> = SmallVec::new();
        for (ty, taken) in types.iter().zip(&taken) {
            arrays.push(if taken.is_none() { Some(Array::uninit(ty)?) } else { None });
        }
        let target = |place: usize| match (&arrays[place], taken[place]) {
            (Some(array), _) => Ok(array.as_mut_ptr()),
            (None, Some(input)) => first(&inputs[input]),
            (None, None) => Ok(core::ptr::null_mut()),
        };
        let mut bases: SmallVec<[*mut u8; 16]> = SmallVec::new();
        for (param, access) in code.params.iter().zip(&code.accesses) {
            let base = match *param {
                Param::Input(place) => first(&inputs[place])?,
                Param::Output(place) => target(place)?,
                Param::None => core::ptr::null_mut(),
            };
            let offset = self.launch.bindings.get(bases.len()).map_or(0, |binding| binding.offset);
            bases.push(base.wrapping_offset(offset * access.size as isize));
        }
        let mut copies: SmallVec<[Buffer; 2]> = SmallVec::new();
        for staged in &self.staged {
            let copy = staged.copy(&cpu.pool, bases[staged.param])?;
            bases[staged.param] = copy.as_ptr();
            copies.push(copy);
        }
        let mut uniforms: SmallVec<[[u8; 8]; 16]> = SmallVec::from_slice(&code.uniforms);
        for number in &code.numbers {
            if let Operand::Scalar(scalar) = inputs[number.place] {
                uniforms[number.uniform] = number_bytes(scalar, number.dtype);
            }
        }
        let failed = AtomicBool::new(false);
        let launched = LaunchState {
            code: &code,
            level: cpu.level,
            bases: &bases,
            uniforms: uniforms.as_mut_ptr().cast(),
            failed: &failed,
        };
        // SAFETY: operands have the types and layouts that the code was compiled for. Results are fresh, or memory of
        // operands that nothing else accesses and that the code is compiled to overwrite.
        unsafe {
            if !code.once.is_empty() {
                Frame::single(&launched).run(&code.once);
            }
            run::run(&cpu.pool, &launched);
        }
        if failed.load(Ordering::Relaxed) {
            let hint = "indices range from 0 to the length of the axis less 1";
            return Err(Error::value("fused", "an index is out of range").hint(hint));
        }
        let mut results = Values::new();
        for ((array, taken), ty) in arrays.into_iter().zip(taken).zip(types) {
            results.push(match (array, taken) {
                (Some(array), _) => array.into_value(*ty),
                (None, Some(place)) => take(&mut inputs[place], ty)?,
                (None, None) => continue,
            });
        }
        Ok(results)
    }

    /// For each result, the operand whose memory it reuses, if any, and the set of their parameters.
    fn taken(&self, inputs: &Operands) -> (SmallVec<[Option<usize>; 2]>, u64) {
        let mut all: SmallVec<[Option<usize>; 2]> = SmallVec::new();
        let mut overwritten = 0u64;
        for takes in &self.takes {
            let free = takes.iter().find(|&&(param, place)| {
                overwritten >> param & 1 == 0 && inputs[place].value().is_some_and(is_reusable)
            });
            overwritten |= free.map_or(0, |&(param, _)| 1 << param);
            all.push(free.map(|&(_, place)| place));
        }
        (all, overwritten)
    }

    /// The code for results that overwrite those operands, which their parameters determine.
    fn code(&self, taken: &[Option<usize>], overwritten: u64) -> Arc<Code> {
        if overwritten == 0 {
            return self.plain.clone();
        }
        let known = |codes: &mut Vec<(u64, Arc<Code>)>| {
            codes.iter().find(|(set, _)| *set == overwritten).map(|(_, code)| code.clone())
        };
        if let Some(code) = self.taking.with(known).flatten() {
            return code;
        }
        let params = taken.iter().enumerate().filter_map(|(result, &input)| {
            let of_input =
                |&&(param, place): &&(usize, usize)| Some(place) == input && overwritten >> param & 1 == 1;
            self.takes[result].iter().find(of_input).map(|&(param, _)| Taken { result, param })
        });
        let taken: Vec<Taken> = params.collect();
        let code = compile(&self.kernel, &self.launch, &taken).unwrap_or_else(|| (*self.plain).clone());
        let code = Arc::new(code);
        self.taking.with(|codes| codes.push((overwritten, code.clone())));
        code
    }
}

/// The pointer to an operand's first element.
fn first(operand: &Operand) -> Result<*mut u8> {
    match operand {
        Operand::Value(value) => Ok(Array::of(value)?.address(value.dtype().size())),
        Operand::Scalar(_) => Ok(core::ptr::null_mut()),
    }
}

/// A result in the memory of an operand.
fn take(operand: &mut Operand, ty: &TensorType) -> Result<Value> {
    let Operand::Value(value) = core::mem::replace(operand, Operand::Scalar(kiln_ir::Scalar::Bool(false)))
    else {
        return Err(Error::unsupported("cpu", "a number has no memory"));
    };
    if value.ty() == ty {
        return Ok(value);
    }
    let buffer = Array::of(&value)?.buffer.clone();
    Ok(Array { buffer, layout: Layout::contiguous(ty.shape) }.into_value(*ty))
}

/// The operands whose memory each result may reuse: those that are read at each point where the result is written, and
/// in no later pass over the elements.
fn takes(kernel: &Kernel, launch: &Launch, code: &Code, outputs: usize) -> Vec<Vec<(usize, usize)>> {
    let mut takes = alloc::vec![Vec::new(); outputs];
    // A scan's registers are as long as its rows, so code with an additional register may be too large.
    if code.has_passes() || kernel.kind == KernelKind::Scan {
        return takes;
    }
    let params = || kernel.params.iter().zip(&launch.bindings).enumerate();
    for (_, (output, binding)) in params().filter(|(_, (param, _))| param.kind == ParamKind::Output) {
        if output.strides.last().is_none_or(|class| *class == StrideClass::Zero) {
            continue;
        }
        for (i, (input, from)) in params().filter(|(_, (param, _))| param.kind == ParamKind::Input) {
            // An operand that is also read in another layout, such as a matrix with its transpose, is read after it is
            // overwritten.
            let reads = params().filter(|(_, (param, _))| param.kind == ParamKind::Input);
            if reads.filter(|(_, (_, other))| other.place == from.place).count() > 1 {
                continue;
            }
            let same = input.dtype.size() == output.dtype.size() && from.strides == binding.strides;
            if same && kernel.is_read_everywhere(i as u32) {
                takes[binding.place].push((i, from.place));
            }
        }
    }
    takes
}
