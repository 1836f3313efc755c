//! The contents of a checkpoint in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kiln_nn::Module;
use kiln_optim::Optimizer;
use kiln_tensor::TensorData;

use super::part::{MAX_PARTS, PartKind, PartName};
use super::state::TrainingState;
use crate::error::{Result, StoreError};
use crate::file::{NamedSources, Source};
use crate::module::module_tensors;
use crate::optimizer::optimizer_tensors;

/// The contents of a checkpoint in memory: modules, optimizer states, named tensors and the position in training.
///
/// Later training steps do not change it, so another thread can write it ([`BackgroundWriter`](crate::BackgroundWriter)).
/// Parameters are not copied: the contents share their memory until the model's next step, which then writes new memory
/// instead of updating in place. A clone shares everything.
///
/// Names have 1 to 64 characters of `a-z`, `0-9` and `_`. A checkpoint has at most 64 modules, optimizers and groups of
/// tensors.
///
/// | part | file |
/// |---|---|
/// | module `model` | `model.safetensors` |
/// | module `NAME` | `model-NAME.safetensors` |
/// | optimizer `optimizer` | `optimizer.safetensors` |
/// | optimizer `NAME` | `optimizer-NAME.safetensors` |
/// | tensors `NAME` | `tensors-NAME.safetensors` |
///
/// ```
/// use std::collections::BTreeMap;
///
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_optim::AdamConfig;
/// use kiln_store::{Checkpoint, CheckpointContents, CheckpointWriter, TrainingState};
/// use kiln_tensor::{Autodiff, TensorData};
///
/// # let temporary = tempfile::tempdir()?;
/// # let folder = temporary.path().join("last");
/// let device = Default::default();
/// let generator: Linear<Autodiff<Flex>> = LinearConfig::new(2, 2).init(&device);
/// let critic: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&device);
/// let mut adam = AdamConfig::new().init();
/// let losses = BTreeMap::from([("losses".to_string(), TensorData::from([0.5f64, 0.25]))]);
///
/// let contents = CheckpointContents::new(TrainingState::of_modules(&[&generator, &critic]).at(1, 938))
///     .with_module("generator", &generator)?
///     .with_module("critic", &critic)?
///     .with_optimizer("critic", &adam, &critic)?
///     .with_tensors("history", losses)?;
/// CheckpointWriter::open(&folder)?.write(&contents)?;
///
/// let checkpoint = Checkpoint::open(&folder)?;
/// assert_eq!(checkpoint.module_names(), ["critic", "generator"]);
/// let mut critic: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&device);
/// checkpoint.load_module_into("critic", &mut critic)?;
/// checkpoint.load_named_optimizer("critic", &mut adam, &critic)?;
/// assert_eq!(checkpoint.tensors("history")?["losses"].to_vec::<f64>(), [0.5, 0.25]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CheckpointContents {
    state: TrainingState,
    parts: BTreeMap<PartName, Arc<TensorFileContents>>,
}

/// The contents of one file of tensors.
pub(super) struct TensorFileContents {
    pub(super) tensors: NamedSources,
    pub(super) metadata: BTreeMap<String, String>,
}

impl CheckpointContents {
    /// Returns contents without modules, optimizers and tensors.
    pub fn new(state: TrainingState) -> CheckpointContents {
        CheckpointContents { state, parts: BTreeMap::new() }
    }

    /// Replaces the position in training.
    #[must_use]
    pub fn with_state(mut self, state: TrainingState) -> CheckpointContents {
        self.state = state;
        self
    }

    /// Adds all parameters and buffers of a module. Does not wait for the device, and copies nothing.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when the name is invalid or already used for a module, or there are too many
    /// parts. [`StoreError::Duplicate`] when two parameters have the same name.
    pub fn with_module(self, name: &str, module: &dyn Module) -> Result<CheckpointContents> {
        let part = self.new_part(PartKind::Module, name)?;
        let (tensors, metadata) = module_tensors(module);
        self.with(part, tensors, metadata)
    }

    /// Adds the state of an optimizer for a module. Waits until the outcome of its steps is known
    /// ([`Optimizer::state`]). The tensors are copied to the host when they are written.
    ///
    /// # Errors
    /// The errors of [`with_module`](CheckpointContents::with_module), for optimizers. [`StoreError::Optimizer`] when
    /// the device failed.
    pub fn with_optimizer(
        self,
        name: &str,
        optimizer: &dyn Optimizer,
        module: &dyn Module,
    ) -> Result<CheckpointContents> {
        let part = self.new_part(PartKind::Optimizer, name)?;
        let (tensors, metadata) = optimizer_tensors(optimizer, module, Path::new(&part.file_name()))?;
        self.with(part, tensors, metadata)
    }

    /// Adds named tensors of any dtype, such as the state of a metric. They are stored bit for bit.
    ///
    /// # Errors
    /// The errors of [`with_module`](CheckpointContents::with_module), for groups of tensors.
    /// [`StoreError::InvalidArgument`] when a tensor is named `__metadata__`, which safetensors reserves.
    pub fn with_tensors(
        self,
        name: &str,
        tensors: BTreeMap<String, TensorData>,
    ) -> Result<CheckpointContents> {
        let part = self.new_part(PartKind::Tensors, name)?;
        let tensors = tensors.into_iter().map(|(name, data)| (name, Source::Host(data)));
        self.with(part, tensors.collect(), BTreeMap::new())
    }

    /// Returns the position in training.
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// The contents of each file of tensors.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&PartName, &TensorFileContents)> {
        self.parts.iter().map(|(part, contents)| (part, &**contents))
    }

    fn new_part(&self, kind: PartKind, name: &str) -> Result<PartName> {
        let part = PartName::new(kind, name)?;
        let refused = |problem: String| {
            Err(StoreError::InvalidArgument { argument: format!("the name `{name}` of a {kind}"), problem })
        };
        if self.parts.contains_key(&part) {
            return refused("it is used twice; use another name".to_owned());
        }
        if self.parts.len() == MAX_PARTS {
            return refused(format!(
                "a checkpoint has at most {MAX_PARTS} modules, optimizers and groups of tensors"
            ));
        }
        Ok(part)
    }

    fn with(
        mut self,
        part: PartName,
        tensors: NamedSources,
        metadata: BTreeMap<String, String>,
    ) -> Result<CheckpointContents> {
        check_tensor_names(&part, &tensors)?;
        self.parts.insert(part, Arc::new(TensorFileContents { tensors, metadata }));
        Ok(self)
    }
}

fn check_tensor_names(part: &PartName, tensors: &NamedSources) -> Result<()> {
    crate::file::check_names(Path::new(&part.file_name()), tensors)?;
    match tensors.iter().any(|(name, _)| name == crate::header::METADATA) {
        true => Err(StoreError::InvalidArgument {
            argument: format!("the tensor `{}` of `{}`", crate::header::METADATA, part.name),
            problem: "safetensors reserves this name; use another one".to_owned(),
        }),
        false => Ok(()),
    }
}

impl fmt::Debug for CheckpointContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.iter().map(|(part, contents)| (part.file_name(), contents.tensors.len()));
        let parts: BTreeMap<String, usize> = parts.collect();
        f.debug_struct("CheckpointContents").field("state", &self.state).field("tensors", &parts).finish()
    }
}
