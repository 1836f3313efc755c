//! Options of the learner that change the memory and the random numbers of the process.

use std::sync::{Arc, Mutex};

use kiln_backends::Flex;
use kiln_nn::{Dropout, DropoutConfig, Linear, LinearConfig, Module};
use kiln_optim::SgdConfig;
use kiln_tensor::{Autodiff, Backend, Checkpointing, MemoryConfig, Tensor};
use kiln_train::loader::TensorLoader;
use kiln_train::{FunctionTask, Learner, Step, StepOutput, Supervised, TrainError, Trainable, Validation};

use crate::alone;

type B = Autodiff<Flex>;

fn points(len: usize) -> Tensor<B, 2> {
    Tensor::<B, 1>::arange_float(0.0..len as f64, 1.0, &Default::default()).unsqueeze_dim::<2>(1) / len as f64
}

#[derive(Module, Clone, Debug)]
struct Noisy<E: Backend> {
    linear: Linear<E>,
    dropout: Dropout,
}

#[test]
fn a_seed_decides_dropout_and_shuffling() {
    let _alone = alone();
    let run = |seed: Option<u64>, before: u64| {
        let device = Default::default();
        B::seed(&device, 1);
        let model = Noisy::<B> {
            linear: LinearConfig::new(1, 1).init(&device),
            dropout: DropoutConfig::new(0.5).init(),
        };
        B::seed(&device, before);
        let loss = |model: &Noisy<B>, x: Tensor<B, 2>| {
            let y = model.linear.forward(model.dropout.forward(x));
            StepOutput::new((y - 1.0).square().mean(), 8)
        };
        let task = Supervised::new(model, SgdConfig::new().init(), 0.1, loss);
        let mut learner = Learner::new(task).epochs(2).silent();
        if let Some(seed) = seed {
            learner = learner.seed(seed);
        }
        learner.fit_tensors(points(32), points(8), 8).unwrap().losses
    };
    assert_eq!(run(Some(7), 2), run(Some(7), 3));
    assert_ne!(run(Some(7), 2), run(Some(8), 2));
    assert_ne!(run(None, 2), run(None, 3));
    assert_eq!(run(None, 2), run(None, 2));
}

/// Runs one step of a chain of cheap ops on so many numbers, and returns the bytes that its tape keeps.
fn tape_bytes(mode: Checkpointing) -> usize {
    let live = || B::memory(&Default::default()).map_or(0, |memory| memory.live_bytes);
    let seen = Arc::new(Mutex::new(0));
    let of = seen.clone();
    let train = move |model: &mut Trainable<Linear<B>>, x: Tensor<B, 2>, step: &mut Step<'_>| {
        let before = live();
        let mut y = model.forward(x);
        for _ in 0..20 {
            y = y.clone() * (y * 0.5 + 0.1);
        }
        let loss = y.mean();
        B::sync(&Default::default()).map_err(TrainError::task)?;
        *of.lock().unwrap() = live().saturating_sub(before);
        step.backward(loss, model).map(|_| ())
    };
    let validate = |_: &mut Trainable<Linear<B>>, _: Tensor<B, 2>, _: &mut Validation<'_>| Ok(());
    let model = LinearConfig::new(1, 1).init(&Default::default());
    let task = FunctionTask::new(model, SgdConfig::new().init(), 0.01, train, validate);
    let mut learner = Learner::new(task).checkpointing(mode).silent();
    learner.fit_tensors(points(1 << 18), points(4), 1 << 18).unwrap();
    *seen.lock().unwrap()
}

#[test]
fn checkpointing_saves_memory() {
    let _alone = alone();
    let (all, balanced) = (tape_bytes(Checkpointing::None), tape_bytes(Checkpointing::Balanced));
    assert!(all >= 20 << 20, "20 saved tensors of 1 MiB: {all}");
    assert!(balanced < all / 2, "{balanced} of {all}");
}

#[test]
fn batches_are_halved_under_a_limit_of_memory() {
    let _alone = alone();
    let device = Default::default();
    let model: Linear<B> = LinearConfig::new(1024, 1024).init(&device);
    let x = Tensor::<B, 2>::ones([512, 1024], &device);
    let valid = TensorLoader::new(x.clone()).batch_size(16);
    let loss = |model: &Linear<B>, x: Tensor<B, 2>| {
        let items = x.dims()[0];
        let y = (0..8).fold(x, |y, _| model.forward(y).tanh());
        StepOutput::new(y.square().mean(), items)
    };
    let task = Supervised::new(model, SgdConfig::new().init(), 0.1, loss);
    let mut sizes = Vec::new();
    B::memory_cleanup(&device);
    let live = B::memory(&device).unwrap().live_bytes;
    // Gradients of 4 MiB, and for 512 items 16 tensors of 2 MiB on the tape.
    B::configure_memory(&device, MemoryConfig::new().with_limit(live + (24 << 20))).unwrap();
    let mut learner = Learner::new(task).silent();
    let train = TensorLoader::new(x);
    let result = learner.fit_with_batch_size(
        512,
        |size| {
            sizes.push(size);
            Ok(train.clone().batch_size(size))
        },
        &valid,
    );
    B::configure_memory(&device, MemoryConfig::new()).unwrap();
    let history = result.unwrap();
    assert!(sizes.len() > 1, "the limit of memory was not reached");
    assert!(history.losses.iter().all(|loss| loss.is_finite()));
    assert_eq!(history.losses.len(), 512 / sizes.last().unwrap());
}
