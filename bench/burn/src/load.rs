//! Weights from a file.

use bench_protocol::Prepared;
use burn::module::{Initializer, Module, Param};
use burn::store::{ModuleSnapshot, SafetensorsStore};
use burn::tensor::{Device, Tensor};

/// The tensors of the file, under its names: `tensors.0` and so on.
#[derive(Module, Debug)]
struct Weights {
    tensors: Vec<Param<Tensor<2>>>,
}

/// The file holds this many square matrices of this many rows.
const TENSORS: usize = 32;
const ROWS: usize = 2048;

/// Loads all tensors and then reads every number of them once, so that reading cannot be put off.
pub(crate) fn prepare(file: &str, device: Device) -> Prepared {
    let file = file.to_owned();
    Prepared::new(move || {
        let parameter = |_| Initializer::Zeros.init([ROWS, ROWS], &device);
        let mut weights = Weights { tensors: (0..TENSORS).map(parameter).collect() };
        weights.load_from(&mut SafetensorsStore::from_file(&file))?;
        let sums = weights.tensors.iter().map(|tensor| tensor.val().sum()).collect();
        Ok(Tensor::<1>::cat(sums, 0).sum().try_into_scalar::<f64>()?)
    })
}
