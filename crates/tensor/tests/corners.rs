//! Edge cases of single functions: the results of PyTorch and of the mathematics, and Kiln's differences from PyTorch.

use kiln_backends::{Cpu, Device, Flex, FlexDevice};
use kiln_tensor::module::{InterpolateMode, InterpolateOptions, PoolOptions};
use kiln_tensor::{
    AnyTensor, Autodiff, Bool, DType, Int, ScatterReduction, Tensor, TensorData, TensorType, activation,
    grid, loss, module,
};

type Grad = Autodiff<Flex>;

const DEVICE: FlexDevice = FlexDevice;
const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn floats(x: &[f32]) -> Tensor<Flex, 1> {
    Tensor::from_floats(x.to_vec(), &DEVICE)
}

fn any(data: impl Into<TensorData>) -> AnyTensor {
    AnyTensor::from_data(data, &Device::cpu())
}

fn numbers(x: AnyTensor) -> Vec<f64> {
    x.cast(DType::F64).unwrap().into_data().unwrap().to_vec()
}

fn list<const D: usize>(x: Tensor<Flex, D>) -> Vec<f32> {
    x.into_data().to_vec()
}

fn slopes(x: &[f32], function: impl FnOnce(Tensor<Grad, 1>) -> Tensor<Grad, 1>) -> Vec<f32> {
    let x = Tensor::<Grad, 1>::from_floats(x.to_vec(), &DEVICE).require_grad();
    let gradients = function(x.clone()).sum().backward();
    x.grad(&gradients).expect("a gradient").into_data().to_vec()
}

#[track_caller]
fn same(actual: &[f32], expected: &[f32]) {
    let alike = |(a, e): (&f32, &f32)| a == e || (a.is_nan() && e.is_nan());
    assert!(
        actual.len() == expected.len() && actual.iter().zip(expected).all(alike),
        "{actual:?} is not {expected:?}"
    );
}

#[track_caller]
fn close(actual: &[f32], expected: &[f32], relative: f32) {
    let near = |(a, e): (&f32, &f32)| (a - e).abs() <= relative * e.abs();
    assert!(
        actual.len() == expected.len() && actual.iter().zip(expected).all(near),
        "{actual:?} is not {expected:?}"
    );
}

/// PyTorch's `logit_backward` without `eps`: `1 / (x (1 - x))` in [0, 1], NaN outside.
#[test]
fn the_gradient_of_logit_outside_its_domain_is_nan() {
    same(&slopes(&[-0.5, 1.5, INF, 0.5, 0.0, 1.0], |x| x.logit()), &[NAN, NAN, NAN, 4.0, INF, INF]);
}

/// PyTorch's `clamp_min` and `clamp_max` pass the gradient where `self >= min` and `self <= max`.
#[test]
fn clamp_passes_the_gradient_at_its_bounds() {
    same(&slopes(&[-2.0, -1.0, 0.0, NAN], |x| x.clamp_min(-1.0)), &[0.0, 1.0, 1.0, 0.0]);
    same(&slopes(&[0.0, 1.0, 2.0, NAN], |x| x.clamp_max(1.0)), &[1.0, 1.0, 0.0, 0.0]);
    same(&slopes(&[-1.0, 0.0, 1.0, 2.0], |x| x.clamp(0.0, 1.0)), &[0.0, 1.0, 1.0, 0.0]);
    same(&slopes(&[-1.0, 0.0, 1.0], activation::relu), &[0.0, 0.0, 1.0]);
}

/// PyTorch defines both losses with `clamp_min(0)`.
#[test]
fn the_subgradient_at_a_hinge_is_that_of_clamp_min() {
    let minus = || Tensor::<Grad, 1>::from_floats([-1.0, -1.0, -1.0], &DEVICE);
    let x = [0.5, 1.0, 1.5];
    let hinge = slopes(&x, |x| loss::hinge_embedding(x, minus(), 1.0, loss::Reduction::Sum));
    same(&hinge, &slopes(&x, |x| (-x + 1.0).clamp_min(0.0)));
    same(&hinge, &[-1.0, -1.0, 0.0]);
    let zeros = || Tensor::<Grad, 1>::zeros([3], &DEVICE);
    let ranking = slopes(&x, |x| loss::margin_ranking(x, zeros(), zeros() + 1.0, 1.0, loss::Reduction::Sum));
    same(&ranking, &slopes(&x, |x| (-x + 1.0).clamp_min(0.0)));
}

