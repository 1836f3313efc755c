//! Plans: the fused steps that compute a recording, in execution order.

mod derive;
mod emit;
mod external_uses;
mod graph;
mod group;
mod rewrite;
mod shape_signature;

use crate::cache::Programs;
use crate::layer::Shared;
use crate::limits::Limits;
use crate::mode::Mode;
use crate::record::Entry;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
pub(crate) use derive::{Planner, Template};
pub(crate) use graph::is_constant_of;
use kiln_ir::{
    FusedOp, Instruction, Machine, Op, Operand, Operands, Pattern, Program, ProgramOperand, Scalar,
    TensorType, Value,
};
use smallvec::SmallVec;

/// The cache key of a plan: two recordings with equal structure run the same plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Structure {
    pub(crate) entries: Vec<Entry>,
    pub(crate) externals: Vec<TensorType>,
    /// For each result, whether it is live.
    pub(crate) alive: Vec<bool>,
}

/// The steps that compute the live values of a recording.
#[derive(Debug)]
pub struct Plan {
    pub(crate) structure: Structure,
    steps: Vec<Step>,
    /// The number of entries that must be recorded before each step can run; it never decreases from step to step.
    needed_entries: Vec<usize>,
    num_slots: usize,
    /// `(result, slot)` of every live value.
    pub(crate) outputs: Vec<(usize, usize)>,
    /// The machine's limits, if the plan was derived from one for other lengths. Such a plan has no notes.
    derived: Option<Limits>,
    /// The hash of its structure, if the plan is cached.
    pub(crate) hash: u64,
}

/// The progress of a plan's execution.
#[derive(Default)]
pub(crate) struct Progress {
    /// The next step.
    pub(crate) next: usize,
    /// Values that later steps use or that are live.
    slots: Vec<Option<Value>>,
}

/// One op or one fused region that the engine below executes.
#[derive(Debug)]
pub struct Step {
    /// The op that runs.
    pub(crate) op: Op,
    pub(crate) operands: SmallVec<[Reference; 4]>,
    pub(crate) results: Vec<TensorType>,
    /// The slot of the first result.
    pub(crate) first: usize,
    /// For each result, whether it is used by other steps or live.
    pub(crate) used: Vec<bool>,
    /// The reasons why adjacent ops are not part of the step.
    pub(crate) notes: Vec<String>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A single op.
    Op,
    /// A fused region.
    Region,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A value slot: externals first, then results of steps. The last use moves the value.
    Slot { slot: usize, last: bool },
    /// A plain number of the recording.
    Number(u32),
    /// A constant plain number.
    Constant(Scalar),
}

impl Plan {
    /// Plans a recording for a machine with these limits.
    pub(crate) fn new(structure: Structure, limits: Limits) -> Plan {
        Planner::new(structure, limits).plan().0
    }

    /// The same plan with notes, planned from scratch; `None` if this plan has its notes.
    pub(crate) fn full(&self) -> Option<Plan> {
        self.derived.map(|limits| Plan::new(self.structure.clone(), limits))
    }

    /// The size of the plan in bytes. Programs that its steps share count once; programs that plans share count for
    /// each.
    pub(crate) fn bytes(&self) -> usize {
        let mut programs: BTreeMap<usize, usize> = BTreeMap::new();
        let mut bytes = size_of::<Plan>() + self.structure.bytes();
        for step in &self.steps {
            if let Op::Fused(region) = &step.op {
                let address = Arc::as_ptr(region.shared()).addr();
                programs.entry(address).or_insert_with(|| program_bytes(region.program()));
                bytes += pattern_bytes(region.pattern());
            }
            let spilled = if step.operands.spilled() { step.operands.len() } else { 0 };
            bytes += size_of::<Step>()
                + spilled * size_of::<Reference>()
                + step.results.len() * (size_of::<TensorType>() + 1)
                + step.notes.iter().map(|note| size_of::<String>() + note.len()).sum::<usize>();
        }
        bytes += (self.needed_entries.len() + 2 * self.outputs.len()) * size_of::<usize>();
        bytes + programs.values().sum::<usize>()
    }

    /// Replaces the programs of its regions by their interned instances.
    pub(crate) fn share(&mut self, programs: &mut Programs) {
        for step in &mut self.steps {
            if let Op::Fused(region) = &mut step.op {
                let program = programs.shared(region.shared());
                if !Arc::ptr_eq(&program, region.shared())
                    && let Ok(shared) = FusedOp::with_pattern(program, region.pattern().clone())
                {
                    *region = shared;
                }
            }
        }
    }

    /// Returns the plan of a program for a [processor](Machine::processor), for inspection. The program's outputs are
    /// live. Plain numbers of the program become plain numbers of the plan.
    pub fn of_program(program: &Program) -> Plan {
        Plan::for_machine(program, &Machine::processor())
    }

