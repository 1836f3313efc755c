//! Differentiation of programs.

use super::{Gradient, GradientSum, absent, gradient_of, saved, vjp};
use crate::{
    Engine, Instruction, Op, Operand, Operands, Program, ProgramOperand, Recorder, Result, TensorType, Value,
    Values, Var,
};
use alloc::vec::Vec;

/// Builds the program that computes the gradients of a program.
///
/// Its inputs are those of `program` followed by one gradient for each output that is a float tensor. Its outputs are
/// the gradients of the float inputs, in order, zeros if an input has no effect.
///
/// # Errors
/// When an op between a float input and an output has no gradient.
pub fn gradient_program(program: &Program) -> Result<Program> {
    let types = program.slot_types();
    let seed_type = |output: &ProgramOperand| match output {
        ProgramOperand::Slot(slot) => Some(types[*slot]).filter(|ty| ty.dtype.is_float()),
        ProgramOperand::Scalar(_) => None,
    };
    let seed_types: Vec<Option<TensorType>> = program.outputs.iter().map(seed_type).collect();
    let all: Vec<TensorType> =
        program.inputs.iter().copied().chain(seed_types.iter().flatten().copied()).collect();
    let recorder = Recorder::new(&all);
    let mut values = recorder.inputs().into_iter().map(|value| Var::new(&recorder as &dyn Engine, value));
    let inputs: Vec<Var<'_>> = values.by_ref().take(program.inputs.len()).collect();
    let seeds: Vec<Option<Var<'_>>> =
        seed_types.iter().map(|ty| ty.as_ref().and_then(|_| values.next())).collect();
    let wanted: Vec<bool> = program.inputs.iter().map(|ty| ty.dtype.is_float()).collect();
    let gradients = differentiate(&recorder, program, &inputs, &seeds, &wanted)?;
    let found = gradients.into_iter().zip(&program.inputs).zip(&wanted).filter(|(_, wanted)| **wanted);
    let outputs: Vec<Operand> = found
        .map(|((gradient, ty), _)| gradient.unwrap_or_else(|| Var::zeros(&recorder, *ty)).into_operand())
        .collect();
    Ok(recorder.finish(&outputs))
}

/// Computes the gradients of a program's inputs, given those of its outputs (`None`: zero).
///
/// Recomputes only the intermediates that the rules need. `wanted` and the returned list have an entry per input,
/// `None` if a gradient is not wanted or zero.
///
/// # Errors
/// When an op between a wanted input and an output has no gradient.
///
/// # Panics
/// When the lengths of the lists do not match the program.
pub fn differentiate<'e>(
    engine: &'e dyn Engine,
    program: &Program,
    inputs: &[Var<'e>],
    seeds: &[Option<Var<'e>>],
    wanted: &[bool],
) -> Result<Vec<Option<Var<'e>>>> {
    assert_eq!(inputs.len(), program.inputs.len(), "[program] one value per input");
    assert_eq!(wanted.len(), program.inputs.len(), "[program] one entry of `wanted` per input");
    assert_eq!(seeds.len(), program.outputs.len(), "[program] one gradient per output");
    let tape = Tape::new(program, wanted);
    let values = tape.forward(engine, inputs);
    tape.backward(engine, &values, seeds)
}

