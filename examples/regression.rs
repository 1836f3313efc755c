//! A training loop written by hand: fits a small network to `sin(3 x)`.
//!
//! Run with `cargo run --release --example regression`.

use kiln::nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln::optim::{AdamConfig, Optimizer};
use kiln::{Autodiff, Backend, Distribution, Flex, Tensor, loss};
use std::error::Error;

type B = Autodiff<Flex>;

#[derive(Module, Clone, Debug)]
struct Mlp<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new(width: usize, device: &B::Device) -> Self {
        Mlp {
            hidden: LinearConfig::new(1, width).init(device),
            output: LinearConfig::new(width, 1).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(self.hidden.forward(x).tanh())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    kiln_examples::exit_on_closed_pipe();
    let device = Default::default();
    B::seed(&device, 42);
    let mut model = Mlp::<B>::new(32, &device);
    let mut optimizer = AdamConfig::new().init();
    println!("{model}");
    for step in 0..=1000 {
        let x = Tensor::<B, 2>::random([128, 1], Distribution::Uniform(-1.0, 1.0), &device);
        let y = (&x * 3).sin();
        let loss = loss::mse(model.forward(x), y, loss::Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        if step % 200 == 0 {
            println!("step {step:4}   loss {:.6}", loss.try_into_scalar::<f32>()?);
        }
    }
    Ok(())
}
