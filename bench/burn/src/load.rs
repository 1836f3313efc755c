//! Weights from a file.

use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use burn::module::{Initializer, Module, Param};
use burn::store::{ModuleSnapshot, SafetensorsStore};
use burn::tensor::{Device, Tensor};

/// The tensors of the file, under its names: `tensors.0` and so on.
#[derive(Module, Debug)]
struct Weights {
    tensors: Vec<Param<Tensor<2>>>,
}

/// Loads all tensors and then reads every number of them once, so that reading cannot be put off.
pub(crate) fn prepare(row: &Row, file: &str, device: Device) -> Result<Prepared> {
    let (count, rows) = (row.size("tensors")?, row.size("rows")?);
    let file = file.to_owned();
    Ok(Prepared::new(move || {
        let parameter = |_| Initializer::Zeros.init([rows, rows], &device);
        let mut weights = Weights { tensors: (0..count).map(parameter).collect() };
        weights.load_from(&mut SafetensorsStore::from_file(&file))?;
        let sums = weights.tensors.iter().map(|tensor| tensor.val().sum()).collect();
        Ok(Tensor::<1>::cat(sums, 0).sum().try_into_scalar::<f64>()?)
    }))
}
