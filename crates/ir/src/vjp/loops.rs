//! The gradient of a loop: a loop from the last step to the first.
//!
//! The gradient of the body reads some of its intermediates, the *residuals*. A loop [with
//! residuals](LoopOp::with_residuals) has them among the outputs of its steps, so that the backward loop scans them.
//! Autodiff runs such a loop in the forward pass. The rule of a loop without residuals runs it once more with them.
//!
//! The backward loop carries the gradients of the carried values and a sum for each constant, unless the gradient is a
//! product of values of the steps.

mod products;

use super::program::{Tape, at};
use super::{Gradients, Rule};
use crate::{
    DType, Engine, Instruction, LoopAttributes, LoopOp, MAX_RANK, Op, Operand, OperandType, Operands,
    Program, ProgramOperand, Recorder, Result, Role, Saved, TensorType, Var, infer,
};
use alloc::vec::Vec;
use core::ops::Range;
use products::{Counts, Stacked};

impl LoopOp {
    /// Returns the same loop with further outputs of each step, after the others: the intermediates that the gradients
    /// of the `wanted` operands read. `None` if its steps output all of them.
    pub fn with_residuals(&self, wanted: &[bool]) -> Option<LoopOp> {
        let missing = Residuals::of(self, wanted).missing();
        if missing.is_empty() {
            return None;
        }
        let mut body = self.body().clone();
        body.outputs.extend(missing.into_iter().map(ProgramOperand::Slot));
        self.with_body(body).ok()
    }

    /// The operands and results that the gradient rule reads.
    pub(super) fn saved(&self, wanted: &[bool]) -> Saved {
        let residuals = Residuals::of(self, wanted);
        if !residuals.missing().is_empty() {
            return Saved { inputs: u32::MAX, outputs: 0 };
        }
        let inputs = (residuals.carried.end..self.body().inputs.len()).filter(|&place| residuals.read[place]);
        let outputs = residuals.stacked().filter_map(|slot| residuals.place(slot));
        Saved { inputs: mask(inputs), outputs: mask(outputs) }
    }
}

/// The bits of these places; all bits if a place has none.
fn mask(mut places: impl Iterator<Item = usize>) -> u32 {
    let bit = |mask: u32, place: usize| (place < 31).then(|| mask | 1 << place);
    places.try_fold(0, bit).unwrap_or(u32::MAX)
}

/// The values of a body that the gradient of the body reads.
struct Residuals<'p> {
    program: &'p Program,
    tape: Tape<'p>,
    carried: Range<usize>,
    constants: Range<usize>,
    /// Whether the value of a slot is read.
    read: Vec<bool>,
    /// Whether the backward loop computes an instruction again: views, and values that are the same in each step.
    repeated: Vec<bool>,
}

impl<'p> Residuals<'p> {
    fn of(op: &'p LoopOp, wanted: &[bool]) -> Residuals<'p> {
        let program = op.body();
        let LoopAttributes { carried, scanned, .. } = op.attributes();
        let tape = active(program, carried, wanted);
        let mut residuals = Residuals {
            program,
            read: tape.read.clone(),
            repeated: alloc::vec![false; program.instructions.len()],
            tape,
            carried: 0..carried,
            constants: carried + scanned..program.inputs.len(),
        };
        residuals.repeat(&op.fixed_slots());
        residuals
    }

    fn repeat(&mut self, is_fixed: &[bool]) {
        let instructions = self.program.instructions.iter().zip(&self.tape.first);
        for (number, (instruction, &first)) in instructions.enumerate().rev() {
            let results = first..first + instruction.results.len();
            if !self.read[results].contains(&true) || !(is_fixed[first] || is_repeated(instruction)) {
                continue;
            }
            self.repeated[number] = true;
            for slot in instruction.slots() {
                self.read[slot] = true;
            }
        }
    }

    /// The slots whose values the backward loop scans: carried values, and results of the body's ops.
    fn stacked(&self) -> impl Iterator<Item = usize> {
        let carried = self.carried.clone().filter(|&slot| self.read[slot]);
        let kept = self.program.instructions.iter().zip(&self.tape.first).zip(&self.repeated);
        let results = kept.filter(|(_, repeated)| !**repeated).flat_map(|((instruction, &first), _)| {
            (first..first + instruction.results.len()).filter(|&slot| self.read[slot])
        });
        carried.chain(results)
    }

    /// The result of the loop that has the values of a slot.
    fn place(&self, slot: usize) -> Option<usize> {
        let outputs = self.program.outputs.iter().enumerate().skip(self.carried.end);
        outputs.filter(|(_, output)| **output == ProgramOperand::Slot(slot)).map(|(place, _)| place).next()
    }

    /// The slots that no output of a step has.
    fn missing(&self) -> Vec<usize> {
        self.stacked().filter(|&slot| self.place(slot).is_none()).collect()
    }

    /// The values of all slots in the backward loop, given those that it scans and the constants.
    fn values<'e>(&self, engine: &'e dyn Engine, mut given: Vec<Option<Var<'e>>>) -> Vec<Var<'e>> {
        let mut slots: Vec<Var<'e>> = Vec::with_capacity(given.len());
        let mut take = |slot: usize| {
            let missing = || Var::new(engine, crate::Value::absent(self.tape.types[slot]));
            given[slot].take().unwrap_or_else(missing)
        };
        slots.extend((0..self.program.inputs.len()).map(&mut take));
        let instructions = self.program.instructions.iter().zip(&self.tape.first);
        for ((instruction, &first), &repeated) in instructions.zip(&self.repeated) {
            if !repeated {
                slots.extend((first..first + instruction.results.len()).map(&mut take));
                continue;
            }
            let operands =
                instruction.operands.iter().map(|operand| at(&slots, engine, operand).into_operand());
            let results = engine.execute(&instruction.op, operands.collect(), &instruction.results);
            slots.extend(results.into_iter().map(|value| Var::new(engine, value)));
        }
        slots
    }
}

/// The tape of the body. A carried value depends on a wanted operand if its initial value does, or that of any step.
fn active<'p>(program: &'p Program, carried: usize, wanted: &[bool]) -> Tape<'p> {
    let mut wanted = wanted.to_vec();
    loop {
        let tape = Tape::unrepeated(program, &wanted);
        let mut changed = false;
        for (place, output) in program.outputs.iter().take(carried).enumerate() {
            if let ProgramOperand::Slot(slot) = output
                && tape.active[*slot]
                && !wanted[place]
            {
                wanted[place] = true;
                changed = true;
            }
        }
        if !changed {
            return tape;
        }
    }
}

