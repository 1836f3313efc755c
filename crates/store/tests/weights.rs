//! Weights of other programs: detection of formats, Flax and Burn files, mappings, versions.

mod burn;
mod detect;
mod flax;
mod hostile;
mod mapping;
mod versions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kiln_nn::{Module, Parameter, Visitor};
use kiln_store::{Weights, save_tensors};
use kiln_tensor::TensorData;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The numbers from `start` in steps of 1, in a shape.
fn ramp(start: f32, shape: &[usize]) -> TensorData {
    let count = shape.iter().product();
    TensorData::new((0..count).map(|i: usize| start + i as f32).collect::<Vec<f32>>(), shape).unwrap()
}

/// A safetensors file in memory, opened as weights.
fn weights(tensors: impl IntoIterator<Item = (&'static str, TensorData)>) -> Weights {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.safetensors");
    let tensors = tensors.into_iter().map(|(name, data)| (name.to_owned(), data));
    save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
    Weights::from_bytes(std::fs::read(&path).unwrap()).unwrap()
}

/// The parameters and buffers of a module.
fn values(module: &dyn Module) -> BTreeMap<String, TensorData> {
    struct Values(BTreeMap<String, TensorData>);
    impl Visitor for Values {
        fn parameter(&mut self, path: &kiln_nn::Path, parameter: Parameter) {
            self.0.insert(path.to_string(), parameter.value.to_data().unwrap());
        }
    }
    let mut values = Values(BTreeMap::new());
    module.visit(&mut kiln_nn::Path::new(), &mut values);
    values.0
}
