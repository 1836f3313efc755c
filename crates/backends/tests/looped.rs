//! Loops over steps: against the unrolled computation, with gradients, batches and forward mode.

use crate::lstm::{EXAMPLES, INPUTS, State, Weights, drawn, looped, unrolled, weights};
use kiln_backends::{Cpu, Device, Flex};
use kiln_tensor::transform::{grad, hessian, jvp, scan, vmap};
use kiln_tensor::{AnyTensor, Autodiff, Backend, DType, Tensor, loop_for, loop_over};

type Ad = Autodiff<Flex>;

fn numbers<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().to_vec()
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= tolerance * (1.0 + expected.abs()),
            "{found} instead of {expected}"
        );
    }
}

#[test]
fn a_loop_equals_the_unrolled_computation() {
    for reverse in [false, true] {
        for steps in [1, 2, 7] {
            let (x, weights) = (drawn::<Cpu, 3>([steps, EXAMPLES, INPUTS]), weights());
            let ((h, c), all) = looped(x.clone(), weights.clone(), reverse);
            let ((h2, c2), all2) = unrolled(x, weights, reverse);
            close(&numbers(h), &numbers(h2), 1e-5);
            close(&numbers(c), &numbers(c2), 1e-5);
            close(&numbers(all), &numbers(all2), 1e-5);
        }
    }
}

#[test]
fn a_loop_of_no_steps_returns_its_initial_values() {
    let start = drawn::<Ad, 1>([3]).require_grad();
    let x = Tensor::<Ad, 2>::zeros([0, 3], &Default::default());
    let none = Vec::<Tensor<Ad, 1>>::new();
    let body = |h: Tensor<Ad, 1>, x: Tensor<Ad, 1>, _: Vec<Tensor<Ad, 1>>| (h.clone() * x, h);
    let (last, all): (_, Tensor<Ad, 2>) = scan(start.clone(), x, none, false, body);
    assert_eq!(numbers(last.clone()), numbers(start.clone()));
    assert_eq!(all.dims(), [0, 3]);
    let gradients = last.sum().backward();
    assert_eq!(numbers(start.grad(&gradients).unwrap()), [1.0; 3]);
}

#[test]
fn a_thousand_steps_equal_the_unrolled_computation() {
    let (x, weights) = (drawn::<Cpu, 3>([1000, EXAMPLES, INPUTS]), weights());
    let ((h, _), all) = looped(x.clone(), weights.clone(), false);
    let ((h2, _), all2) = unrolled(x, weights, false);
    close(&numbers(h), &numbers(h2), 1e-4);
    close(&numbers(all), &numbers(all2), 1e-4);
}

/// An LSTM over a sequence, forward or in reverse.
type Run<B> = fn(Tensor<B, 3>, Weights<B>, bool) -> (State<B>, Tensor<B, 3>);

#[test]
fn gradients_equal_those_of_the_unrolled_computation() {
    type B = Autodiff<Cpu>;
    for reverse in [false, true] {
        let x = drawn::<B, 3>([6, EXAMPLES, INPUTS]).require_grad();
        let (w, u, b) = weights::<B>();
        let weights = (w.require_grad(), u.require_grad(), b.require_grad());
        let run = |run: Run<B>| {
            let ((h, c), all) = run(x.clone(), weights.clone(), reverse);
            let gradients = (h.sum() + (c.clone() * c).sum() + (all.clone() * all).sum()).backward();
            let of = [numbers(x.grad(&gradients).unwrap()), numbers(weights.0.grad(&gradients).unwrap())];
            let more =
                [numbers(weights.1.grad(&gradients).unwrap()), numbers(weights.2.grad(&gradients).unwrap())];
            [of, more].concat()
        };
        for (found, expected) in run(looped).iter().zip(run(unrolled)) {
            close(found, &expected, 1e-4);
        }
    }
}

/// `h = tanh(h w + x)`: the sum of all outputs.
fn cell_sum<B: Backend>((h, x, w): (Tensor<B, 1>, Tensor<B, 2>, Tensor<B, 1>)) -> Tensor<B, 1> {
    let body = |h: Tensor<B, 1>, x: Tensor<B, 1>, w: Tensor<B, 1>| {
        let h = (h * w + x).tanh();
        (h.clone(), h)
    };
    let (_, all): (_, Tensor<B, 2>) = scan(h, x, w, false, body);
    all.sum()
}

#[test]
fn forward_and_reverse_mode_agree() {
    let arguments = || (drawn::<Flex, 1>([3]), drawn::<Flex, 2>([4, 3]), drawn::<Flex, 1>([3]));
    let (at, direction) = (arguments(), arguments());
    let (_, along) = jvp(cell_sum::<kiln_tensor::Forward<Flex>>, at.clone(), direction.clone());
    let (h, x, w) = grad(cell_sum::<Ad>)(at.clone());
    let products = [numbers(h * direction.0), numbers(x * direction.1), numbers(w * direction.2.clone())];
    close(&numbers(along), &[products.concat().iter().sum()], 1e-5);
}

