//! Matrices under function transforms: vmap, JVPs, second derivatives.

use kiln_backends::Flex;
use kiln_linalg::{Side, Triangle, cholesky, eigvalsh, inverse, logdet, solve};
use kiln_tensor::transform::{grad, hessian, jacobian, jacobian_forward, vmap};
use kiln_tensor::{AnyTensor, Autodiff, Backend, Forward, Kind, Tensor, Vmap};

fn matrices() -> Tensor<Flex, 3> {
    let numbers = vec![4.0f64, 1.0, 1.0, 3.0, 2.0, -0.5, -0.5, 5.0];
    let all = AnyTensor::from_data(numbers, &Flex::stack(&Default::default()));
    Tensor::<Flex, 1>::from_any(all).reshape([2, 2, 2])
}

fn matrix(number: usize) -> Tensor<Flex, 2> {
    matrices().narrow(0, number, 1).reshape([2, 2])
}

#[track_caller]
fn close<B: Backend, const D: usize, const E: usize, K: Kind>(
    found: Tensor<B, D, K>,
    expected: Tensor<B, E, K>,
) {
    let (found, expected) = (found.into_data().to_vec::<f64>(), expected.into_data().to_vec::<f64>());
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{found:?} instead of {expected:?}");
    }
}

/// A function of a symmetric matrix by several decompositions.
fn several<B: Backend>(a: Tensor<B, 2>) -> Tensor<B, 1> {
    let a = (a.clone() + a.transpose()) * 0.5;
    let right = Tensor::<B, 2>::from_any(a.as_any().clone()).exp();
    let x = solve(a.clone(), right, Side::Left);
    let values: Tensor<B, 1> = eigvalsh(a.clone(), Triangle::Lower);
    let weights = Tensor::<B, 1>::from_floats([1.0, 2.0], &a.device()).cast(a.dtype());
    x.sum() + cholesky(a.clone(), Triangle::Lower).sum() + (values * weights).sum() + inverse(a).sum()
}

#[test]
fn vmap_over_examples_is_a_batch_of_matrices() {
    let found: Tensor<Flex, 3> = vmap(|a: Tensor<Vmap<Flex>, 2>| inverse(a))(matrices());
    close(found, inverse(matrices()));
    let each: Tensor<Flex, 2> = vmap(several::<Vmap<Flex>>)(matrices());
    close(each, Tensor::cat(vec![several(matrix(0)), several(matrix(1))], 0));
}

#[test]
fn gradients_of_each_matrix() {
    let each: Tensor<Flex, 3> = vmap(grad(several::<Autodiff<Vmap<Flex>>>))(matrices());
    let below = grad(|a: Tensor<Autodiff<Flex>, 3>| {
        let all: Tensor<Autodiff<Flex>, 2> = vmap(several::<Vmap<Autodiff<Flex>>>)(a);
        all.sum()
    })(matrices());
    for number in 0..2 {
        let alone = grad(several::<Autodiff<Flex>>)(matrix(number));
        close(each.clone().narrow(0, number, 1), alone.clone());
        close(below.clone().narrow(0, number, 1), alone);
    }
}

#[test]
fn forward_mode_agrees_with_reverse_mode() {
    let reverse: Tensor<Flex, 3> = jacobian(several::<Autodiff<Flex>>)(matrix(0));
    let forward: Tensor<Flex, 3> = jacobian_forward(several::<Forward<Flex>>)(matrix(0));
    close(forward, reverse);
}

#[test]
fn the_hessian_of_a_log_determinant() {
    fn f<B: Backend>(a: Tensor<B, 2>) -> Tensor<B, 1> {
        logdet::<B, 2, 0>(a).reshape([1])
    }
    let h: Tensor<Flex, 4> = hessian(f::<Autodiff<Forward<Flex>>>)(matrix(0));
    // d² log det A / dA_ij dA_kl = -(A⁻¹)_jk (A⁻¹)_li.
    let inverse = inverse(matrix(0)).into_data().to_vec::<f64>();
    let at = |i: usize, j: usize| inverse[2 * i + j];
    let indices = (0..16).map(|n| (n >> 3 & 1, n >> 2 & 1, n >> 1 & 1, n & 1));
    let expected: Vec<f64> = indices.map(|(i, j, k, l)| -at(j, k) * at(l, i)).collect();
    let expected = AnyTensor::from_data(expected, &Flex::stack(&Default::default()));
    close(h, Tensor::<Flex, 1>::from_any(expected));
}
