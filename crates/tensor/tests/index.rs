//! Indexing and masking: edge cases, poison, and messages of invalid calls.

use kiln_backends::{Device, Flex, FlexDevice};
use kiln_tensor::{
    AnyTensor, Autodiff, Bool, DType, Int, Result, ScatterReduction, Tensor, TensorData, TensorType, Unique,
    UpdateMode,
};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const DEVICE: FlexDevice = FlexDevice;

fn floats<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D> {
    Tensor::from_floats(data, &DEVICE)
}

fn ints<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D, Int> {
    Tensor::from_ints(data, &DEVICE)
}

fn bools<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D, Bool> {
    Tensor::from_bools(data, &DEVICE)
}

#[track_caller]
fn holds<const D: usize>(tensor: Tensor<Flex, D>, expected: &[f32]) {
    assert_eq!(tensor.into_data().to_vec::<f32>(), expected);
}

#[track_caller]
fn places<const D: usize>(tensor: Tensor<Flex, D, Int>, expected: &[i32]) {
    assert_eq!(tensor.into_data().to_vec::<i32>(), expected);
}

/// The CPU engine is never pending.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the CPU engine waits for nothing"),
    }
}

#[test]
fn an_index_out_of_range_poisons_the_result() {
    let poisoned = |result: Tensor<Flex, 1>, named: &str| {
        let error = result.try_into_data().unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    };
    poisoned(floats([1.0, 2.0]).select(0, ints([-1])), "index -1");
    poisoned(floats([1.0, 2.0]).gather(0, ints([2])), "index 2");
    poisoned(floats([1.0, 2.0]).index_fill(0, ints([5]), 0), "index 5");
    poisoned(floats([1.0, 2.0]).scatter(0, ints([-3]), floats([1.0])), "index -3");
    // In a shape [2, 3], the index (0, 3) must not alias (1, 0).
    let x = floats::<2>([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    poisoned(x.clone().gather_nd(ints::<2>([[0, 3]])), "index -1");
    let wide = Tensor::<Flex, 2, Int>::from_data_dtype([[1i64 << 32, 0]], DType::I64, &DEVICE);
    poisoned(x.clone().gather_nd(wide), "index -1");
    let written = x.scatter_nd(ints::<2>([[-1, 4]]), floats::<1>([1.0]), UpdateMode::Set);
    assert!(written.try_into_data().is_err());
    let mask = bools([true, true, true]);
    poisoned(floats([1.0, 2.0, 3.0]).masked_scatter(mask, floats([8.0, 9.0])), "index 3");
}

/// 8 bits represent each coordinate, but not the row-major offset.
#[test]
fn narrow_index_dtypes_address_large_tensors() {
    let x = Tensor::<Flex, 1, Int>::arange(0..600, &DEVICE).reshape([200, 3]);
    let far = Tensor::<Flex, 2, Int>::from_data_dtype([[199u8, 2]], DType::U8, &DEVICE);
    places(x.gather_nd::<2, 1>(far), &[599]);
    let numbers = Tensor::<Flex, 1, Int>::from_data_dtype([1u8], DType::U8, &DEVICE);
    places(numbers.one_hot::<2>(300).count_nonzero(), &[1]);
    let means = Tensor::<Flex, 1, Int>::full([300], 100, &DEVICE).cast(DType::I8).mean();
    places(means, &[100]);
}

#[test]
fn shorter_indices_use_the_first_elements() {
    let x = floats::<2>([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    holds(x.clone().gather(1, ints([[1], [0]])), &[2.0, 3.0]);
    let values = floats([[10.0, 20.0], [30.0, 40.0]]);
    holds(x.clone().scatter(1, ints([[1], [1]]), values.clone()), &[1.0, 12.0, 3.0, 34.0, 5.0, 6.0]);
    holds(x.scatter_mode(0, ints([[2, 2]]), values, UpdateMode::Set), &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0]);
}

#[test]
fn scatter_reduce_combines() {
    let reduce = |reduction, include| {
        let x = floats::<1>([10.0, 20.0, 30.0]);
        let values = floats::<1>([1.0, 2.0, 3.0, 5.0]);
        x.scatter_reduce(0, ints([0, 0, 1, 0]), values, reduction, include).into_data().to_vec::<f32>()
    };
    assert_eq!(reduce(ScatterReduction::Sum, true), [18.0, 23.0, 30.0]);
    assert_eq!(reduce(ScatterReduction::Sum, false), [8.0, 3.0, 30.0]);
    assert_eq!(reduce(ScatterReduction::Prod, false), [10.0, 3.0, 30.0]);
    assert_eq!(reduce(ScatterReduction::Mean, true), [4.5, 11.5, 30.0]);
    assert_eq!(reduce(ScatterReduction::Max, false), [5.0, 3.0, 30.0]);
    assert_eq!(reduce(ScatterReduction::Min, true), [1.0, 3.0, 30.0]);
    let means = ints::<1>([0]).scatter_reduce(0, ints([0, 0]), ints([-2, -1]), ScatterReduction::Mean, false);
    places(means, &[-2]);
    let least = ints::<1>([7, 7]).scatter_reduce(0, ints([0]), ints([9]), ScatterReduction::Max, false);
    places(least, &[9, 7]);
}

#[test]
fn empty_and_full_masks() {
    let x = floats::<2>([[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(x.clone().mask_select(bools([[false]])).dims(), [0]);
    holds(x.clone().mask_select(bools([[true], [false]])), &[1.0, 2.0]);
    holds(
        x.clone().masked_scatter(bools([[false]]), floats::<1>([0.0f32; 0]).reshape([0, 1])),
        &[1.0, 2.0, 3.0, 4.0],
    );
    assert_eq!(x.clone().lower_elem(0).argwhere().dims(), [0, 2]);
    let single = Tensor::<Flex, 0, Bool>::full([0; 0], true, &DEVICE);
    assert_eq!(single.argwhere().dims(), [1, 0]);
    let nan = floats::<1>([f32::NAN, 0.0, -0.0, 1.0]);
    places(nan.clone().count_nonzero(), &[2]);
    places(nan.nonzero().remove(0), &[0, 3]);
}

#[test]
fn asynchronous_reads_match_synchronous_reads() {
    let x = floats::<2>([[0.0, 2.0], [3.0, 0.0]]);
    places(ready(x.clone().argwhere_async()).unwrap(), &[0, 1, 1, 0]);
    places(ready(x.clone().nonzero_async()).unwrap().remove(0), &[0, 1]);
    let mask = x.clone().greater_elem(1);
    holds(ready(x.clone().mask_select_async(mask)).unwrap(), &[2.0, 3.0]);
    assert_eq!(ready(x.clone().to_data_async()).unwrap(), x.clone().into_data());
    assert_eq!(ready(x.clone().sum().into_scalar_async::<i64>()), 5);
    assert!(ready(x.clone().try_into_scalar_async::<f32>()).is_err());
    assert_eq!(ready(x.to_vec_async::<i32>()).unwrap(), [0, 2, 3, 0]);
    assert_eq!(ready(x.clone().sum().item_async::<i64>()).unwrap(), 5);
    assert!(ready(x.item_async::<f32>()).is_err());
    assert!(ready(x.clone().all_close_async(x.clone() * 1.000001, None, None)).unwrap());
    assert!(ready(x.all_close_async(floats::<2>([[0.0; 3]; 2]), None, None)).is_err());
    let empty = Tensor::<Flex, 2>::zeros([2, 0], &DEVICE);
    assert_eq!(ready(empty.argwhere_async()).unwrap().dims(), [0, 2]);
}

fn parts<const D: usize, const D2: usize>(set: Unique<Flex, D, D2, Int>) -> [TensorData; 3] {
    [set.values.into_data(), set.inverse.into_data(), set.counts.into_data()]
}

#[test]
fn asynchronous_sets_match_synchronous_sets() {
    let x = ints::<2>([[3, 1], [3, 1], [0, 1]]);
    assert_eq!(ready(x.clone().unique_async()).unwrap().into_data(), x.clone().unique().into_data());
    let (a, b) = (ready(x.clone().unique_with_counts_async()), x.clone().unique_with_counts());
    assert_eq!(parts(a.unwrap()), parts(b));
    let (a, b) = (ready(x.clone().unique_dim_async(0)), x.clone().unique_dim(0));
    assert_eq!(parts(a.unwrap()), parts(b));
    let (a, b) = (ready(x.clone().unique_consecutive_async()), x.clone().unique_consecutive());
    assert_eq!(parts(a.unwrap()), parts(b));
    let (a, b) = (ready(x.clone().unique_consecutive_dim_async(0)), x.clone().unique_consecutive_dim(0));
    assert_eq!(parts(a.unwrap()), parts(b));
    assert!(ready(x.unique_dim_async(2)).is_err());
    let numbers = ints::<1>([1, 3, 1]);
    places(ready(numbers.clone().bincount_async(0)).unwrap(), &[0, 2, 0, 1]);
    let weights = floats::<1>([0.5, 1.0, 0.25]);
    holds(ready(numbers.bincount_weighted_async(weights, 0)).unwrap(), &[0.0, 0.75, 0.0, 1.0]);
    assert!(ready(ints::<1>([-1]).bincount_async(0)).is_err());
}

#[test]
fn gradients_of_mask_select() {
    let x = Tensor::<Autodiff<Flex>, 1>::from_floats([1.0, 2.0, 3.0], &DEVICE).require_grad();
    let mask = x.clone().greater_elem(1.5);
    let picked = x.clone().mask_select(mask).square().sum();
    let gradient = x.grad(&picked.backward()).unwrap();
    holds(gradient, &[0.0, 4.0, 6.0]);
}

#[test]
fn searchsorted_uses_the_total_order() {
    let sorted = floats::<1>([-1.0, 0.0, 0.0, 2.0, f32::INFINITY, f32::NAN]);
    let values = floats::<1>([-5.0, 0.0, 2.5, f32::INFINITY, f32::NAN]);
    places(sorted.clone().searchsorted(values.clone(), false), &[0, 1, 4, 4, 5]);
    places(sorted.searchsorted(values, true), &[0, 3, 4, 5, 6]);
    places(floats::<1>([0.0f32; 0]).searchsorted(floats([1.0, 2.0]), false), &[0, 0]);
    let great = (1i64 << 40) + 1;
    let data = |x: Vec<i64>| Tensor::<Flex, 1, Int>::from_data_dtype(x, DType::I64, &DEVICE);
    places(data(vec![great - 1, great, great + 1]).searchsorted(data(vec![great]), true), &[2]);
}

fn any(shape: &[usize], dtype: DType) -> AnyTensor {
    AnyTensor::zeros(TensorType::new(shape, dtype), &Device::cpu()).unwrap()
}

/// The first line of the message; `messages.rs` has the hints.
#[track_caller]
fn fails(expected: &str, result: Result<AnyTensor>) {
    let message = result.unwrap_err().to_string();
    assert_eq!(message.lines().next(), Some(expected), "{message}");
}

#[test]
fn errors_of_invalid_calls() {
    let (x, i) = (any(&[2, 3], DType::F32), any(&[4], DType::I32));
    fails(
        "[select] the indices need exactly 1 axis: f32[2, 3] x i32[2, 2]",
        x.clone().select(0, any(&[2, 2], DType::I32)),
    );
    fails("[take_along_dim] tensor and indices do not broadcast outside axis 1: f32[2, 3] x i32[4]", {
        x.clone().take_along_dim(1, i.clone())
    });
    fails("[gather_nd] the places must be integers: f32[2, 3] x f32[2, 3]", x.clone().gather_nd(x.clone()));
    fails(
        "[gather_nd] places of 4 coordinates for 2 axes: f32[2, 3] x i32[4]",
        x.clone().gather_nd(i.clone()),
    );
    fails("[scatter_nd] the values must have shape [5]: f32[2, 3] x i32[5, 2] x f32[2, 3]", {
        x.clone().scatter_nd(any(&[5, 2], DType::I32), x.clone(), UpdateMode::Add)
    });
    fails("[masked_scatter] the mask must be bool: f32[2, 3] x i32[4] x f32[2, 3]", {
        x.clone().masked_scatter(i.clone(), x.clone())
    });
    fails("[mask_select] tensor and mask do not broadcast: f32[2, 3] x bool[2]", {
        x.clone().mask_select(any(&[2], DType::Bool))
    });
    fails("[searchsorted] the sorted tensor and the values differ in dtype: f32[2, 3] x i32[4]", {
        x.clone().searchsorted(i.clone(), false)
    });
    fails("[bucketize] the boundaries need exactly 1 axis: f32[2, 3] x f32[2, 3]", {
        x.clone().bucketize(x.clone(), false)
    });
    fails("[scatter_reduce] tensor and values differ in dtype: f32[2, 3] x i32[4]", {
        x.clone().scatter_reduce(0, i.clone(), i, ScatterReduction::Sum, true)
    });
}
