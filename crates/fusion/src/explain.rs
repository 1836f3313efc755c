//! `Tensor::explain`: the fused kernels that computed a value, as text.

use crate::lazy::Lazy;
use crate::plan::{Plan, Reference, StepKind};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use kiln_ir::{Activation, Epilogue, Op, Pattern, Program, Value};

/// The steps that computed a value, in execution order.
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
    /// Describes the steps that lead to a result of the recording, with the ops of each region and the reasons why it
    /// ends.
    pub(crate) fn explain(&self, result: usize) -> String {
        if let Some(full) = self.full() {
            return full.explain(result);
        }
        let slot = self.outputs.iter().find(|(other, _)| *other == result).map(|&(_, slot)| slot);
        let steps = self.leading_to(slot.into_iter().collect());
        let mut text = format!("{} of {} steps of the plan lead to it:\n", steps.len(), self.steps().len());
        for number in steps {
            self.describe(number, &mut text);
        }
        text
    }

    /// Describes all steps, with the ops of each region and the reasons why it ends. Values are numbered: externals
    /// first, then the results of steps in order.
    ///
    /// ```
    /// use kiln_fusion::Plan;
    /// use kiln_ir::Program;
    ///
    /// let program = Program::parse(
    ///     "program(%0: f32[4]) {\n  %1: f32[4] = exp %0\n  %2: f32[4] = add %1, 1.0\n  return %2\n}\n",
    /// )?;
    /// let text = Plan::of_program(&program).describe_all();
    /// assert_eq!(text, "1 step, 1 region, 16 bytes at the peak\n0. %1: f32[4] = one kernel: exp, add (%0, number 0)\n");
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    pub fn describe_all(&self) -> String {
        let regions = self.steps().iter().filter(|step| step.kind() == StepKind::Region).count();
        let plural =
            |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let (steps, regions) = (plural(self.steps().len(), "step"), plural(regions, "region"));
        let text = format!("{steps}, {regions}, {} bytes at the peak\n", self.peak_bytes());
        text + &self.describe_steps()
    }

    /// Describes one step, in the format of [`describe_all`](Plan::describe_all).
    ///
    /// # Panics
    /// When the plan has no step of that index.
    pub fn describe_step(&self, number: usize) -> String {
        let mut text = String::new();
        self.describe(number, &mut text);
        text
    }

    /// Describes all steps, one per line.
    pub(crate) fn describe_steps(&self) -> String {
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
                Reference::Number(_) | Reference::Constant(_) => None,
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
                Reference::Slot { slot, last: _ } => format!("%{slot}"),
                Reference::Number(number) => format!("number {number}"),
                Reference::Constant(scalar) => format!("{scalar}"),
            })
            .collect();
        let (results, operands) = (results.join(", "), operands.join(", "));
        let _ = match (step.kind(), &step.op) {
            (StepKind::Region, Op::Fused(fused)) => {
                let (form, ops) = (form(fused.pattern()), named(fused.program()));
                writeln!(text, "{number}. {results} = one {form}: {ops} ({operands})")
            }
            (StepKind::Region | StepKind::Op, op) => {
                writeln!(text, "{number}. {results} = {} ({operands})", op.name())
            }
        };
        for note in &step.notes {
            let _ = writeln!(text, "     ends: {note}");
        }
    }
}

/// The display name of a region's pattern.
fn form(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Loop => "kernel".to_string(),
        Pattern::Epilogue(Epilogue { bias, activation, .. }) => {
            let bias = bias.map(|_| "bias");
            let parts: Vec<&str> = bias.into_iter().chain(activation.map(Activation::name)).collect();
            format!("matmul with {}", parts.join(" and "))
        }
        Pattern::QuantizedMatMul(_) => "quantized matmul".to_string(),
    }
}

/// The names of a region's ops that compute something. An op that occurs several times in a row is listed once.
fn named(program: &Program) -> String {
    let ops = program.instructions.iter().filter(|instruction| !instruction.op.is_view());
    let mut names: Vec<(&str, usize)> = Vec::new();
    for name in ops.map(|instruction| instruction.op.name()) {
        match names.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            Some(_) | None => names.push((name, 1)),
        }
    }
    let list = names.into_iter().map(|(name, count)| match count {
        1 => name.to_string(),
        count => format!("{name} x{count}"),
    });
    list.collect::<Vec<_>>().join(", ")
}
