//! What made a value, for reading.

use crate::lazy::Lazy;
use crate::plan::{Plan, Reference, Step, StepKind};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use kiln_ir::{Op, Value};

/// The steps that a value comes from, in the order in which they ran.
pub(crate) fn explain(value: &Value) -> String {
    let Some(cell) = Lazy::of(value) else {
        return format!("{}: data, or the result of an op that was not fused\n", value.ty());
    };
    cell.force();
    match cell.origin.get() {
        Some((plan, result)) => plan.explain(*result),
        None => format!("{}: its run was interrupted\n", value.ty()),
    }
}

impl Plan {
    /// The steps that lead to a result of the recording, with the ops of each region and the reasons why it ends.
    pub(crate) fn explain(&self, result: usize) -> String {
        let slot = self.outputs.iter().find(|(other, _)| *other == result).map(|&(_, slot)| slot);
        let steps = self.leading_to(slot.into_iter().collect());
        let mut text = format!("{} of {} steps of the plan lead to it:\n", steps.len(), self.steps().len());
        for number in steps {
            self.describe(number, &mut text);
        }
        text
    }

    /// All steps, described like those of [`Plan::explain`].
    pub fn describe_all(&self) -> String {
        let mut text = String::new();
        (0..self.steps().len()).for_each(|number| self.describe(number, &mut text));
        text
    }

    fn leading_to(&self, slots: Vec<usize>) -> Vec<usize> {
        let mut wanted: BTreeSet<usize> = slots.into_iter().collect();
        let mut steps = Vec::new();
        for (number, step) in self.steps().iter().enumerate().rev() {
            if !(step.first..step.first + step.results.len()).any(|slot| wanted.contains(&slot)) {
                continue;
            }
            steps.push(number);
            wanted.extend(step.operands.iter().filter_map(|operand| match operand {
                Reference::Slot { slot, .. } => Some(*slot),
                Reference::Number(_) => None,
            }));
        }
        steps.reverse();
        steps
    }

    fn describe(&self, number: usize, text: &mut String) {
        let step = &self.steps()[number];
        let results: Vec<String> = step
            .results
            .iter()
            .enumerate()
            .map(|(place, ty)| format!("%{}: {ty}", step.first + place))
            .collect();
        let operands: Vec<String> = step
            .operands
            .iter()
            .map(|operand| match operand {
                Reference::Slot { slot, last: true } => format!("%{slot} (last use)"),
                Reference::Slot { slot, last: false } => format!("%{slot}"),
                Reference::Number(number) => format!("number {number}"),
            })
            .collect();
        let _ =
            writeln!(text, "{number}. {} = {} ({})", results.join(", "), step.title(), operands.join(", "));
        for note in &step.notes {
            let _ = writeln!(text, "     ends: {note}");
        }
    }
}

impl Step {
    fn title(&self) -> String {
        match (self.kind(), &self.op) {
            (StepKind::Region, Op::Fused(fused)) => {
                let names = fused
                    .program()
                    .instructions
                    .iter()
                    .filter(|instruction| !crate::plan::is_view(&instruction.op));
                let names: Vec<&str> = names.map(|instruction| instruction.op.name()).collect();
                format!("one kernel: {}", names.join(", "))
            }
            (StepKind::Region | StepKind::Op, op) => op.name().to_string(),
        }
    }
}
