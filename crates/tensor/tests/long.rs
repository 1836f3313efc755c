//! Long recurrences: 2,000 steps over one tensor, forward and backward.

use kiln_backends::{Cpu, Flex};
use kiln_tensor::loss::CtcOptions;
use kiln_tensor::{Autodiff, AutodiffBackend, Int, Tensor, activation, loss};

const TIME: usize = 2000;

fn wave<B: AutodiffBackend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    let count: usize = shape.iter().product();
    let numbers: Vec<f32> = (0..count).map(|i| (i as f32 * 0.7).sin() * 0.5).collect();
    Tensor::<B, 1>::from_floats(numbers, device).reshape(shape).require_grad()
}

/// The gradients of an unrolled recurrent network for its input and its weight.
fn recurrence<B: AutodiffBackend>(device: &B::Device) -> [Vec<f32>; 2] {
    let x = wave::<B, 3>([TIME, 2, 8], device);
    let weight = wave::<B, 2>([8, 8], device);
    let mut state = Tensor::<B, 2>::zeros([2, 8], device);
    let mut states = Vec::new();
    for step in x.clone().split(1, 0) {
        state = (step.reshape([2, 8]) + state.matmul(weight.clone())).tanh();
        states.push(state.clone());
    }
    let loss = Tensor::stack::<3>(states, 0).powf_scalar(2.0).mean();
    let gradients = loss.backward();
    [
        x.grad(&gradients).expect("of the input").into_data().to_vec(),
        weight.grad(&gradients).expect("of the weight").into_data().to_vec(),
    ]
}

/// The gradient of the classification of a sequence for its logits.
fn classification<B: AutodiffBackend>(device: &B::Device) -> Vec<f32> {
    let logits = wave::<B, 3>([TIME, 2, 5], device);
    let ints = |x: Vec<i32>| Tensor::<B, 1, Int>::from_ints(x, device);
    let targets = ints((0..40).map(|i| 1 + i % 4).collect()).reshape([2, 20]);
    let log = activation::log_softmax(logits.clone(), 2);
    let lengths = (ints(vec![TIME as i32, TIME as i32 - 500]), ints(vec![20, 15]));
    let loss = loss::ctc(log, targets, lengths.0, lengths.1, CtcOptions::default());
    let gradients = loss.backward();
    logits.grad(&gradients).expect("of the logits").into_data().to_vec()
}

#[track_caller]
fn close(actual: &[f32], expected: &[f32]) {
    let greatest = expected.iter().fold(0f32, |greatest, x| greatest.max(x.abs()));
    assert!(greatest > 0.0 && greatest.is_finite());
    for (actual, expected) in actual.iter().zip(expected) {
        assert!((actual - expected).abs() <= 1e-3 * greatest, "{actual} instead of {expected}");
    }
}

#[test]
fn a_recurrent_network_of_2000_steps() {
    let eager = recurrence::<Autodiff<Flex>>(&Default::default());
    let fused = recurrence::<Autodiff<Cpu>>(&Default::default());
    assert_eq!(eager[0].len(), TIME * 16);
    eager.iter().zip(&fused).for_each(|(eager, fused)| close(fused, eager));
}

#[test]
fn a_sequence_of_2000_steps_is_classified() {
    let eager = classification::<Autodiff<Flex>>(&Default::default());
    // The gradient beyond an example's length is 0.
    assert!(eager[(TIME - 1) * 10..][5..].iter().all(|&x| x == 0.0));
    let fused = classification::<Autodiff<Cpu>>(&Default::default());
    close(&fused, &eager);
}