/// The initial value, the scanned rows and the constant of a loop.
type Operands<B> = (Tensor<B, 1>, Tensor<B, 2>, Tensor<B, 1>);
type Sum<B> = fn(Operands<B>) -> Tensor<B, 1>;

/// A function of one vector, through the initial value, the scanned rows and the constant of a loop.
fn of_vector<B: Backend>(w: Tensor<B, 1>, run: Sum<B>) -> Tensor<B, 1> {
    let rows = [w.clone(), w.clone() * 2.0, w.clone() * 0.3 + 0.1].map(|row| row.unsqueeze::<2>());
    run((w.clone() * 0.5, Tensor::cat(rows.to_vec(), 0), w))
}

fn unrolled_sum<B: Backend>((mut h, x, w): Operands<B>) -> Tensor<B, 1> {
    let mut sum = h.clone().sum() * 0.0;
    for step in 0..x.dims()[0] {
        h = (h * w.clone() + x.clone().narrow(0, step, 1).squeeze_dim::<1>(0)).tanh();
        sum += h.clone().sum();
    }
    sum
}

#[test]
fn second_derivatives_equal_those_of_the_unrolled_computation() {
    type B = Autodiff<kiln_tensor::Forward<Flex>>;
    let w = Tensor::<Flex, 1>::from_floats([0.4, -0.7, 1.1], &Default::default());
    let found: Tensor<Flex, 2> = hessian(|w: Tensor<B, 1>| of_vector(w, cell_sum))(w.clone());
    let expected: Tensor<Flex, 2> = hessian(|w: Tensor<B, 1>| of_vector(w, unrolled_sum))(w.clone());
    close(&numbers(found), &numbers(expected), 1e-4);

    type B2 = Autodiff<Ad>;
    let slope = |run: Sum<B2>| {
        grad(move |w: Tensor<Ad, 1>| grad(move |w: Tensor<B2, 1>| of_vector(w, run))(w).sum())(w.clone())
    };
    close(&numbers(slope(cell_sum)), &numbers(slope(unrolled_sum)), 1e-4);
}

#[test]
fn a_batch_of_loops_equals_separate_loops() {
    type V = kiln_tensor::Vmap<Flex>;
    let (h, x, w) = (drawn::<Flex, 2>([5, 3]), drawn::<Flex, 3>([5, 4, 3]), drawn::<Flex, 2>([5, 3]));
    let all: Tensor<Flex, 2> = vmap(cell_sum::<V>)((h.clone(), x.clone(), w.clone()));
    for example in 0..5 {
        let h = h.clone().narrow(0, example, 1).squeeze_dim::<1>(0);
        let x = x.clone().narrow(0, example, 1).squeeze_dim::<2>(0);
        let w = w.clone().narrow(0, example, 1).squeeze_dim::<1>(0);
        let found = numbers(all.clone().narrow(0, example, 1));
        close(&found, &numbers(cell_sum((h, x, w))), 1e-5);
    }
}

#[test]
fn errors_name_the_problem() {
    let device = Device::cpu();
    let of = |data: &[f32]| AnyTensor::from_data(data.to_vec(), &device);
    let message = |result: kiln_tensor::Result<_>| -> String {
        let result: kiln_tensor::Result<kiln_tensor::LoopResults> = result;
        result.unwrap_err().to_string()
    };
    let no_steps = loop_over(vec![of(&[1.0])], vec![], vec![], false, |_, _, _| Ok((vec![], vec![])));
    assert!(message(no_steps).contains("there is no scanned tensor"));
    let lengths =
        loop_over(vec![], vec![of(&[1.0]), of(&[1.0, 2.0])], vec![], false, |_, _, _| Ok((vec![], vec![])));
    assert!(message(lengths).contains("different numbers of steps"));
    let outside = of(&[2.0]);
    let captured = loop_for(3, vec![of(&[1.0])], vec![], |carried, _| {
        Ok((vec![carried[0].clone().mul(outside.clone())?], vec![]))
    });
    assert!(message(captured).contains("different devices"));
    let wider = loop_for(3, vec![of(&[1.0])], vec![], |carried, _| {
        Ok((vec![carried[0].clone().cast(DType::F64)?], vec![]))
    });
    let text = message(wider);
    assert!(text.contains("the carried value 0 is f32[1] before a step and f64[1] after it"), "{text}");
    let fewer = loop_for(3, vec![of(&[1.0])], vec![], |_, _| Ok((vec![], vec![])));
    assert!(message(fewer).contains("the body returns 0 carried values instead of 1"));
}

#[test]
fn data_that_the_body_creates_is_a_constant() {
    let x = AnyTensor::from_data(vec![1.0f32], &Device::cpu());
    let (last, _) = loop_for(4, vec![x], vec![], |carried, _| {
        let factor = AnyTensor::from_data(vec![3.0f32], carried[0].stack());
        Ok((vec![carried[0].clone().mul(factor)?], vec![]))
    })
    .unwrap();
    assert_eq!(last[0].to_data().unwrap().to_vec::<f32>(), [81.0]);
}
