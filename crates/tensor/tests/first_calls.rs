//! Convenience API: tensors from literals, the default device, element access, gradients of non-scalars.

use kiln_backends::{Cpu, Device, Dyn, Flex};
use kiln_tensor::loss::{self, ClassOptions, Reduction};
use kiln_tensor::{
    AnyTensor, Autodiff, Bool, DType, Int, Shape, SliceArg, Tensor, TensorData, default_device, module, s,
    with_device,
};
use std::panic::catch_unwind;

type B = Autodiff<Flex>;

#[test]
fn tensors_are_created_from_literals() {
    let x = Tensor::<Cpu, 2>::from([[1., 2.], [3., 4.]]);
    assert_eq!((x.dims(), x.dtype()), ([2, 2], DType::F32));
    assert_eq!(x.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(Tensor::<Flex, 1, Int>::from(vec![1, 2]).to_vec::<i64>(), [1, 2]);
    assert_eq!(Tensor::<Flex, 1>::from(&[0.5f32, 1.5][..]).to_vec::<f64>(), [0.5, 1.5]);
    assert_eq!(Tensor::<Flex, 1, Bool>::from([true, false]).to_vec::<bool>(), [true, false]);
    assert_eq!(Tensor::<Flex, 3>::from([[[1.0], [2.0]]]).dims(), [1, 2, 1]);
    assert_eq!(Tensor::<Flex, 4>::from([[[[1.0, 2.0]]]]).dims(), [1, 1, 1, 2]);
    assert_eq!(Tensor::<Flex, 1>::from(2.5).dims(), [1]);
    let data = TensorData::new(vec![1i32, 2, 3, 4], [2, 2]).unwrap();
    let from: Tensor<Flex, 2, Int> = data.clone().into();
    assert_eq!(from.into_data(), data);
}

#[test]
#[should_panic(expected = "is not a tensor of kind Float with 1 axes")]
fn data_of_another_rank_panics() {
    let _ = Tensor::<Flex, 1>::from(TensorData::from([[1.0f32]]));
}

#[test]
fn to_vec_and_item_borrow_the_tensor() {
    let x = Tensor::<Flex, 1>::from([1.0, 2.0, 3.0]);
    assert_eq!(x.to_vec::<i32>(), [1, 2, 3]);
    assert_eq!(x.try_to_vec::<f64>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(x.clone().sum().item::<f32>(), 6.0);
    assert_eq!(x.as_any().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    let error = x.try_item::<f32>().unwrap_err().to_string();
    assert!(error.starts_with("[item] is not a single element: f32[3]"), "{error}");
    assert_eq!(x.as_any().clone().slice(2).unwrap().item::<f64>().unwrap(), 3.0);
}

#[test]
fn with_device_sets_the_default_device_of_a_scope() {
    let place = || Tensor::<Dyn, 1>::from([1.0]).device();
    let before = default_device::<Device>();
    assert_eq!((before.clone(), place()), (Device::cpu(), Device::cpu()));
    with_device(&Device::flex(), || {
        assert_eq!(place(), Device::flex());
        with_device(&Device::cpu().autodiff(), || assert_eq!(place(), Device::cpu().autodiff()));
        assert_eq!(place(), Device::flex());
        // Devices of other types, and other threads, keep their defaults.
        assert_eq!(Tensor::<Cpu, 1>::from([1.0]).device(), Default::default());
        std::thread::scope(|threads| {
            assert_eq!(threads.spawn(place).join().unwrap(), Device::cpu());
        });
    });
    assert_eq!(place(), before);
}

#[test]
fn a_panic_restores_the_default_device() {
    let panicked = catch_unwind(|| with_device(&Device::flex(), || panic!("a test")));
    assert!(panicked.is_err());
    assert_eq!(default_device::<Device>(), Device::cpu());
}

#[test]
fn backward_of_a_non_scalar_is_backward_of_its_sum() {
    let x = Tensor::<B, 2>::from([[1.0, -2.0], [3.0, 0.5]]).require_grad();
    let y = || x.clone().powi_scalar(3);
    let of_all = x.grad(&y().backward()).unwrap();
    let of_sum = x.grad(&y().sum().backward()).unwrap();
    assert_eq!(of_all.to_vec::<f32>(), of_sum.to_vec::<f32>());
    assert_eq!(of_all.to_vec::<f32>(), [3.0, 12.0, 27.0, 0.75]);
}

#[test]
fn untyped_tensors_have_gradients() {
    let device = Device::flex().autodiff();
    let x = AnyTensor::from_data([1.0f32, 2.0], &device).require_grad().unwrap();
    let y = x.clone().mul(x.clone()).unwrap();
    let mut gradients = y.backward().unwrap();
    assert_eq!(x.grad(&gradients).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert!(x.grad_remove(&mut gradients).is_some());
    assert!(x.grad(&gradients).is_none());
    let weights = AnyTensor::from_data([10.0f32, 0.0], &device.inner());
    let weighted = y.backward_from(weights).unwrap();
    assert_eq!(x.grad(&weighted).unwrap().to_vec::<f32>().unwrap(), [20.0, 0.0]);
    let plain = AnyTensor::from_data([1.0f32], &Device::flex());
    assert!(plain.backward().unwrap_err().to_string().contains("has no automatic differentiation"));
}

#[test]
fn detach_exists_on_every_backend() {
    let plain = Tensor::<Cpu, 1>::from([1.0, 2.0]).detach();
    assert_eq!(plain.to_vec::<f32>(), [1.0, 2.0]);
    assert_eq!(Tensor::<Dyn, 1, Int>::from([1]).detach().item::<i32>(), 1);
    let x = Tensor::<B, 1>::from([3.0]).require_grad();
    assert!((&x * 2).is_tracked() && !(&x * 2).detach().is_tracked());
}

#[test]
fn slice_accepts_bare_ranges() {
    let x = Tensor::<Flex, 2, Int>::from([[0, 1, 2], [3, 4, 5]]);
    let of = |x: Tensor<Flex, 2, Int>| x.to_vec::<i32>();
    assert_eq!(of(x.clone().slice(1..)), [3, 4, 5]);
    assert_eq!(of(x.clone().slice(0..1)), [0, 1, 2]);
    assert_eq!(of(x.clone().slice(..=0)), [0, 1, 2]);
    assert_eq!(of(x.clone().slice(-1)), [3, 4, 5]);
    assert_eq!(of(x.clone().slice(..)), [0, 1, 2, 3, 4, 5]);
    assert_eq!(of(x.clone().slice([0..2, 1..3])), [1, 2, 4, 5]);
    assert_eq!(of(x.clone().slice(s![.., ..;2])), [0, 2, 3, 5]);
    assert_eq!(of(x.clone().slice(SliceArg::FULL.step(-1))), [3, 4, 5, 0, 1, 2]);
    assert_eq!(of(x.clone().slice_fill(1.., 9)), [0, 1, 2, 9, 9, 9]);
    assert_eq!(of(x.clone().slice_assign(0..1, x.clone().slice(1))), [3, 4, 5, 3, 4, 5]);
    let ranges = [SliceArg::from(1..2), SliceArg::from(..2)];
    assert_eq!(x.into_any().slice(&ranges[..]).unwrap().to_vec::<i32>().unwrap(), [3, 4]);
}

#[test]
fn cross_entropy_accepts_classes_or_probabilities() {
    let logits = Tensor::<Flex, 2>::from([[2.0, -1.0, 0.5], [0.0, 1.0, 3.0]]);
    let classes = Tensor::<Flex, 1, Int>::from([0, 2]);
    let probabilities = Tensor::<Flex, 2>::from([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]);
    let each = ClassOptions { reduction: Reduction::None, ..ClassOptions::default() };
    for options in [ClassOptions::default(), each] {
        let by_class = loss::cross_entropy(logits.clone(), classes.clone(), &options).to_vec::<f32>();
        let by_probability =
            loss::cross_entropy(logits.clone(), probabilities.clone(), &options).to_vec::<f32>();
        assert_eq!(by_class.len(), by_probability.len());
        by_class.iter().zip(&by_probability).for_each(|(a, b)| assert!((a - b).abs() < 1e-6));
    }
}

#[test]
fn data_is_iterated_and_printed() {
    let data = Tensor::<Flex, 2>::from([[1.0, 2.0], [3.0, 4.5]]).into_data();
    assert_eq!(data.iter::<f64>().rev().collect::<Vec<_>>(), [4.5, 3.0, 2.0, 1.0]);
    assert_eq!(data.iter::<f32>().len(), 4);
    assert_eq!(data.to_string(), "[[1.0, 2.0],\n [3.0, 4.5]]");
    assert_eq!(Shape::new([2, 3]), Shape::from(vec![2, 3]));
}

#[test]
fn gradient_reversal_changes_only_the_gradient() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let x = Tensor::<B, 1>::from([1.0, f32::INFINITY, f32::NAN]).cast(dtype).require_grad();
        let y = module::gradient_reversal(x.clone(), 0.25);
        assert_eq!(y.dtype(), dtype);
        assert_eq!(y.to_vec::<f32>()[..2], [1.0, f32::INFINITY]);
        assert!(y.to_vec::<f32>()[2].is_nan());
        assert_eq!(x.grad(&(y * 2).backward()).unwrap().to_vec::<f32>(), [-0.5, -0.5, -0.5]);
    }
    let refused = catch_unwind(|| module::gradient_reversal(Tensor::<B, 1>::from([1.0]), f64::NAN));
    let message = refused.unwrap_err().downcast_ref::<String>().cloned().unwrap();
    assert!(message.contains("the factor NaN of the gradient is not finite"), "{message}");
}

/// A captured number is not possible; another input is.
#[test]
fn custom_gradients_take_further_inputs_and_numbers_of_both_widths() {
    let x = Tensor::<B, 1>::from([0.5, 3.0]).require_grad();
    let limit = Tensor::<B, 1>::from([1.0]).require_grad();
    let y: Tensor<B, 1> = module::custom_gradient(
        "clipped_square",
        vec![x.clone(), limit.clone().detach()],
        |inputs| (inputs[0].square() + 1.0f32) - 1.0,
        |inputs, _, gradient| vec![(&inputs[0] * 2.0f32).min(&inputs[1]) * gradient, &inputs[1] * 0.0f32],
    );
    assert_eq!(y.to_vec::<f32>(), [0.25, 9.0]);
    let gradients = y.backward();
    assert_eq!(x.try_grad(&gradients).unwrap().to_vec::<f32>(), [1.0, 1.0]);
    assert!(limit.try_grad(&gradients).unwrap_err().to_string().contains("did not reach it"));
}
