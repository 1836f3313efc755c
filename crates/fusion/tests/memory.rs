//! Memory: repeated training steps allocate nothing from the system, and plans know their peak memory.
//!
//! One test in this program, since the counters are global to the process.

use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode, Plan};
use kiln_ir::{Engine, Program, TensorData, Value, Values, Var, block_on, gradient_program};
use std::sync::Arc;

fn matrix(rows: usize, columns: usize) -> TensorData {
    let list = (0..rows * columns).map(|i| ((i * 37) % 101) as f32 / 101.0 - 0.5).collect();
    TensorData::new(list, [rows, columns]).unwrap()
}

/// A training step of two layers with a squared-error loss.
fn step(tape: &Autodiff, weights: Vec<Value>, x: &Value, y: &Value) -> Vec<Value> {
    let leaves: Vec<Value> = weights.iter().map(|w| tape.require_grad(w.clone())).collect();
    let [first, second] = [0, 1].map(|i| Var::new(tape, leaves[i].clone()));
    let hidden = Var::new(tape, x.clone()).matmul(&first).tanh();
    let left = hidden.matmul(&second) - Var::new(tape, y.clone());
    let loss = left.square().mean(&[0, 1]).reshape([]).into_value();
    let gradients = tape.backward(&loss, None).unwrap();
    drop(loss);
    let inner = &**tape.inner();
    let updated = weights.into_iter().zip(&leaves).map(|(weight, leaf)| {
        let gradient = Var::new(inner, gradients.get(leaf).expect("both take part"));
        (Var::new(inner, weight) - gradient * 0.1).into_value()
    });
    let updated = updated.collect();
    inner.submit();
    updated
}

#[test]
fn memory_use_of_plans() {
    training_steps_after_the_first_allocate_nothing_and_hit_the_plan_cache();
    the_peak_of_a_plan_is_known_and_below_unfused_ops();
}

fn training_steps_after_the_first_allocate_nothing_and_hit_the_plan_cache() {
    let cpu = Arc::new(Cpu::with_threads(1));
    let fusion = Fusion::with_mode(cpu, Mode::On);
    let tape = Autodiff::new(Arc::new(fusion.clone()), Checkpointing::None);
    let (x, y) = (fusion.write(matrix(256, 128)), fusion.write(matrix(256, 8)));
    let mut weights = vec![fusion.write(matrix(128, 64)), fusion.write(matrix(64, 8))];
    for _ in 0..6 {
        weights = step(&tape, weights, &x, &y);
    }
    // Only a first step plans: once for each kind of step, independent of its number of ops.
    let first = fusion.statistics();
    assert!(first.plans_made <= 3 && first.plans_made + first.plans_found >= 5, "{first:?}");
    let usage = || fusion.memory().expect("the engine keeps account").usage();
    let (warm, plans) = (usage(), fusion.statistics());
    for _ in 0..20 {
        weights = step(&tape, weights, &x, &y);
    }
    let (after, found) = (usage(), fusion.statistics());
    assert_eq!(after.system_allocations, warm.system_allocations, "{warm:?}\n{after:?}");
    assert_eq!(after.live_bytes, warm.live_bytes, "steps leave nothing behind");
    assert_eq!(found.plans_made, plans.plans_made, "a step made a plan: {plans:?} {found:?}");
    assert!(found.plans_found >= plans.plans_found + 20, "{plans:?} {found:?}");
    assert!(found.regions_run > plans.regions_run);
    let weights = weights.into_iter().map(|w| block_on(fusion.read(w)).unwrap().to_vec::<f32>());
    assert!(weights.flatten().all(f32::is_finite));
}

/// Elementwise functions between matmuls, and a loss.
const FORWARD: &str = "program(%0: f32[512, 256], %1: f32[256, 256]) {
  %2: f32[512, 256] = matmul %0, %1
  %3: f32[512, 256] = mul %2, 0.5
  %4: f32[512, 256] = tanh %3
  %5: f32[512, 256] = exp %4
  %6: f32[512, 256] = matmul %5, %1
  %7: f32[512, 256] = sin %6
  %8: f32[512, 256] = mul %7, %7
  %9: f32[1, 1] = reduce_sum %8 {axes = [0, 1]}
  %10: f32[] = reshape %9
  return %10
}
";

fn peak(engine: &dyn Engine, program: &Program) -> usize {
    let run = || {
        let inputs: Vec<Value> = program
            .inputs
            .iter()
            .map(|ty| {
                let list: Vec<f32> = (0..ty.num_elements()).map(|i| (i % 7) as f32 * 0.01).collect();
                engine.write(TensorData::new(list, ty.shape).unwrap())
            })
            .collect();
        let memory = engine.memory().expect("the engine keeps account");
        block_on(engine.sync()).unwrap();
        let before = memory.usage().live_bytes;
        memory.reset_peak();
        let held: Values = inputs.iter().cloned().collect();
        let outputs = program.run(engine, held);
        for output in outputs {
            block_on(engine.read(output)).unwrap();
        }
        memory.usage().peak_live_bytes - before
    };
    // Caches of kernels fill the first time.
    run();
    run()
}

fn the_peak_of_a_plan_is_known_and_below_unfused_ops() {
    let program = gradient_program(&Program::parse(FORWARD).unwrap()).unwrap();
    let planned = Plan::of_program(&program).peak_bytes();
    let fused = peak(&Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::On), &program);
    let eager = peak(&Cpu::with_threads(1), &program);
    println!("planned {planned}, fused {fused}, op by op {eager}");
    // Blocks are a little longer than the tensors in them, and kernels may use a little scratch memory.
    assert!(fused as f64 <= 1.1 * planned as f64 + 65536.0, "planned {planned}, was {fused}");
    assert!(fused < eager, "fused {fused}, op by op {eager}");
}
