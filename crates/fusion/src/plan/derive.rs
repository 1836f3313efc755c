//! Plans derived from a cached plan for other dim lengths.

use super::alike::{Likeness, are_alike, of_type};
use super::rewrite::{self, Rewritten};
use super::{Plan, Step, Structure, emit, graph, group, needed_entries};
use crate::limits::Limits;
use crate::record::Entry;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{FusedOp, Instruction, Op, Program, Shape, TensorType};

/// A recording to be planned.
pub(crate) struct Draft {
    structure: Structure,
    better: Structure,
    originals: Vec<Option<usize>>,
    likeness: Option<Likeness>,
    limits: Limits,
}

/// A planned recording from which recordings with equal likeness derive their plans.
pub(crate) struct Template {
    likeness: Likeness,
    /// The recording after rewrites.
    better: Structure,
    originals: Vec<Option<usize>>,
    /// For each step, the entry that it is, or the last entry of a region.
    made_of: Vec<u32>,
    plan: Arc<Plan>,
}

impl Draft {
    /// A recording for a machine with these limits.
    pub(crate) fn new(structure: Structure, limits: Limits) -> Draft {
        let Rewritten { structure: better, originals, .. } = rewrite::rewrite(&structure, limits);
        let likeness = Likeness::of(&better, limits);
        Draft { structure, better, originals, likeness, limits }
    }

    /// A hash that is equal for recordings of equal likeness; `None` if the recording has no likeness.
    pub(crate) fn likeness(&self) -> Option<u64> {
        self.likeness.as_ref().map(Likeness::hash)
    }

    /// Plans the recording from scratch.
    pub(crate) fn plan(self) -> (Plan, Option<impl FnOnce(Arc<Plan>) -> Template>) {
        let Draft { structure, better, originals, likeness, limits } = self;
        let graph = graph::Graph::new(&better);
        let groups = group::groups(&graph, limits);
        let emit::Emitted { steps, last_entries, made_of, num_slots, outputs } = emit::emit(&graph, groups);
        let needed = needed_entries(&structure, &better, &originals);
        let needed_entries = last_entries.into_iter().map(|entry| needed[entry as usize]).collect();
        let original = |(result, slot): (usize, usize)| Some((originals[result]?, slot));
        let outputs = outputs.into_iter().filter_map(original).collect();
        let plan = Plan { structure, steps, needed_entries, num_slots, outputs, derived: None, hash: 0 };
        let template = likeness
            .map(|likeness| move |plan: Arc<Plan>| Template { likeness, better, originals, made_of, plan });
        (plan, template)
    }

    /// Derives the plan that [`plan`](Draft::plan) would make, without its notes, if the template's recording has equal
    /// likeness.
    pub(crate) fn derive(self, template: &Template) -> Result<Plan, Box<Draft>> {
        match self.steps(template) {
            Some(steps) => {
                let Plan { needed_entries, num_slots, outputs, .. } = &*template.plan;
                Ok(Plan {
                    structure: self.structure,
                    steps,
                    needed_entries: needed_entries.clone(),
                    num_slots: *num_slots,
                    outputs: outputs.clone(),
                    derived: Some(self.limits),
                    hash: 0,
                })
            }
            None => Err(Box::new(self)),
        }
    }

    fn steps(&self, template: &Template) -> Option<Vec<Step>> {
        let likeness = self.likeness.as_ref()?;
        if !template.is_like(likeness, self) {
            return None;
        }
        let mut taken = Taken {
            shapes: template.likeness.replacements(likeness),
            same_ops: template.better.entries.iter().zip(&self.better.entries).all(|(a, b)| a.op == b.op),
            programs: BTreeMap::new(),
        };
        let steps = template.plan.steps.iter().zip(&template.made_of);
        steps.map(|(step, &entry)| taken.step(step, &self.better.entries[entry as usize])).collect()
    }
}

