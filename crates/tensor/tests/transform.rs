//! Transforms: against analytic results, against each other and finite differences, nested, and on edge shapes.

use kiln_backends::{Dyn, Flex};
use kiln_tensor::transform::{
    Randomness, VmapOptions, grad, hessian, hessian_vector_product, jacobian, jacobian_forward, jvp,
    value_and_grad, value_and_grad_with_aux, vjp, vmap, vmap_with,
};
use kiln_tensor::{
    AnyTensor, Autodiff, AutodiffBackend, Backend, Distribution, Float, Forward, Int, Kind, Tensor,
    TensorData, Vmap, activation, module,
};

type Ad = Autodiff<Flex>;
type Fw = Forward<Flex>;
type Vm = Vmap<Flex>;

fn floats<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D> {
    Tensor::from_any(AnyTensor::from_data(data, &Flex::stack(&Default::default())))
}

fn dynamic(data: Vec<f64>, device: &kiln_backends::Device) -> Tensor<Dyn, 1> {
    Tensor::from_any(AnyTensor::from_data(data, device))
}

fn numbers<B: Backend, const D: usize, K: Kind>(x: Tensor<B, D, K>) -> Vec<f64> {
    x.into_data().to_vec::<f64>()
}

#[track_caller]
fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?} instead of {expected:?}");
    for (found_one, expected_one) in found.iter().zip(expected) {
        let agrees = (found_one - expected_one).abs() <= tolerance * (1.0 + expected_one.abs());
        assert!(agrees, "{found:?} instead of {expected:?}");
    }
}

#[track_caller]
fn message(body: impl FnOnce()) -> String {
    let error = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).expect_err("it fails");
    error.downcast_ref::<String>().cloned().expect("the message is a text")
}

/// A smooth function of a vector, in `f64`: `Σ sin(x) · exp(mean(x²))`.
fn smooth<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    let scale = (x.clone() * x.clone()).mean().exp();
    x.sin().sum() * scale
}

/// A smooth function from three elements to four.
fn wide<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    Tensor::cat(vec![x.clone().tanh() * x.clone().sum(), (x.clone() * x).prod().exp()], 0)
}

fn point() -> Tensor<Flex, 1> {
    floats(vec![0.3f64, -0.7, 1.1])
}

fn step(place: usize, h: f64) -> Tensor<Flex, 1> {
    let mut x = vec![0.0f64; 3];
    x[place] = h;
    point() + floats(x)
}

/// Central differences by each element of the [`point`], one row for each.
fn differences(f: impl Fn(Tensor<Flex, 1>) -> Vec<f64>) -> Vec<Vec<f64>> {
    let h = 1e-5;
    let row = |place| {
        let (after, before) = (f(step(place, h)), f(step(place, -h)));
        after.iter().zip(before).map(|(a, b)| (a - b) / (2.0 * h)).collect()
    };
    (0..3).map(row).collect()
}

fn transposed(rows: Vec<Vec<f64>>) -> Vec<f64> {
    (0..rows[0].len()).flat_map(|i| rows.iter().map(move |row| row[i]).collect::<Vec<_>>()).collect()
}

// Reverse mode.

#[test]
fn gradients_agree_with_finite_differences() {
    let expected = transposed(differences(|x| numbers(smooth(x))));
    close(&numbers(grad(smooth::<Ad>)(point())), &expected, 1e-8);
    let (value, gradient) = value_and_grad(&smooth::<Ad>)(point());
    close(&numbers(value), &numbers(smooth(point())), 1e-14);
    close(&numbers(gradient), &expected, 1e-8);
}

#[test]
fn gradients_have_the_structure_of_the_argument() {
    let f = |(a, rest): (Tensor<Ad, 1>, Vec<[Tensor<Ad, 2>; 2]>)| {
        let all = rest.into_iter().map(|[b, c]| (b * c).sum()).reduce(|x, y| x + y).expect("two pairs");
        all * a.sum()
    };
    let pair = |x: f64| [floats::<2>([[x]]), floats::<2>([[10.0 * x]])];
    let (a, rest) = grad(f)((floats(vec![2.0f64, 1.0]), vec![pair(1.0), pair(2.0)]));
    assert_eq!(numbers(a), [50.0, 50.0]);
    let rest: Vec<f64> = rest.into_iter().flatten().flat_map(numbers).collect();
    assert_eq!(rest, [30.0, 3.0, 60.0, 6.0]);
}

#[test]
fn integer_arguments_have_zero_gradients() {
    let f = |(x, index): (Tensor<Ad, 1>, Tensor<Ad, 1, Int>)| x.select(0, index).sum();
    let index = Tensor::<Flex, 1, Int>::from_ints([2, 2, 0], &Default::default());
    let (x, index) = grad(f)((point(), index));
    assert_eq!(numbers(x), [1.0, 0.0, 2.0]);
    assert_eq!(numbers(index), [0.0, 0.0, 0.0]);
}