/// The op's expansion as a program of its tensor operands; `None` if it has none.
///
/// # Errors
/// When the result types of a custom op's expansion differ from the op's.
pub(super) fn expansion(op: &Op, inputs: &[Var<'_>], outputs: &[Var<'_>]) -> Option<Result<Program>> {
    if let Op::Fused(fused) = op
        && inputs.iter().all(|input| input.operand().value().is_some())
    {
        return Some(Ok(fused.program().clone()));
    }
    let tensors = inputs.iter().filter_map(|input| input.operand().value());
    let recorder = Recorder::new(&tensors.map(|value| *value.ty()).collect::<Vec<_>>());
    let mut values = recorder.inputs().into_iter();
    let place = |input: &Var<'_>| match input.operand() {
        Operand::Scalar(scalar) => Operand::Scalar(*scalar),
        Operand::Value(_) => Operand::Value(values.next().expect("one slot per tensor")),
    };
    let operands: Vec<Operand> = inputs.iter().map(place).collect();
    if let Op::Custom(custom) = op {
        let types: Vec<TensorType> = outputs.iter().map(Var::ty).collect();
        let values = custom.expand_values(&recorder, &operands, &types)?;
        let finish =
            |values: Values| recorder.finish(&values.into_iter().map(Operand::Value).collect::<Vec<_>>());
        return Some(values.map(finish));
    }
    let variables: Vec<Var<'_>> = operands.into_iter().map(|operand| Var::new(&recorder, operand)).collect();
    let results = crate::expand(&recorder, op, &variables)?;
    Some(Ok(recorder.finish(&results.into_iter().map(Var::into_operand).collect::<Vec<_>>())))
}

/// A program with static facts about its slots.
pub(super) struct Tape<'p> {
    program: &'p Program,
    pub(super) types: Vec<TensorType>,
    /// The first slot of each instruction's results.
    pub(super) first: Vec<usize>,
    /// Whether a slot depends on a wanted input in a differentiable way.
    pub(super) active: Vec<bool>,
    /// Whether the value of a slot is read: by a rule, or by an instruction that is recomputed.
    pub(super) read: Vec<bool>,
}

