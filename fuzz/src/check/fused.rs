//! Checks that fused programs agree with their ops run one by one.
//!
//! A program is recorded several times, since a region's stores depend on live values: with only its outputs held, with
//! all values held, and with some values held, reads in between, recordings that end anywhere, and ops recorded by
//! other threads. Some programs are repeated until speculative execution starts. Gradients by automatic differentiation
//! over the engine are compared with gradients over fusion.

use super::forward_values::ForwardValues;
use super::{Check, Counts, Failure, Projection, Scope, Subjects, at_slot, run_with_noise};
use crate::random::Random;
use crate::spread::first_problem;
use crate::trace::{Ownership, Slot, describe_difference, executed, read, same, same_numbers, trace};
use crate::trial::Trial;
use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_fusion::{Fusion, Statistics};
use kiln_ir::{Engine, Instruction, Operands, ProgramOperand, Value, Values, Var};
use kiln_suite::engines::reference;
use std::sync::Arc;

/// The values that are held to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    /// Outputs.
    Outputs,
    /// All.
    All,
    /// Outputs and some other values, with random events in between.
    Some,
}

pub(super) fn check(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    let before = subjects.fused.statistics();
    let result = values(trial, subjects, counts).and_then(|()| gradients(trial, subjects, counts));
    let Statistics { regions_run, ops_fused, steps_early, .. } = subjects.fused.statistics();
    counts.regions += regions_run - before.regions_run;
    counts.fused += ops_fused - before.ops_fused;
    counts.early += steps_early - before.steps_early;
    result
}

/// The ways to record a program. Each way makes other regions, which some devices compile.
fn holdings(subjects: &Subjects) -> &'static [Holding] {
    match subjects.scope {
        Scope::All => &[Holding::Outputs, Holding::All, Holding::Some],
        Scope::Engine | Scope::Routed | Scope::Kernels => &[Holding::Some],
    }
}

/// The ways to record a program, and the repeats of each before its results are compared.
fn repeated(trial: &Trial, subjects: &Subjects) -> Vec<(Holding, usize)> {
    /// Minimum length for speculative execution.
    const LONG: usize = 20;
    /// Repeats until a plan is predicted, and one more.
    const OFTEN: usize = 5;
    let once = holdings(subjects).iter().map(|&holding| (holding, 1));
    let is_long = trial.program.instructions.len() >= LONG && subjects.scope != Scope::Kernels;
    let often = is_long.then(|| holdings(subjects).iter().map(|&holding| (holding, OFTEN)));
    once.chain(often.into_iter().flatten()).collect()
}

/// Runs the recorded program and its gradients, without comparing results.
pub(super) fn run_all(trial: &Trial, subjects: &Subjects) {
    for &holding in holdings(subjects) {
        run(&subjects.fused, trial, holding, &mut noise_of(trial));
    }
    let checkpointing = checkpointing(trial);
    for engine in [subjects.one.clone(), Arc::new(subjects.fused.clone())] {
        gradients_of(trial, &Autodiff::new(engine, checkpointing));
    }
}

/// Random events for the recording of a program.
fn noise_of(trial: &Trial) -> Random {
    Random::new(0xF05E, trial.program.instructions.len() as u64)
}

fn checkpointing(trial: &Trial) -> Checkpointing {
    if trial.smooth { Checkpointing::None } else { Checkpointing::Balanced }
}

fn values(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    let expected = trace(&*subjects.one, trial, Ownership::Kept).slots;
    let noisy = |number: u64| Some(trace(&*run_with_noise(subjects, number), trial, Ownership::Kept).slots);
    for (holding, repeats) in repeated(trial, subjects) {
        let record = |_| run(&subjects.fused, trial, holding, &mut noise_of(trial));
        let found = (1..repeats).fold(record(0), |_, number| record(number));
        counts.comparisons += found.len() as u64;
        let (slots, found): (Vec<usize>, Vec<Slot>) = found.into_iter().unzip();
        let expected: Vec<Slot> = slots.iter().map(|&slot| expected[slot].clone()).collect();
        let noisy = |number| noisy(number).map(|all| slots.iter().map(|&slot| all[slot].clone()).collect());
        if let Some((place, text)) = problem(subjects, &expected, &found, &noisy) {
            let slot = slots[place];
            let text = format!("%{slot}, with {} held: {text}", holding.name());
            // A smaller program may fail at another op.
            return Err(Failure { op: None, ..at_slot(trial, slot, Check::Fused, text) });
        }
    }
    Ok(())
}