    /// Works like [`of_program`](Plan::of_program), for any machine.
    ///
    /// ```
    /// use kiln_fusion::Plan;
    /// use kiln_ir::{Machine, Program};
    ///
    /// let program = Program::parse(
    ///     "program(%0: f32[4, 8], %1: f32[8, 2]) {\n  %2: f32[4, 2] = matmul %0, %1\n  %3: f32[4, 2] = exp %2\n  return %3\n}\n",
    /// )?;
    /// assert_eq!(Plan::of_program(&program).steps().len(), 1, "one kernel with epilogue");
    /// assert_eq!(Plan::for_machine(&program, &Machine::gpu()).steps().len(), 2, "a library multiplies");
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    pub fn for_machine(program: &Program, machine: &Machine) -> Plan {
        Plan::new(Structure::of_program(program), Limits::of(machine))
    }

    /// Returns the steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The progress before the first step.
    pub(crate) fn begin(&self) -> Progress {
        Progress { next: 0, slots: alloc::vec![None; self.num_slots] }
    }

    /// Runs the remaining steps. Returns the values of all live results, with their indices.
    pub(crate) fn finish(
        &self,
        shared: &Shared,
        mut progress: Progress,
        inputs: Vec<Value>,
        numbers: &[Scalar],
    ) -> Vec<(usize, Value)> {
        for (slot, input) in progress.slots.iter_mut().zip(inputs) {
            *slot = Some(input);
        }
        for operand in self.steps[..progress.next].iter().flat_map(|step| &step.operands) {
            if let Reference::Slot { slot, last: true } = *operand {
                progress.slots[slot] = None;
            }
        }
        self.advance(shared, &mut progress, self.steps.len(), numbers);
        let output = |&(result, slot): &(usize, usize)| Some((result, progress.slots[slot].clone()?));
        self.outputs.iter().filter_map(output).collect()
    }

    /// Whether the ops of a step are among the first `entries` recorded ones.
    pub(crate) fn is_recorded(&self, step: usize, entries: usize) -> bool {
        self.needed_entries.get(step).is_some_and(|&needed| needed <= entries)
    }

    /// Provides the inputs of the next steps, up to the step `end`. Returns the first step for which an input or a
    /// number is missing, or `end`.
    pub(crate) fn provide(
        &self,
        progress: &mut Progress,
        end: usize,
        numbers: usize,
        input: impl Fn(usize) -> Option<Value>,
    ) -> usize {
        let inputs = self.structure.externals.len();
        for (number, step) in self.steps.iter().enumerate().take(end).skip(progress.next) {
            for operand in &step.operands {
                let is_there = match *operand {
                    Reference::Constant(_) => true,
                    Reference::Number(number) => (number as usize) < numbers,
                    Reference::Slot { slot, .. } => {
                        if slot < inputs && progress.slots[slot].is_none() {
                            progress.slots[slot] = input(slot);
                        }
                        slot >= inputs || progress.slots[slot].is_some()
                    }
                };
                if !is_there {
                    return number;
                }
            }
        }
        end
    }

    /// Runs the next steps, up to the step `end`, whose inputs were [provided](Plan::provide).
    pub(crate) fn run_early(&self, shared: &Shared, progress: &mut Progress, end: usize, numbers: &[Scalar]) {
        let (first, inputs) = (progress.next, self.structure.externals.len());
        self.advance(shared, progress, end, numbers);
        // The next step may also have been provided with some of its operands.
        for operand in self.steps.iter().take(end + 1).skip(first).flat_map(|step| &step.operands) {
            if let Reference::Slot { slot, .. } = *operand
                && slot < inputs
            {
                progress.slots[slot] = None;
            }
        }
    }

    /// The first step that uses one of these inputs for the last time.
    pub(crate) fn first_last_use(&self, is_one: impl Fn(usize) -> bool) -> usize {
        let inputs = self.structure.externals.len();
        let is_last = |operand: &Reference| matches!(*operand, Reference::Slot { slot, last: true } if slot < inputs && is_one(slot));
        let found = self.steps.iter().position(|step| step.operands.iter().any(is_last));
        found.unwrap_or(self.steps.len())
    }

