//! Checks that an op on a batch matches the op on each example.

use super::{Check, Counts, Failure, Subjects};
use crate::tolerance::{Computed, attention, difference};
use crate::trace::{HostOperand, Ownership, host_operands, read, run_on, trace};
use crate::trial::Trial;
use kiln_ir::{
    Axes, CollectiveKind, Engine, Op, Operand, OperandType, Operands, SliceAxis, TensorData, Value, Var,
    infer,
};
use kiln_suite::engines::reference;
use kiln_vmap::{Randomness, Vmap};
use std::sync::Arc;

/// Examples per batch.
const EXAMPLES: usize = 2;

/// Runs each op on a batch of two examples, by [`Vmap`] over the engine under test, and compares both with the
/// reference. The first example has the operands of the program; in the second, some operands have reversed elements.
pub(super) fn check(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    let trace = trace(&reference(), trial, Ownership::Passed);
    for (number, instruction) in trial.program.instructions.iter().enumerate() {
        let Some(list) = host_operands(instruction, &trace.slots) else { continue };
        if !has_rule(&instruction.op) {
            continue;
        }
        if is_beyond_attention(&instruction.op, &list) {
            continue;
        }
        let batch = Batch::new(&instruction.op, list, number);
        let checked = batch.check(&subjects.one, counts);
        checked.map_err(|message| Failure::of_instruction(Check::Batch, number, instruction, message))?;
    }
    Ok(())
}

/// Whether an op has a batching rule to check. `NonZero` has another shape per example, and `Send` of one example is
/// refused. Regions are batched op by op, which other programs cover.
fn has_rule(op: &Op) -> bool {
    if let Op::Collective(collective) = op {
        return !matches!(collective.kind, CollectiveKind::Send { .. });
    }
    !matches!(op, Op::NonZero { .. } | Op::Fused(_))
}

/// Whether nothing can be said of an attention: a key that is hidden has the weight 0, and 0 times an infinity or NaN is NaN
/// where it is computed and nothing where it is left out. Which of both depends on the number of queries and keys, and a batch
/// has others than an example.
fn is_beyond_attention(op: &Op, list: &[HostOperand]) -> bool {
    let is_wild = |operand: &HostOperand| match operand {
        HostOperand::Data(data) if data.dtype().is_float() => {
            !data.to_vec::<f64>().into_iter().all(f64::is_finite)
        }
        HostOperand::Data(_) | HostOperand::Number(_) => false,
    };
    attention(op).is_some() && list.iter().any(is_wild)
}

/// An op with the operands of both examples.
struct Batch<'a> {
    op: &'a Op,
    lists: [Vec<HostOperand>; EXAMPLES],
    /// Which operands are batched, and the batch axis.
    differs: Vec<bool>,
    place: usize,
}

impl Batch<'_> {
    fn new(op: &Op, list: Vec<HostOperand>, number: usize) -> Batch<'_> {
        // The gradient of attention needs consistent operands.
        let together = matches!(op, Op::AttentionGrad(_));
        let tensors = list.iter().filter(|x| matches!(x, HostOperand::Data(_))).count();
        let mut differs = Vec::new();
        for operand in &list {
            let is_tensor = matches!(operand, HostOperand::Data(_));
            // Alternately all operands, or every second one.
            let chosen =
                number.is_multiple_of(2) || tensors < 2 || (differs.len() + number / 2).is_multiple_of(2);
            differs.push(is_tensor && chosen);
        }
        let other = |(operand, differs): (&HostOperand, &bool)| match operand {
            HostOperand::Data(data) if *differs && !together => HostOperand::Data(reversed(data)),
            HostOperand::Data(_) | HostOperand::Number(_) => operand.clone(),
        };
        let second = list.iter().zip(&differs).map(other).collect();
        Batch { op, lists: [list, second], differs, place: number }
    }

    fn check(&self, engine: &Arc<dyn Engine>, counts: &mut Counts) -> Result<(), String> {
        let reference = reference();
        // An error in one example is an error of the batch.
        let expected = self.lists.each_ref().map(|list| run_on(&reference, self.op, list));
        let [Ok(first), Ok(second)] = expected else { return Ok(()) };
        let layer = Vmap::new(engine.clone());
        let operands = self.operands(&layer);
        let types = infer(self.op, &OperandType::list(&operands)).map_err(|error| error.to_string())?;
        let run = || layer.execute(self.op, operands, &types);
        let results = layer.scope(EXAMPLES, Randomness::Same, run);
        let all: Vec<Value> = results.iter().map(|value| layer.unbatch(value, EXAMPLES, 0)).collect();
        for (example, expected) in [first, second].into_iter().enumerate() {
            let mut actual = Vec::new();
            for value in &all {
                let one = row(&**engine, value, example);
                actual.push(
                    read(&**engine, one).map_err(|error| format!("example {example} failed: {error}"))?,
                );
            }
            counts.batches += 1;
            let list = &self.lists[example];
            if let Some(problem) = difference(self.op, list, &expected, &actual, Computed::Batched) {
                return Err(format!("example {example} of operands {:?}: {problem}", self.differs));
            }
        }
        Ok(())
    }

    fn operands(&self, layer: &Vmap) -> Operands {
        let engine = &**layer.inner();
        let mut operands = Operands::new();
        for (place, operand) in self.lists[0].iter().enumerate() {
            operands.push(match (operand, &self.lists[1][place]) {
                (HostOperand::Data(first), HostOperand::Data(second)) if self.differs[place] => {
                    let axis = self.place % (first.shape().rank() + 1);
                    Operand::Value(layer.batch(stacked(engine, [first, second], axis), axis))
                }
                (HostOperand::Data(data), _) => Operand::Value(layer.write(data.clone())),
                (HostOperand::Number(scalar), _) => Operand::Scalar(*scalar),
            });
        }
        operands
    }
}

/// The elements in reverse order.
fn reversed(data: &TensorData) -> TensorData {
    let shape = *data.shape();
    let backwards = |&len: &usize| SliceAxis { start: usize::saturating_sub(len, 1), len, step: -1 };
    let op = Op::Slice(shape.iter().map(backwards).collect());
    run_on(&reference(), &op, &[HostOperand::Data(data.clone())]).expect("a view").remove(0)
}

/// Both examples stacked along `axis`, by the reference, so that the engine runs only ops of the batching rule.
fn stacked(engine: &dyn Engine, examples: [&TensorData; EXAMPLES], axis: usize) -> Value {
    let reference = reference();
    let row = |data: &TensorData| {
        let row = Var::new(&reference, reference.write(data.clone()));
        row.reshape(data.shape().inserted(0, 1))
    };
    let [first, second] = examples.map(row);
    let all = first.apply(Op::Concat { axis: 0 }, &[&second]);
    let mut axes: Vec<usize> = (1..all.rank()).collect();
    axes.insert(axis, 0);
    let all = all.apply(Op::Permute(Axes::new(&axes)), &[]).into_value();
    engine.write(read(&reference, all).expect("examples of one type"))
}

/// One example of a value with batch axis 0.
fn row(engine: &dyn Engine, all: &Value, example: usize) -> Value {
    let all = Var::new(engine, all.clone());
    let mut slices: Vec<SliceAxis> = all.shape().iter().map(|&len| SliceAxis::all(len)).collect();
    slices[0] = SliceAxis { start: example, len: 1, step: 1 };
    let shape = all.shape().without(0);
    all.apply(Op::Slice(slices), &[]).reshape(shape).into_value()
}
