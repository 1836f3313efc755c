//! A step of a recurrent network is two matmuls, the second with the gate sums as epilogue, and one kernel for the
//! gates, the cell and the new state. All other steps are views.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, SliceAxis, TensorData, Value, Var, block_on};
use std::sync::Arc;

const BATCH: usize = 6;
const INPUTS: usize = 20;
const HIDDEN: usize = 37;

fn write<'e>(engine: &'e dyn Engine, shape: [usize; 2], seed: u32) -> Var<'e> {
    let element =
        |i: usize| ((i as u32).wrapping_mul(2654435761).wrapping_add(seed * 977) % 1000) as f32 / 500.0 - 1.0;
    let list: Vec<f32> = (0..shape.iter().product()).map(element).collect();
    Var::new(engine, engine.write(TensorData::new(list, shape).unwrap()))
}

fn sigmoid<'e>(x: &Var<'e>) -> Var<'e> {
    ((x * -1.0).exp() + 1.0).recip()
}

/// Part `gate` of the columns.
fn part<'e>(x: &Var<'e>, gate: usize) -> Var<'e> {
    x.slice_axis(1, SliceAxis::range(gate * HIDDEN..(gate + 1) * HIDDEN))
}

/// `x W`, `h U` and a bias, for a number of gates: `[batch, gates * hidden]` each.
fn products(engine: &dyn Engine, gates: usize) -> [Var<'_>; 3] {
    let columns = gates * HIDDEN;
    let (x, h) = (write(engine, [BATCH, INPUTS], 1), state(engine));
    let bias = write(engine, [1, columns], 5).broadcast([BATCH, columns]);
    let given = x.matmul(&write(engine, [INPUTS, columns], 2));
    [given, h.matmul(&write(engine, [HIDDEN, columns], 3)), bias]
}

fn state(engine: &dyn Engine) -> Var<'_> {
    write(engine, [BATCH, HIDDEN], 4)
}

/// Long short-term memory ([Hochreiter and Schmidhuber 1997](https://doi.org/10.1162/neco.1997.9.8.1735)): the new state and
/// the new cell.
fn lstm(engine: &dyn Engine) -> Vec<Value> {
    let [given, kept, bias] = products(engine, 4);
    let gates = given + kept + bias;
    let cell = write(engine, [BATCH, HIDDEN], 6);
    let [input, forget, output] = [0, 1, 3].map(|gate| sigmoid(&part(&gates, gate)));
    let cell = forget * cell + input * part(&gates, 2).tanh();
    let state = output * cell.tanh();
    vec![state.into_value(), cell.into_value()]
}

/// Gated recurrent unit ([Cho et al. 2014](https://arxiv.org/abs/1406.1078)): the new state.
fn gru(engine: &dyn Engine) -> Vec<Value> {
    let [given, kept, bias] = products(engine, 3);
    let given = given + bias;
    let [reset, update] = [0, 1].map(|gate| sigmoid(&(part(&given, gate) + part(&kept, gate))));
    let new = (part(&given, 2) + reset * part(&kept, 2)).tanh();
    let state = &new + &(update * (state(engine) - &new));
    vec![state.into_value()]
}

fn read(engine: &dyn Engine, values: Vec<Value>) -> Vec<f32> {
    let list = |value| block_on(engine.read(value)).unwrap().into_vec::<f32>().unwrap();
    values.into_iter().flat_map(list).collect()
}

fn takes_three_kernels(step: impl for<'e> Fn(&'e dyn Engine) -> Vec<Value>) {
    let plain = Cpu::with_threads(1);
    let expected = read(&plain, step(&plain));
    let fusion = Fusion::with_mode(Arc::new(Cpu::with_threads(2)), Mode::On);
    let values = step(&fusion);
    let steps = fusion.explain(&values[0]);
    let found = read(&fusion, values);
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-5, "{a} instead of {b}");
    }
    let count = |name: &str| steps.lines().filter(|line| line.contains(name)).count();
    let all = steps.lines().filter(|line| line.contains("] = ")).count();
    assert_eq!(count("= matmul"), 1, "{steps}");
    assert_eq!(count("= one kernel: matmul, add"), 1, "{steps}");
    assert_eq!(count("= one kernel"), 2, "{steps}");
    assert_eq!(all, 3 + count("= broadcast") + count("= slice"), "{steps}");
}

#[test]
fn an_lstm_step_runs_as_three_kernels() {
    takes_three_kernels(lstm);
}

#[test]
fn a_gru_step_runs_as_three_kernels() {
    takes_three_kernels(gru);
}
