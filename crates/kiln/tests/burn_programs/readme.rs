//! The programs of Burn's README.

use kiln as burn;

use burn::nn;
use burn::tensor::{Distribution, Tensor, backend::Backend};

#[test]
fn gradients_of_one_expression() {
    use burn::backend::{Autodiff, Flex};

    type Backend = Autodiff<Flex>;
    let device = Default::default();
    let x: Tensor<Backend, 2> = Tensor::random([32, 32], Distribution::Default, &device);
    let y: Tensor<Backend, 2> = Tensor::random([32, 32], Distribution::Default, &device).require_grad();
    let tmp = x.clone() + y.clone();
    let tmp = tmp.matmul(x);
    let tmp = tmp.exp();
    let grads = tmp.backward();
    let y_grad = y.grad(&grads).unwrap();
    assert_eq!(y_grad.dims(), [32, 32]);
}

#[test]
fn several_backends_as_one() {
    use burn::backend::{Cpu, Flex, Router, cpu::CpuDevice, flex::FlexDevice, router::duo::MultiDevice};

    type Backend = Router<(Cpu, Flex)>;
    let device_0 = MultiDevice::B1(CpuDevice);
    let device_1 = MultiDevice::B2(FlexDevice);
    let tensor_0 = Tensor::<Backend, 2>::random([3, 3], burn::tensor::Distribution::Default, &device_0);
    let tensor_1 = Tensor::<Backend, 2>::random([3, 3], burn::tensor::Distribution::Default, &device_1);
    assert_eq!((tensor_0.device(), tensor_1.device()), (device_0, device_1));
}

fn main_server(port: u16) {
    burn::server::start_websocket::<burn::backend::Flex>(Default::default(), port).unwrap();
}

fn main_client(address: &str) -> Vec<f32> {
    use burn::backend::{Autodiff, RemoteBackend, remote::RemoteDevice};

    type Backend = Autodiff<RemoteBackend>;
    let device = RemoteDevice::new(address);
    // The server of this test may not listen yet.
    while device.open().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let tensor_gpu = Tensor::<Backend, 2>::random([3, 3], Distribution::Default, &device).require_grad();
    let grads = (tensor_gpu.clone() * 2).sum().backward();
    tensor_gpu.grad(&grads).unwrap().into_data().to_vec::<f32>()
}

#[test]
fn a_client_and_a_server() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    // It serves until the process ends. Both names of the function have one signature.
    let _: fn(_, u16) -> _ = burn::server::start::<burn::backend::Flex>;
    std::thread::spawn(move || main_server(port));
    assert_eq!(main_client(&format!("ws://127.0.0.1:{port}")), [2.0; 9]);
}

#[derive(burn::module::Module, Debug)]
struct PositionWiseFeedForward<B: Backend> {
    linear_inner: nn::Linear<B>,
    linear_outer: nn::Linear<B>,
    dropout: nn::Dropout,
    gelu: nn::Gelu,
}

impl<B: Backend> PositionWiseFeedForward<B> {
    fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        let x = self.linear_inner.forward(input);
        let x = self.gelu.forward(x);
        let x = self.dropout.forward(x);

        self.linear_outer.forward(x)
    }
}

#[test]
fn a_module_for_inputs_of_every_rank() {
    use burn::backend::Flex;

    let device = Default::default();
    let module = PositionWiseFeedForward::<Flex> {
        linear_inner: nn::LinearConfig::new(4, 16).init(&device),
        linear_outer: nn::LinearConfig::new(16, 4).init(&device),
        dropout: nn::DropoutConfig::new(0.1).init(),
        gelu: nn::Gelu::new(),
    };
    assert_eq!(module.forward(Tensor::<Flex, 3>::ones([2, 3, 4], &device)).dims(), [2, 3, 4]);
    assert_eq!(module.forward(Tensor::<Flex, 2>::ones([3, 4], &device)).dims(), [3, 4]);
}
