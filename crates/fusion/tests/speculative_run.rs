//! Speculative execution: values are equal for correct and wrong predictions.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode, Statistics};
use kiln_ir::{Engine, Machine, TensorData, Value, Var, block_on};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A counter of executed ops, and a switch that makes the engine panic.
#[derive(Default)]
struct Watch {
    executed: AtomicUsize,
    shuts: AtomicBool,
}

/// Fusion over a CPU engine that is marked as asynchronous.
fn watched() -> (Fusion, Arc<Watch>) {
    let (cpu, watch) = (Cpu::with_threads(1), Arc::<Watch>::default());
    let machine = Machine { asynchronous: true, ..cpu.caps().machine };
    let seen = watch.clone();
    let engine = Changed::new(cpu).with_machine(machine).watched(move |_| {
        assert!(!seen.shuts.load(Ordering::SeqCst), "the trap shuts");
        seen.executed.fetch_add(1, Ordering::SeqCst);
    });
    (engine.fused(), watch)
}

fn fusion() -> Fusion {
    watched().0
}

fn data(rows: usize, columns: usize, seed: usize) -> TensorData {
    let list = (0..rows * columns).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 101.0 - 0.5).collect();
    TensorData::new(list, [rows, columns]).unwrap()
}

fn read(engine: &dyn Engine, value: Value) -> Vec<f32> {
    block_on(engine.read(value)).unwrap().into_vec().unwrap()
}

/// A step, with its differences from other steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Step {
    /// Number of layers: a matmul and a function each.
    layers: usize,
    /// A scalar factor before each function, which may change per step.
    number: f64,
    /// Whether another function follows the last matmul.
    differs: bool,
    /// Whether the result of the first layer is kept.
    keeps: bool,
    /// Whether the result of the first layer is read before the rest is recorded.
    reads: bool,
}

const STEP: Step = Step { layers: 20, number: 1.5, differs: false, keeps: false, reads: false };

impl Step {
    /// Returns the new weights and the kept result, both in their final form.
    fn run(self, engine: &dyn Engine, weights: Value, x: &Value) -> (Value, Option<Value>) {
        let w = Var::new(engine, weights);
        let mut y = Var::new(engine, x.clone());
        let mut kept = None;
        for layer in 0..self.layers {
            let product = y.matmul(&w) * self.number;
            y = if self.differs && layer + 1 == self.layers { product.sin() } else { product.tanh() };
            if layer == 0 && (self.keeps || self.reads) {
                let value = y.clone().into_value();
                if self.reads {
                    read(engine, value.clone());
                }
                kept = Some(value);
            }
        }
        ((w - y.mean(&[0]) * 0.1).into_value(), kept)
    }
}

/// Runs steps one after the other. Compares the weights after each, and the kept results, with those of the plain
/// processor.
fn check(fusion: &Fusion, steps: impl IntoIterator<Item = Step>) -> Statistics {
    let plain = Cpu::with_threads(1);
    let engines: [&dyn Engine; 2] = [&plain, fusion];
    let [mut expected, mut found] = engines.map(|engine| engine.write(data(12, 12, 1)));
    let inputs = engines.map(|engine| engine.write(data(8, 12, 2)));
    let close = |expected: Value, found: Value, step: Step, number: usize| {
        for (a, b) in read(&plain, expected).into_iter().zip(read(fusion, found)) {
            assert!((a - b).abs() <= 1e-4, "step {number}, {step:?}: {b} instead of {a}");
        }
    };
    for (number, step) in steps.into_iter().enumerate() {
        let first = step.run(&plain, expected, &inputs[0]);
        let second = step.run(fusion, found, &inputs[1]);
        (expected, found) = (first.0, second.0);
        close(expected.clone(), found.clone(), step, number);
        if let (Some(expected), Some(found)) = (first.1, second.1) {
            close(expected, found, step, number);
        }
    }
    fusion.statistics()
}

#[test]
fn repeated_steps_run_speculatively_with_the_same_values() {
    let fusion = fusion();
    let once = check(&fusion, [STEP]).steps_run;
    let numbers = (0..9).map(|i| Step { number: 0.5 + f64::from(i) / 8.0, ..STEP });
    let found = check(&fusion, numbers);
    assert_eq!(found.steps_lost, 0, "{found:?}");
    // All steps except those before the prediction.
    assert!(found.steps_early >= 6 * (once - 6), "{once} {found:?}");
    assert_eq!(found.steps_run, 10 * once, "each step ran once: {found:?}");
    assert_eq!(found.plans_made, 1, "{found:?}");
}

#[test]
fn steps_run_before_the_end_is_recorded() {
    let (fusion, watch) = watched();
    check(&fusion, [STEP; 6]);
    let before = watch.executed.load(Ordering::SeqCst);
    let x = fusion.write(data(8, 12, 2));
    let weights = STEP.run(&fusion, fusion.write(data(12, 12, 1)), &x).0;
    let early = watch.executed.load(Ordering::SeqCst) - before;
    read(&fusion, weights);
    let all = watch.executed.load(Ordering::SeqCst) - before;
    assert!(early > all / 2 && early < all, "{early} of {all}");
}

#[test]
fn a_different_end_after_speculation_is_computed_correctly() {
    let fusion = fusion();
    let other = Step { differs: true, ..STEP };
    let found = check(&fusion, [STEP, STEP, STEP, STEP, other, STEP, other, STEP, STEP, STEP, STEP, STEP]);
    assert!(found.steps_lost > 0 && found.steps_early > 0, "{found:?}");
}

