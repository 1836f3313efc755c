//! Reductions, scans and statistics: edges of data, gradients at kinks, and messages of invalid calls.

use kiln_backends::{Cpu, Device, Flex, FlexDevice};
use kiln_tensor::stats::CdistMode;
use kiln_tensor::{AnyTensor, Autodiff, Backend, DType, Int, Result, Tensor, TensorData, TensorType};

const DEVICE: FlexDevice = FlexDevice;
const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

type B = Autodiff<Flex>;

fn floats<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D> {
    Tensor::from_floats(data, &DEVICE)
}

/// The gradient of the sum of a function's elements.
fn slope<const D: usize, const D2: usize>(
    x: impl Into<TensorData>,
    f: impl Fn(Tensor<B, D>) -> Tensor<B, D2>,
) -> Vec<f32> {
    let x = Tensor::<B, D>::from_floats(x, &DEVICE).require_grad();
    let gradients = f(x.clone()).sum().backward();
    x.grad(&gradients).unwrap().into_data().to_vec::<f32>()
}

#[track_caller]
fn holds<const D: usize>(tensor: Tensor<Flex, D>, expected: &[f32]) {
    let actual = tensor.into_data().to_vec::<f32>();
    let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
    assert!(actual.len() == expected.len() && actual.iter().zip(expected).all(same), "{actual:?}");
}

#[test]
fn reductions_of_empty_tensors() {
    let empty = Tensor::<Flex, 2>::zeros([2, 0], &DEVICE);
    holds(empty.clone().sum(), &[0.0]);
    holds(empty.clone().prod_dim(1), &[1.0, 1.0]);
    holds(empty.clone().mean_dim(1), &[NAN, NAN]);
    holds(empty.clone().nanmean(), &[NAN]);
    holds(empty.clone().max_dim(1), &[-INF, -INF]);
    holds(empty.clone().logsumexp(1), &[-INF, -INF]);
    holds(empty.clone().var(1), &[NAN, NAN]);
    assert_eq!(empty.clone().cumsum(1).logcumsumexp(-1).dims(), [2, 0]);
    assert_eq!(empty.clone().diff(3, 1).dims(), [2, 0]);
    holds(empty.clone().trapezoid(1.0, 1), &[0.0, 0.0]);
    let all = empty.clone().all_dim(1).into_data().to_vec::<bool>();
    assert_eq!((all, empty.any().into_data().to_vec::<bool>()), (vec![true; 2], vec![false]));
}

#[test]
fn nan_and_infinities_propagate() {
    let x = floats::<2>([[1.0, NAN, 3.0], [INF, 2.0, -INF]]);
    holds(x.clone().max_dim(1), &[NAN, INF]);
    holds(x.clone().min_dim(-1), &[NAN, -INF]);
    holds(x.clone().nansum_dim(1), &[4.0, NAN]);
    holds(x.clone().cummax(1), &[1.0, NAN, NAN, INF, INF, INF]);
    holds(x.clone().logsumexp(1), &[NAN, INF]);
    let (_, indices) = x.clone().cummin_with_indices(1);
    assert_eq!(indices.into_data().to_vec::<i32>(), [0, 1, 1, 0, 1, 2]);
    assert_eq!(x.argmax(1).into_data().to_vec::<i32>(), [1, 0]);
    holds(floats::<1>([-INF, -INF, 0.0, INF]).logcumsumexp(0), &[-INF, -INF, 0.0, INF]);
    holds(floats::<2>([[NAN, NAN]]).nanmean_dim(1), &[NAN]);
}

#[test]
fn sixteen_bit_floats_are_summed_in_f32() {
    let x = Tensor::<Flex, 1>::full([70_000], 2.0, &DEVICE).cast(DType::F16);
    assert_eq!(x.clone().mean().into_scalar::<f32>(), 2.0);
    assert_eq!(x.clone().var_bias(0).into_scalar::<f32>(), 0.0);
    assert_eq!(x.clone().nanmean_dim(0).into_scalar::<f32>(), 2.0);
    let expected = half::f16::from_f32(2.0 + 70_000f32.ln());
    assert_eq!(x.logsumexp(0).into_scalar::<half::f16>(), expected);
}

