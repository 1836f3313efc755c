//! Saving and loading of optimizer states.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_nn::Module;
use kiln_optim::{Optimizer, OptimizerState, StateTensor};

use crate::error::{Result, StoreError};
use crate::file::{NamedSources, Source, TensorFile, write_tensors};
use crate::version;

/// Metadata key of the optimizer's name.
const OPTIMIZER: &str = "kiln.optimizer";

/// Writes the optimizer state of a module to a safetensors file. On an error the file does not change.
///
/// # Errors
/// When the file cannot be written, or a device failed.
pub fn save_optimizer(optimizer: &dyn Optimizer, module: &dyn Module, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let (tensors, mut metadata) = optimizer_tensors(optimizer, module, path)?;
    version::insert(&mut metadata);
    write_tensors(path, tensors, &metadata)
}

/// The state of an optimizer as tensors, and metadata with the optimizer's name. `path` is for messages.
pub(crate) fn optimizer_tensors(
    optimizer: &dyn Optimizer,
    module: &dyn Module,
    path: &Path,
) -> Result<(NamedSources, BTreeMap<String, String>)> {
    let state = optimizer.state(module).map_err(|source| refused(path, source))?;
    let metadata = BTreeMap::from([(OPTIMIZER.to_owned(), state.optimizer().to_owned())]);
    let source = |(name, tensor): (String, StateTensor)| match tensor {
        StateTensor::Host(data) => (name, Source::Host(data)),
        StateTensor::Device(tensor) => (name, Source::Device(tensor)),
    };
    let tensors = state.into_state_tensors().into_iter().map(source);
    Ok((tensors.collect(), metadata))
}

/// Loads an optimizer state that [`save_optimizer`] wrote. On an error the optimizer does not change.
///
/// # Errors
/// When the file cannot be read or is damaged, was written by a newer release, or belongs to another optimizer or
/// module.
pub fn load_optimizer(
    optimizer: &mut dyn Optimizer,
    module: &dyn Module,
    path: impl AsRef<Path>,
) -> Result<()> {
    load_optimizer_from(optimizer, module, &TensorFile::open(path)?)
}

pub(crate) fn load_optimizer_from(
    optimizer: &mut dyn Optimizer,
    module: &dyn Module,
    file: &TensorFile,
) -> Result<()> {
    let Some(name) = file.metadata().get(OPTIMIZER) else {
        let problem = format!("contains no optimizer state: its metadata has no `{OPTIMIZER}`");
        return Err(StoreError::json(file.path(), problem));
    };
    let version = version::of(file.path(), file.metadata())?;
    let tensors = file.names().map(|name| Ok((version::migrated(name, version), file.read(name)?)));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    OptimizerState::from_tensors(name.clone(), tensors)
        .and_then(|state| optimizer.load_state(state, module))
        .map_err(|source| refused(file.path(), source))
}

fn refused(path: &Path, source: kiln_optim::OptimError) -> StoreError {
    StoreError::Optimizer { file: path.to_owned(), source }
}
