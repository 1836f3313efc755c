//! A model of two stages on two devices: the encoder on one, the head on the other. Its losses are those of the model on one
//! device.
//!
//! Run with `cargo run --release --example split-model --features router`, on a GPU and the CPU with `--features router,cuda`.

use kiln::backend::router::duo::MultiDevice;
use kiln::nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln::optim::{AdamConfig, Optimizer};
use kiln::{Autodiff, Backend, Cpu, CpuDevice, Distribution, Router, Tensor, loss};
use std::error::Error;

#[cfg(feature = "cuda")]
use kiln::Cuda as First;
#[cfg(not(feature = "cuda"))]
use kiln::Flex as First;

type Split = Router<(First, Cpu)>;
type B = Autodiff<Split>;
type Place = <B as Backend>::Device;

const STEPS: usize = 20;

#[derive(Module, Clone, Debug)]
struct Stages<B: Backend> {
    encoder: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Stages<B> {
    /// All weights are drawn on one device, so that they do not depend on where the stages go.
    fn new(devices: &[B::Device; 2]) -> Self {
        let [first, second] = devices;
        B::seed(first, 42);
        Stages {
            encoder: LinearConfig::new(2, 64).init(first),
            head: LinearConfig::new(64, 1).init(first).to_device(second),
        }
    }

    /// The activations move to the second stage; their gradients come back by themselves.
    fn forward(&self, x: Tensor<B, 2>, devices: &[B::Device; 2]) -> Tensor<B, 2> {
        let hidden = self.encoder.forward(x).tanh();
        self.head.forward(hidden.to_device(&devices[1]))
    }
}

/// The losses of a few steps.
fn train(devices: &[Place; 2]) -> Result<Vec<f32>, Box<dyn Error>> {
    let [first, second] = devices;
    let mut model = Stages::<B>::new(devices);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let x = Tensor::<B, 2>::random([64, 2], Distribution::Uniform(-1.0, 1.0), first);
        let y = x.clone().square().sum_dim(1).to_device(second);
        let loss = loss::mse(model.forward(x, devices), y, loss::Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        losses.push(loss.try_into_scalar::<f32>()?);
    }
    Ok(losses)
}

fn main() -> Result<(), Box<dyn Error>> {
    kiln_examples::exit_on_closed_pipe();
    let [first, second]: [Place; 2] = [MultiDevice::B1(Default::default()), MultiDevice::B2(CpuDevice)];
    let alone = train(&[first.clone(), first.clone()])?;
    Split::reset_statistics();
    let split = train(&[first, second])?;
    for (step, (split, alone)) in split.iter().zip(&alone).enumerate() {
        println!("step {step:2}   loss {split:.6} on two devices, {alone:.6} on one");
        if (split - alone).abs() > 1e-5 * alone.abs() {
            return Err(format!("step {step}: {split} on two devices instead of {alone}").into());
        }
    }
    let statistics = Split::statistics();
    println!("transfers: {:?} by hand, {:?} by policy", statistics.explicit, statistics.automatic);
    for member in &statistics.members {
        println!("{}: {} ops", member.name, member.ops);
    }
    Ok(())
}
