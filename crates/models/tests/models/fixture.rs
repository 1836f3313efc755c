//! Files of the fixtures.

use std::path::PathBuf;

use kiln_store::TensorFile;
use kiln_tensor::{DType, Int, Tensor, TensorData};

use crate::models::B;

/// The inputs and results of a model, computed by PyTorch.
pub(crate) struct Expected(TensorFile);

pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

pub(crate) fn expected(name: &str) -> Expected {
    Expected(TensorFile::open(folder(name).join("expected.safetensors")).unwrap())
}

impl Expected {
    pub(crate) fn data(&self, name: &str) -> TensorData {
        self.0.read(name).unwrap()
    }

    pub(crate) fn floats<const D: usize>(&self, name: &str) -> Tensor<B, D> {
        Tensor::from_data(self.data(name).convert(DType::F32), &Default::default())
    }

    pub(crate) fn ints<const D: usize>(&self, name: &str) -> Tensor<B, D, Int> {
        Tensor::from_data(self.data(name), &Default::default())
    }
}

#[track_caller]
pub(crate) fn assert_close<const D: usize>(found: Tensor<B, D>, expected: Tensor<B, D>, tolerance: f64) {
    assert_eq!(found.dims(), expected.dims());
    let difference = (found - expected).abs().max().into_scalar::<f32>();
    assert!(f64::from(difference) <= tolerance, "the greatest difference is {difference}");
}
