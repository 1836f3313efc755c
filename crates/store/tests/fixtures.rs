//! Backward compatibility: checkpoints of earlier formats are readable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{AdamConfig, Optimizer, Sgd, SgdConfig};
use kiln_store::{Checkpoint, CheckpointContents, CheckpointWriter, TrainingState};
use kiln_tensor::random::KeyState;
use kiln_tensor::{Autodiff, Backend, Tensor, TensorData};

type B = Autodiff<Flex>;

#[derive(Debug, Module)]
struct Line<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

fn line(start: f32) -> Line<B> {
    let device = Default::default();
    Line {
        weight: Param::from_tensor(Tensor::from_floats([[start, start + 1.0], [2.0, 3.0]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.5, -start], &device)),
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// `checkpoint-1` holds this model after one step of Adam with a rate of 0.25 and gradients of 1: the step's length is
/// the rate, the moments are 1 - 0.9 and 1 - 0.999.
#[test]
fn a_checkpoint_of_version_1_is_read() {
    let checkpoint = Checkpoint::open(fixture("checkpoint-1")).unwrap();
    assert_eq!((checkpoint.state().epoch, checkpoint.state().step), (3, 2814));
    assert_eq!(checkpoint.state().value::<f64>("rate").unwrap(), Some(0.25));

    let net = checkpoint.load_module(line(7.0)).unwrap();
    let close = |data: TensorData, expected: &[f32]| {
        let values = data.to_vec::<f32>();
        assert_eq!(values.len(), expected.len());
        let differ = |(x, y): (&f32, &f32)| (x - y).abs() > 1e-6;
        assert!(!values.iter().zip(expected).any(differ), "{values:?}, expected {expected:?}");
    };
    close(net.weight.val().into_data(), &[0.75, 1.75, 1.75, 2.75]);
    close(net.bias.val().into_data(), &[0.25, -1.25]);

    assert!(checkpoint.has_optimizer());
    let mut optimizer = AdamConfig::new().init();
    checkpoint.load_optimizer(&mut optimizer, &net).unwrap();
    let state = optimizer.state(&net).unwrap();
    let tensors: BTreeMap<String, TensorData> = state.into_tensors().unwrap().into_iter().collect();
    assert_eq!(tensors.len(), 6);
    close(tensors["weight.exp_avg"].clone(), &[0.1; 4]);
    close(tensors["weight.exp_avg_sq"].clone(), &[0.001; 4]);
    close(tensors["bias.exp_avg"].clone(), &[0.1; 2]);
    close(tensors["bias.exp_avg_sq"].clone(), &[0.001; 2]);
    assert_eq!(tensors["weight.step"], TensorData::scalar(1u64));
    checkpoint.state().restore_random(&net).unwrap();
}

fn state_of(optimizer: &dyn Optimizer, module: &dyn Module) -> BTreeMap<String, TensorData> {
    optimizer.state(module).unwrap().into_tensors().unwrap().into_iter().collect()
}

/// The model of `checkpoint-v1`, `checkpoint-v2` and `checkpoint-v3`, and its optimizer: after one step with gradients
/// of 1. All values are exact.
fn stepped() -> (Line<B>, Sgd) {
    let device = Default::default();
    let net: Line<B> = Line {
        weight: Param::from_tensor(Tensor::from_floats([[1.0, 2.0], [3.0, 4.0]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.5, -1.0], &device)),
    };
    let mut sgd = SgdConfig::new().with_momentum(0.5).init();
    let loss = net.weight.val().sum() + net.bias.val().sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &net);
    let net = sgd.step(0.25, net, gradients);
    (net, sgd)
}

fn check_stepped(checkpoint: &Checkpoint) {
    assert_eq!((checkpoint.state().epoch, checkpoint.state().step), (3, 2814));
    assert_eq!(checkpoint.state().value::<f64>("rate").unwrap(), Some(0.25));
    let net = checkpoint.load_module(line(7.0)).unwrap();
    assert_eq!(net.weight.val().into_data().to_vec::<f32>(), [0.75, 1.75, 2.75, 3.75]);
    assert_eq!(net.bias.val().into_data().to_vec::<f32>(), [0.25, -1.25]);
    let mut sgd = SgdConfig::new().with_momentum(0.5).init();
    checkpoint.load_optimizer(&mut sgd, &net).unwrap();
    let expected = [
        ("bias.momentum_buffer", TensorData::from([1.0f32; 2])),
        ("bias.step", TensorData::scalar(1u64)),
        ("weight.momentum_buffer", TensorData::from([[1.0f32; 2]; 2])),
        ("weight.step", TensorData::scalar(1u64)),
    ];
    let expected: BTreeMap<String, TensorData> =
        expected.into_iter().map(|(name, data)| (name.to_owned(), data)).collect();
    assert_eq!(state_of(&sgd, &net), expected);
    checkpoint.state().restore_random(&net).unwrap();
}

#[test]
fn checkpoints_of_each_version_are_read() {
    for name in ["checkpoint-v1", "checkpoint-v2", "checkpoint-v3"] {
        check_stepped(&Checkpoint::open(fixture(name)).unwrap());
    }
    for name in ["checkpoint-v1", "checkpoint-v2"] {
        let checkpoint = Checkpoint::open(fixture(name)).unwrap();
        assert_eq!(checkpoint.module_names(), ["model"]);
        assert_eq!(checkpoint.optimizer_names(), ["optimizer"]);
        assert!(checkpoint.tensor_names().is_empty());
        assert_eq!(checkpoint.state().stream("shuffle"), None);
    }
}

/// The contents of `checkpoint-v3`.
fn contents() -> CheckpointContents {
    let (net, sgd) = stepped();
    let state = TrainingState::of(&net).at(3, 2814).with_value("rate", &0.25).unwrap();
    let history = BTreeMap::from([
        ("loss".to_owned(), TensorData::from([0.5f64, 0.1])),
        ("best_step".to_owned(), TensorData::scalar(-1i64)),
    ]);
    CheckpointContents::new(state.with_stream("shuffle", KeyState { seed: 42, drawn: 3 }))
        .with_module("model", &net)
        .and_then(|contents| contents.with_module("ema", &line(1.0)))
        .and_then(|contents| contents.with_optimizer("optimizer", &sgd, &net))
        .and_then(|contents| contents.with_tensors("history", history))
        .unwrap()
}

#[test]
fn a_checkpoint_of_version_3_is_read() {
    let checkpoint = Checkpoint::open(fixture("checkpoint-v3")).unwrap();
    assert_eq!(checkpoint.module_names(), ["ema", "model"]);
    assert_eq!(checkpoint.optimizer_names(), ["optimizer"]);
    assert_eq!(checkpoint.state().stream("shuffle"), Some(KeyState { seed: 42, drawn: 3 }));
    let mut ema = line(7.0);
    checkpoint.load_module_into("ema", &mut ema).unwrap();
    assert_eq!(ema.weight.val().into_data().to_vec::<f32>(), [1.0, 2.0, 2.0, 3.0]);
    let history = checkpoint.tensors("history").unwrap();
    assert_eq!(history["loss"], TensorData::from([0.5f64, 0.1]));
    assert_eq!(history["best_step"], TensorData::scalar(-1i64));
}

/// Any change of the format needs a new version and a new fixture. `UPDATE_EXPECT=1` writes the newest one.
#[test]
fn the_newest_version_is_written_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (path, expected) = (folder.path().join("run"), fixture("checkpoint-v3"));
    CheckpointWriter::open(&path).unwrap().write(&contents()).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1") {
        CheckpointWriter::open(&expected).unwrap().write(&contents()).unwrap();
    }
    for name in [
        "model.safetensors",
        "model-ema.safetensors",
        "optimizer.safetensors",
        "tensors-history.safetensors",
        "training.json",
    ] {
        assert_eq!(
            std::fs::read(path.join(name)).unwrap(),
            std::fs::read(expected.join(name)).unwrap(),
            "{name}"
        );
    }
}
