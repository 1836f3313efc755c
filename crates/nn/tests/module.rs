//! Parameters, visitors, gradients and devices.

use kiln_backends::{Device, Dyn, Flex};
use kiln_ir::Binary;
use kiln_nn::*;
use kiln_tensor::{Autodiff, Backend, DType, Tensor};

type B = Autodiff<Flex>;

fn linear() -> Linear<B> {
    LinearConfig::new(3, 2).init(&Default::default())
}

#[test]
fn ids_are_unique_and_kept_by_clones() {
    let (a, b) = (linear(), linear());
    assert_ne!(a.weight.id(), b.weight.id());
    assert_ne!(a.weight.id(), a.bias.as_ref().unwrap().id());
    assert_eq!(a.weight.id(), a.clone().weight.id());
}

#[test]
fn only_trainable_parameters_are_leaves() {
    let device = Default::default();
    let param = Param::from_tensor(Tensor::<B, 1>::ones([2], &device));
    assert!(param.is_trainable() && param.is_require_grad());
    let frozen = param.freeze();
    assert!(!frozen.is_trainable() && !frozen.is_tracked());
    let again = frozen.unfreeze();
    assert!(again.is_require_grad());
    let buffer = Param::buffer(again.val() * 2).unfreeze();
    assert!(!buffer.is_tracked() && buffer.role() == ParameterRole::Buffer);
}

#[test]
fn map_parameters_passes_unshared_values() {
    let mut module = linear();
    let before = module.weight.to_data().to_vec::<f32>();
    let id = module.weight.id();
    module.map_parameters(|path, parameter| {
        assert!(parameter.value.value().is_unique(), "{path} is shared");
        assert!(parameter.value.stack().inner().is_none(), "{path} is tracked");
        parameter.map(|value| value.binary_scalar(Binary::Mul, 2.0).unwrap())
    });
    let after = module.weight.to_data().to_vec::<f32>();
    assert!(before.iter().zip(&after).all(|(before, after)| before * 2.0 == *after));
    assert!(module.weight.is_require_grad());
    assert_eq!(module.weight.id(), id);
}

#[test]
fn the_dtype_may_change_within_the_kind() {
    let mut module = linear();
    module.map_parameters(|_, parameter| parameter.map(|value| value.cast(DType::F64).unwrap()));
    assert_eq!(module.weight.dtype(), DType::F64);
    assert!(module.weight.is_require_grad());
}

#[test]
#[should_panic(expected = "parameter `weight` is f32[2, 3], but the visitor returned f32[6]")]
fn the_shape_may_not_change() {
    linear().map_parameters(|_, parameter| parameter.map(|value| value.reshape([6]).unwrap()));
}

#[test]
#[should_panic(expected = "but the visitor returned i32[2, 3]")]
fn the_kind_may_not_change() {
    linear().map_parameters(|_, parameter| parameter.map(|value| value.cast(DType::I32).unwrap()));
}

#[test]
fn gradients_are_looked_up_by_parameter_id() {
    let device = Default::default();
    let (used, unused) = (linear(), linear());
    let x = Tensor::<B, 2>::ones([4, 3], &device);
    let mut gradients = used.forward(x).sum().backward();
    assert!(GradientsParams::take(&mut gradients, &unused).is_empty());
    let mut gradients = GradientsParams::from_grads(gradients, &used);
    assert_eq!(gradients.len(), 2);
    let weight = gradients.tensor::<Flex, 2>(used.weight.id()).unwrap();
    assert_eq!(weight.into_data().to_vec::<f32>(), [4.0; 6]);
    let bias = gradients.remove(used.bias.as_ref().unwrap().id()).unwrap();
    assert_eq!(bias.into_data().unwrap().to_vec::<f32>(), [4.0; 2]);
    assert!(gradients.get(used.bias.as_ref().unwrap().id()).is_none());
    let sent = std::thread::spawn(move || gradients.len()).join().unwrap();
    assert_eq!(sent, 1);
}

#[test]
fn frozen_parameters_get_no_gradients() {
    let mut module = linear();
    module.weight = module.weight.freeze();
    let x = Tensor::<B, 2>::ones([4, 3], &Default::default());
    let gradients = GradientsParams::from_grads(module.forward(x).sum().backward(), &module);
    assert_eq!(gradients.len(), 1);
}

#[test]
fn a_module_moves_between_threads_and_devices() {
    let module = linear();
    let expected = module.weight.to_data();
    let moved = std::thread::spawn(move || module.to_device(&Default::default())).join().unwrap();
    assert_eq!(moved.weight.to_data(), expected);

    let plain: Linear = LinearConfig::new(3, 2).init(&Device::cpu());
    let (id, expected) = (plain.weight.id(), plain.weight.to_data());
    assert!(!plain.weight.device().is_autodiff());
    let tracked = plain.to_device(&Device::cpu().autodiff());
    assert!(tracked.weight.is_require_grad());
    assert_eq!((tracked.weight.id(), tracked.weight.to_data()), (id, expected));
    let back = tracked.to_device(&Device::cpu());
    assert!(!back.weight.device().is_autodiff());
    let _: Tensor<Dyn, 2> = back.weight.into_value();
}

#[test]
fn the_same_seed_gives_the_same_weights() {
    let device = crate::own_device();
    let weights = |seed| {
        Dyn::seed(&device, seed);
        let layer: Linear<Dyn> = LinearConfig::new(3, 2).init(&device);
        layer.weight.to_data()
    };
    assert_eq!(weights(1), weights(1));
    assert_ne!(weights(1), weights(2));
}

#[test]
fn accumulated_gradients_are_the_gradient_of_the_sum() {
    let model: Linear<Autodiff<Flex>> = LinearConfig::new(3, 2).init(&Default::default());
    let [first, second] = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[-1.0, 0.5, 2.0], [0.0, 1.0, -3.0]]];
    let gradients = |rows: Tensor<Autodiff<Flex>, 2>| {
        GradientsParams::from_grads(model.forward(rows).square().sum().backward(), &model)
    };
    let mut total = GradientsParams::new();
    total.accumulate(gradients(Tensor::from(first))).unwrap();
    total.accumulate(gradients(Tensor::from(second))).unwrap();
    let whole = gradients(Tensor::cat(vec![Tensor::from(first), Tensor::from(second)], 0));
    assert_eq!(total.len(), 2);
    for (id, gradient) in whole.iter() {
        let [sum, expected] = [total.get(id).unwrap(), gradient].map(|x| x.to_vec::<f32>().unwrap());
        sum.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-4, "{a} {b}"));
    }
}

#[test]
fn gradients_of_different_shapes_do_not_accumulate() {
    let model: Linear<Autodiff<Flex>> = LinearConfig::new(3, 2).with_bias(false).init(&Default::default());
    let id = model.weight.id();
    let of = |x: Tensor<Flex, 1>| GradientsParams::from_iter([(id, x.into_any())]);
    let mut total = of(Tensor::from([1.0, 2.0]));
    let error = total.accumulate(of(Tensor::from([1.0]))).unwrap_err().to_string();
    assert!(error.starts_with("[accumulate] two gradients of one parameter differ in type"), "{error}");
    assert_eq!(total.tensor::<Flex, 1>(id).unwrap().to_vec::<f32>(), [1.0, 2.0], "the sum stays");
}