    /// Runs the next steps, up to the step `end`. Their operands must be computed.
    fn advance(&self, shared: &Shared, progress: &mut Progress, end: usize, numbers: &[Scalar]) {
        // The layer counted these ops when it recorded them.
        #[cfg(feature = "std")]
        let _inside = kiln_ir::profile::inside();
        let steps = &self.steps[progress.next..end];
        let slots = &mut progress.slots;
        let (mut regions, mut fused) = (0, 0);
        for step in steps {
            let operands = step.take_operands(slots, numbers);
            let is_region = step.kind() == StepKind::Region;
            if let Op::Fused(region) = &step.op {
                regions += 1;
                fused += region.program().instructions.len();
            }
            let values = match shared.mode {
                Mode::Check if is_region => {
                    shared.comparisons.run(&*shared.inner, &step.op, operands, &step.results)
                }
                Mode::Check | Mode::On | Mode::Off => shared.inner.execute(&step.op, operands, &step.results),
            };
            for (place, value) in values.into_iter().enumerate() {
                if step.used[place] {
                    slots[step.first + place] = Some(value);
                }
            }
        }
        progress.next = end;
        shared.counters.steps_run.fetch_add(steps.len(), Ordering::Relaxed);
        shared.counters.regions_run.fetch_add(regions, Ordering::Relaxed);
        shared.counters.ops_fused.fetch_add(fused, Ordering::Relaxed);
    }

    /// Returns the peak bytes of values computed by the plan, if each is freed after its last use and views cost
    /// nothing. It measures the order of the steps.
    pub fn peak_bytes(&self) -> usize {
        let mut live_bytes = alloc::vec![0usize; self.num_slots];
        let (mut now, mut peak) = (0usize, 0usize);
        for step in &self.steps {
            for (place, ty) in step.results.iter().enumerate() {
                if !step.op.is_view() {
                    live_bytes[step.first + place] = ty.num_bytes();
                    now += ty.num_bytes();
                }
            }
            peak = peak.max(now);
            for (place, used) in step.used.iter().enumerate() {
                if !used {
                    now -= core::mem::take(&mut live_bytes[step.first + place]);
                }
            }
            for operand in &step.operands {
                if let Reference::Slot { slot, last: true } = operand {
                    now -= core::mem::take(&mut live_bytes[*slot]);
                }
            }
        }
        peak
    }
}

impl Step {
    /// Returns whether the step is a region or a single op.
    pub fn kind(&self) -> StepKind {
        if matches!(self.op, Op::Fused(_)) { StepKind::Region } else { StepKind::Op }
    }

    /// Returns the op that the engine below executes.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// Returns the types of its results.
    pub fn results(&self) -> &[TensorType] {
        &self.results
    }

    /// Returns the reasons why adjacent ops are not part of the step, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns for each operand whether it is a plain number.
    pub fn numbers(&self) -> Vec<bool> {
        let is_number =
            |operand: &Reference| matches!(operand, Reference::Number(_) | Reference::Constant(_));
        self.operands.iter().map(is_number).collect()
    }

    fn take_operands(&self, slots: &mut [Option<Value>], numbers: &[Scalar]) -> Operands {
        let mut operands = Operands::new();
        for operand in &self.operands {
            operands.push(match *operand {
                Reference::Number(number) => Operand::Scalar(numbers[number as usize]),
                Reference::Constant(scalar) => Operand::Scalar(scalar),
                Reference::Slot { slot, last } => {
                    let value = if last { slots[slot].take() } else { slots[slot].clone() };
                    Operand::Value(value.expect("a value is used after its last use"))
                }
            });
        }
        operands
    }
}

fn pattern_bytes(pattern: &Pattern) -> usize {
    let numbers = match pattern {
        Pattern::Loop | Pattern::QuantizedMatMul(_) => 0,
        Pattern::Epilogue(epilogue) => size_of_val(&epilogue.numbers[..]),
    };
    size_of::<Pattern>() + numbers
}

fn program_bytes(program: &Program) -> usize {
    let instructions = program.instructions.iter().map(|instruction| {
        size_of::<Instruction>()
            + instruction.operands.len() * size_of::<ProgramOperand>()
            + instruction.results.len() * size_of::<TensorType>()
    });
    size_of::<Program>() + program.inputs.len() * size_of::<TensorType>() + instructions.sum::<usize>()
}

impl Structure {
    /// The size of the structure in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let spilled: usize = self
            .entries
            .iter()
            .filter(|entry| entry.operands.spilled() || entry.results.spilled())
            .map(|entry| size_of_val(&entry.operands[..]) + size_of_val(&entry.results[..]))
            .sum();
        self.entries.len() * size_of::<Entry>()
            + spilled
            + self.externals.len() * size_of::<TensorType>()
            + self.alive.len()
    }

    /// The entry that produces each result.
    fn makers(&self) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        entries.flat_map(|(number, entry)| entry.results.iter().map(move |_| number)).collect()
    }
}

/// For each rewritten entry, the number of recorded entries that must exist before it can run.
fn needed_entries(original: &Structure, rewritten: &Structure, originals: &[Option<usize>]) -> Vec<usize> {
    let makers = original.makers();
    let mut originals = originals.iter();
    let mut needed = 0;
    let count = |entry: &Entry| {
        for result in originals.by_ref().take(entry.results.len()).flatten() {
            needed = needed.max(makers[*result] + 1);
        }
        needed
    };
    rewritten.entries.iter().map(count).collect()
}
