//! Versions of the files of modules and optimizers.

use std::collections::BTreeMap;

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{Optimizer, Sgd, SgdConfig};
use kiln_store::{
    StoreError, TensorFile, load_module, load_optimizer, save_module, save_optimizer, save_tensors,
};
use kiln_tensor::{Autodiff, Backend, Tensor, TensorData};

use crate::weights::fixture;

type B = Autodiff<Flex>;

#[derive(Debug, Module)]
struct Line<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

fn line(weight: [[f32; 2]; 2], bias: [f32; 2]) -> Line<B> {
    let device = Default::default();
    Line {
        weight: Param::from_tensor(Tensor::from_floats(weight, &device)),
        bias: Param::from_tensor(Tensor::from_floats(bias, &device)),
    }
}

/// The model and the optimizer of the fixtures: after one step with gradients of 1. All values are exact.
fn stepped() -> (Line<B>, Sgd) {
    let net = line([[1.0, 2.0], [3.0, 4.0]], [0.5, -1.0]);
    let mut sgd = SgdConfig::new().with_momentum(0.5).init();
    let loss = net.weight.val().sum() + net.bias.val().sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &net);
    let net = sgd.step(0.25, net, gradients);
    (net, sgd)
}

#[test]
fn files_of_each_version_are_read() {
    for version in 0..=1 {
        let path = fixture(&format!("module-v{version}.safetensors"));
        let written = TensorFile::open(&path).unwrap().metadata().get("kiln.format").cloned();
        assert_eq!(written, (version > 0).then(|| version.to_string()));
        let net = load_module(line([[0.0; 2]; 2], [0.0; 2]), path).unwrap();
        assert_eq!(net.weight.val().into_data().to_vec::<f32>(), [0.75, 1.75, 2.75, 3.75]);
        assert_eq!(net.bias.val().into_data().to_vec::<f32>(), [0.25, -1.25]);
        let mut sgd = SgdConfig::new().with_momentum(0.5).init();
        load_optimizer(&mut sgd, &net, fixture(&format!("optimizer-v{version}.safetensors"))).unwrap();
        let state: BTreeMap<String, TensorData> =
            sgd.state(&net).unwrap().into_tensors().unwrap().into_iter().collect();
        assert_eq!(state["weight.momentum_buffer"], TensorData::from([[1.0f32; 2]; 2]));
        assert_eq!(state["bias.step"], TensorData::scalar(1u64));
    }
}

/// Any change of the format needs a new version and a new fixture. `UPDATE_EXPECT=1` writes the newest one.
#[test]
fn the_newest_version_is_written_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (net, sgd) = stepped();
    type Save<'a> = &'a dyn Fn(&std::path::Path) -> Result<(), StoreError>;
    let saves: [(&str, Save); 2] = [
        ("module-v1.safetensors", &|path| save_module(&net, path)),
        ("optimizer-v1.safetensors", &|path| save_optimizer(&sgd, &net, path)),
    ];
    for (name, save) in saves {
        let path = folder.path().join(name);
        save(&path).unwrap();
        if std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1") {
            save(&fixture(name)).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(fixture(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let (net, mut sgd) = stepped();
    for version in ["2", "x"] {
        let metadata = [("kiln.format", version), ("kiln.optimizer", "Sgd")];
        let metadata = metadata.map(|(key, text)| (key.to_owned(), text.to_owned()));
        let tensors =
            [("weight", TensorData::from([[1.0f32; 2]; 2])), ("bias", TensorData::from([1.0f32; 2]))];
        let tensors = tensors.map(|(name, data)| (name.to_owned(), data));
        save_tensors(&path, tensors, &BTreeMap::from(metadata)).unwrap();
        let error = load_module(line([[0.0; 2]; 2], [0.0; 2]), &path).unwrap_err();
        assert!(
            matches!(&error, StoreError::Version { found, supported: 1, .. } if found == version),
            "{error}"
        );
        assert!(error.to_string().contains("update Kiln"), "{error}");
        assert!(matches!(load_optimizer(&mut sgd, &net, &path), Err(StoreError::Version { .. })));
    }
}
