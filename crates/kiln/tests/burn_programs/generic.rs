//! Functions that are generic over the backend, with gradients of tensors and of a parameter.

use kiln as burn;

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::{Autodiff, Cpu, Flex};
use burn::module::{Module, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Shape, Tensor, TensorData};

fn softplus<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    (x.exp() + 1.0).log()
}

fn gradient<B: AutodiffBackend>(x: TensorData, device: &B::Device) -> Tensor<B::InnerBackend, 1> {
    let x = Tensor::<B, 1>::from_data(x, device).require_grad();
    let grads = softplus(x.clone()).sum().backward();
    x.grad(&grads).unwrap()
}

#[derive(Module, Debug, Clone)]
struct Scale<B: Backend> {
    factor: Param<Tensor<B, 1>>,
}

fn factor_gradient<B: AutodiffBackend>(device: &B::Device) -> (ParamId, Vec<f32>) {
    let model = Scale::<B> { factor: Param::from_tensor(Tensor::from_floats([1.0, 2.0], device)) };
    let loss = (model.factor.val() * model.factor.val()).sum();
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    let id = model.factor.id();
    (id, grads.tensor::<B::InnerBackend, 1>(id).unwrap().into_data().to_vec::<f32>())
}

#[test]
fn gradients_agree_on_every_backend() {
    fn check<B: AutodiffBackend>() {
        let device = B::Device::default();
        let found = gradient::<B>(TensorData::from([0.0, 1.0]), &device);
        assert_eq!(found.shape(), Shape::from([2]));
        let found = found.into_data().to_vec::<f32>();
        let sigmoid = 1.0 / (1.0 + (-1.0f32).exp());
        assert!((found[0] - 0.5).abs() < 1e-6 && (found[1] - sigmoid).abs() < 1e-6, "{found:?}");
        assert_eq!(factor_gradient::<B>(&device).1, [2.0, 4.0]);
    }
    check::<Autodiff<Flex>>();
    check::<Autodiff<Cpu>>();
    check::<Autodiff<Flex, BalancedCheckpointing>>();
}