#[test]
fn logsumexp_and_logcumsumexp_are_stable() {
    let far = floats::<1>([-1000.0, 0.0, 1000.0]).logcumsumexp(0);
    holds(far, &[-1000.0, 0.0, 1000.0]);
    let near = floats::<1>([0.0, -20.0]).logcumsumexp(0).into_data().to_vec::<f32>();
    assert_eq!(near[1], (-20f32).exp().ln_1p());
    let wide = floats::<1>([1e4, 1e4]).logsumexp(0).into_scalar::<f32>();
    assert_eq!(wide, 1e4 + 2f32.ln());
}

#[test]
fn gradients_at_kinks() {
    assert_eq!(slope::<1, 1>([2.0, 3.0, 3.0], |x| x.max_dim(0)), [0.0, 0.5, 0.5]);
    assert_eq!(slope::<1, 1>([2.0, 3.0, 3.0], |x| x.max_dim_with_indices(0).0), [0.0, 1.0, 0.0]);
    assert_eq!(slope::<1, 1>([2.0, 0.0, 3.0], |x| x.prod_dim(0)), [0.0, 6.0, 0.0]);
    assert_eq!(slope::<1, 1>([0.0, 0.0, 3.0], |x| x.prod()), [0.0, 0.0, 0.0]);
    assert_eq!(slope::<1, 1>([2.0, 0.0, 3.0], |x| x.cumprod(0)), [1.0, 8.0, 0.0]);
    assert_eq!(slope::<1, 1>([2.0, 2.0], |x| x.std(0)), [0.0, 0.0]);
    assert_eq!(slope::<1, 1>([1.0, NAN, 2.0], |x| x.nansum()), [1.0, 0.0, 1.0]);
    assert_eq!(slope::<1, 1>([1.0, NAN, 3.0], |x| x.nanmean()), [0.5, 0.0, 0.5]);
    assert_eq!(slope::<1, 1>([-INF, -INF], |x| x.logsumexp(0)), [0.0, 0.0]);
    assert_eq!(slope::<1, 1>([-INF, 0.0], |x| x.logcumsumexp(0).slice([1..])), [0.0, 1.0]);
    assert_eq!(slope::<1, 1>([3.0, 1.0, 3.0, 2.0], |x| x.cummax(0)), [2.0, 0.0, 2.0, 0.0]);
    assert_eq!(slope::<1, 1>([4.0, 1.0, 3.0, 2.0], |x| x.median(0)), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(slope::<1, 1>([3.0, 1.0, 3.0], |x| x.unique()), [1.0, 1.0, 0.0]);
}

#[test]
fn the_gradient_of_cdist_at_zero_distance_is_zero() {
    for p in [0.5, 1.0, 1.5, 2.0, 3.0, f64::INFINITY] {
        let other = Tensor::<B, 2>::from_floats([[1.0, 2.0]], &DEVICE);
        let gradient = slope::<2, 2>([[1.0, 2.0]], |x| x.cdist(other.clone(), p));
        assert_eq!(gradient, [0.0, 0.0], "p = {p}");
    }
    let x = floats::<2>([[0.0, 3.0], [4.0, 0.0], [4.0, 0.0]]);
    holds(x.clone().pdist(2.0), &[5.0, 5.0, 0.0]);
    holds(x.clone().pdist(0.0), &[2.0, 2.0, 0.0]);
    holds(x.cdist(floats([[1.0, 1.0]]), f64::INFINITY), &[2.0, 3.0, 3.0]);
    assert_eq!(Tensor::<Flex, 2>::zeros([1, 3], &DEVICE).pdist(2.0).dims(), [0]);
    holds(Tensor::<Flex, 2>::zeros([2, 0], &DEVICE).pdist(f64::INFINITY), &[0.0]);
}

/// As in PyTorch, Euclidean distances use a matmul for more than 25 rows on either side.
#[test]
fn cdist_by_matmul_has_the_same_gradients() {
    let rows = |n: usize, seed: usize| {
        let elements =
            (0..n * 5).map(|i| (((i + seed) * 7919) % 101) as f32 / 25.0 - 2.0).collect::<Vec<_>>();
        Tensor::<B, 2>::from_floats(TensorData::new(elements, [n, 5]).unwrap(), &DEVICE)
    };
    let weights = |n: usize, m: usize| {
        let elements = (0..n * m).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect::<Vec<_>>();
        Tensor::<B, 2>::from_floats(TensorData::new(elements, [n, m]).unwrap(), &DEVICE)
    };
    for (n, m) in [(26, 1), (3, 40), (30, 30)] {
        let all = |mode| {
            let (x, y) = (rows(n, 3).require_grad(), rows(m, 500).require_grad());
            let distances = x.clone().cdist_with_mode(y.clone(), 2.0, mode);
            let gradients = (distances.clone() * weights(n, m)).sum().backward();
            let [x, y] = [x, y].map(|x| x.grad(&gradients).unwrap().into_data().to_vec::<f32>());
            [distances.into_data().to_vec::<f32>(), x, y]
        };
        let (direct, product) = (all(CdistMode::Direct), all(CdistMode::Matmul));
        let close = |a: &f32, b: &f32| (a - b).abs() <= 2e-5 * b.abs().max(4.0);
        for (a, b) in direct.iter().flatten().zip(product.iter().flatten()) {
            assert!(close(a, b), "{n} {m}: {a} {b}");
        }
        assert_eq!(all(CdistMode::MatmulIfLarge), product);
    }
    let small = |mode| rows(25, 3).cdist_with_mode(rows(25, 9), 2.0, mode).into_data().to_vec::<f32>();
    assert_eq!(small(CdistMode::MatmulIfLarge), small(CdistMode::Direct));
}

#[test]
fn the_gradient_of_cdist_by_matmul_at_zero_distance_is_zero() {
    let x = Tensor::<B, 2>::full([30, 4], 2.0, &DEVICE).require_grad();
    let distances = x.clone().cdist_with_mode(x.clone().detach(), 2.0, CdistMode::Matmul);
    let gradients = distances.clone().sum().backward();
    assert!(distances.into_data().to_vec::<f32>().iter().all(|&distance| distance == 0.0));
    assert!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>().iter().all(|&slope| slope == 0.0));
}

