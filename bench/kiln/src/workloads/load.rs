//! Weights from a file.

use bench_protocol::{Prepared, Result};
use kiln::store::TensorFile;
use kiln::{Backend, Tensor};

/// Loads all tensors and reads every element once, so that lazy loading is included.
pub(crate) fn prepare<B: Backend>(file: &str, device: &B::Device) -> Result<Prepared> {
    let (file, stack) = (file.to_owned(), B::stack(device));
    Ok(Prepared::new(move || {
        let file = TensorFile::open(&file)?;
        let load = |name: &str| Ok(Tensor::<B, 2>::from_any(file.load(name, &stack)?));
        let tensors = file.names().map(load).collect::<Result<Vec<_>>>()?;
        let sums: Vec<Tensor<B, 1>> = tensors.iter().map(|tensor| tensor.clone().sum()).collect();
        Ok(Tensor::cat(sums, 0).sum().try_into_scalar::<f64>()?)
    }))
}
