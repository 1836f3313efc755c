//! Steps with changing batch lengths: plans are cached or derived, and values stay correct.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, Op, TensorData, Var, block_on};
use std::sync::Arc;

const WIDTH: usize = 16;

fn fusion(mode: Mode) -> Fusion {
    Fusion::with_mode(Arc::new(Cpu::with_threads(1)), mode)
}

fn write<'e>(engine: &'e dyn Engine, shape: [usize; 2], seed: u32) -> Var<'e> {
    let element =
        |i: usize| ((i as u32).wrapping_mul(2654435761).wrapping_add(seed * 977) % 1000) as f32 / 500.0 - 1.0;
    let list: Vec<f32> = (0..shape.iter().product()).map(element).collect();
    Var::new(engine, engine.write(TensorData::new(list, shape).unwrap()))
}

/// A forward pass, a loss, and sums as in gradients.
fn step(engine: &dyn Engine, length: usize) -> Vec<Vec<f32>> {
    let mut x = write(engine, [length, WIDTH], 1);
    let mut sums = Vec::new();
    for layer in 0..4 {
        let bias = write(engine, [1, WIDTH], 10 + layer).broadcast([length, WIDTH]);
        let y = x.matmul(&write(engine, [WIDTH, WIDTH], layer)) + bias;
        sums.push((y.square() * &x).sum(&[0]).into_value());
        x = y.max(&y.scalar(0.0));
    }
    let logits = x.apply(Op::Softmax { axis: 1, log: true }, &[]);
    let joined = logits.reshape([length * WIDTH]).exp() + 1.0;
    let turned = (logits.swap(0, 1) * 2.0).sum(&[1]);
    sums.extend([logits.sum(&[0, 1]).into_value(), joined.into_value(), turned.into_value()]);
    sums.into_iter().map(|sum| block_on(engine.read(sum)).unwrap().into_vec().unwrap()).collect()
}

fn assert_same(fusion: &Fusion, length: usize) {
    let expected = step(&Cpu::with_threads(1), length);
    for (found, expected) in step(fusion, length).iter().zip(&expected) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "length {length}: {a} != {b}");
        }
    }
}

/// Includes 0, 1, and lengths equal to other axes.
#[test]
fn values_match_the_inner_engine_for_every_length() {
    for mode in [Mode::On, Mode::Check] {
        let fusion = fusion(mode);
        for length in (0..70).chain([WIDTH * WIDTH, 1000, 5000, 3, 0, 1, 16]) {
            assert_same(&fusion, length);
        }
    }
}

#[test]
fn repeated_lengths_make_no_new_plans() {
    let fusion = fusion(Mode::On);
    for length in 100..200 {
        step(&fusion, length);
    }
    let first = fusion.statistics();
    assert!(first.plans_derived >= 80, "{first:?}");
    for length in 100..200 {
        step(&fusion, length);
    }
    let second = fusion.statistics();
    assert_eq!(second.plans_made, first.plans_made, "{first:?} {second:?}");
    assert!(second.plan_bytes == first.plan_bytes && first.plan_bytes > 0, "{first:?} {second:?}");
    assert!(second.plans_found >= first.plans_found + 100, "{first:?} {second:?}");
    // Not equal to the length of another axis.
    step(&fusion, 201);
    let third = fusion.statistics();
    let made = third.plans_made - second.plans_made;
    assert!(made > 0 && third.plans_derived - second.plans_derived == made, "{second:?} {third:?}");
}