/// Differences of all pairs of rows would take 256 MiB here; the result of a matmul takes 1 MiB.
#[test]
fn cdist_does_not_store_all_differences() {
    fn peak<B: Backend>(device: &B::Device, p: f64, mode: CdistMode) -> usize {
        let x = Tensor::<B, 2>::ones([512, 256], device);
        let _ = x.clone().into_data();
        B::reset_peak_memory(device);
        let before = B::memory(device).unwrap().live_bytes;
        let _ = x.clone().cdist_with_mode(x, p, mode).into_data();
        B::memory(device).unwrap().peak_live_bytes - before
    }
    const MOST: usize = 32 << 20;
    assert!(peak::<Flex>(&DEVICE, 2.0, CdistMode::MatmulIfLarge) < MOST);
    for p in [1.0, 2.0, 3.0, f64::INFINITY] {
        let peak = peak::<Cpu>(&Default::default(), p, CdistMode::Direct);
        assert!(peak < MOST, "p = {p}: {peak}");
    }
}

#[test]
fn bincount_counts_and_pads() {
    let x = Tensor::<Flex, 1, Int>::from_ints([3, 0, 3, 5, 3], &DEVICE);
    assert_eq!(x.clone().bincount(0).into_data().to_vec::<i32>(), [1, 0, 0, 3, 0, 1]);
    assert_eq!(x.clone().bincount(8).into_data().to_vec::<i32>(), [1, 0, 0, 3, 0, 1, 0, 0]);
    assert_eq!(x.narrow(0, 0, 0).bincount(2).into_data().to_vec::<i32>(), [0, 0]);
}

#[test]
fn integers_wrap_truncate_and_count() {
    let x = Tensor::<Flex, 1, Int>::from_ints([i32::MAX, 1, 1], &DEVICE);
    assert_eq!(x.clone().sum().into_scalar::<i32>(), i32::MIN + 1);
    let negative = Tensor::<Flex, 1, Int>::from_ints([-3, -4], &DEVICE);
    assert_eq!(negative.clone().mean().into_scalar::<i32>(), -3);
    assert_eq!(negative.max_abs().into_scalar::<i32>(), 4);
    assert_eq!(x.diff(1, 0).into_data().to_vec::<i32>(), [i32::MIN + 2, 0]);
}

