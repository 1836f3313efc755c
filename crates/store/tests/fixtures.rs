//! Backward compatibility: checkpoints of earlier formats are readable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kiln_backends::Flex;
use kiln_nn::{Module, Param};
use kiln_optim::{AdamConfig, Optimizer};
use kiln_store::Checkpoint;
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
    let tensors: BTreeMap<String, TensorData> = state.into_tensors().into_iter().collect();
    assert_eq!(tensors.len(), 6);
    close(tensors["weight.exp_avg"].clone(), &[0.1; 4]);
    close(tensors["weight.exp_avg_sq"].clone(), &[0.001; 4]);
    close(tensors["bias.exp_avg"].clone(), &[0.1; 2]);
    close(tensors["bias.exp_avg_sq"].clone(), &[0.001; 2]);
    assert_eq!(tensors["weight.step"], TensorData::scalar(1u64));
    checkpoint.state().restore_random(&net).unwrap();
}