/// The first place at which results differ: by a bit on the CPU, beyond the noise of rounding on other devices.
fn problem(
    subjects: &Subjects,
    expected: &[Slot],
    found: &[Slot],
    noisy: &dyn Fn(u64) -> Option<Vec<Slot>>,
) -> Option<(usize, String)> {
    if subjects.scope.varies() {
        return first_problem(expected, found, noisy);
    }
    let place = expected.iter().zip(found).position(|(expected, found)| !same_numbers(expected, found))?;
    Some((place, describe_difference(&expected[place], &found[place])))
}

impl Holding {
    fn name(self) -> &'static str {
        match self {
            Holding::Outputs => "the outputs",
            Holding::All => "all values",
            Holding::Some => "some values",
        }
    }
}

/// Records the program and reads the held values: slots with their values, in the order of the slots.
fn run(layer: &Fusion, trial: &Trial, holding: Holding, random: &mut Random) -> Vec<(usize, Slot)> {
    let program = &trial.program;
    let mut last = vec![0; program.num_slots()];
    let mut holds = vec![holding == Holding::All; program.num_slots()];
    for (number, instruction) in program.instructions.iter().enumerate() {
        slots_of(&instruction.operands).for_each(|slot| last[slot] = number);
    }
    slots_of(&program.outputs).for_each(|slot| holds[slot] = true);
    let mut values: Vec<Option<Value>> =
        trial.inputs.iter().map(|data| Some(layer.write(data.clone()))).collect();
    for (number, instruction) in program.instructions.iter().enumerate() {
        let mut operands = Operands::new();
        for (place, operand) in instruction.operands.iter().enumerate() {
            operands.push(match *operand {
                ProgramOperand::Scalar(scalar) => scalar.into(),
                ProgramOperand::Slot(slot) => {
                    let used_again = slots_of(&instruction.operands[place + 1..]).any(|other| other == slot);
                    let gone = last[slot] == number && !used_again && !holds[slot];
                    let value = if gone { values[slot].take() } else { values[slot].clone() };
                    value.expect("a value is used after its last use").into()
                }
            });
        }
        values.extend(recorded(layer, instruction, operands, holding, random).into_iter().map(Some));
        let first = values.len() - instruction.results.len();
        for slot in first..values.len() {
            holds[slot] |= holding == Holding::Some && random.chance(25);
            if !holds[slot] && last[slot] <= number {
                values[slot] = None;
            }
        }
        if holding == Holding::Some {
            disturb(layer, &values, random);
        }
    }
    let mut order: Vec<usize> = (trial.inputs.len()..values.len()).filter(|&slot| holds[slot]).collect();
    if holding == Holding::Some {
        order = random.permutation(order.len()).into_iter().map(|place| order[place]).collect();
    }
    let mut found: Vec<(usize, Slot)> =
        order.into_iter().map(|slot| (slot, read(layer, values[slot].take().expect("it is held")))).collect();
    found.sort_by_key(|&(slot, _)| slot);
    found
}

fn slots_of(operands: &[ProgramOperand]) -> impl Iterator<Item = usize> + '_ {
    operands.iter().filter_map(|operand| match operand {
        ProgramOperand::Slot(slot) => Some(*slot),
        ProgramOperand::Scalar(_) => None,
    })
}