#[test]
fn histograms_count_edges_once() {
    let x = floats::<1>([0.0, 0.5, 1.0, 1.0, 2.0, -0.1, NAN]);
    holds(x.clone().histc(2, Some((0.0, 1.0))), &[1.0, 3.0]);
    holds(floats::<1>([2.0, 2.0]).histc(2, None), &[0.0, 2.0]);
    holds(floats::<1>([0.0f32; 0]).histc(2, None), &[0.0, 0.0]);
    holds(x.clone().histogram_between(floats([0.0, 0.75, 4.0]), None, false), &[2.0, 3.0]);
    let (density, edges) = floats::<1>([0.0, 1.0, 2.0, 4.0]).histogram(2, None, None, true);
    holds(density, &[0.25, 0.25]);
    holds(edges, &[0.0, 2.0, 4.0]);
    let weigh = |w: Tensor<B, 1>| {
        Tensor::<B, 1>::from_floats([0.1, 0.9], &DEVICE).histogram(2, Some((0.0, 0.5)), Some(w), false).0
    };
    assert_eq!(slope::<1, 1>([1.0, 1.0], weigh), [1.0, 0.0]);
    assert_eq!(Tensor::<Flex, 1, Int>::from_ints([0i32; 0], &DEVICE).bincount(0).dims(), [0]);
}

#[test]
fn correlations() {
    let x = floats::<2>([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [5.0, 5.0, 5.0]]);
    holds(x.clone().cov(1, 0.0).slice([0..1, 0..2]), &[2.0 / 3.0, 4.0 / 3.0]);
    holds(x.clone().corrcoef(1).slice([2..3, 0..3]), &[NAN, NAN, NAN]);
    holds(x.transpose().cov(0, 1.0).slice([0..1, 0..1]), &[1.0]);
}

/// The first line of the message; `messages.rs` has the hints.
#[track_caller]
fn fails(expected: &str, result: Result<impl std::fmt::Debug>) {
    let message = result.unwrap_err().to_string();
    assert_eq!(message.lines().next(), Some(expected), "{message}");
}

#[test]
fn errors_of_invalid_calls() {
    let any =
        |shape: &[usize], dtype| AnyTensor::zeros(TensorType::new(shape, dtype), &Device::cpu()).unwrap();
    let (x, i) = (any(&[2, 3], DType::F32), any(&[4], DType::I32));
    fails("[sum_dims] axis -3 is out of range for 2 axes: f32[2, 3]", x.clone().sum_dims([0, -3]));
    fails("[mean_dims] axis 1 is named twice: f32[2, 3]", x.clone().mean_dims([1, -1]));
    fails("[cumsum] axis 0 is out of range for 0 axes: f32[]", any(&[], DType::F32).cumsum(0));
    fails("[argmax] axis 1 is empty, so it has no extreme element: f32[2, 0]", {
        any(&[2, 0], DType::F32).argmax(1)
    });
    fails("[var] needs floats: i32[4]", i.clone().var(0));
    fails("[logsumexp] needs floats: i32[4]", i.clone().logsumexp(0));
    fails("[nansum] needs floats: i32[4]", i.clone().nansum());
    fails("[trapezoid_at] the places do not fit axis 1: f32[2, 3] x i32[4]", {
        x.clone().trapezoid_at(i.clone(), 1)
    });
    fails("[cov] needs floats with 2 axes, variables and observations: i32[4]", i.clone().cov(0, 1.0));
    fails("[histc] 1 to 0 is not a range: f32[2, 3]", x.clone().histc(2, Some((1.0, 0.0))));
    fails("[histogram] needs one weight for each element: f32[6] x i32[4]", {
        x.clone().histogram(2, None, Some(i.clone()), false)
    });
    fails("[bincount] -1 is negative: i32[4]", i.clone().full_like(-1).unwrap().bincount(None, 0));
    fails("[cdist] the rows differ in length: f32[2, 3] x f32[2, 2]", {
        x.clone().cdist(any(&[2, 2], DType::F32), 2.0)
    });
    fails("[pdist] needs floats and a norm of at least 0, not -1: f32[1, 3]", x.pdist(-1.0));
}