#[test]
fn unused_arguments_have_a_zero_gradient() {
    let f = |(x, _y): (Tensor<Ad, 1>, Tensor<Ad, 1>)| x.sum();
    let (x, y) = grad(f)((point(), point()));
    assert_eq!(numbers(x), [1.0; 3]);
    assert_eq!(numbers(y), [0.0; 3]);
    let constant = |x: Tensor<Ad, 1>| Tensor::<Ad, 1>::ones([1], &x.device());
    assert_eq!(numbers(grad(constant)(point())), [0.0; 3]);
    assert_eq!(numbers(jacobian::<Ad, _, 1, 1, 2>(constant)(point())), [0.0; 3]);
}

#[test]
fn auxiliary_results_are_not_differentiated() {
    let f = |x: Tensor<Ad, 1>| (x.clone().sum(), (x.clone(), x.exp()));
    let (value, gradient, (same, exp)) = value_and_grad_with_aux(f)(point());
    close(&numbers(value), &[0.7], 1e-14);
    assert_eq!(numbers(gradient), [1.0; 3]);
    assert_eq!(numbers(same), numbers(point()));
    close(&numbers(exp), &numbers(point().exp()), 1e-14);
}

#[test]
fn vjp_pulls_back_through_several_results_repeatedly() {
    let f = |x: Tensor<Ad, 1>| (&x * &x, x.sum(), Tensor::<Ad, 1, Int>::zeros([2], &Default::default()));
    let ((squares, sum, ints), pull_back) = vjp(f, point());
    close(&numbers(squares), &[0.09, 0.49, 1.21], 1e-12);
    close(&numbers(sum), &[0.7], 1e-12);
    let pull = |a: [f64; 3], b: f64| pull_back((floats(a.to_vec()), floats(vec![b]), ints.clone()));
    close(&numbers(pull([1.0, 0.0, 0.0], 0.0)), &[0.6, 0.0, 0.0], 1e-12);
    close(&numbers(pull([0.0, 1.0, 0.0], 5.0)), &[5.0, 3.6, 5.0], 1e-12);
}

#[test]
fn forward_and_reverse_jacobians_agree_with_finite_differences() {
    let expected = transposed(differences(|x| numbers(wide(x))));
    let reverse: Tensor<Flex, 2> = jacobian(wide::<Ad>)(point());
    let forward: Tensor<Flex, 2> = jacobian_forward(wide::<Fw>)(point());
    assert_eq!(reverse.dims(), [4, 3]);
    assert_eq!(forward.dims(), [4, 3]);
    close(&numbers(reverse), &expected, 1e-8);
    close(&numbers(forward), &expected, 1e-8);
}

#[test]
fn jacobians_of_matrices() {
    fn f<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
        x.clone().matmul(x)
    }
    let x = || floats::<2>([[1.0f64, 2.0], [3.0, 4.0]]);
    let reverse: Tensor<Flex, 4> = jacobian(f::<Ad>)(x());
    let forward: Tensor<Flex, 4> = jacobian_forward(f::<Fw>)(x());
    assert_eq!(numbers(reverse.clone()), numbers(forward));
    // y[0, 0] = x00² + x01 x10, y[0, 1] = x00 x01 + x01 x11.
    assert_eq!(numbers(reverse)[..8], [2.0, 3.0, 2.0, 0.0, 2.0, 5.0, 0.0, 2.0]);
}

#[test]
fn jacobians_of_empty_tensors() {
    let empty = || floats::<1>(Vec::<f64>::new());
    let reverse: Tensor<Flex, 2> = jacobian(|x: Tensor<Ad, 1>| x.exp())(empty());
    let forward: Tensor<Flex, 2> = jacobian_forward(|x: Tensor<Fw, 1>| x.exp())(empty());
    assert_eq!((reverse.dims(), forward.dims()), ([0, 0], [0, 0]));
    let sum: Tensor<Flex, 2> = jacobian(|x: Tensor<Ad, 1>| x.sum())(empty());
    assert_eq!(sum.dims(), [1, 0]);
    assert_eq!(grad(|x: Tensor<Ad, 1>| x.sum())(empty()).dims(), [0]);
}

// Forward mode.

#[test]
fn jvps_agree_with_gradients() {
    let direction = || floats::<1>(vec![1.0f64, -2.0, 0.5]);
    let (value, change) = jvp(smooth::<Fw>, point(), direction());
    close(&numbers(value), &numbers(smooth(point())), 1e-14);
    let expected = (grad(smooth::<Ad>)(point()) * direction()).sum();
    close(&numbers(change), &numbers(expected), 1e-12);
}

