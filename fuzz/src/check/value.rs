//! Checks every op of a program on different engines.
//!
//! The program runs on the engine under test from end to end, so that operands have the layouts and owners of real
//! programs. Each result is compared with the reference's result for the same operands: errors do not accumulate, and
//! the tolerance is that of one op.

use super::{Check, Counts, Failure, Scope, Subjects, at_slot, run_with_noise};
use crate::shrink::edit;
use crate::spread::first_problem;
use crate::tolerance::{Computed, difference, is_exact};
use crate::trace::{
    Ownership, Slot, Trace, describe_difference, host_operands, read, run_on, same, same_numbers, trace,
};
use crate::trial::Trial;
use kiln_ir::{DType, Engine, Instruction, Op, Program, ProgramOperand, TensorData, Values};
use kiln_suite::compare;
use kiln_suite::engines::Tracked;
use kiln_suite::engines::reference;

pub(super) fn check(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    let engine = &*subjects.one;
    let computed = if subjects.scope == Scope::Engine { Computed::Elsewhere } else { Computed::Natively };
    let steps = |trial: &Trial, trace: &Trace, counts: &mut Counts| steps(trial, trace, computed, counts);
    let passed = match edit::inlined_all(trial) {
        // Regions are compared with their inlined ops, and those with the reference.
        Some(flat) => {
            steps(&flat, &trace(engine, &flat, Ownership::Passed), counts)?;
            let passed = trace(engine, trial, Ownership::Passed);
            regions(trial, &passed, &flat, subjects, counts)?;
            passed
        }
        None => {
            let passed = trace(engine, trial, Ownership::Passed);
            steps(trial, &passed, counts)?;
            passed
        }
    };
    unchanged(&passed, trial)?;
    let kept = trace(&*subjects.many, trial, Ownership::Kept);
    unchanged(&kept, trial)?;
    if subjects.scope.varies() {
        // Runs need not be bitwise equal, so values held to the end are compared with the reference too.
        let flat = edit::inlined_all(trial);
        let kept = flat.as_ref().map_or(kept, |flat| trace(engine, flat, Ownership::Kept));
        steps(flat.as_ref().unwrap_or(trial), &kept, counts)?;
        return exact(trial, &passed, counts);
    }
    if let Err(failure) = equal(trial, &passed, &kept, Check::Threads, counts) {
        // Distinguish a thread-dependent result from an overwritten operand.
        let alone = trace(engine, trial, Ownership::Kept);
        equal(trial, &passed, &alone, Check::Ownership, counts)?;
        return Err(failure);
    }
    program(trial, &passed, engine, counts)?;
    exact(trial, &passed, counts)?;
    let tracked = trace(&Tracked::new(subjects.one.clone()), trial, Ownership::Passed);
    unchanged(&tracked, trial)?;
    equal(trial, &passed, &tracked, Check::Autodiff, counts)
}

/// Checks that outputs computed by regions are within the noise of their inlined ops.
fn regions(
    trial: &Trial,
    trace: &Trace,
    flat: &Trial,
    subjects: &Subjects,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let slots = |slots: &[Slot], program: &Program| -> Vec<Slot> {
        program
            .outputs
            .iter()
            .filter_map(|output| match output {
                ProgramOperand::Slot(slot) => Some(slots[*slot].clone()),
                ProgramOperand::Scalar(_) => None,
            })
            .collect()
    };
    let on = |engine: &dyn Engine| {
        slots(&crate::trace::trace(engine, flat, Ownership::Passed).slots, &flat.program)
    };
    let (expected, found) = (on(&*subjects.one), slots(&trace.slots, &trial.program));
    counts.comparisons += found.len() as u64;
    match first_problem(&expected, &found, &|number| Some(on(&*run_with_noise(subjects, number)))) {
        Some((place, text)) => {
            Err(Failure::of_program(Check::Value, format!("output {place} of fused ops: {text}")))
        }
        None => Ok(()),
    }
}

/// Compares each op with the reference.
fn steps(trial: &Trial, trace: &Trace, computed: Computed, counts: &mut Counts) -> Result<(), Failure> {
    let mut first = trial.program.inputs.len();
    for (number, instruction) in trial.program.instructions.iter().enumerate() {
        let results = &trace.slots[first..first + instruction.results.len()];
        first += instruction.results.len();
        counts.ops += 1;
        step(instruction, trace, results, computed, counts)
            .map_err(|message| Failure::of_instruction(Check::Value, number, instruction, message))?;
    }
    Ok(())
}

