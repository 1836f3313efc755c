//! Everything that training needs to go on.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use kiln_nn::Module;
use kiln_optim::Optimizer;
use kiln_tensor::Stack;
use kiln_tensor::random::KeyState;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::atomic::{write_file, write_folder};
use crate::error::{Result, StoreError};
use crate::module::for_each;
use crate::{load_module, load_optimizer, save_module, save_optimizer};

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const TRAINING: &str = "training.json";

/// The version of `training.json` that this crate writes, and the only one it reads.
const VERSION: u32 = 1;

/// No `training.json` is longer, in bytes.
const MAX_TRAINING_BYTES: u64 = 64 << 20;

/// A folder with a model, an optimizer's state and the place in training.
///
/// It holds `model.safetensors`, `optimizer.safetensors` and `training.json`, and replaces a former one as a whole.
///
/// ```no_run
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_optim::AdamConfig;
/// # use kiln_store::{Checkpoint, TrainingState};
/// # use kiln_tensor::{Autodiff, Flex};
/// # let device = Default::default();
/// # let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 2).init(&device);
/// # let mut optimizer = AdamConfig::new().init()?;
/// Checkpoint::save("run/epoch-3", &model, Some(&optimizer), &TrainingState::of(&model).at(3, 2814))?;
///
/// let checkpoint = Checkpoint::open("run/epoch-3")?;
/// model = checkpoint.load_module(model)?;
/// checkpoint.load_optimizer(&mut optimizer, &model)?;
/// checkpoint.state().restore_random(&model)?;
/// assert_eq!(checkpoint.state().epoch, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    state: TrainingState,
}

/// A place in training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    version: u32,
    /// Epochs that are done.
    pub epoch: u64,
    /// Optimizer steps that are done, over all epochs.
    pub step: u64,
    /// The streams of random keys of the module's devices.
    random: Vec<Keys>,
    /// Anything else, as JSON by key.
    values: BTreeMap<String, serde_json::Value>,
}

/// Where a stream of random keys is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    seed: u64,
    drawn: u64,
}

impl TrainingState {
    /// The start of training, with the present state of the random numbers on the module's devices.
    pub fn of(module: &dyn Module) -> TrainingState {
        let keys = |stack: &Stack| {
            let KeyState { seed, drawn } = stack.keys().state();
            Keys { seed, drawn }
        };
        TrainingState {
            version: VERSION,
            random: stacks(module).iter().map(keys).collect(),
            ..TrainingState::default()
        }
    }

    /// The same state after so many epochs and steps.
    #[must_use]
    pub fn at(mut self, epoch: u64, step: u64) -> TrainingState {
        self.epoch = epoch;
        self.step = step;
        self
    }

    /// The same state with any value beside it, such as a configuration.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn with_value<V: Serialize>(mut self, key: impl Into<String>, value: &V) -> Result<TrainingState> {
        let json =
            serde_json::to_value(value).map_err(|error| StoreError::json(Path::new(TRAINING), error))?;
        self.values.insert(key.into(), json);
        Ok(self)
    }

    /// The value of that key, if there is one.
    ///
    /// # Errors
    /// When it is of another form.
    pub fn value<V: DeserializeOwned>(&self, key: &str) -> Result<Option<V>> {
        let read = |json| V::deserialize(json);
        let value = self.values.get(key).map(read).transpose();
        value.map_err(|error| StoreError::json(Path::new(TRAINING), format_args!("`{key}`: {error}")))
    }

    /// Puts the random numbers on the module's devices back to where they were.
    ///
    /// # Errors
    /// When the module is on another number of devices, or has other layers around them.
    pub fn restore_random(&self, module: &dyn Module) -> Result<()> {
        let stacks = stacks(module);
        if stacks.len() != self.random.len() {
            let problem = format!(
                "the random state is of {} engine stacks, but the module is on {}",
                self.random.len(),
                stacks.len()
            );
            return Err(StoreError::json(Path::new(TRAINING), problem));
        }
        for (stack, &Keys { seed, drawn }) in stacks.iter().zip(&self.random) {
            stack.keys().restore(KeyState { seed, drawn });
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Writes a checkpoint to a folder, whose parents are made. On an error a former checkpoint is as it was.
    ///
    /// # Errors
    /// When the folder cannot be written, or a device failed.
    pub fn save(
        folder: impl AsRef<Path>,
        module: &dyn Module,
        optimizer: Option<&dyn Optimizer>,
        state: &TrainingState,
    ) -> Result<()> {
        let folder = folder.as_ref();
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(|source| StoreError::io(parent, "make the folder", source))?;
        }
        let json = serde_json::to_string_pretty(state).map_err(|error| StoreError::json(folder, error))?;
        write_folder(folder, |folder| {
            save_module(module, folder.join(MODEL))?;
            if let Some(optimizer) = optimizer {
                save_optimizer(optimizer, module, folder.join(OPTIMIZER))?;
            }
            let path = folder.join(TRAINING);
            write_file(&path, |writer| {
                writeln!(writer, "{json}").map_err(|source| StoreError::io(&path, "write", source))
            })
        })
    }

    /// Opens a checkpoint and reads its place in training.
    ///
    /// # Errors
    /// When there is none, or its `training.json` is damaged or of another version.
    pub fn open(folder: impl AsRef<Path>) -> Result<Checkpoint> {
        let folder = folder.as_ref().to_owned();
        let path = folder.join(TRAINING);
        let mut text = String::new();
        fs::File::open(&path)
            .and_then(|file| file.take(MAX_TRAINING_BYTES).read_to_string(&mut text))
            .map_err(|source| StoreError::io(&path, "read", source))?;
        let state: TrainingState =
            serde_json::from_str(&text).map_err(|error| StoreError::json(&path, error))?;
        if state.version != VERSION {
            let problem =
                format!("is of version {}, but this program reads version {VERSION}", state.version);
            return Err(StoreError::json(&path, problem));
        }
        Ok(Checkpoint { folder, state })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The place in training.
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// The module with the checkpoint's parameters.
    ///
    /// # Errors
    /// As [`load_module`](crate::load_module).
    pub fn load_module<M: Module>(&self, module: M) -> Result<M> {
        load_module(module, self.folder.join(MODEL))
    }

    /// Whether an optimizer's state was saved.
    pub fn has_optimizer(&self) -> bool {
        self.folder.join(OPTIMIZER).is_file()
    }

    /// Gives an optimizer back what it remembered.
    ///
    /// # Errors
    /// As [`load_optimizer`](crate::load_optimizer).
    pub fn load_optimizer(&self, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        load_optimizer(optimizer, module, self.folder.join(OPTIMIZER))
    }
}

/// The stacks that a module's parameters are on and those below, in the order of the traversal, each once.
fn stacks(module: &dyn Module) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for_each(module, |_, parameter| {
        let mut next = Some(parameter.value.stack());
        while let Some(stack) = next {
            if !stacks.contains(stack) {
                stacks.push(stack.clone());
            }
            next = stack.inner();
        }
    });
    stacks
}
