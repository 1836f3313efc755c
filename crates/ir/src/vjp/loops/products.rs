//! Gradients of constants that are products: one matmul of all steps, in place of one matmul and one sum in each step.
//!
//! Where the gradient of a constant in a step is `aᵀ b`, its sum over the steps is the product of the stacked factors,
//! with the steps as part of the contracted axis.

use crate::excerpt::Excerpt;
use crate::{Axes, Binary, Instruction, Op, Program, ProgramOperand, Var};
use alloc::vec::Vec;

/// A backward body without the products of constants.
pub(super) struct Stacked {
    /// Its outputs are those of the given body without the sums of `products`, and then the factors.
    pub(super) body: Program,
    /// The gradients that are computed after the loop.
    pub(super) products: Vec<Product>,
    /// The other sums, by their places among all.
    pub(super) sums: Vec<usize>,
}

/// The gradient of a constant: the product of two factors of all steps.
pub(super) struct Product {
    /// The place among the sums.
    pub(super) sum: usize,
    /// The factors `a` and `b` of `aᵀ b`.
    factors: [Factor; 2],
}

/// A matrix of each step.
#[derive(Clone, Copy)]
struct Factor {
    source: Source,
    /// Whether the contracted axis is the first.
    contracted_first: bool,
}

/// The stacked matrices of all steps.
#[derive(Clone, Copy)]
enum Source {
    /// A scanned operand of the loop.
    Scanned(usize),
    /// An output of the steps, counted after the others.
    Output(usize),
}

/// The interface of a backward body: the numbers of gradients of carried values, sums and scanned tensors.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) states: usize,
    pub(super) sums: usize,
    pub(super) scanned: usize,
}

impl Stacked {
    pub(super) fn of(body: &Program, counts: Counts) -> Stacked {
        let producers = producers(body);
        let mut outputs = Vec::new();
        let (mut products, mut sums) = (Vec::new(), Vec::new());
        for sum in 0..counts.sums {
            match factors(body, &producers, counts, sum) {
                None => sums.push(sum),
                Some(found) => {
                    let factors = found.map(|(slot, contracted_first)| {
                        let source = source(slot, counts, &mut outputs);
                        Factor { source, contracted_first }
                    });
                    products.push(Product { sum, factors });
                }
            }
        }
        let is_kept = |place: usize| {
            let sum = place.checked_sub(counts.states).filter(|sum| *sum < counts.sums);
            sum.is_none_or(|sum| sums.contains(&sum))
        };
        let kept = (0..body.outputs.len()).filter(|&place| is_kept(place)).map(|place| body.outputs[place]);
        let outputs: Vec<ProgramOperand> =
            kept.chain(outputs.iter().map(|&slot| ProgramOperand::Slot(slot))).collect();
        let inputs: Vec<usize> = (0..body.inputs.len()).filter(|&place| is_kept(place)).collect();
        Stacked { body: pruned(body, &inputs, outputs), products, sums }
    }
}

impl Product {
    /// The gradient, from the scanned operands of the loop and the outputs of its steps that are factors.
    pub(super) fn gradient<'e>(&self, scanned: &[Var<'e>], outputs: &[Var<'e>]) -> Var<'e> {
        let [a, b] = self.factors.map(|factor| {
            let stacked = match factor.source {
                Source::Scanned(place) => scanned[place].clone(),
                Source::Output(place) => outputs[place].clone(),
            };
            let stacked = if factor.contracted_first { stacked } else { stacked.transpose() };
            let [steps, contracted, free] = [0, 1, 2].map(|axis| stacked.shape()[axis]);
            stacked.reshape([steps * contracted, free])
        });
        a.transpose().matmul(&b)
    }
}

/// The instruction that computes each slot.
fn producers(body: &Program) -> Vec<Option<&Instruction>> {
    let inputs = body.inputs.iter().map(|_| None);
    let results = body
        .instructions
        .iter()
        .flat_map(|instruction| instruction.results.iter().map(move |_| Some(instruction)));
    inputs.chain(results).collect()
}

/// The slots of the factors `a` and `b`, if a sum is that of products `aᵀ b` of matrices, and whether their contracted
/// axis is the first.
fn factors(
    body: &Program,
    producers: &[Option<&Instruction>],
    counts: Counts,
    sum: usize,
) -> Option<[(usize, bool); 2]> {
    let producer = |slot: usize| producers[slot];
    let added = producer(body.outputs[counts.states + sum].slot()?)?;
    let [before, term] = *added.operands.as_slice() else { return None };
    if added.op != Op::Binary(Binary::Add) || before.slot()? != counts.states + sum {
        return None;
    }
    let mut product = producer(term.slot()?)?;
    if let (Op::Cast(_), [operand]) = (&product.op, product.operands.as_slice()) {
        product = producer(operand.slot()?)?;
    }
    let [left, right] = *product.operands.as_slice() else { return None };
    if product.op != Op::MatMul || product.results[0].rank() != 2 {
        return None;
    }
    let below = |slot: usize| {
        let permuted = producer(slot).filter(|instruction| instruction.op == Op::Permute(Axes::new(&[1, 0])));
        permuted.and_then(|instruction| instruction.operands[0].slot())
    };
    let (left, right) = (left.slot()?, right.slot()?);
    let found = [
        below(left).map_or((left, false), |below| (below, true)),
        below(right).map_or((right, true), |below| (below, false)),
    ];
    // A constant would be stacked once for each step.
    let constants = counts.states + counts.sums + counts.scanned..body.inputs.len();
    found.iter().all(|(slot, _)| !constants.contains(slot)).then_some(found)
}

/// The stacked values of a slot: a scanned operand, or a further output of the steps.
fn source(slot: usize, counts: Counts, outputs: &mut Vec<usize>) -> Source {
    let first = counts.states + counts.sums;
    if (first..first + counts.scanned).contains(&slot) {
        return Source::Scanned(slot - first);
    }
    let place = outputs.iter().position(|&other| other == slot).unwrap_or_else(|| {
        outputs.push(slot);
        outputs.len() - 1
    });
    Source::Output(place)
}

/// The program with these inputs and outputs, without instructions that no output needs.
fn pruned(body: &Program, inputs: &[usize], outputs: Vec<ProgramOperand>) -> Program {
    let mut needed = alloc::vec![false; body.num_slots()];
    outputs.iter().filter_map(ProgramOperand::slot).for_each(|slot| needed[slot] = true);
    let mut first = body.num_slots();
    let mut kept = Vec::new();
    for instruction in body.instructions.iter().rev() {
        first -= instruction.results.len();
        if needed[first..first + instruction.results.len()].contains(&true) {
            instruction.slots().for_each(|slot| needed[slot] = true);
            kept.push((first, instruction));
        }
    }
    let mut program = Excerpt::new(inputs, &body.slot_types());
    for (first, instruction) in kept.into_iter().rev() {
        program.push(instruction, first);
    }
    program.program.outputs = program.operands(&outputs);
    program.program
}
