//! Sorting, quantiles and sets: ties, NaN, empty tensors, and messages of invalid calls.

use kiln_backends::{Device, Flex, FlexDevice};
use kiln_tensor::{AnyTensor, DType, Int, Interpolation, Result, Tensor, TensorData, TensorType};

const DEVICE: FlexDevice = FlexDevice;
const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn floats<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D> {
    Tensor::from_floats(data, &DEVICE)
}

fn ints<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D, Int> {
    Tensor::from_ints(data, &DEVICE)
}

#[track_caller]
fn holds<const D: usize>(tensor: Tensor<Flex, D>, expected: &[f32]) {
    let actual = tensor.into_data().to_vec::<f32>();
    let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
    assert!(actual.len() == expected.len() && actual.iter().zip(expected).all(same), "{actual:?}");
}

#[track_caller]
fn places<const D: usize>(tensor: Tensor<Flex, D, Int>, expected: &[i32]) {
    assert_eq!(tensor.into_data().to_vec::<i32>(), expected);
}

#[test]
fn sort_is_stable_with_nan_last() {
    let x = floats::<1>([2.0, NAN, 1.0, 2.0, -INF]);
    let (values, indices) = x.clone().sort_with_indices(-1);
    holds(values, &[-INF, 1.0, 2.0, 2.0, NAN]);
    places(indices, &[4, 2, 0, 3, 1]);
    places(x.clone().argsort_descending(0), &[1, 0, 3, 2, 4]);
    let (values, indices) = x.clone().topk_smallest_with_indices(2, 0);
    holds(values, &[-INF, 1.0]);
    places(indices, &[4, 2]);
    assert_eq!(x.clone().topk(0, 0).dims(), [0]);
    let (value, index) = x.kthvalue(4, 0);
    holds(value, &[2.0]);
    places(index, &[3]);
    let great = i64::MAX - 1;
    let wide = Tensor::<Flex, 1, Int>::from_data_dtype([great + 1, great], DType::I64, &DEVICE);
    assert_eq!(wide.sort(0).into_data().to_vec::<i64>(), [great, great + 1]);
}

#[test]
fn medians_and_modes() {
    let x = floats::<2>([[3.0, 1.0, 2.0, 4.0], [1.0, NAN, 5.0, NAN], [NAN, NAN, NAN, NAN]]);
    holds(x.clone().median(1), &[2.0, NAN, NAN]);
    let (values, indices) = x.clone().nanmedian_with_indices(1);
    holds(values, &[2.0, 1.0, NAN]);
    places(indices, &[2, 0, 0]);
    places(x.median_with_indices(1).1, &[2, 1, 0]);
    places(ints::<1>([5, 1, 4, 2]).median(0), &[2]);
    let (value, index) = ints::<2>([[3, 1, 3, 1], [4, 2, 9, 7]]).mode(-1);
    places(value, &[1, 2]);
    places(index, &[3, 1]);
    assert_eq!(Tensor::<Flex, 2>::zeros([0, 3], &DEVICE).median(1).dims(), [0, 1]);
}

#[test]
fn quantiles_interpolate() {
    let quantile = |q, interpolation| {
        floats::<1>([40.0, 10.0, 30.0, 20.0]).quantile(&[q], 0, interpolation).into_scalar::<f32>()
    };
    assert_eq!(quantile(0.5, Interpolation::Linear), 25.0);
    assert_eq!(quantile(0.5, Interpolation::Lower), 20.0);
    assert_eq!(quantile(0.5, Interpolation::Higher), 30.0);
    assert_eq!(quantile(0.5, Interpolation::Nearest), 30.0);
    assert_eq!(quantile(1.0 / 6.0, Interpolation::Nearest), 10.0);
    assert_eq!(quantile(0.4, Interpolation::Midpoint), 25.0);
    assert_eq!(quantile(1.0, Interpolation::Midpoint), 40.0);
    let holes = floats::<2>([[1.0, NAN, 3.0], [NAN, NAN, NAN]]);
    holds(holes.clone().quantile(&[0.5], 1, Interpolation::Linear), &[NAN, NAN]);
    holds(holes.nanquantile(&[0.0, 0.5], 1, Interpolation::Linear), &[1.0, 2.0, NAN, NAN]);
    holds(floats::<1>([INF, 1.0, INF]).quantile(&[0.5, 0.9], 0, Interpolation::Linear), &[INF, INF]);
    assert_eq!(floats::<1>([1.0, 2.0]).quantile(&[], 0, Interpolation::Linear).dims(), [0]);
}