/// Records an op, sometimes from another thread.
fn recorded(
    layer: &Fusion,
    instruction: &Instruction,
    operands: Operands,
    holding: Holding,
    random: &mut Random,
) -> Values {
    if holding != Holding::Some || !random.chance(8) {
        return executed(layer, instruction, operands);
    }
    let other = || std::thread::scope(|scope| scope.spawn(|| executed(layer, instruction, operands)).join());
    other().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// Random events between two ops: reads, submits and flushes.
fn disturb(layer: &Fusion, values: &[Option<Value>], random: &mut Random) {
    match random.below(24) {
        0 => {
            if let Some(value) = &values[random.below(values.len())] {
                let _ = read(layer, value.clone());
            }
        }
        1 => layer.submit(),
        2 => layer.flush(),
        _ => {}
    }
}

/// Checks that gradients of a projection of the outputs agree with and without fusion.
fn gradients(trial: &Trial, subjects: &Subjects, counts: &mut Counts) -> Result<(), Failure> {
    let checkpointing = checkpointing(trial);
    let under = |engine: Arc<dyn Engine>| gradients_of(trial, &Autodiff::new(engine, checkpointing));
    let Some(eager) = under(subjects.one.clone()) else { return Ok(()) };
    let noisy = |number: u64| under(run_with_noise(subjects, number));
    let compared = |expected: &[Slot], found: &[Slot], check: Check| {
        let problem = problem(subjects, expected, found, &noisy);
        let failed = |(place, text)| Err(Failure::of_program(check, format!("of input {place}: {text}")));
        problem.map_or(Ok(()), failed)
    };
    counts.comparisons += eager.len() as u64;
    if subjects.scope.varies() {
        let reference = under(Arc::new(reference()));
        let none = || Failure::of_program(Check::EagerGradient, "there is one, but none over the reference");
        compared(&reference.ok_or_else(none)?, &eager, Check::EagerGradient)?;
        counts.comparisons += eager.len() as u64;
    }
    let failed = |text: String| Failure::of_program(Check::FusedGradient, text);
    let found = under(Arc::new(subjects.fused.clone()));
    // A failed op is recorded only if the failure is not known immediately. After a `Recover` or a select of other
    // elements, both runs continue, with different gradients.
    let is_same = |found: &Vec<Slot>| eager.iter().zip(found).all(|(eager, found)| same(eager, found));
    if !found.as_ref().is_some_and(is_same) && ForwardValues::of(trial).have_failed() {
        return Ok(());
    }
    let found = found.ok_or_else(|| failed("there is none, but there is without fusion".into()))?;
    counts.fused_gradients += found.len() as u64;
    compared(&eager, &found, Check::FusedGradient)
}

/// The gradients by the inputs, an error for inputs without a gradient; `None` if there is no loss.
fn gradients_of(trial: &Trial, layer: &Autodiff) -> Option<Vec<Slot>> {
    let is_float = |value: &Value| value.dtype().is_float();
    let leaf = |value: Value| if is_float(&value) { layer.require_grad(value) } else { value };
    let leaves: Values = trial.inputs.iter().map(|data| leaf(layer.write(data.clone()))).collect();
    let outputs = trial.program.run(layer, leaves.clone());
    let loss = outputs.into_iter().enumerate().filter(|(_, output)| is_float(output));
    let term = |(place, output): (usize, Value)| {
        let weights = Projection::weights_of(place, &output);
        let axes: Vec<usize> = (0..output.shape().rank()).collect();
        let weights = Var::new(layer, layer.write(weights));
        let output = Var::new(layer, output).cast(kiln_ir::DType::F64);
        (output * weights).sum(&axes).reshape([])
    };
    let loss = loss.map(term).reduce(|a, b| a + b)?.into_value();
    if !layer.is_tracked(&loss) {
        return None;
    }
    // Devices report an index out of range at a read.
    read(layer, loss.clone()).ok()?;
    let found = layer.backward(&loss, None).ok()?;
    let slot = |leaf: &Value| match found.get(leaf) {
        Some(gradient) => read(&**layer.inner(), gradient),
        None => Err("no gradient".into()),
    };
    Some(leaves.iter().map(slot).collect())
}
