//! Typical program forms compile and compute correctly.

use kiln::nn::{Dropout, DropoutConfig, Gelu, GradientsParams, Linear, LinearConfig, Module};
use kiln::optim::{Optimizer, SgdConfig};
use kiln::tensor::{OperandType, ResultTypes};
use kiln::{
    Autodiff, Backend, CustomOp, Device, Distribution, Dyn, Flex, Int, Tensor, TensorData, Var, activation,
    loss, module, s,
};
use std::f64::consts::SQRT_2;

type B = Autodiff<Flex>;

#[test]
fn the_autodiff_example() {
    let device = Default::default();
    let x: Tensor<B, 2> = Tensor::random([32, 32], Distribution::Default, &device);
    let y: Tensor<B, 2> = Tensor::random([32, 32], Distribution::Default, &device).require_grad();
    let tmp = (x.clone() + y.clone()).matmul(x.clone()).exp();
    let grads = tmp.backward();
    let y_grad = y.grad(&grads).unwrap();
    // d/dy of Σ exp((x + y) x) is exp(..) xᵀ.
    let expected = tmp.inner().matmul(x.inner().transpose());
    assert!(y_grad.all_close(expected, Some(1e-4), None));
}

#[derive(Module, Clone, Debug)]
struct PositionWiseFeedForward<B: Backend> {
    linear_inner: Linear<B>,
    linear_outer: Linear<B>,
    dropout: Dropout,
    gelu: Gelu,
}

impl<B: Backend> PositionWiseFeedForward<B> {
    fn new(model: usize, inner: usize, device: &B::Device) -> Self {
        PositionWiseFeedForward {
            linear_inner: LinearConfig::new(model, inner).init(device),
            linear_outer: LinearConfig::new(inner, model).init(device),
            dropout: DropoutConfig::new(0.1).init(),
            gelu: Gelu::new(),
        }
    }

    fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let x = self.linear_inner.forward(input);
        let x = self.gelu.forward(x);
        let x = self.dropout.forward(x);
        self.linear_outer.forward(x)
    }
}

#[test]
fn a_position_wise_feed_forward_module() {
    let device = Default::default();
    let module = PositionWiseFeedForward::<B>::new(8, 16, &device);
    let x = Tensor::<B, 3>::random([2, 5, 8], Distribution::Normal(0.0, 1.0), &device);
    assert_eq!(module.forward(x).dims(), [2, 5, 8]);
    let table = module.to_string();
    assert!(table.contains("linear_inner"), "{table}");
}

/// A module without a backend parameter runs on its device.
#[derive(Module, Clone, Debug)]
struct Regression {
    linear: Linear,
}

#[test]
fn a_module_with_the_default_backend() {
    let device = Device::cpu().autodiff();
    let model = Regression { linear: LinearConfig::new(3, 1).init(&device) };
    let x = Tensor::<Dyn, 2>::ones([4, 3], &device);
    let grads = model.linear.forward(x).sum().backward();
    let weight = model.linear.weight.grad(&grads).unwrap();
    assert_eq!(weight.into_data().to_vec::<f32>(), [4.0, 4.0, 4.0]);
}

fn gelu_custom<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    x.clone() * ((x / SQRT_2).erf() + 1) / 2
}

#[test]
fn a_user_defined_activation() {
    let device = Default::default();
    let x = Tensor::<Flex, 1>::from_floats([-2.0, -0.5, 0.0, 1.0, 3.0], &device);
    assert!(gelu_custom(x.clone()).all_close(activation::gelu(x), Some(1e-5), Some(1e-6)));
}

#[test]
fn operators_take_values_references_and_scalars() {
    let device = Default::default();
    let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 4.0], &device);
    let y = &x + &x - x.clone() * 0.5 + (1 - &x) / 2 + x.clone() / 2;
    assert_eq!(y.into_data().to_vec::<f32>(), [2.0, 3.5, 6.5]);
    let i = Tensor::<Flex, 1, Int>::from_ints([7, -7, 5], &device);
    assert_eq!((i.clone() % 3).into_data().to_vec::<i32>(), [1, -1, 2]);
    assert_eq!(((i / 2) << Tensor::from_ints([1, 1, 1], &device)).into_data().to_vec::<i32>(), [6, -6, 4]);
}