/// The biased variance of `10⁷, …, 10⁷ + 9` is `(10² - 1) / 12 = 8.25`.
#[test]
fn variances_with_a_large_mean_are_exact() {
    let x: Vec<f32> = (0..10).map(|i| 1e7 + i as f32).collect();
    assert_eq!(list(floats(&x).var_bias(0)), [8.25]);
    assert_eq!(list(floats(&x).var(0)), [82.5 / 9.0]);
    let (variance, mean) = floats(&x).var_mean_bias(0);
    assert_eq!((list(variance), list(mean)), (vec![8.25], vec![10_000_004.0]));
    let fused = Tensor::<Cpu, 1>::from_floats(x.clone(), &Default::default());
    assert_eq!(fused.clone().var_bias(0).into_data().to_vec::<f32>(), [8.25]);
    let scale = fused.clone().clone() * 1.0;
    assert_eq!(scale.var_bias(0).into_data().to_vec::<f32>(), [8.25]);
    let rows: Vec<f32> = x.iter().chain(&x).copied().collect();
    let covariance = floats(&rows).reshape([2, 10]).cov(1, 0.0);
    assert_eq!(list(covariance), [8.25; 4]);
    // 2 (x - mean) / 10
    let slope = slopes(&x, |x| x.var_bias(0));
    close(&slope, &[-0.9, -0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9], 1e-6);
}

#[test]
fn variances_overflow_only_if_the_result_does() {
    let huge = floats(&[1e30, 1.25e30, 1.5e30]);
    close(&list(huge.clone().std(0)), &[0.25e30], 1e-6);
    assert_eq!(list(huge.var(0)), [INF], "6.25e58 is no f32");
    let (deviation, mean) = floats(&[3e38, 1e38, 2e38]).std_mean(0);
    close(&[list(deviation)[0], list(mean)[0]], &[1e38, 2e38], 1e-6);
    assert_eq!(list(floats(&[1e30; 4]).var(0)), [0.0]);
    close(&list(floats(&[1e-30, 3e-30]).std_dims(0, 0.0)), &[1e-30], 1e-6);
    same(&list(floats(&[1.0, INF]).var(0)), &[NAN]);
    same(&list(floats(&[1.0, NAN]).var(0)), &[NAN]);
    same(&list(floats(&[1.0]).var(0)), &[NAN]);
    same(&list(floats(&[]).var_bias(0)), &[NAN]);
    assert_eq!(list(floats(&[0.0, -0.0]).var(0)), [0.0]);
}

/// `x Φ(x)` of the standard normal distribution: `-5 · 2.866515719e-7`, `-10 · 7.619853024e-24`.
#[test]
fn gelu_is_exact_in_its_tail() {
    let x = [-10.0f32, -5.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0];
    let expected = [
        -7.619_853e-23,
        -1.433_257_9e-6,
        -0.004_049_694,
        -0.158_655_26,
        -0.154_268_77,
        0.0,
        0.345_731_23,
        0.841_344_8,
        2.995_950_3,
    ];
    close(&list(activation::gelu(floats(&x))), &expected, 3e-6);
    let fused = Tensor::<Cpu, 1>::from_floats(x, &Default::default());
    close(&activation::gelu(fused).into_data().to_vec::<f32>(), &expected, 3e-6);
    let doubles = any(TensorData::from(x.map(f64::from))).gelu().unwrap();
    let doubles: Vec<f32> = numbers(doubles).iter().map(|&y| y as f32).collect();
    close(&doubles, &expected, 1e-6);
    // Φ(x) + x φ(x)
    close(&slopes(&[-5.0, 0.0, 1.0], activation::gelu), &[-7.146_94e-6, 0.5, 1.083_315_5], 2e-6);
    same(&list(activation::gelu(floats(&[-INF, INF, NAN]))), &[0.0, INF, NAN]);
}

/// NumPy's and PyTorch's `lcm` wrap: `lcm(12, 11) = 132`, which is -124 in 8 bits.
#[test]
fn lcm_wraps_with_its_sign() {
    let lcm = |a: i8, b: i8| numbers(any([a]).lcm(any([b])).unwrap())[0];
    assert_eq!(
        [lcm(12, 11), lcm(-12, 11), lcm(4, -6), lcm(0, 5), lcm(-128, 1)],
        [-124.0, -124.0, 12.0, 0.0, -128.0]
    );
}