impl<'p> Tape<'p> {
    fn new(program: &'p Program, wanted: &[bool]) -> Tape<'p> {
        let mut tape = Tape::unrepeated(program, wanted);
        tape.mark_recomputed();
        tape
    }

    /// A tape that recomputes nothing: only the values that rules read are marked.
    pub(super) fn unrepeated(program: &'p Program, wanted: &[bool]) -> Tape<'p> {
        let mut tape = Tape {
            program,
            types: program.slot_types(),
            first: Vec::with_capacity(program.instructions.len()),
            active: program.inputs.iter().zip(wanted).map(|(ty, w)| *w && ty.dtype.is_float()).collect(),
            read: alloc::vec![false; program.num_slots()],
        };
        for instruction in &program.instructions {
            tape.first.push(tape.active.len());
            let continues = gradient_of(&instruction.op) != Gradient::Constant
                && tape.wanted(instruction).contains(&true);
            tape.active.extend(instruction.results.iter().map(|ty| continues && ty.dtype.is_float()));
        }
        tape.mark_read();
        tape
    }

    fn wanted(&self, instruction: &Instruction) -> Vec<bool> {
        let active = |operand: &ProgramOperand| match operand {
            ProgramOperand::Slot(slot) => self.active[*slot],
            ProgramOperand::Scalar(_) => false,
        };
        instruction.operands.iter().map(active).collect()
    }

    fn mark_read(&mut self) {
        for (instruction, &first) in self.program.instructions.iter().zip(&self.first) {
            let results = first..first + instruction.results.len();
            if !self.active[results.clone()].contains(&true) {
                continue;
            }
            let kept = saved(&instruction.op, &self.typed(instruction), &self.wanted(instruction));
            for (place, slot) in results.enumerate() {
                self.read[slot] |= kept.output(place);
            }
            for (place, operand) in instruction.operands.iter().enumerate() {
                if let ProgramOperand::Slot(slot) = operand {
                    self.read[*slot] |= kept.input(place);
                }
            }
        }
    }

    /// Marks the operands of the instructions that compute the marked values.
    fn mark_recomputed(&mut self) {
        for (instruction, &first) in self.program.instructions.iter().zip(&self.first).rev() {
            if self.runs(instruction, first) {
                for operand in &instruction.operands {
                    if let ProgramOperand::Slot(slot) = operand {
                        self.read[*slot] = true;
                    }
                }
            }
        }
    }

    fn runs(&self, instruction: &Instruction, first: usize) -> bool {
        self.read[first..first + instruction.results.len()].contains(&true)
    }

    /// Operands that have only types.
    fn typed(&self, instruction: &Instruction) -> Operands {
        let typed = |operand: &ProgramOperand| match operand {
            ProgramOperand::Slot(slot) => Operand::Value(Value::absent(self.types[*slot])),
            ProgramOperand::Scalar(scalar) => Operand::Scalar(*scalar),
        };
        instruction.operands.iter().map(typed).collect()
    }

    /// Recomputes the values that are read; the others are absent.
    fn forward<'e>(&self, engine: &'e dyn Engine, inputs: &[Var<'e>]) -> Vec<Var<'e>> {
        let mut slots: Vec<Var<'e>> = inputs.to_vec();
        for (instruction, &first) in self.program.instructions.iter().zip(&self.first) {
            if !self.runs(instruction, first) {
                let absent = |ty: &TensorType| Var::new(engine, Value::absent(*ty));
                slots.extend(instruction.results.iter().map(absent));
                continue;
            }
            let operands =
                instruction.operands.iter().map(|operand| at(&slots, engine, operand).into_operand());
            let results: Values = engine.execute(&instruction.op, operands.collect(), &instruction.results);
            let kept = |(place, value): (usize, Value)| {
                if self.read[first + place] { Var::new(engine, value) } else { absent(engine, &value) }
            };
            slots.extend(results.into_iter().enumerate().map(kept));
        }
        slots
    }

    pub(super) fn backward<'e>(
        &self,
        engine: &'e dyn Engine,
        values: &[Var<'e>],
        seeds: &[Option<Var<'e>>],
    ) -> Result<Vec<Option<Var<'e>>>> {
        let mut sums: Vec<GradientSum> = self.types.iter().map(|_| GradientSum::default()).collect();
        let variable = |sum: Value| Var::new(engine, sum);
        for (output, seed) in self.program.outputs.iter().zip(seeds) {
            self.add(engine, &mut sums, output, seed.clone());
        }
        for (instruction, &first) in self.program.instructions.iter().zip(&self.first).rev() {
            let results = first..first + instruction.results.len();
            let gradients: Vec<Option<Var<'e>>> =
                sums[results.clone()].iter_mut().map(|sum| sum.take().map(variable)).collect();
            if gradients.iter().all(Option::is_none) {
                continue;
            }
            if let (Some(ProgramOperand::Slot(slot)), [Some(gradient)]) =
                (instruction.operands.first(), gradients.as_slice())
                && self.active[*slot]
                && GradientSum::is_part(&instruction.op)
                && sums[*slot].wants_part()
            {
                let index = instruction.operands.get(1).map(|index| at(values, engine, index).into_operand());
                sums[*slot].add_part(engine, &instruction.op, index, gradient.clone().into_value());
                continue;
            }
            let operands: Vec<Var<'e>> =
                instruction.operands.iter().map(|operand| at(values, engine, operand)).collect();
            let wanted = self.wanted(instruction);
            let found = vjp(&instruction.op, &operands, &values[results], &gradients, &wanted)?;
            for (operand, gradient) in instruction.operands.iter().zip(found) {
                self.add(engine, &mut sums, operand, gradient);
            }
        }
        sums.truncate(self.program.inputs.len());
        Ok(sums.into_iter().map(|sum| sum.into_value().map(variable)).collect())
    }

    fn add(
        &self,
        engine: &dyn Engine,
        sums: &mut [GradientSum],
        operand: &ProgramOperand,
        gradient: Option<Var<'_>>,
    ) {
        let (ProgramOperand::Slot(slot), Some(gradient)) = (operand, gradient) else { return };
        if self.active[*slot] {
            sums[*slot].add(engine, gradient.into_value());
        }
    }
}

pub(super) fn at<'e>(slots: &[Var<'e>], engine: &'e dyn Engine, operand: &ProgramOperand) -> Var<'e> {
    match operand {
        ProgramOperand::Slot(slot) => slots[*slot].clone(),
        ProgramOperand::Scalar(scalar) => Var::new(engine, *scalar),
    }
}