#[test]
fn unique_elements() {
    let unique = floats::<2>([[2.0, NAN], [-1.0, 2.0]]).unique_with_counts();
    holds(unique.values, &[-1.0, 2.0, NAN]);
    assert_eq!(unique.inverse.dims(), [2, 2]);
    places(unique.inverse, &[1, 2, 0, 1]);
    places(unique.counts, &[1, 2, 1]);
    let rows = ints::<2>([[1, 2], [0, 9], [1, 2], [1, 1]]).unique_dim(0);
    places(rows.values, &[0, 9, 1, 1, 1, 2]);
    places(rows.inverse, &[2, 0, 2, 1]);
    places(rows.counts, &[1, 1, 2]);
    let runs = ints::<1>([4, 4, 1, 4]).unique_consecutive();
    places(runs.values, &[4, 1, 4]);
    places(runs.inverse, &[0, 0, 1, 2]);
    let empty = Tensor::<Flex, 1>::zeros([0], &DEVICE).unique_with_counts();
    assert_eq!((empty.values.dims(), empty.counts.dims()), ([0], [0]));
    let hollow = Tensor::<Flex, 2>::zeros([3, 0], &DEVICE).unique_dim(0);
    assert_eq!(hollow.values.dims(), [1, 0]);
    places(hollow.counts, &[3]);
}

#[test]
fn isin_membership() {
    let x = floats::<1>([1.0, NAN, INF, 5.0]);
    let others = floats::<2>([[NAN, INF], [1.0, NAN]]);
    assert_eq!(x.clone().isin(others).into_data().to_vec::<bool>(), [true, false, true, false]);
    assert_eq!(x.isin(floats::<1>([0.0f32; 0])).into_data().to_vec::<bool>(), [false; 4]);
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
    fails("[topk] k is 4, but axis 1 has 3 elements: f32[2, 3]", x.clone().topk(4, 1));
    fails("[kthvalue] k is 0, but counts from 1 to the 3 elements of axis 1: f32[2, 3]", {
        x.clone().kthvalue(0, 1)
    });
    fails("[median] axis 0 is empty: f32[0]", any(&[0], DType::F32).median(0));
    fails("[mode] axis 1 is empty: f32[2, 0]", any(&[2, 0], DType::F32).mode(1));
    fails("[quantile] 1.5 is not between 0 and 1: f32[2, 3]", {
        x.clone().quantile(&[0.5, 1.5], 0, Interpolation::Linear)
    });
    fails("[nanquantile] needs floats: i32[4]", i.clone().nanquantile(&[0.5], 0, Interpolation::Linear));
    fails("[isin] needs numbers of one dtype, not f32 and i32: f32[2, 3] x i32[4]", x.isin(i));
}

/// A broadcast view longer than `i32::MAX`; nothing is computed.
#[test]
fn indices_never_wrap() {
    let length = (1usize << 31) + 1;
    let x = || {
        let one = AnyTensor::zeros(TensorType::new([1], DType::U8), &Device::flex()).unwrap();
        one.expand([length]).unwrap()
    };
    let message = |result: Result<AnyTensor>| result.unwrap_err().to_string();
    let results = [
        ("argmax", message(x().argmax(0))),
        ("argmin", message(x().argmin(0))),
        ("max_dim", message(x().max_dim_with_indices(0).map(|(_, index)| index))),
        ("argsort", message(x().argsort(0))),
        ("sort", message(x().sort_with_indices(0).map(|(_, index)| index))),
        ("topk", message(x().argtopk(3, 0))),
        ("nonzero", message(x().nonzero().map(|mut all| all.remove(0)))),
        ("cummax", message(x().cummax_with_indices(0).map(|(_, index)| index))),
        (
            "searchsorted",
            message(x().searchsorted(
                AnyTensor::zeros(TensorType::new([1], DType::U8), &Device::flex()).unwrap(),
                false,
            )),
        ),
    ];
    for (op, message) in results {
        assert!(message.contains("2147483649 ") && message.contains("i32 counts"), "{op}: {message}");
    }
}
