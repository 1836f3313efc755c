//! The same seed gives the same bits: values that are read at random moments, by any thread, change nothing.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use kiln_backends::{Autocast, Cpu};
use kiln_ir::philox;
use kiln_nn::conv::{Conv2d, Conv2dConfig};
use kiln_nn::norm::{BatchNorm, BatchNormConfig};
use kiln_nn::{Dropout, DropoutConfig, GradientsParams, Linear, LinearConfig, Module};
use kiln_optim::{AdamWConfig, Optimizer};
use kiln_tensor::{Autodiff, Backend, Distribution, Int, Tensor, activation, bf16, loss};

use crate::alone;

const STEPS: usize = 8;

#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
    dropout: Dropout,
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        Net {
            conv: Conv2dConfig::new([1, 4], [3, 3]).init(device),
            norm: BatchNormConfig::new(4).init(device),
            dropout: DropoutConfig::new(0.25).init(),
            hidden: LinearConfig::new(4 * 6 * 6, 40).init(device),
            output: LinearConfig::new(40, 5).init(device),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let maps = activation::relu(self.norm.forward(self.conv.forward(images)));
        let hidden = activation::gelu(self.hidden.forward(self.dropout.forward(maps.flatten(1, 3))));
        self.output.forward(hidden)
    }
}

/// A value for another thread to read.
enum Read<B: Backend> {
    Loss(Tensor<B, 1>),
    Logits(Tensor<B, 2>),
    Weights(Box<Net<B>>),
}

impl<B: Backend> Read<B> {
    fn run(self) {
        match self {
            Read::Loss(loss) => drop(loss.to_data()),
            Read::Logits(logits) => drop(logits.to_data()),
            Read::Weights(net) => {
                drop((net.norm.running_mean.value().to_data(), net.hidden.weight.to_data()))
            }
        }
    }
}

/// Random reads of a run; without a seed there are none.
struct Reads<B: Backend> {
    seed: Option<u64>,
    drawn: u64,
    threads: Vec<mpsc::Sender<(Duration, Read<B>)>>,
}

impl<B: Backend> Reads<B> {
    fn draw(&mut self, below: u32) -> u32 {
        self.drawn += 1;
        self.seed.map_or(0, |seed| philox::block(seed, self.drawn)[0] % below)
    }

    /// Reads the value now, soon on another thread, or not at all.
    fn maybe(&mut self, value: impl FnOnce() -> Read<B>) {
        if self.seed.is_none() {
            return;
        }
        match self.draw(4) {
            0 => value().run(),
            1 => {
                let (thread, delay) = (self.draw(2) as usize, self.draw(3000));
                self.threads[thread].send((Duration::from_micros(delay.into()), value())).unwrap();
            }
            _ => {}
        }
    }
}

fn read_all<B: Backend>(reads: Receiver<(Duration, Read<B>)>) {
    for (delay, read) in reads {
        thread::sleep(delay);
        read.run();
    }
}

/// The bits of all losses and weights after some steps.
fn run<B: Backend>(seed: Option<u64>) -> Vec<u32> {
    let _alone = alone();
    let device = Default::default();
    Autodiff::<B>::seed(&device, 7);
    thread::scope(|scope| {
        let threads = (0..2).map(|_| {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || read_all::<Autodiff<B>>(receiver));
            sender
        });
        let mut reads = Reads { seed, drawn: 0, threads: threads.collect() };
        let mut net = Net::<Autodiff<B>>::new(&device);
        let mut optimizer = AdamWConfig::new().init();
        let mut losses = Vec::new();
        for _ in 0..STEPS {
            let images = Tensor::random([16, 1, 8, 8], Distribution::Normal(0.0, 1.0), &device);
            let classes: Tensor<_, 1, Int> =
                images.clone().reshape([16, 64]).narrow(1, 0, 5).argmax(1).reshape([16]);
            let logits = net.forward(images);
            reads.maybe(|| Read::Logits(logits.clone()));
            let loss = loss::cross_entropy(logits.clone(), classes, &Default::default());
            reads.maybe(|| Read::Loss(loss.clone()));
            let gradients = loss.backward();
            reads.maybe(|| Read::Logits(logits));
            let gradients = GradientsParams::from_grads(gradients, &net);
            net = optimizer.step(0.01, net, gradients);
            reads.maybe(|| Read::Weights(Box::new(net.clone())));
            losses.push(loss);
        }
        let mut bits = Vec::new();
        let mut add = |values: Vec<f32>| bits.extend(values.into_iter().map(f32::to_bits));
        losses.into_iter().for_each(|loss| add(loss.to_data().to_vec()));
        add(net.conv.weight.to_data().to_vec());
        add(net.norm.running_var.value().to_data().to_vec());
        add(net.hidden.weight.to_data().to_vec());
        add(net.output.weight.to_data().to_vec());
        bits
    })
}

fn check<B: Backend>() {
    let expected = run::<B>(None);
    for seed in 0..20 {
        assert!(run::<B>(Some(seed)) == expected, "reads by seed {seed} change the results");
    }
}

#[test]
fn reads_change_no_bit_of_a_training_run() {
    check::<Cpu>();
}

#[test]
fn reads_change_no_bit_of_a_training_run_in_mixed_precision() {
    check::<Autocast<Cpu, bf16>>();
}