/// Whether an op is cheaper to run again than to stack: views and constants. A tensor of the maximum rank has no axis
/// for the steps.
fn is_repeated(instruction: &Instruction) -> bool {
    let role = instruction.op.info().role;
    role == Role::View || role == Role::Constant || instruction.results.iter().any(|ty| ty.rank() >= MAX_RANK)
}

/// The interface of the backward loop: places of the forward loop's operands and results.
struct Interface {
    /// The carried values that depend on a wanted operand.
    states: Vec<usize>,
    /// The constants whose gradients are wanted.
    sums: Vec<usize>,
    /// The results with a gradient, without the carried values.
    seeds: Vec<usize>,
    /// The residuals: slots of the body, with the results that have their values.
    stacks: Vec<(usize, usize)>,
    /// The scanned tensors that the gradient reads.
    slices: Vec<usize>,
    /// The constants that the gradient reads.
    constants: Vec<usize>,
    /// The scanned tensors whose gradients are wanted.
    found: Vec<usize>,
}

impl<'e> Rule<'_, 'e> {
    pub(super) fn looped(&self, op: &LoopOp) -> Result<Gradients<'e>> {
        let Some(with_residuals) = op.with_residuals(self.wanted) else {
            return self.backward_loop(op, self.outputs);
        };
        let outputs = run(self.engine(), &Op::Loop(with_residuals.clone()), self.inputs.to_vec())?;
        self.backward_loop(&with_residuals, &outputs)
    }

    /// The gradients of a loop whose steps output the residuals.
    fn backward_loop(&self, op: &LoopOp, outputs: &[Var<'e>]) -> Result<Gradients<'e>> {
        let residuals = Residuals::of(op, self.wanted);
        let interface = self.interface(op, &residuals);
        let Interface { states, sums, seeds, stacks, slices, constants, found } = &interface;
        let input = |&place: &usize| self.x(place).clone();
        let sum = |&place: &usize| {
            let ty = self.x(place).ty();
            Var::zeros(self.engine(), ty.with_dtype(accumulator(ty.dtype)))
        };
        let carried: Vec<Var<'e>> =
            states.iter().map(|&place| self.gradient_or_zeros(place)).chain(sums.iter().map(sum)).collect();
        let scanned: Vec<Var<'e>> = seeds
            .iter()
            .map(|&place| self.gradient_or_zeros(place))
            .chain(stacks.iter().map(|&(_, place)| outputs[place].clone()))
            .chain(slices.iter().map(input))
            .collect();
        let types = carried.iter().map(Var::ty);
        let types = types.chain(scanned.iter().map(|x| x.ty().with_shape(x.shape().without(0))));
        let types: Vec<TensorType> = types.chain(constants.iter().map(|&place| self.x(place).ty())).collect();
        let body = backward_body(&residuals, &interface, &types)?;
        let counts = Counts { states: states.len(), sums: sums.len(), scanned: scanned.len() };
        let Stacked { body, products, sums: kept } = Stacked::of(&body, counts);
        let attributes = LoopAttributes {
            carried: states.len() + kept.len(),
            scanned: scanned.len(),
            reverse: !op.attributes().reverse,
            ..op.attributes()
        };
        let (of_states, of_sums) = carried.split_at(states.len());
        let carried = of_states.iter().chain(kept.iter().map(|&sum| &of_sums[sum])).cloned();
        let operands = carried.chain(scanned.iter().cloned()).chain(constants.iter().map(input)).collect();
        let results = run(self.engine(), &Op::Loop(LoopOp::new(body, attributes)?), operands)?;
        let (results, factors) = results.split_at(states.len() + kept.len() + found.len());
        let mut results = results.iter().cloned();
        let mut gradients = self.zero();
        for (&place, result) in states.iter().zip(results.by_ref()) {
            gradients[place] = self.wanted[place].then_some(result);
        }
        let of_constants = kept.iter().map(|&sum| sums[sum]);
        for (place, result) in of_constants.chain(found.iter().copied()).zip(results) {
            gradients[place] = Some(cast(&result, self.x(place).dtype()));
        }
        for product in products {
            let place = sums[product.sum];
            gradients[place] = Some(cast(&product.gradient(&scanned, factors), self.x(place).dtype()));
        }
        Ok(gradients)
    }

    fn interface(&self, op: &LoopOp, residuals: &Residuals<'_>) -> Interface {
        let scanned = residuals.carried.end..residuals.constants.start;
        let is_wanted = |place: &usize| self.wanted[*place] && residuals.tape.active[*place];
        let is_read = |place: &usize| residuals.read[*place];
        let has_gradient = |place: &usize| self.gradients.get(*place).is_some_and(Option::is_some);
        let stack = |slot| Some((slot, residuals.place(slot)?));
        Interface {
            states: residuals.carried.clone().filter(|&place| residuals.tape.active[place]).collect(),
            sums: residuals.constants.clone().filter(is_wanted).collect(),
            seeds: (residuals.carried.end..op.body().outputs.len()).filter(has_gradient).collect(),
            stacks: residuals.stacked().filter_map(stack).collect(),
            slices: scanned.clone().filter(is_read).collect(),
            constants: residuals.constants.clone().filter(is_read).collect(),
            found: scanned.filter(is_wanted).collect(),
        }
    }
}

/// The body of the backward loop, for inputs of these types.
fn backward_body(residuals: &Residuals<'_>, interface: &Interface, types: &[TensorType]) -> Result<Program> {
    let Interface { states, sums, seeds, stacks, slices, constants, found } = interface;
    let Residuals { program, tape, .. } = residuals;
    let recorder = Recorder::new(types);
    let engine: &dyn Engine = &recorder;
    let mut inputs = recorder.inputs().into_iter().map(|value| Var::new(engine, value));
    let mut next = |count: usize| inputs.by_ref().take(count).collect::<Vec<_>>();
    let (of_states, of_sums) = (next(states.len()), next(sums.len()));
    let (of_seeds, of_stacks) = (next(seeds.len()), next(stacks.len()));
    let (of_slices, of_constants) = (next(slices.len()), next(constants.len()));

    let mut gradients = alloc::vec![None; program.outputs.len()];
    for (&place, gradient) in states.iter().chain(seeds).zip(of_states.iter().chain(&of_seeds)) {
        gradients[place] = Some(gradient.clone());
    }
    let mut given = alloc::vec![None; program.num_slots()];
    let filled = stacks.iter().map(|(slot, _)| slot).chain(slices).chain(constants);
    for (&slot, value) in filled.zip(of_stacks.into_iter().chain(of_slices).chain(of_constants)) {
        given[slot] = Some(value);
    }
    let values = residuals.values(engine, given);
    let gradients = tape.backward(engine, &values, &gradients)?;

    let gradient = |&place: &usize| {
        let zeros = || Var::zeros(engine, program.inputs[place]);
        gradients[place].clone().unwrap_or_else(zeros)
    };
    let added = sums.iter().zip(of_sums).map(|(&place, sum)| match &gradients[place] {
        Some(gradient) => &sum + cast(gradient, sum.dtype()),
        None => sum,
    });
    let outputs = states.iter().map(gradient).chain(added);
    let outputs: Vec<Operand> = outputs.chain(found.iter().map(gradient)).map(Var::into_operand).collect();
    Ok(recorder.finish(&outputs))
}

/// The dtype in which the gradient of a constant is summed over the steps.
fn accumulator(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

fn cast<'e>(x: &Var<'e>, dtype: DType) -> Var<'e> {
    if x.dtype() == dtype { x.clone() } else { x.cast(dtype) }
}

/// Runs an op whose result types may be too large.
fn run<'e>(engine: &'e dyn Engine, op: &Op, inputs: Vec<Var<'e>>) -> Result<Vec<Var<'e>>> {
    let operands: Operands = inputs.into_iter().map(Var::into_operand).collect();
    let types = infer(op, &OperandType::list(&operands))?;
    let results = engine.execute(op, operands, &types);
    Ok(results.into_iter().map(|value| Var::new(engine, value)).collect())
}