impl Plan {
    /// Panics if a derived plan differs from the plan made from scratch.
    pub(crate) fn compare_with_full(&self) {
        let full = Plan::new(self.structure.clone(), self.derived.unwrap_or_default());
        let is_same = |(a, b): (&Step, &Step)| {
            (&a.op, &a.operands, &a.results, a.first, &a.used)
                == (&b.op, &b.operands, &b.results, b.first, &b.used)
        };
        let same = self.steps.len() == full.steps.len()
            && self.steps.iter().zip(&full.steps).all(is_same)
            && self.needed_entries == full.needed_entries
            && (self.num_slots, &self.outputs) == (full.num_slots, &full.outputs);
        assert!(
            same,
            "[fusion] a plan derived from other lengths differs from the recording's own\n{}\ninstead of\n{}\n  \
             hint: this is a bug in Kiln; KILN_FUSION=off avoids it",
            self.describe_steps(),
            full.describe_steps()
        );
    }
}

impl Template {
    /// The likeness hash under which the template is cached.
    pub(crate) fn hash(&self) -> u64 {
        self.likeness.hash()
    }

    /// The size in bytes, including its plan, which the plan cache may count as well.
    pub(crate) fn bytes(&self) -> usize {
        self.plan.bytes()
            + self.better.bytes()
            + self.likeness.bytes()
            + self.originals.len() * size_of::<Option<usize>>()
    }

    fn is_like(&self, likeness: &Likeness, draft: &Draft) -> bool {
        let (a, b) = (&self.better, &draft.better);
        let same_dtypes = |a: &[TensorType], b: &[TensorType]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.dtype == b.dtype)
        };
        let same = |(a, b): (&Entry, &Entry)| {
            a.operands == b.operands && same_dtypes(&a.results, &b.results) && are_alike(&a.op, &b.op)
        };
        self.likeness.is_like(likeness)
            && a.alive == b.alive
            && a.entries.len() == b.entries.len()
            && same_dtypes(&a.externals, &b.externals)
            && a.entries.iter().zip(&b.entries).all(same)
            && self.originals == draft.originals
    }
}

/// The replaced parts of a template's plan.
struct Taken {
    /// Replacement shapes, by the template's shapes.
    shapes: BTreeMap<Vec<usize>, Shape>,
    /// Whether all ops are equal, including lengths.
    same_ops: bool,
    /// Replacement programs, by the addresses of the template's programs, which steps share.
    programs: BTreeMap<usize, Arc<Program>>,
}

impl Taken {
    /// Derives a step. `entry` is the op of a step that is no region.
    fn step(&mut self, step: &Step, entry: &Entry) -> Option<Step> {
        let op = if let Op::Fused(region) = &step.op
            && !matches!(entry.op, Op::Fused(_))
        {
            // A pattern contains no lengths.
            Op::Fused(FusedOp::with_pattern(self.shared(region.shared())?, region.pattern().clone()).ok()?)
        } else {
            entry.op.clone()
        };
        Some(Step {
            op,
            operands: step.operands.clone(),
            results: self.types(&step.results)?,
            first: step.first,
            used: step.used.clone(),
            notes: Vec::new(),
        })
    }

    fn shared(&mut self, program: &Arc<Program>) -> Option<Arc<Program>> {
        let address = Arc::as_ptr(program).addr();
        if let Some(taken) = self.programs.get(&address) {
            return Some(taken.clone());
        }
        let taken = Arc::new(self.program(program)?);
        self.programs.insert(address, taken.clone());
        Some(taken)
    }

    fn program(&self, program: &Program) -> Option<Program> {
        let instruction = |instruction: &Instruction| {
            let results = self.types(&instruction.results)?;
            let op = match of_type(&instruction.op, *results.first()?) {
                Some(op) => op,
                None if self.same_ops => instruction.op.clone(),
                None => return None,
            };
            Some(Instruction { op, operands: instruction.operands.clone(), results })
        };
        Some(Program {
            inputs: self.types(&program.inputs)?,
            instructions: program.instructions.iter().map(instruction).collect::<Option<_>>()?,
            outputs: program.outputs.clone(),
        })
    }

    fn types(&self, types: &[TensorType]) -> Option<Vec<TensorType>> {
        let ty = |ty: &TensorType| {
            if ty.rank() == 0 {
                return Some(*ty);
            }
            Some(ty.with_shape(*self.shapes.get(&ty.shape[..])?))
        };
        types.iter().map(ty).collect()
    }
}

#[cfg(test)]
mod tests;