fn step(
    instruction: &Instruction,
    trace: &Trace,
    results: &[Slot],
    computed: Computed,
    counts: &mut Counts,
) -> Result<(), String> {
    let failed = |message: String| Err(message);
    let Some(operands) = host_operands(instruction, &trace.slots) else {
        // A select may pick the operand that has not failed.
        if instruction.op.stops_poison() {
            return Ok(());
        }
        return match results.iter().all(Result::is_err) {
            true => Ok(()),
            false => failed("an operand has failed, but a result has not".into()),
        };
    };
    let actual: Result<Vec<TensorData>, &String> =
        results.iter().map(|slot| slot.as_ref().cloned()).collect();
    match (run_on(&reference(), &instruction.op, &operands), actual) {
        (Ok(expected), Ok(actual)) => {
            counts.comparisons += expected.len() as u64;
            match difference(&instruction.op, &operands, &expected, &actual, computed) {
                Some(message) => failed(message),
                None => Ok(()),
            }
        }
        (Err(_), Err(_)) => {
            counts.poisoned += 1;
            Ok(())
        }
        (Ok(_), Err(error)) => failed(format!("failed, but not on the reference: {error}")),
        (Err(error), Ok(_)) => failed(format!("gave a value, but the reference fails: {error}")),
    }
}

fn unchanged(trace: &Trace, trial: &Trial) -> Result<(), Failure> {
    let Some(&slot) = trace.changed.first() else { return Ok(()) };
    Err(at_slot(trial, slot, Check::Ownership, format!("%{slot} was overwritten while it was in use")))
}

/// Checks that both runs returned the same bits.
fn equal(trial: &Trial, a: &Trace, b: &Trace, check: Check, counts: &mut Counts) -> Result<(), Failure> {
    for slot in trial.program.inputs.len()..a.slots.len() {
        counts.comparisons += 1;
        if !same_numbers(&a.slots[slot], &b.slots[slot]) {
            let text = describe_difference(&a.slots[slot], &b.slots[slot]);
            return Err(at_slot(trial, slot, check, format!("%{slot}: {text}")));
        }
    }
    Ok(())
}

/// Checks that [`Program::run`](kiln_ir::Program::run) returns the same outputs.
fn program(trial: &Trial, trace: &Trace, engine: &dyn Engine, counts: &mut Counts) -> Result<(), Failure> {
    let outputs = run_program(engine, trial);
    for (place, (output, slot)) in outputs.iter().zip(&trial.program.outputs).enumerate() {
        let ProgramOperand::Slot(slot) = slot else { continue };
        counts.comparisons += 1;
        if !same(output, &trace.slots[*slot]) {
            let text = describe_difference(&trace.slots[*slot], output);
            return Err(Failure::of_program(Check::Program, format!("output {place}: {text}")));
        }
    }
    Ok(())
}

fn run_program(engine: &dyn Engine, trial: &Trial) -> Vec<Slot> {
    let inputs: Values = trial.inputs.iter().map(|data| engine.write(data.clone())).collect();
    trial.program.run(engine, inputs).into_iter().map(|value| read(engine, value)).collect()
}

/// Checks that the reference returns the same outputs if they depend only on exact ops.
fn exact(trial: &Trial, trace: &Trace, counts: &mut Counts) -> Result<(), Failure> {
    let exact = exact_slots(trial);
    let places = |place: &usize| match trial.program.outputs[*place] {
        ProgramOperand::Slot(slot) => exact[slot],
        ProgramOperand::Scalar(_) => false,
    };
    let list: Vec<usize> = (0..trial.program.outputs.len()).filter(places).collect();
    if list.is_empty() {
        return Ok(());
    }
    let outputs = run_program(&reference(), trial);
    for place in list {
        let ProgramOperand::Slot(slot) = trial.program.outputs[place] else { continue };
        counts.comparisons += 1;
        let (expected, actual) = (&outputs[place], &trace.slots[slot]);
        let problem = match (expected, actual) {
            (Ok(expected), Ok(actual)) => {
                compare::difference(expected, actual, kiln_suite::case::Tolerance::Exact)
            }
            (Err(_), Err(_)) => None,
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => Some(describe_difference(expected, actual)),
        };
        if let Some(problem) = problem {
            return Err(at_slot(trial, slot, Check::Exact, format!("%{slot}: {problem}")));
        }
    }
    Ok(())
}

/// The slots that depend on the inputs only through exact ops.
fn exact_slots(trial: &Trial) -> Vec<bool> {
    let types = trial.program.slot_types();
    let mut exact = vec![true; trial.program.inputs.len()];
    for instruction in &trial.program.instructions {
        let slots = instruction.operands.iter().filter_map(|operand| match operand {
            ProgramOperand::Slot(slot) => Some(*slot),
            ProgramOperand::Scalar(_) => None,
        });
        let operands: Vec<usize> = slots.collect();
        let dtypes: Vec<DType> = operands.iter().map(|&slot| types[slot].dtype).collect();
        let results: Vec<DType> = instruction.results.iter().map(|ty| ty.dtype).collect();
        let fused = matches!(instruction.op, Op::Fused(_));
        let is = !fused
            && operands.iter().all(|&slot| exact[slot])
            && is_exact(&instruction.op, &dtypes, &results);
        exact.extend(instruction.results.iter().map(|_| is));
    }
    exact
}
