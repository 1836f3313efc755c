//! The ops that a loop records and the bodies that fusion plans. It is alone in its process: tests share the counters.

mod lstm;

use kiln_backends::Cpu;
use kiln_fusion::Fusion;
use kiln_tensor::{Autodiff, Backend, Tensor};
use lstm::{EXAMPLES, INPUTS, Weights, drawn, looped, unrolled, weights};

type B = Autodiff<Cpu>;

/// The recorded ops and planned bodies of a forward and backward pass over an LSTM of these steps, with its loss and
/// the gradient of the input.
fn counted(steps: usize, run: fn(Tensor<B, 3>, Weights<B>) -> Tensor<B, 3>) -> (u64, u64) {
    let x = drawn::<B, 3>([steps, EXAMPLES, INPUTS]).require_grad();
    let (w, u, b) = weights::<B>();
    let weights = (w.require_grad(), u.require_grad(), b.require_grad());
    Cpu::sync(&Default::default()).unwrap();
    let stack = Cpu::stack(&Default::default());
    let fusion = stack.find::<Fusion>().expect("Cpu fuses");
    let before = fusion.statistics();
    let all = run(x.clone(), weights.clone());
    let gradients = (all.clone() * all).sum().backward();
    let found = [x.grad(&gradients).unwrap().sum(), weights.0.grad(&gradients).unwrap().sum()];
    found.into_iter().for_each(|sum| assert!(sum.into_data().to_vec::<f64>()[0].is_finite()));
    let after = fusion.statistics();
    (after.ops_recorded - before.ops_recorded, after.bodies_planned - before.bodies_planned)
}

#[test]
fn a_loop_of_many_steps_records_as_many_ops_as_one_of_few() {
    let (few, bodies) = counted(10, |x, weights| looped(x, weights, false).1);
    let (many, later_bodies) = counted(1000, |x, weights| looped(x, weights, false).1);
    assert_eq!(few, many);
    assert_eq!(bodies, 2, "the forward and the backward body");
    assert_eq!(later_bodies, 0, "a body is planned once, for any number of steps");
    let (unrolled, _) = counted(10, |x, weights| unrolled(x, weights, false).1);
    assert!(few * 4 < unrolled, "{few} and {unrolled} ops");
}