#[test]
fn slices_with_steps() {
    let x = Tensor::<Flex, 1, Int>::arange(0..12, &Default::default()).reshape([3, 4]);
    assert_eq!(x.clone().slice(s![1.., ..;2]).into_data().to_vec::<i32>(), [4, 6, 8, 10]);
    assert_eq!(x.slice(s![-1, ..;-1]).into_data().to_vec::<i32>(), [11, 10, 9, 8]);
}

/// Fits y = 3 x - 1 by hand: no trainer.
#[test]
fn a_hand_written_training_loop() {
    let device = Default::default();
    B::seed(&device, 7);
    let mut model: Linear<B> = LinearConfig::new(1, 1).init(&device);
    let mut optimizer = SgdConfig::new().init();
    let x = Tensor::<B, 2>::random([64, 1], Distribution::Uniform(-1.0, 1.0), &device);
    let y = x.clone() * 3 - 1;
    let mut last = f32::INFINITY;
    for _ in 0..200 {
        let loss = loss::mse(model.forward(x.clone()), y.clone(), loss::Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.3, model, gradients);
        last = loss.into_scalar();
    }
    assert!(last < 1e-6, "the loss is still {last}");
    assert!((model.weight.val().into_scalar::<f32>() - 3.0).abs() < 1e-2);
}

/// A custom op `x³` with a gradient rule, computed on the host.
#[derive(Debug)]
struct Cube;

impl CustomOp for Cube {
    fn name(&self) -> &str {
        "cube"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> kiln::Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty)] if ty.dtype.is_float() => Ok([**ty].into_iter().collect()),
            _ => Err(kiln::Error::type_error("cube", "takes one float tensor", inputs)),
        }
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<kiln::Result<Vec<TensorData>>> {
        let cubes: Vec<f32> = inputs[0].to_vec::<f32>().iter().map(|x| x * x * x).collect();
        Some(TensorData::new(cubes, *inputs[0].shape()).map(|data| vec![data.convert(inputs[0].dtype())]))
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<kiln::Result<Vec<Option<Var<'e>>>>> {
        let x = &inputs[0];
        Some(Ok(vec![gradients[0].as_ref().map(|gradient| gradient * x * x * 3.0)]))
    }
}

#[derive(Module, Clone, Debug)]
struct CubicNet<B: Backend> {
    linear: Linear<B>,
}

impl<B: Backend> CubicNet<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        module::custom(Cube, vec![self.linear.forward(x)])
    }
}

#[test]
fn a_custom_op_in_a_model() {
    let device = Default::default();
    let model = CubicNet::<B> { linear: LinearConfig::new(2, 2).with_bias(false).init(&device) };
    let x = Tensor::<B, 2>::from_floats([[0.5, -1.0]], &device);
    let grads = model.forward(x.clone()).sum().backward();
    let gradient = model.linear.weight.grad(&grads).unwrap();
    let h = model.linear.forward(x.clone()).inner();
    let expected = (h.square() * 3).transpose().matmul(x.inner());
    assert!(gradient.all_close(expected, Some(1e-4), Some(1e-6)));
}

#[test]
fn a_dynamic_device() {
    use kiln::dynamic::Tensor;
    let device = Device::open("cpu", 0).unwrap();
    let x = Tensor::<2>::ones([2, 2], &device);
    assert_eq!(x.matmul(Tensor::ones([2, 2], &device)).into_data().to_vec::<f32>(), [2.0; 4]);
    let error = Device::open("abacus", 0).unwrap_err().to_string();
    assert!(error.contains("cpu"), "{error}");
}

#[test]
fn second_order_gradients_by_stacking() {
    type B2 = Autodiff<Autodiff<Flex>>;
    let below = Tensor::<B, 1>::from_floats([2.0], &Default::default()).require_grad();
    let x = Tensor::<B2, 1>::from_inner(below.clone()).require_grad();
    let cube = x.clone() * &x * &x;
    let first = x.grad(&cube.backward()).unwrap();
    assert_eq!(first.to_data().to_vec::<f32>(), [12.0]);
    let second = below.grad(&first.backward()).unwrap();
    assert_eq!(second.into_data().to_vec::<f32>(), [12.0]);
}

#[test]
fn errors_have_one_format() {
    let device = Default::default();
    let a = Tensor::<Flex, 2>::zeros([2, 3], &device);
    let b = Tensor::<Flex, 2>::zeros([4, 5], &device);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a.matmul(b))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.starts_with("[matmul] inner sizes differ: f32[2, 3] x f32[4, 5]\n  hint: "), "{message}");
}
