//! Every path of backends, devices and traits.

use kiln as burn;

use burn::backend::cpu::CpuDevice;
use burn::backend::flex::FlexDevice;
use burn::backend::ndarray::NdArrayDevice;
use burn::backend::{Autocast, Autodiff, Cpu, Flex, Fusion, NdArray};
use burn::config::Config;
use burn::module::{Module, Param, ParamId, conv2d};
use burn::prelude::{backend, nn, tensor};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, DType, Distribution, Int, Shape, Tensor, TensorData, module::ConvOptions};

#[derive(Config, Debug, PartialEq)]
struct Size {
    width: usize,
}

#[derive(Module, Debug)]
struct Bias<B: Backend> {
    bias: Param<Tensor<B, 1>>,
}

fn double<B: Backend>(device: &B::Device) -> Vec<f32> {
    let x = Tensor::<B, 1>::from_data(TensorData::from([1.0f32, 2.0]), device);
    (x * 2).into_data().to_vec::<f32>()
}

fn slope<B: AutodiffBackend>(device: &B::Device) -> f32 {
    let x = Tensor::<B, 1>::from_floats([3.0], device).require_grad();
    x.grad(&(x.clone() * x.clone()).backward()).unwrap().into_scalar::<f32>()
}

#[test]
fn backends_have_their_burn_paths() {
    assert_eq!(double::<Flex>(&FlexDevice), [2.0, 4.0]);
    assert_eq!(double::<Cpu>(&CpuDevice), [2.0, 4.0]);
    assert_eq!(double::<NdArray>(&NdArrayDevice::Cpu), [2.0, 4.0]);
    assert_eq!(double::<Fusion<Flex>>(&FlexDevice), [2.0, 4.0]);
    assert_eq!(double::<backend::Autocast<Cpu>>(&CpuDevice), double::<Autocast<Cpu>>(&CpuDevice));
    assert_eq!(slope::<Autodiff<NdArray<f64>>>(&NdArrayDevice::Cpu), 6.0);
    let x = Tensor::<NdArray<f64, i64>, 1>::ones([2], &NdArrayDevice::Cpu);
    assert_eq!((x.dtype(), x.device()), (DType::F64, NdArrayDevice::Cpu));
    assert_eq!(x.int().dtype(), DType::I64);
}

#[test]
fn derives_work_through_their_burn_paths() {
    assert_eq!(Size::from_json(r#"{ "width": 3 }"#).unwrap(), Size::new(3));
    let module = Bias::<Flex> { bias: Param::from_tensor(Tensor::zeros([3], &FlexDevice)) };
    assert_eq!(module.num_parameters(), 3);
    assert_ne!(module.bias.id(), ParamId::new());
    let image = tensor::Tensor::<Flex, 4>::random([1, 1, 4, 4], Distribution::Default, &FlexDevice);
    let kernel = Tensor::ones([2, 1, 3, 3], &FlexDevice);
    let y = conv2d(image, kernel, None, &ConvOptions::default());
    assert_eq!(y.shape(), Shape::from([1, 2, 2, 2]));
    let mask: Tensor<Flex, 4, Bool> = y.greater_elem(0.0);
    let ones: Tensor<Flex, 4, Int> = mask.int();
    assert_eq!(nn::Relu::new().forward(ones.float()).dims(), [1, 2, 2, 2]);
}