#[test]
fn max_abs_of_an_empty_tensor_is_zero() {
    assert_eq!(list(floats(&[]).max_abs()), [0.0]);
    let empty = Tensor::<Flex, 2>::zeros([2, 0], &DEVICE);
    assert_eq!(list(empty.clone().max_abs_dim(1)), [0.0, 0.0]);
    assert_eq!(list(empty.max_abs_dims([0, 1])), [0.0]);
    assert_eq!(Tensor::<Flex, 1, Int>::zeros([0], &DEVICE).max_abs().into_data().to_vec::<i32>(), [0]);
    assert_eq!(list(floats(&[1.0, -3.0]).max_abs()), [3.0]);
}

#[test]
fn extreme_arguments_do_not_overflow() {
    assert_eq!(floats(&[1.0, 2.0]).diff(usize::MAX, 0).dims(), [0]);
    assert_eq!(floats(&[1.0, 4.0, 9.0]).diff(2, 0).into_data().to_vec::<f32>(), [2.0]);
    for bins in [usize::MAX, usize::MAX - 1, usize::MAX / 8] {
        let error = any([1.0f32, 2.0]).histc(bins, None).unwrap_err().to_string();
        assert!(error.contains(&bins.to_string()), "{error}");
        assert!(any([1.0f32, 2.0]).histogram(bins, None, None, false).is_err());
    }
    let square = || any([1.0f32, 2.0, 3.0, 4.0]).reshape([2, 2]).unwrap();
    for offset in [i64::MIN, i64::MAX] {
        assert_eq!(**square().diagonal(offset, 0, 1).unwrap().shape(), [0]);
        assert!(any([1.0f32]).diag_embed(offset, 0, 1).is_err(), "no plane is that large");
        assert_eq!(numbers(square().tril(offset).unwrap())[0], if offset < 0 { 0.0 } else { 1.0 });
    }
}

#[test]
fn full_accepts_bools() {
    let y = AnyTensor::full(TensorType::new([2], DType::Bool), true, &Device::cpu()).unwrap();
    assert_eq!(y.clone().into_data().unwrap().to_vec::<bool>(), [true, true]);
    assert_eq!(y.full_like(false).unwrap().into_data().unwrap().to_vec::<bool>(), [false, false]);
    assert_eq!(Tensor::<Flex, 1, Bool>::full([2], true, &DEVICE).into_data().to_vec::<bool>(), [true, true]);
    let device = Default::default();
    let fused = Tensor::<Cpu, 1, Bool>::full([2], true, &device);
    let mask = Tensor::from_bools([true, false], &device);
    assert_eq!(fused.clone().into_data().to_vec::<bool>(), [true, true]);
    assert_eq!(fused.bool_xor(mask).into_data().to_vec::<bool>(), [false, true]);
}

/// In PyTorch, a scalar tensor does not change the dtype of a tensor with axes, unless it is of a higher kind.
#[test]
fn scalar_tensors_promote_like_any_other() {
    let scalar = any([1.0f64]).reshape([0usize; 0]).unwrap();
    assert_eq!(any([1.0f32, 2.0]).add(scalar.clone()).unwrap().dtype(), DType::F64);
    let wide = scalar.cast(DType::I64).unwrap();
    assert_eq!(any([1i8, 2]).add(wide.clone()).unwrap().dtype(), DType::I64);
    assert_eq!(any([1.0f32]).add(wide).unwrap().dtype(), DType::F32);
    assert_eq!(any([1i8, 2]).add_scalar(1).unwrap().dtype(), DType::I8);
}

#[test]
fn cumsum_of_i8_wraps_in_i8() {
    let y = any([100i8, 100, 100]).cumsum(0).unwrap();
    assert_eq!(y.dtype(), DType::I8);
    assert_eq!(numbers(y), [100.0, -56.0, 44.0]);
}

#[test]
fn an_empty_dim_is_one_chunk() {
    let parts = Tensor::<Flex, 2>::zeros([0, 2], &DEVICE).chunk(3, 0);
    assert_eq!(parts.iter().map(|part| part.dims()).collect::<Vec<_>>(), [[0, 2]]);
}

#[test]
fn area_interpolation_to_size_zero_is_an_error() {
    let x = any([1.0f32, 2.0]).reshape([1, 1, 2]).unwrap();
    let error = x.interpolate([0usize], InterpolateOptions::new(InterpolateMode::Area)).unwrap_err();
    assert!(error.to_string().starts_with("[interpolate] cannot resize to [0]"), "{error}");
}

#[test]
fn neg_of_unsigned_integers_is_an_error() {
    let error = any([1u8, 2]).neg().unwrap_err().to_string();
    assert!(error.starts_with("[neg]") && error.contains("u8[2]"), "{error}");
}

