//! Plans derived from a cached plan for other dim lengths.

use super::rewrite::{self, Rewritten};
use super::shape_signature::{ShapeSignature, equal_but_for_lengths, of_type};
use super::{Plan, Step, Structure, emit, graph, group, needed_entries};
use crate::limits::Limits;
use crate::record::Entry;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{FusedOp, Instruction, Op, Program, Shape, TensorType};

/// A recording to be planned.
pub(crate) struct Planner {
    structure: Structure,
    rewritten: Structure,
    originals: Vec<Option<usize>>,
    signature: Option<ShapeSignature>,
    limits: Limits,
}

/// A planned recording from which recordings with equal signature derive their plans.
pub(crate) struct Template {
    signature: ShapeSignature,
    /// The recording after rewrites.
    rewritten: Structure,
    originals: Vec<Option<usize>>,
    /// For each step, the entry that it is, or the last entry of a region.
    step_entries: Vec<u32>,
    plan: Arc<Plan>,
}

impl Planner {
    /// The planner of a recording, for a machine with these limits.
    pub(crate) fn new(structure: Structure, limits: Limits) -> Planner {
        let Rewritten { structure: rewritten, originals, .. } = rewrite::rewrite(&structure, limits);
        let signature = ShapeSignature::of(&rewritten, limits);
        Planner { structure, rewritten, originals, signature, limits }
    }

    /// A hash that is equal for recordings of equal likeness; `None` if the recording has no likeness.
    pub(crate) fn signature(&self) -> Option<u64> {
        self.signature.as_ref().map(ShapeSignature::hash)
    }

    /// Plans the recording from scratch.
    pub(crate) fn plan(self) -> (Plan, Option<impl FnOnce(Arc<Plan>) -> Template>) {
        let Planner { structure, rewritten, originals, signature, limits } = self;
        let graph = graph::Graph::new(&rewritten);
        let groups = group::groups(&graph, limits);
        let emit::Emitted { steps, last_entries, step_entries, num_slots, outputs } =
            emit::emit(&graph, groups);
        let needed = needed_entries(&structure, &rewritten, &originals);
        let needed_entries = last_entries.into_iter().map(|entry| needed[entry as usize]).collect();
        let original = |(result, slot): (usize, usize)| Some((originals[result]?, slot));
        let outputs = outputs.into_iter().filter_map(original).collect();
        let plan = Plan { structure, steps, needed_entries, num_slots, outputs, derived: None, hash: 0 };
        let template = signature.map(|signature| {
            move |plan: Arc<Plan>| Template { signature, rewritten, originals, step_entries, plan }
        });
        (plan, template)
    }

    /// Derives the plan that [`plan`](Draft::plan) would make, without its notes, if the template's recording has equal
    /// likeness.
    pub(crate) fn derive(self, template: &Template) -> Result<Plan, Box<Planner>> {
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
        let signature = self.signature.as_ref()?;
        if !template.matches(signature, self) {
            return None;
        }
        let mut substitution = Substitution {
            shapes: template.signature.replacements(signature),
            same_ops: template
                .rewritten
                .entries
                .iter()
                .zip(&self.rewritten.entries)
                .all(|(a, b)| a.op == b.op),
            programs: BTreeMap::new(),
        };
        let steps = template.plan.steps.iter().zip(&template.step_entries);
        steps.map(|(step, &entry)| substitution.step(step, &self.rewritten.entries[entry as usize])).collect()
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
        self.signature.hash()
    }

    /// The size in bytes, including its plan, which the plan cache may count as well.
    pub(crate) fn bytes(&self) -> usize {
        self.plan.bytes()
            + self.rewritten.bytes()
            + self.signature.bytes()
            + self.originals.len() * size_of::<Option<usize>>()
    }

    fn matches(&self, signature: &ShapeSignature, planner: &Planner) -> bool {
        let (a, b) = (&self.rewritten, &planner.rewritten);
        let same_dtypes = |a: &[TensorType], b: &[TensorType]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.dtype == b.dtype)
        };
        let same = |(a, b): (&Entry, &Entry)| {
            a.operands == b.operands
                && same_dtypes(&a.results, &b.results)
                && equal_but_for_lengths(&a.op, &b.op)
        };
        self.signature.matches(signature)
            && a.alive == b.alive
            && a.entries.len() == b.entries.len()
            && same_dtypes(&a.externals, &b.externals)
            && a.entries.iter().zip(&b.entries).all(same)
            && self.originals == planner.originals
    }
}

/// The replaced parts of a template's plan.
struct Substitution {
    /// Replacement shapes, by the template's shapes.
    shapes: BTreeMap<Vec<usize>, Shape>,
    /// Whether all ops are equal, including lengths.
    same_ops: bool,
    /// Replacement programs, by the addresses of the template's programs, which steps share.
    programs: BTreeMap<usize, Arc<Program>>,
}

impl Substitution {
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
