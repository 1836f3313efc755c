//! Plans: what runs for a structure, in which order.

mod emit;
mod graph;
mod group;
mod outside;
mod rewrite;

use crate::cache::Programs;
use crate::check;
use crate::layer::Shared;
use crate::mode::Mode;
use crate::record::Entry;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
pub(crate) use graph::is_constant_of;
use kiln_ir::{FusedOp, Op, Operand, Operands, Program, Regions, Scalar, TensorType, Value};
use smallvec::SmallVec;

/// What a plan is for: two recordings with equal structure run the same plan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Structure {
    pub(crate) entries: Vec<Entry>,
    pub(crate) externals: Vec<TensorType>,
    /// Of each result.
    pub(crate) alive: Vec<bool>,
}

/// The steps that compute the values of a recording that somebody can see.
#[derive(Debug)]
pub struct Plan {
    pub(crate) structure: Structure,
    steps: Vec<Step>,
    num_slots: usize,
    /// `(result, slot)` of every value that is alive.
    pub(crate) outputs: Vec<(usize, usize)>,
}

/// One op, or one region, for the engine below.
#[derive(Debug)]
pub struct Step {
    /// What runs.
    pub(crate) op: Op,
    pub(crate) operands: SmallVec<[Reference; 4]>,
    pub(crate) results: Vec<TensorType>,
    /// The slot of the first result.
    pub(crate) first: usize,
    /// Which results are used, by steps or from outside.
    pub(crate) used: Vec<bool>,
    /// Why neighbours are not part of it.
    pub(crate) notes: Vec<String>,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// An op by itself.
    Op,
    /// Several ops as one.
    Region,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A value: externals come first, then results of steps. At its last use it is handed over.
    Slot { slot: usize, last: bool },
    /// A plain number of the recording.
    Number(u32),
    /// A plain number that is always the same.
    Constant(Scalar),
}

impl Plan {
    /// A plan for an engine that says [what suits it](kiln_ir::Engine::regions).
    pub(crate) fn new(structure: Structure, suited: Regions) -> Plan {
        let rewrite::Rewritten { structure: better, originals, .. } = rewrite::rewrite(&structure);
        let graph = graph::Graph::new(&better);
        let groups = group::groups(&graph, suited);
        let emit::Emitted { steps, num_slots, outputs } = emit::emit(&graph, groups);
        let original = |(result, slot): (usize, usize)| Some((originals[result]?, slot));
        let outputs = outputs.into_iter().filter_map(original).collect();
        Plan { structure, steps, num_slots, outputs }
    }

    /// Takes the programs of its regions that are known already instead of its own.
    pub(crate) fn share(&mut self, programs: &mut Programs) {
        for step in &mut self.steps {
            if let Op::Fused(region) = &mut step.op {
                *region = FusedOp::from_shared(programs.shared(region.shared()));
            }
        }
    }

    /// The plan of a program, whose outputs are what is alive: for reading. Numbers are numbers of the plan.
    pub fn of_program(program: &Program) -> Plan {
        Plan::new(Structure::of_program(program), Regions::default())
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs the steps: the values of all results that are alive, with their numbers.
    pub(crate) fn run(&self, shared: &Shared, inputs: Vec<Value>, numbers: &[Scalar]) -> Vec<(usize, Value)> {
        let mut slots: Vec<Option<Value>> = inputs.into_iter().map(Some).collect();
        slots.resize_with(self.num_slots, || None);
        let (mut regions, mut fused) = (0, 0);
        for step in &self.steps {
            let operands = step.take_operands(&mut slots, numbers);
            let is_region = step.kind() == StepKind::Region;
            if let Op::Fused(region) = &step.op {
                regions += 1;
                fused += region.program().instructions.len();
            }
            let values = match shared.mode {
                Mode::Check if is_region => check::run(&*shared.inner, &step.op, operands, &step.results),
                Mode::Check | Mode::On | Mode::Off => shared.inner.execute(&step.op, operands, &step.results),
            };
            for (place, value) in values.into_iter().enumerate() {
                if step.used[place] {
                    slots[step.first + place] = Some(value);
                }
            }
        }
        shared.counters.steps_run.fetch_add(self.steps.len(), Ordering::Relaxed);
        shared.counters.regions_run.fetch_add(regions, Ordering::Relaxed);
        shared.counters.ops_fused.fetch_add(fused, Ordering::Relaxed);
        let output = |&(result, slot): &(usize, usize)| Some((result, slots[slot].clone()?));
        self.outputs.iter().filter_map(output).collect()
    }

    /// The greatest number of bytes that values made by the plan take up at once, when each is freed after its last use and
    /// views cost nothing: what the order of the steps achieves.
    pub fn peak_bytes(&self) -> usize {
        let mut held = alloc::vec![0usize; self.num_slots];
        let (mut now, mut peak) = (0usize, 0usize);
        for step in &self.steps {
            for (place, ty) in step.results.iter().enumerate() {
                if !is_view(&step.op) {
                    held[step.first + place] = ty.num_bytes();
                    now += ty.num_bytes();
                }
            }
            peak = peak.max(now);
            for (place, used) in step.used.iter().enumerate() {
                if !used {
                    now -= core::mem::take(&mut held[step.first + place]);
                }
            }
            for operand in &step.operands {
                if let Reference::Slot { slot, last: true } = operand {
                    now -= core::mem::take(&mut held[*slot]);
                }
            }
        }
        peak
    }
}

impl Step {
    /// What it is.
    pub fn kind(&self) -> StepKind {
        if matches!(self.op, Op::Fused(_)) { StepKind::Region } else { StepKind::Op }
    }

    /// The op that the engine below is given.
    pub fn op(&self) -> &Op {
        &self.op
    }

    /// The types of its results.
    pub fn results(&self) -> &[TensorType] {
        &self.results
    }

    /// Why ops beside it are not part of it, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Which operands are plain numbers.
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

/// Whether an engine with strides runs the op without touching elements.
pub(crate) fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Windows { .. })
}