/// NumPy: `heaviside(nan, 0.5)` is NaN.
#[test]
fn heaviside_propagates_nan() {
    same(&list(floats(&[NAN, -1.0, 0.0, 2.0]).heaviside(floats(&[0.5; 4]))), &[NAN, 0.0, 0.5, 1.0]);
}

/// `∂ t (ln t - x) / ∂t = ln t + 1 - x`; 0 where the target is 0.
#[test]
fn the_gradient_of_kl_div_is_zero_at_zero_targets() {
    let prediction = || Tensor::<Grad, 1>::from_floats([-1.0, -2.0], &DEVICE);
    let slope = slopes(&[0.0, 1.0], |t| loss::kl_div(prediction(), t, false, loss::Reduction::Sum));
    same(&slope, &[0.0, 3.0]);
}

#[test]
fn max_pool_gives_the_gradient_to_the_first_nan() {
    let options = PoolOptions::<1>::new([3]);
    let slope = slopes(&[1.0, NAN, NAN, 2.0, 2.0, 1.0], |x| {
        module::max_pool1d(x.reshape([1, 1, 6]), &options).reshape([2])
    });
    same(&slope, &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn cartesian_prod_of_one_vector_has_one_column() {
    let points = grid::cartesian_prod([Tensor::<Flex, 1, Int>::from_ints([7, 9], &DEVICE)]);
    assert_eq!(points.dims(), [2, 1]);
    assert_eq!(points.into_data().to_vec::<i32>(), [7, 9]);
}

/// PyTorch gives each tied element the whole gradient.
#[test]
fn tied_chebyshev_distances_share_the_gradient() {
    let slope = slopes(&[1.0, -1.0, 0.5], |x| {
        x.reshape([1, 3]).cdist(Tensor::zeros([1, 3], &DEVICE), f64::INFINITY).reshape([1])
    });
    same(&slope, &[0.5, -0.5, 0.0]);
}

/// PyTorch counts the base element among the tied ones, and drops its share.
#[test]
fn scatter_reduce_excludes_the_base_from_tie_gradients() {
    let indices = || Tensor::<Grad, 1, Int>::from_ints([0, 0], &DEVICE);
    let base = || Tensor::<Grad, 1>::from_floats([2.0], &DEVICE);
    let greatest = |x| base().scatter_reduce(0, indices(), x, ScatterReduction::Max, false);
    same(&slopes(&[2.0, 2.0], greatest), &[0.5, 0.5]);
}

/// With an infinite element, the mean is infinite and the variance NaN.
#[test]
fn var_mean_of_infinity_has_an_infinite_mean() {
    let (variance, mean) = floats(&[1.0, INF, 2.0]).var_mean(0);
    same(&[list(variance)[0], list(mean)[0]], &[NAN, INF]);
    let (deviation, mean) = floats(&[-INF, INF]).std_mean(0);
    same(&[list(deviation)[0], list(mean)[0]], &[NAN, NAN]);
    same(&slopes(&[1.0, INF], |x| x.var_mean(0).1), &[0.5, 0.5]);
}

/// PyTorch's `fmax` and `fmin` give the gradient of equal elements to the first.
#[test]
fn fmax_and_fmin_give_tied_gradients_to_the_first_operand() {
    let other = || Tensor::<Grad, 1>::from_floats([1.0, 1.0, NAN, 1.0], &DEVICE);
    let x = [1.0, 2.0, 0.0, NAN];
    same(&slopes(&x, |x| x.fmax(other())), &[1.0, 1.0, 1.0, 0.0]);
    same(&slopes(&x, |x| x.fmin(other())), &[1.0, 0.0, 1.0, 0.0]);
    same(&slopes(&x, |x| other().fmax(x)), &[0.0, 1.0, 1.0, 0.0]);
}

/// PyTorch and SciPy also sum `1 / (q + k)^2` for `q = -1/2`: 8.934802.
#[test]
fn zeta_of_nonpositive_q_is_nan() {
    same(&list(floats(&[2.0, 3.0]).zeta(floats(&[-0.5, -1.5]))), &[NAN, NAN]);
}

/// The limit of zeta is `1 / q^∞`. PyTorch returns NaN for `q` above 1, and for polygamma of order 2 and higher.
#[test]
fn zeta_and_polygamma_have_limits_at_infinity() {
    for order in 1..4 {
        same(&list(floats(&[INF]).polygamma(order)), &[0.0]);
    }
    let order = floats(&[INF, INF, INF]);
    same(&list(order.zeta(floats(&[2.0, 1.0, 0.5]))), &[0.0, 1.0, INF]);
}