#[test]
fn longer_and_shorter_recordings_with_the_same_prefix_are_correct() {
    let fusion = fusion();
    let of = |layers: usize| Step { layers, ..STEP };
    let found = check(&fusion, [of(20), of(20), of(20), of(20), of(31), of(20), of(20), of(20), of(9)]);
    assert!(found.steps_early > 0 && found.steps_lost > 0, "{found:?}");
}

#[test]
fn plans_are_predicted_on_engines_without_speculation() {
    let fusion = Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::On);
    let of = |layers: usize| Step { layers, ..STEP };
    let others = [
        Step { differs: true, ..STEP },
        of(31),
        of(9),
        Step { keeps: true, ..STEP },
        Step { reads: true, ..STEP },
    ];
    let steps = || others.into_iter().flat_map(|other| [STEP, STEP, STEP, STEP, other]);
    let first = check(&fusion, steps());
    let again = check(&fusion, steps());
    assert_eq!(again.plans_made, first.plans_made, "{first:?} {again:?}");
    assert_eq!((again.steps_early, again.steps_lost), (0, 0), "{again:?}");
}

#[test]
fn values_alive_in_only_one_step_are_computed() {
    for other in [Step { keeps: true, ..STEP }, Step { reads: true, ..STEP }] {
        let found = check(&fusion(), [STEP, STEP, STEP, STEP, other, STEP, STEP, STEP, STEP, STEP]);
        assert!(found.steps_early > 0, "{found:?}");
    }
}

#[test]
fn mispredicted_plans_are_predicted_less_often() {
    let fusion = fusion();
    let other = Step { differs: true, ..STEP };
    let epochs = |count: usize| (0..count).flat_map(|_| [STEP, STEP, STEP, STEP, STEP, other]);
    let first = check(&fusion, epochs(4)).steps_lost;
    let all = check(&fusion, epochs(20)).steps_lost;
    assert!(first > 0 && all == first, "{first} {all}");
}

#[test]
fn inputs_with_other_types_use_another_plan() {
    let fusion = fusion();
    let plain = Cpu::with_threads(1);
    let run = |engine: &dyn Engine, rows: usize| {
        let x = Var::new(engine, engine.write(data(4, 4, 1)));
        let chain = (0..20).fold(x, |y, _| (y * 1.01).tanh());
        // Only its sum is used, whose type does not depend on the type of the summed tensor.
        let late = Var::new(engine, engine.write(data(rows, 6, 3))).sum(&[0, 1]);
        read(engine, (chain.sum(&[0, 1]) + late).into_value())
    };
    for rows in [3, 3, 3, 3, 3, 5, 3, 5, 2] {
        let (expected, found) = (run(&plain, rows), run(&fusion, rows));
        assert!((expected[0] - found[0]).abs() < 1e-4, "{rows} rows: {found:?} instead of {expected:?}");
    }
}

#[test]
fn in_place_updates_happen_under_speculation() {
    let fusion = fusion();
    let memory = |engine: &Fusion| engine.memory().unwrap().usage().peak_live_bytes;
    let mut state = fusion.write(data(1024, 512, 1));
    let mut peaks = Vec::new();
    for _ in 0..8 {
        // The result of a small chain is added to an unshared tensor of two megabytes.
        let x = Var::new(&fusion, fusion.write(data(4, 4, 2)));
        let chain = (0..12).fold(x, |y, _| y.matmul(&y).tanh());
        let added = Var::new(&fusion, state) + chain.sum(&[0, 1]);
        let after = (0..6).fold(chain, |y, _| y.matmul(&y).tanh());
        state = added.into_value();
        fusion.memory().unwrap().reset_peak();
        read(&fusion, after.into_value());
        peaks.push(memory(&fusion));
    }
    assert!(fusion.statistics().steps_early > 0, "{:?}", fusion.statistics());
    assert!(peaks.iter().all(|peak| peak.abs_diff(peaks[1]) < 1 << 20), "{peaks:?}");
}

#[test]
fn another_thread_may_read_while_this_one_records() {
    let fusion = Arc::new(fusion());
    let x = fusion.write(data(8, 12, 2));
    let run = |ask: bool| {
        let w = Var::new(&*fusion, fusion.write(data(12, 12, 1)));
        let mut y = Var::new(&*fusion, x.clone());
        let mut threads = Vec::new();
        for layer in 0..20 {
            y = (y.matmul(&w) * 1.5).tanh();
            if ask && layer == 12 {
                let (fusion, value) = (fusion.clone(), y.clone().into_value());
                threads.push(std::thread::spawn(move || read(&*fusion, value)));
            }
        }
        let read_elsewhere: Vec<Vec<f32>> =
            threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        (read(&*fusion, y.into_value()), read_elsewhere)
    };
    let expected = run(false).0;
    for ask in [false, false, false, true, false, true, true, false] {
        assert_eq!(run(ask).0, expected);
    }
}

#[test]
fn a_panic_during_recording_loses_no_values() {
    let (fusion, watch) = watched();
    check(&fusion, [STEP; 5]);
    let run = || {
        let (w, x) = (fusion.write(data(12, 12, 1)), fusion.write(data(8, 12, 2)));
        STEP.run(&fusion, w, &x).0
    };
    let expected = read(&fusion, run());
    watch.shuts.store(true, Ordering::SeqCst);
    let panicked = catch_unwind(AssertUnwindSafe(run));
    watch.shuts.store(false, Ordering::SeqCst);
    assert!(panicked.is_err(), "it ran while it was recorded");
    assert_eq!(read(&fusion, run()), expected);
}
