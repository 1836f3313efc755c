//! Element types of backends, conversions of elements, shapes as arrays.

use kiln as burn;

use burn::backend::{Autodiff, Flex, NdArray};
use burn::prelude::*;
use burn::tensor::{Device, Element};

/// The batch of the basic workflow in Burn's book: images scaled, labels as class indices.
fn batch<B: Backend>(items: &[([[u8; 2]; 2], u8)], device: &Device<B>) -> (Tensor<B, 3>, Tensor<B, 1, Int>) {
    let images = items
        .iter()
        .map(|item| TensorData::from(item.0))
        .map(|data| Tensor::<B, 2, Int>::from_data(data, device).float())
        .map(|tensor| tensor.reshape([1, 2, 2]))
        .map(|tensor| tensor / 255)
        .collect();
    let targets = items
        .iter()
        .map(|item| Tensor::<B, 1, Int>::from_data([i64::from(item.1).elem::<B::IntElem>()], device))
        .collect();
    (Tensor::cat(images, 0), Tensor::cat(targets, 0))
}

/// The mean as the backend's own element, converted by the caller's choice.
fn mean<B: Backend, const D: usize, E: Element>(x: Tensor<B, D>) -> E {
    let mean: B::FloatElem = x.mean().into_scalar();
    mean.elem::<E>()
}

#[test]
fn a_batch_has_the_elements_of_its_backend() {
    fn check<B: Backend>() {
        let device = Device::<B>::default();
        let (images, targets) = batch::<B>(&[([[0, 255], [51, 0]], 3), ([[255; 2]; 2], 250)], &device);
        assert_eq!(targets.dtype(), B::IntElem::DTYPE);
        assert_eq!(images.dtype(), B::FloatElem::DTYPE);
        let expected: [B::IntElem; 2] = [3i32.elem(), 250u8.elem()];
        assert_eq!(targets.into_data().to_vec::<B::IntElem>(), expected);
        assert!((mean::<B, 3, f64>(images.clone()) - 0.65).abs() < 1e-6);
        let mask = images.equal_elem(1.0).any();
        assert!(mask.into_scalar::<B::BoolElem>().elem::<bool>());
    }
    check::<Flex>();
    check::<Autodiff<NdArray<f64, i64>>>();
    check::<Dyn>();
}

/// Gradients have the elements of the backend with gradients.
fn slope<B: burn::tensor::backend::AutodiffBackend>(x: B::FloatElem, device: &B::Device) -> B::FloatElem {
    let x = Tensor::<B, 1>::from_data([x], device).require_grad();
    let grads = (x.clone() * x.clone()).backward();
    x.grad(&grads).unwrap().into_scalar()
}

fn index(x: impl burn::tensor::cast::ToElement) -> usize {
    x.to_usize()
}

#[test]
fn elements_convert() {
    assert_eq!(slope::<Autodiff<NdArray<f64>>>(1.5, &Default::default()), 3.0);
    assert_eq!((2.9f32.elem::<i32>(), 7i64.elem::<f64>(), 0.5f64.elem::<bool>()), (2, 7.0, true));
    assert_eq!((f32::from_elem(3usize), i64::from_elem(true)), (3.0, 1));
    assert_eq!((index(3i32), 2.5f32.to_f64(), 1u8.to_bool()), (3, 2.5, true));
}

#[test]
fn shapes_are_arrays() {
    let x = Tensor::<Flex, 3>::zeros([2, 3, 4], &Default::default());
    let [batch, rows, columns] = x.shape().dims();
    assert_eq!((batch, rows, columns), (2, 3, 4));
    assert_eq!(x.shape().dims::<3>(), x.dims());
    let wrong = std::panic::catch_unwind(|| Shape::new([2, 3]).dims::<3>()).unwrap_err();
    assert_eq!(wrong.downcast_ref::<String>().unwrap(), "[shape] [2, 3] has 2 axes, not 3");
}
