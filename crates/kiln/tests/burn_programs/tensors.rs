//! Quick calculations with tensors.

use kiln as burn;

use burn::prelude::*;
use burn::tensor::{activation, linalg};

type B = burn::backend::NdArray<f32, i64>;

#[test]
fn least_squares_by_the_normal_equations() {
    let device = burn::backend::ndarray::NdArrayDevice::Cpu;
    let x = Tensor::<B, 2>::from_data([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], &device);
    let y = Tensor::<B, 2>::from_data([[1.0], [3.0], [5.0]], &device);
    let gram = x.clone().transpose().matmul(x.clone());
    let [[a, b], [_, d]] = [[3.0f32, 3.0], [3.0, 5.0]];
    assert_eq!(gram.into_data(), TensorData::from([[a, b], [b, d]]));
    let inverse = Tensor::<B, 2>::from_data([[d, -b], [-b, a]], &device) / (a * d - b * b);
    let weights = inverse.matmul(x.transpose().matmul(y)).squeeze_dim::<1>(1).into_data().to_vec::<f32>();
    assert!((weights[0] - 1.0).abs() < 1e-5 && (weights[1] - 2.0).abs() < 1e-5, "{weights:?}");
}

#[test]
fn shapes_and_statistics() {
    let device = Default::default();
    let x = Tensor::<B, 1, Int>::arange(0..12, &device).float().reshape([3, 4]);
    assert_eq!(x.clone().slice([1..3, 0..2]).to_data().to_vec::<f32>(), [4.0, 5.0, 8.0, 9.0]);
    assert_eq!(x.clone().slice(s![.., 1..2]).dims(), [3, 1]);
    assert_eq!(x.clone().mean_dim(1).squeeze_dim::<1>(1).to_data().to_vec::<f32>(), [1.5, 5.5, 9.5]);
    let (values, indices) = x.clone().max_dim_with_indices(0);
    assert_eq!(values.to_data().to_vec::<f32>(), [8.0, 9.0, 10.0, 11.0]);
    assert_eq!(indices.to_data().to_vec::<i64>(), [2; 4]);
    let stacked: Tensor<B, 3> = Tensor::stack(vec![x.clone(), x.clone() * 2], 0);
    assert_eq!(stacked.shape(), Shape::from([2, 3, 4]));
    let even: Tensor<B, 2, Bool> = x.clone().int().remainder_scalar(2).equal_elem(0);
    assert_eq!(x.clone().mask_fill(even.bool_not(), 0.0).sum().into_scalar::<f32>(), 30.0);
    assert_eq!(linalg::vector_norm(x.clone(), 2.0, 1).dims(), [3, 1]);
    let rows = activation::softmax(x.clone(), 1).sum_dim(1).into_data().to_vec::<f32>();
    assert!(rows.iter().all(|sum| (sum - 1.0).abs() < 1e-6));
    let mask = Tensor::<B, 1, Bool>::from_bool(TensorData::from([true, false, true]), &device);
    assert_eq!((mask.rank(), mask.int().sum().into_scalar::<i64>()), (1, 2));
    let picked = x.select(1, Tensor::from_data([3, 0], &device));
    assert_eq!(picked.clamp(1.0, 8.0).into_data().to_vec::<f32>(), [3.0, 1.0, 7.0, 4.0, 8.0, 8.0]);
}
