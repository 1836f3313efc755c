//! The pool in training: after the first steps nothing is asked of the system.
//!
//! One test in this program, since the numbers are those of the process.

use kiln_backends::{Cpu, Flex};
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module, Relu};
use kiln_optim::{Adam, AdamConfig, Optimizer};
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Distribution, Int, Tensor};

#[derive(Debug, Module)]
struct Net<B: Backend> {
    layers: Vec<Linear<B>>,
    activation: Relu,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        let layers = [(784, 256), (256, 256), (256, 10)];
        Net {
            layers: layers.map(|(from, to)| LinearConfig::new(from, to).init(device)).into(),
            activation: Relu::new(),
        }
    }

    fn loss(&self, x: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        let (last, layers) = self.layers.split_last().expect("there are layers");
        let hidden = layers.iter().fold(x, |x, layer| self.activation.forward(layer.forward(x)));
        kiln_tensor::loss::cross_entropy(last.forward(hidden), targets, &Default::default())
    }
}

fn step<B: AutodiffBackend>(
    model: Net<B>,
    optimizer: &mut Adam,
    x: &Tensor<B, 2>,
    targets: &Tensor<B, 1, Int>,
) -> Net<B> {
    let loss = model.loss(x.clone(), targets.clone());
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    drop(loss);
    optimizer.step(0.001, model, gradients)
}

#[test]
fn a_training_step_allocates_nothing_from_the_system() {
    // Op by op, a step makes dozens of tensors; fused, only the results of matmuls and kernels.
    pooled::<Autodiff<Flex>>(30);
    pooled::<Autodiff<Cpu>>(5);
    logits_and_their_gradient_are_the_peak();
    a_clamp_of_the_only_clone_is_in_place();
}

/// Bounds of floats are custom ops, for their gradient at the bound; they write into an operand that nothing else holds
/// all the same.
fn a_clamp_of_the_only_clone_is_in_place() {
    let device = Default::default();
    let x = Tensor::<Flex, 1>::random([1 << 20], Distribution::Normal(0.0, 1.0), &device);
    let live = || Flex::memory(&device).expect("the engine keeps account");
    let before = live().live_bytes;
    Flex::reset_peak_memory(&device);
    let y = x.clamp(-0.5, 0.5);
    assert_eq!((live().live_bytes, live().peak_live_bytes), (before, before));
    let y = y.into_data().to_vec::<f32>();
    assert!(y.iter().all(|y| (-0.5..=0.5).contains(y)) && y.contains(&0.5) && y.contains(&-0.5));
}

/// A layer that is much smaller than its output: a language model's last one. Logits and their gradient are the peak of
/// a step; neither probabilities nor masks of that size live beside them.
fn logits_and_their_gradient_are_the_peak() {
    type B = Autodiff<Cpu>;
    let (rows, classes) = (512, 4096);
    let device = Default::default();
    let mut layer = LinearConfig::new(16, classes).init::<B>(&device);
    let mut optimizer = AdamConfig::new().init();
    let x = Tensor::<B, 2>::random([rows, 16], Distribution::Normal(0.0, 1.0), &device);
    let targets =
        Tensor::<B, 1, Int>::from_data((0..rows as i32).map(|i| i * 7).collect::<Vec<_>>(), &device);
    let mut grown = 0;
    for _ in 0..4 {
        B::sync(&device).expect("nothing fails");
        let before = B::memory(&device).expect("the engine keeps account").live_bytes;
        B::reset_peak_memory(&device);
        let loss =
            kiln_tensor::loss::cross_entropy(layer.forward(x.clone()), targets.clone(), &Default::default());
        let gradients = GradientsParams::from_grads(loss.backward(), &layer);
        drop(loss);
        layer = optimizer.step(0.001, layer, gradients);
        B::sync(&device).expect("nothing fails");
        grown = B::memory(&device).expect("the engine keeps account").peak_live_bytes - before;
    }
    let logits = rows * classes * size_of::<f32>();
    println!("{:.2} times the logits", grown as f64 / logits as f64);
    assert!(grown >= logits && grown < 2 * logits + logits / 2, "{grown} bytes, logits have {logits}");
}

/// A step takes at least so many buffers that were freed before.
fn pooled<B: AutodiffBackend>(reuses: u64) {
    let device = B::Device::default();
    let mut model = Net::<B>::new(&device);
    let mut optimizer = AdamConfig::new().init();
    let x = Tensor::random([64, 784], Distribution::Normal(0.0, 1.0), &device);
    let targets = Tensor::from_data((0..64).map(|i| i % 10).collect::<Vec<i32>>(), &device);
    for _ in 0..5 {
        model = step(model, &mut optimizer, &x, &targets);
    }
    let warm = B::memory(&device).expect("the engine keeps account");
    for _ in 0..20 {
        model = step(model, &mut optimizer, &x, &targets);
    }
    let after = B::memory(&device).expect("the engine keeps account");
    println!("{warm:?}\n{after:?}");
    assert_eq!(after.system_allocations, warm.system_allocations);
    assert_eq!(after.live_bytes, warm.live_bytes, "steps leave nothing behind");
    assert!(after.reuses >= warm.reuses + 20 * reuses, "a step makes tensors");
    assert!(after.cached_bytes <= after.peak_live_bytes / 4 + (32 << 20));

    drop((model, optimizer, x, targets));
    B::memory_cleanup(&device);
    assert!(B::memory(&device).is_some_and(|memory| memory.cached_bytes == 0));
}