#[test]
fn results_independent_of_the_input_have_zero_tangents() {
    let f = |(x, n): (Tensor<Fw, 1>, Tensor<Fw, 1, Int>)| {
        (x.clone().int(), n.clone().float() * 2, x.lift(point()) * 3, x.exp())
    };
    let n = || Tensor::<Flex, 1, Int>::from_ints([5, 6], &Default::default());
    let (_, (int, n2, lifted, exp)) = jvp(f, (point(), n()), (floats(vec![1.0f64, 0.0, 0.0]), n()));
    assert_eq!(numbers(int), [0.0; 3]);
    assert_eq!(numbers(n2), [0.0; 2]);
    assert_eq!(numbers(lifted), [0.0; 3]);
    close(&numbers(exp), &[0.3f64.exp(), 0.0, 0.0], 1e-14);
}

// Second order.

#[test]
fn hessians_agree_with_finite_differences() {
    let expected = transposed(differences(|x| numbers(grad(smooth::<Ad>)(x))));
    let forward_over_reverse: Tensor<Flex, 2> = hessian(smooth::<Autodiff<Fw>>)(point());
    close(&numbers(forward_over_reverse.clone()), &expected, 1e-7);
    let reverse_over_reverse: Tensor<Flex, 2> = jacobian(grad(smooth::<Autodiff<Ad>>))(point());
    let reverse_over_forward: Tensor<Flex, 2> = jacobian(|x: Tensor<Ad, 1>| -> Tensor<Ad, 1> {
        jacobian_forward::<_, _, 1, 1, 2>(smooth::<Forward<Ad>>)(x).squeeze_dim(0)
    })(point());
    let forward_over_forward: Tensor<Flex, 2> = jacobian_forward(|x: Tensor<Fw, 1>| -> Tensor<Fw, 1> {
        jacobian_forward::<_, _, 1, 1, 2>(smooth::<Forward<Fw>>)(x).squeeze_dim(0)
    })(point());
    let expected = numbers(forward_over_reverse);
    for found in [reverse_over_reverse, reverse_over_forward, forward_over_forward] {
        close(&numbers(found), &expected, 1e-10);
    }
}

#[test]
fn hessian_vector_products_are_hessian_columns() {
    let h = numbers(hessian::<Autodiff<Fw>, _, 1, 1, 2>(smooth)(point()));
    let direction = floats::<1>(vec![0.0f64, 1.0, 0.0]);
    let (gradient, product) = hessian_vector_product(smooth::<Autodiff<Fw>>, point(), direction);
    close(&numbers(product), &[h[1], h[4], h[7]], 1e-12);
    close(&numbers(gradient), &numbers(grad(smooth::<Ad>)(point())), 1e-12);
}

#[test]
fn a_linear_function_has_a_zero_hessian() {
    let h: Tensor<Flex, 2> = hessian(|x: Tensor<Autodiff<Fw>, 1>| x.sum())(point());
    assert_eq!(numbers(h), [0.0; 9]);
}

#[test]
fn third_derivatives() {
    let quintic = |x: Tensor<Autodiff<Autodiff<Ad>>, 1>| x.powf_scalar(5.0);
    let third = grad(grad(grad(quintic)))(floats(vec![2.0f64]));
    close(&numbers(third), &[60.0 * 4.0], 1e-12);
}

// Batches.

#[test]
fn in_axes_and_out_axes_select_the_batch_axis() {
    let f = |(a, b): (Tensor<Vm, 1>, Tensor<Vm, 1>)| (a.clone() - b.clone(), (a * b).sum());
    let a = || floats::<2>([[1.0f64, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let b = floats::<1>(vec![10.0f64, 1.0]);
    let options = VmapOptions::default().in_axes([Some(0), None]).out_axes([1, 0]);
    let (difference, dot): (Tensor<Flex, 2>, Tensor<Flex, 2>) = vmap_with(options, f)((a(), b));
    assert_eq!(difference.dims(), [2, 3]);
    assert_eq!(numbers(difference), [-9.0, -7.0, -5.0, 1.0, 3.0, 5.0]);
    assert_eq!(numbers(dot), [12.0, 34.0, 56.0]);
    let rows: Tensor<Flex, 2> =
        vmap_with(VmapOptions::default().in_axes([Some(1)]), |x: Tensor<Vm, 1>| x.sum())(a());
    assert_eq!(numbers(rows), [9.0, 12.0]);
}

#[test]
fn maps_are_arguments_with_one_batch_axis() {
    type Map = std::collections::BTreeMap<String, Tensor<Flex, 1>>;
    let map =
        |a: f64, b: f64| -> Map { Map::from([("a".into(), floats(vec![a])), ("b".into(), floats(vec![b]))]) };
    type Inside<B> = std::collections::BTreeMap<String, Tensor<B, 1>>;
    let f = |(weights, x): (Inside<Autodiff<Vm>>, Tensor<Autodiff<Vm>, 1>)| {
        (weights["a"].clone() * x.clone() + weights["b"].clone() * x.square()).sum()
    };
    let options = VmapOptions::default().in_axes([None, Some(0)]);
    type Result = (std::collections::BTreeMap<String, Tensor<Flex, 2>>, Tensor<Flex, 2>);
    let (by_weights, by_x): Result =
        vmap_with(options, grad(f))((map(2.0, 5.0), floats::<2>([[1.0f64], [2.0], [3.0]])));
    assert_eq!(numbers(by_weights["a"].clone()), [1.0, 2.0, 3.0]);
    assert_eq!(numbers(by_weights["b"].clone()), [1.0, 4.0, 9.0]);
    assert_eq!(numbers(by_x), [12.0, 22.0, 32.0]);

    let text = message(|| {
        let direction = Map::from([("a".into(), floats(vec![1.0f64])), ("c".into(), floats(vec![1.0f64]))]);
        let _ = jvp(|weights: Inside<Fw>| weights["a"].clone(), map(1.0, 2.0), direction);
    });
    assert!(text.contains("the direction is {a: tensor, c: tensor}, not {a: tensor, b: tensor}"), "{text}");
}

#[test]
fn vmap_chunk_size_does_not_change_results() {
    let f = |x: Tensor<Vm, 1>| (x.clone().exp(), x.sum());
    let x = || floats::<1>((0..14).map(f64::from).collect::<Vec<_>>()).reshape([7, 2]);
    let x = || -> Tensor<Flex, 2> { x() / 10 };
    let whole: (Tensor<Flex, 2>, Tensor<Flex, 2>) = vmap(f)(x());
    for size in [1, 2, 3, 7, 100] {
        let options = VmapOptions::default().chunk_size(size).out_axes([1, 0]);
        let parts: (Tensor<Flex, 2>, Tensor<Flex, 2>) = vmap_with(options, f)(x());
        assert_eq!(numbers(parts.0.transpose()), numbers(whole.0.clone()), "{size}");
        assert_eq!(numbers(parts.1), numbers(whole.1.clone()), "{size}");
    }
}

#[test]
fn vmap_over_one_and_zero_examples() {
    let f = |x: Tensor<Vm, 1>| activation::softmax(x, 0);
    let one: Tensor<Flex, 2> = vmap(f)(floats::<2>([[0.0f64, 0.0]]));
    assert_eq!(numbers(one), [0.5, 0.5]);
    let none: Tensor<Flex, 2> = vmap(f)(floats::<2>([[0.0f64, 0.0]]).slice([0..0, 0..2]));
    assert_eq!(none.dims(), [0, 2]);
    let slopes: Tensor<Flex, 2> =
        vmap(grad(smooth::<Autodiff<Vm>>))(floats::<2>([[0.0f64, 0.0]]).slice([0..0, 0..2]));
    assert_eq!(slopes.dims(), [0, 2]);
}

#[test]
fn nested_vmap() {
    let dot = |(a, b): (Tensor<Vmap<Vm>, 1>, Tensor<Vmap<Vm>, 1>)| (a * b).sum();
    // All pairs of rows: the outer batch over the rows of a, the inner over those of b.
    let table = |(a, b): (Tensor<Vm, 1>, Tensor<Vm, 2>)| -> Tensor<Vm, 2> {
        vmap_with(VmapOptions::default().in_axes([None, Some(0)]), dot)((a, b))
    };
    let a = || floats::<2>([[1.0f64, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let options = VmapOptions::default().in_axes([Some(0), None]);
    let found: Tensor<Flex, 3> = vmap_with(options, table)((a(), a()));
    assert_eq!(found.dims(), [3, 3, 1]);
    assert_eq!(numbers(found), numbers(a().matmul(a().transpose())));
}

/// A small network and its loss for one example.
fn loss<B: Backend>((w, b, x, y): (Tensor<B, 2>, Tensor<B, 1>, Tensor<B, 1>, Tensor<B, 1>)) -> Tensor<B, 1> {
    let hidden = x.unsqueeze_dim::<2>(0).matmul(w).squeeze_dim::<1>(0) + b;
    let error = hidden.tanh() - y;
    (error.clone() * error).mean()
}

type Network<B> = (Tensor<B, 2>, Tensor<B, 1>, Tensor<B, 2>, Tensor<B, 2>);

fn network() -> Network<Flex> {
    let fill = |n: usize, by: f64| (0..n).map(|i| (i as f64 * by).sin()).collect::<Vec<_>>();
    (
        floats::<1>(fill(6, 0.7)).reshape([3, 2]),
        floats(fill(2, 1.3)),
        floats::<1>(fill(12, 0.9)).reshape([4, 3]),
        floats::<1>(fill(8, 1.1)).reshape([4, 2]),
    )
}

#[test]
fn per_example_gradients_add_up_to_the_batch_gradient() {
    let (w, b, x, y) = network();
    let options = || VmapOptions::default().in_axes([None, None, Some(0), Some(0)]);
    let each: (Tensor<Flex, 3>, Tensor<Flex, 2>, Tensor<Flex, 2>, Tensor<Flex, 2>) =
        vmap_with(options(), grad(loss::<Autodiff<Vm>>))((w.clone(), b.clone(), x.clone(), y.clone()));
    // Each example alone.
    for number in 0..4 {
        let row = |t: &Tensor<Flex, 2>| t.clone().narrow(0, number, 1).squeeze_dim::<1>(0);
        let alone = grad(loss::<Ad>)((w.clone(), b.clone(), row(&x), row(&y)));
        close(&numbers(each.0.clone().narrow(0, number, 1)), &numbers(alone.0), 1e-12);
        close(&numbers(each.1.clone().narrow(0, number, 1)), &numbers(alone.1), 1e-12);
        close(&numbers(each.2.clone().narrow(0, number, 1)), &numbers(alone.2), 1e-12);
    }
    // The gradient of the sum, by a batch inside a tape.
    let total = |arguments: Network<Ad>| {
        let losses: Tensor<Ad, 2> = vmap_with(options(), loss::<Vmap<Ad>>)(arguments);
        losses.sum()
    };
    let all = grad(total)((w, b, x, y));
    close(&numbers(all.0), &numbers(each.0.sum_dim(0)), 1e-12);
    close(&numbers(all.1), &numbers(each.1.sum_dim(0)), 1e-12);
    close(&numbers(all.2), &numbers(each.2), 1e-12);
}

#[test]
fn vmap_composes_with_every_transform() {
    let points = || floats::<2>([[0.3f64, -0.7, 1.1], [1.0, 0.5, -0.2]]);
    let row = |number: usize| points().narrow(0, number, 1).squeeze_dim::<1>(0);

    let hessians: Tensor<Flex, 3> = vmap(hessian::<Autodiff<Forward<Vm>>, _, 1, 1, 2>(smooth))(points());
    let jacobians: Tensor<Flex, 3> = vmap(jacobian::<Autodiff<Vm>, _, 1, 1, 2>(wide))(points());
    let forward: Tensor<Flex, 3> = vmap(jacobian_forward::<Forward<Vm>, _, 1, 1, 2>(wide))(points());
    let changes: Tensor<Flex, 2> =
        vmap(|(x, v): (Tensor<Vm, 1>, Tensor<Vm, 1>)| jvp(smooth::<Forward<Vm>>, x, v).1)((
            points(),
            points(),
        ));
    for number in 0..2 {
        let of = |t: &Tensor<Flex, 3>| numbers(t.clone().narrow(0, number, 1));
        let alone: Tensor<Flex, 2> = hessian(smooth::<Autodiff<Fw>>)(row(number));
        close(&of(&hessians), &numbers(alone), 1e-12);
        let alone: Tensor<Flex, 2> = jacobian(wide::<Ad>)(row(number));
        close(&of(&jacobians), &numbers(alone.clone()), 1e-12);
        close(&of(&forward), &numbers(alone), 1e-12);
        let alone = jvp(smooth::<Fw>, row(number), row(number)).1;
        close(&numbers(changes.clone().narrow(0, number, 1)), &numbers(alone), 1e-12);
    }

    // The Hessian of a sum over a batch is block-diagonal.
    type Deep = Autodiff<Fw>;
    let sum = |x: Tensor<Deep, 2>| {
        let each: Tensor<Deep, 2> = vmap(smooth::<Vmap<Deep>>)(x);
        each.sum()
    };
    let whole: Tensor<Flex, 4> = hessian(sum)(points());
    let whole = numbers(whole);
    let blocks = numbers(hessians);
    for (i, j, k) in (0..2).flat_map(|i| (0..3).flat_map(move |j| (0..3).map(move |k| (i, j, k)))) {
        close(&[whole[i * 18 + j * 6 + i * 3 + k]], &[blocks[i * 9 + j * 3 + k]], 1e-12);
        assert_eq!(whole[i * 18 + j * 6 + (1 - i) * 3 + k], 0.0);
    }

    // A batch in forward mode.
    let (_, change) =
        jvp(|x: Tensor<Fw, 2>| -> Tensor<Fw, 2> { vmap(smooth::<Vmap<Fw>>)(x) }, points(), points());
    close(&numbers(change), &numbers(changes), 1e-12);
}

#[test]
fn randomness_inside_vmap() {
    let f =
        |x: Tensor<Vm, 1>| x.zeros_like() + Tensor::<Vm, 1>::random([2], Distribution::Default, &x.device());
    let x = || Tensor::<Flex, 2>::zeros([3, 2], &Default::default());
    let different: Tensor<Flex, 2> = vmap(f)(x());
    let mut different = numbers(different);
    different.sort_by(f64::total_cmp);
    different.dedup();
    assert_eq!(different.len(), 6);
    let same = VmapOptions::default().randomness(Randomness::Same);
    let same: Tensor<Flex, 2> = vmap_with(same, f)(x());
    let same = numbers(same);
    assert_eq!((&same[..2], &same[2..4]), (&same[4..], &same[..2]));
}

#[test]
fn vmap_of_gradients_covers_every_op_family() {
    // Convolution, pooling, normalisation, gather, sort and selection under a batch of gradients.
    fn f<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
        let sorted = x.clone().sort(0);
        let positive = x.clone().mask_where(x.clone().lower_elem(0.0), x.clone() * 0.1);
        let index = Tensor::<B, 1, Int>::from_ints([2, 0], &x.device());
        (sorted * positive.cumsum(0)).select(0, index).sum()
            + x.clone().max() * activation::softmax(x, 0).min()
    }
    let points = floats::<2>([[0.3f64, -0.7, 1.1], [1.0, 0.5, -0.2]]);
    let each: Tensor<Flex, 2> = vmap(grad(f::<Autodiff<Vm>>))(points);
    let expected = transposed(differences(|x| numbers(f(x))));
    close(&numbers(each.narrow(0, 0, 1)), &expected, 1e-8);
}

#[test]
fn closed_form_gradients_work_under_vmap() {
    fn f<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
        (x.clone().erfinv() + x.clone().lgamma() + x.clone().sinc() + x.asin()).sum()
    }
    let points = || floats::<2>([[0.0f64, 0.5], [0.25, 1e-9]]);
    let each: Tensor<Flex, 2> = vmap(grad(f::<Autodiff<Vm>>))(points() + 0.1);
    let below = grad(|x: Tensor<Ad, 2>| {
        let all: Tensor<Ad, 2> = vmap(f::<Vmap<Ad>>)(x);
        all.sum()
    })(points() + 0.1);
    let alone = grad(|x: Tensor<Ad, 2>| f(x.flatten::<1>(0, 1)))(points() + 0.1);
    close(&numbers(each), &numbers(alone.clone()), 1e-12);
    close(&numbers(below), &numbers(alone), 1e-12);
    assert_eq!(
        numbers(grad(|x: Tensor<Ad, 2>| {
            let all: Tensor<Ad, 2> = vmap(|x: Tensor<Vmap<Ad>, 1>| x.sinc())(x);
            all.sum()
        })(points()))[0],
        0.0
    );
}

// Dynamic backends.

#[test]
fn every_transform_works_on_the_dynamic_backend() {
    let device = kiln_backends::Device::cpu();
    let x = || dynamic(vec![0.3f64, -0.7, 1.1], &device);
    close(&numbers(grad(smooth::<Dyn>)(x())), &numbers(grad(smooth::<Ad>)(point())), 1e-14);
    let j: Tensor<Dyn, 2> = jacobian(wide::<Dyn>)(x());
    let forward: Tensor<Dyn, 2> = jacobian_forward(wide::<Dyn>)(x());
    close(&numbers(j), &numbers(forward), 1e-12);
    let h: Tensor<Dyn, 2> = hessian(smooth::<Dyn>)(x());
    let typed: Tensor<Flex, 2> = hessian(smooth::<Autodiff<Fw>>)(point());
    close(&numbers(h), &numbers(typed), 1e-14);
    let third = grad(grad(grad(|x: Tensor<Dyn, 1>| x.powf_scalar(5.0))))(dynamic(vec![2.0], &device));
    close(&numbers(third), &[240.0], 1e-12);
    let each: Tensor<Dyn, 2> = vmap(grad(smooth::<Dyn>))(Tensor::stack::<2>(vec![x(), x()], 0));
    let alone = numbers(grad(smooth::<Dyn>)(x()));
    close(&numbers(each), &[alone.clone(), alone].concat(), 1e-12);
    assert_eq!(grad(smooth::<Dyn>)(x()).device(), device);
}

#[test]
fn tensors_of_any_rank_among_arguments() {
    let device = kiln_backends::Device::cpu();
    let f = |(a, b): (AnyTensor, Tensor<Dyn, 1>)| b * a.try_into_tensor::<Dyn, 1, Float>().expect("a vector");
    let a = AnyTensor::from_data(vec![3.0f64], &device);
    let (a, b) = grad(f)((a, dynamic(vec![5.0], &device)));
    assert_eq!(a.into_data().map(|data| data.to_vec::<f64>()), Ok(vec![5.0]));
    assert_eq!(numbers(b), [3.0]);
}

#[test]
fn tensors_of_outer_functions_are_lifted_through_nested_gradients() {
    let outer = floats::<1>(vec![2.0f64, 3.0, 4.0]);
    // d/dx Σ outer · x · y at y = x, per element of y: outer · x, whose gradient by x is outer.
    let f = |x: Tensor<Ad, 1>| {
        let by_y = grad(|y: Tensor<Autodiff<Ad>, 1>| (y.lift(outer.clone()) * y.lift(x.clone()) * y).sum())(
            x.clone(),
        );
        by_y.sum()
    };
    assert_eq!(numbers(grad(f)(point())), [2.0, 3.0, 4.0]);
}

// Messages.

#[test]
fn messages() {
    let text = message(|| drop(grad(|x: Tensor<Ad, 1>| x)(point())));
    assert_eq!(
        text,
        "[grad] the function returns f64[3], and only a single number has a gradient\n  hint: return the sum or the \
         mean, or use `vjp` or `jacobian`"
    );
    let text = message(|| drop(jacobian::<Ad, _, 1, 1, 3>(wide)(point())));
    assert_eq!(
        text,
        "[jacobian] the derivative has shape [4, 3], but a tensor with 3 axes is expected\n  hint: it has the axes of \
         the result, then those of the argument: annotate the rank, as in `Tensor<_, 2>`"
    );
    let text = message(|| drop(jvp(smooth::<Fw>, point(), floats(vec![1.0f64]))));
    assert_eq!(
        text,
        "[jvp] the direction is f64[1] where f64[3] is expected (tensor 0)\n  hint: each tensor has the shape and \
         dtype of the one it belongs to"
    );
    let text = message(|| {
        let (_, pull_back) = vjp(|x: Tensor<Ad, 1>| vec![x.clone(), x], point());
        drop(pull_back(vec![point()]));
    });
    assert_eq!(text, "[vjp] the gradient is (tensor), not (tensor, tensor)");

    let add = |(a, b): (Tensor<Vm, 1>, Tensor<Vm, 1>)| a + b;
    let text = message(|| {
        let _: Tensor<Flex, 2> = vmap(add)((floats::<2>([[1.0f64], [2.0]]), floats::<2>([[1.0f64]])));
    });
    assert_eq!(
        text,
        "[vmap] argument 0 has 2 examples, argument 1 has 1: f64[2, 1] x f64[1, 1]\n  hint: all batched arguments have the same \
         number of examples, along the axis of `in_axes`"
    );
    let text = message(|| {
        let options = VmapOptions::default().in_axes([None]);
        let _: Tensor<Flex, 2> = vmap_with(options, add)((point(), point()));
    });
    assert!(text.starts_with("[vmap] no argument has an axis of examples\n  hint: "), "{text}");
    let text = message(|| {
        let _: Tensor<Flex, 2> = vmap(add)((point(), point()));
    });
    assert_eq!(
        text,
        "[tensor] is not a tensor of kind Float with 1 axes: f64[]\n  hint: inside `vmap` an argument has one axis less than \
         outside: that of the examples"
    );
    let text = message(|| {
        let _: Tensor<Flex, 1> = vmap(|x: Tensor<Vm, 1>| x)(floats::<2>([[1.0f64]]));
    });
    assert!(
        text.starts_with(
            "[tensor] is not a tensor of kind Float with 1 axes: f64[1, 1]\n  hint: the result of `vmap`"
        ),
        "{text}"
    );
    let text = message(|| {
        let options = VmapOptions::default().in_axes([Some(0), Some(0), None]);
        let _: Tensor<Flex, 2> = vmap_with(options, add)((floats::<2>([[1.0f64]]), floats::<2>([[1.0f64]])));
    });
    assert!(
        text.starts_with("[vmap] `in_axes` has 3 entries for 2 arguments: f64[1, 1] x f64[1, 1]"),
        "{text}"
    );
    let text = message(|| {
        let options = VmapOptions::default().out_axes([3]);
        let _: Tensor<Flex, 2> = vmap_with(options, |x: Tensor<Vm, 1>| x)(floats::<2>([[1.0f64]]));
    });
    assert!(text.starts_with("[vmap] the result has no axis 3 for the examples: f64[1]\n  hint: "), "{text}");
}

#[test]
fn reading_inside_vmap_is_an_error() {
    let read = |x: Tensor<Vm, 1>| {
        let error = x.clone().try_into_data().expect_err("one of many cannot be read");
        assert!(error.to_string().starts_with("[vmap] a batched tensor of 2 examples is read"), "{error}");
        x
    };
    let _: Tensor<Flex, 2> = vmap(read)(floats::<2>([[1.0f64], [2.0]]));
}

#[test]
fn outer_tensors_must_be_lifted_into_transforms() {
    let device = kiln_backends::Device::cpu();
    let outside = dynamic(vec![1.0f64], &device);
    let text = message(|| drop(grad(|x: Tensor<Dyn, 1>| x * outside.clone())(outside.clone())));
    assert_eq!(
        text,
        "[mul] tensors are on different devices: autodiff over cpu and cpu: f64[1] x f64[1]\n  hint: bring the one \
         from outside in with `lift`: `inside.lift(outside)`; the inputs of a model from `valid()` are on \
         `device.inner()`, without automatic differentiation"
    );
    let text = message(|| drop(grad(|_: Tensor<Dyn, 1>| outside.clone())(outside.clone())));
    assert!(
        text.starts_with("[grad] the function returns a tensor on cpu, not on autodiff over cpu: "),
        "{text}"
    );
    let text = message(|| {
        let _: Tensor<Dyn, 2> = vmap(|_: Tensor<Dyn, 1>| outside.clone())(outside.clone().reshape([1, 1]));
    });
    assert!(
        text.starts_with("[vmap] the function returns a tensor on cpu, not on vmap over cpu: "),
        "{text}"
    );
    let text = message(|| {
        let other = dynamic(vec![1.0f64], &kiln_backends::Device::cpu_with_threads(2));
        drop(grad(|x: Tensor<Dyn, 1>| x.lift(other.clone()) * x)(outside.clone()));
    });
    assert!(
        text.contains("[lift] the tensor is on cpu with 2 threads, which is not below autodiff over cpu"),
        "{text}"
    );
}

#[test]
fn index_errors_inside_transforms_are_reported_at_the_read() {
    let index = Tensor::<Flex, 1, Int>::from_ints([7], &Default::default());
    let f = |x: Tensor<Ad, 1>| {
        let index = x.lift(index.clone());
        x.select(0, index).sum()
    };
    let error = grad(f)(point()).try_into_data().expect_err("7 is out of range");
    assert!(error.to_string().contains("7"), "{error}");
    let f = |x: Tensor<Fw, 1>| {
        let index = x.lift(index.clone());
        x.select(0, index).sum()
    };
    let (y, change) = jvp(f, point(), point());
    assert!(y.try_into_data().is_err());
    assert!(change.try_into_data().is_err());
}

#[test]
fn gradients_are_recorded_on_an_outer_tape() {
    // A penalty on the gradient: the inner gradient is on the outer tape.
    fn penalty<A: AutodiffBackend>(x: Tensor<A, 1>) -> Tensor<A, 1>
    where
        Autodiff<A>: AutodiffBackend<InnerBackend = A>,
    {
        let slope = grad(smooth::<Autodiff<A>>)(x);
        (slope.clone() * slope).sum()
    }
    let expected = transposed(differences(|x| {
        let slope = grad(smooth::<Ad>)(x);
        numbers((slope.clone() * slope).sum())
    }));
    close(&numbers(grad(penalty::<Ad>)(point())), &expected, 1e-7);
}

/// The factor -0.5 for each pass through the reversal: once in a first derivative, twice in a second.
#[test]
fn gradient_reversal_keeps_its_gradient_in_every_transform() {
    fn f<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
        module::gradient_reversal(x, 0.5f32).square().sum()
    }
    let x = || floats::<1>([1.0f64, -3.0]);
    assert_eq!(numbers(f(x())), [10.0]);
    assert_eq!(numbers(grad(f::<Ad>)(x())), [-1.0, 3.0]);
    let (_, tangent): (_, Tensor<Flex, 1>) = jvp(f::<Fw>, x(), floats::<1>([1.0f64, 1.0]));
    assert_eq!(numbers(tangent), [2.0]);
    assert_eq!(numbers(hessian::<Autodiff<Fw>, _, 1, 1, 2>(f)(x())), [0.5, 0.0, 0.0, 0.5]);
    let rows: Tensor<Flex, 2> = vmap(grad(f::<Autodiff<Vm>>))(floats::<2>([[1.0f64, -3.0], [2.0, 0.0]]));
    assert_eq!(numbers(rows), [-1.0, 3.0, -2.0, 0.0]);
}
