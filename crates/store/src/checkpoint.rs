//! Checkpoints: the state for resuming training.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kiln_nn::Module;
use kiln_optim::Optimizer;
use kiln_tensor::Stack;
use kiln_tensor::random::KeyState;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::atomic::{FolderKind, FolderWriter, Snapshot, fill};
use crate::checksum::{Checksum, ChecksumWriter, hex_of};
use crate::error::{Result, StoreError};
use crate::file::{MAPS, TensorFile, lock, tensor_writer};
use crate::module::{LoadOptions, for_each, load_module_from, module_tensors};
use crate::optimizer::{load_optimizer_from, optimizer_tensors};

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const TRAINING: &str = "training.json";

const KIND: FolderKind =
    FolderKind { name: "checkpoint", index: TRAINING, files: &[TRAINING, MODEL, OPTIMIZER] };

/// The version of `training.json` that this crate writes. Version 1 had no checksums.
const VERSION: u32 = 2;

/// Limit on the length of `training.json`, in bytes.
const MAX_TRAINING_BYTES: u64 = 64 << 20;

/// Time that [`Checkpoint::save`] waits for another writer of the folder.
const PATIENCE: Duration = Duration::from_secs(10);

/// A checkpoint: a folder with a model, the state of an optimizer and the position in training.
///
/// It contains `model.safetensors`, `optimizer.safetensors` and `training.json`. A save replaces the previous
/// checkpoint atomically; nothing else is replaced. `training.json` is the index: it contains the checksums of each
/// file and of itself. A damaged file is an error that names it.
///
/// An open checkpoint is a snapshot: all files are from the same [save](Checkpoint::save), even if the folder is
/// replaced or deleted later. A folder has one writer at a time; readers never wait.
///
/// ```no_run
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_optim::AdamConfig;
/// # use kiln_store::{Checkpoint, TrainingState};
/// # use kiln_tensor::Autodiff;
/// # let device = Default::default();
/// # let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 2).init(&device);
/// # let mut optimizer = AdamConfig::new().init();
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
    model: Part,
    optimizer: Option<Part>,
}

/// An exclusive lock for writing checkpoints to a folder, released on drop.
///
/// [`Checkpoint::save`] locks a folder for one save. A training run that needs exclusive access holds a writer: a
/// second run then fails before it starts, with an error that names the holder.
///
/// It is a system lock, which the system releases when the process ends. On a network file system without locks,
/// nothing is locked.
///
/// ```
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_store::{Checkpoint, CheckpointWriter, StoreError, TrainingState};
/// # let folder = std::env::temp_dir().join(format!("kiln-writer-{}", std::process::id()));
/// # let model: Linear<Flex> = LinearConfig::new(2, 2).init(&Default::default());
/// let mut writer = CheckpointWriter::open(folder.join("last"))?;
/// assert!(matches!(CheckpointWriter::open(folder.join("last")), Err(StoreError::Locked { .. })));
/// for epoch in 1..=3 {
///     writer.save(&model, None, &TrainingState::of(&model).at(epoch, 0))?;
/// }
/// assert_eq!(Checkpoint::open(folder.join("last"))?.state().epoch, 3);
/// # drop(writer);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CheckpointWriter {
    folder: FolderWriter,
}

/// A file of an open checkpoint.
#[derive(Clone, Debug)]
struct Part {
    path: PathBuf,
    file: Arc<Mutex<File>>,
    /// `None` in version 1.
    checksum: Option<Checksum>,
}

impl Part {
    /// Opens the tensors after verifying the checksum, if any.
    fn open(&self) -> Result<TensorFile> {
        if let Some(checksum) = self.checksum {
            checksum.check(&mut lock(&self.file), &self.path)?;
        }
        TensorFile::of(&self.path, Arc::clone(&self.file), MAPS)
    }
}

/// The contents of `training.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    version: u32,
    epoch: u64,
    step: u64,
    random: Vec<Keys>,
    values: BTreeMap<String, serde_json::Value>,
    /// The other files. Empty in version 1.
    #[serde(default)]
    files: BTreeMap<String, Checksum>,
    /// The checksum of all bytes before it.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it is checked before the rest is parsed")]
    crc32: Option<String>,
}

/// The text before the checksum of `training.json`, which is its last value.
const CHECKSUM: &str = ",\n  \"crc32\": \"";

impl Index {
    fn print(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string_pretty(self)?;
        let text = text.strip_suffix("\n}").unwrap_or(&text);
        Ok(format!("{text}{CHECKSUM}{}\"\n}}\n", hex_of(text.as_bytes())))
    }

    fn parse(path: &Path, text: &str) -> Result<Index> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let failed = |error| StoreError::json(path, error);
        let Version { version } = serde_json::from_str(text).map_err(failed)?;
        if !(1..=VERSION).contains(&version) {
            let problem = format!("has version {version}; supported: 1 to {VERSION}");
            return Err(StoreError::json(path, problem));
        }
        if version > 1 {
            let (before, after) = text.rsplit_once(CHECKSUM).unwrap_or_default();
            let (found, expected) = (hex_of(before.as_bytes()), after.get(..8).unwrap_or_default());
            if found != expected {
                let found = format!("its CRC-32 is {found}");
                let expected = if expected.is_empty() { "another" } else { expected }.to_owned();
                return Err(StoreError::Damaged { file: path.to_owned(), found, expected });
            }
        }
        serde_json::from_str(text).map_err(failed)
    }
}

/// The position in training: epoch, step, random state and custom values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// Number of complete epochs.
    pub epoch: u64,
    /// Number of optimizer steps over all epochs.
    pub step: u64,
    /// The random states of the module's devices.
    random: Vec<Keys>,
    /// Custom values as JSON, by key.
    values: BTreeMap<String, serde_json::Value>,
}

/// The position in a stream of random keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    seed: u64,
    drawn: u64,
}

impl TrainingState {
    /// Returns the state at the start of training, with the current random state of the module's devices.
    pub fn of(module: &dyn Module) -> TrainingState {
        let keys = |stack: &Stack| {
            let KeyState { seed, drawn } = stack.keys().state();
            Keys { seed, drawn }
        };
        let random = stacks(module).iter().map(keys).collect();
        TrainingState { random, ..TrainingState::default() }
    }

    /// Sets the epoch and the step.
    #[must_use]
    pub fn at(mut self, epoch: u64, step: u64) -> TrainingState {
        self.epoch = epoch;
        self.step = step;
        self
    }

    /// Adds a custom value, such as a configuration.
    ///
    /// # Errors
    /// When the value cannot be serialized as JSON.
    pub fn with_value<V: Serialize>(mut self, key: impl Into<String>, value: &V) -> Result<TrainingState> {
        let json =
            serde_json::to_value(value).map_err(|error| StoreError::json(Path::new(TRAINING), error))?;
        self.values.insert(key.into(), json);
        Ok(self)
    }

    /// Returns the custom value of a key, if any.
    ///
    /// # Errors
    /// When the value cannot be deserialized as `V`.
    pub fn value<V: DeserializeOwned>(&self, key: &str) -> Result<Option<V>> {
        let read = |json| V::deserialize(json);
        let value = self.values.get(key).map(read).transpose();
        value.map_err(|error| StoreError::json(Path::new(TRAINING), format_args!("`{key}`: {error}")))
    }

    /// Restores the random state of the module's devices.
    ///
    /// # Errors
    /// When the number of engine stacks differs: the module is on another number of devices, or has other layers.
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
    /// Writes a checkpoint to a folder and creates its parent folders. On an error the previous checkpoint does not
    /// change.
    ///
    /// Symbolic links to a folder are followed. Temporary files of killed writers are removed. If another writer holds
    /// the folder, this waits for up to ten seconds.
    ///
    /// # Errors
    /// When the folder cannot be written, or a device failed. [`StoreError::NotReplaced`] when the path is a file, or a
    /// folder that contains anything but a checkpoint. [`StoreError::Locked`] when another writer still holds the
    /// folder.
    pub fn save(
        folder: impl AsRef<Path>,
        module: &dyn Module,
        optimizer: Option<&dyn Optimizer>,
        state: &TrainingState,
    ) -> Result<()> {
        let folder = FolderWriter::open(folder.as_ref(), KIND, PATIENCE)?;
        CheckpointWriter { folder }.save(module, optimizer, state)
    }

    /// Opens a checkpoint and reads its position in training.
    ///
    /// On systems that cannot exchange two folders, a writer may be killed between moving the previous checkpoint away
    /// and moving the new one to its path. The previous checkpoint is then opened.
    ///
    /// # Errors
    /// When there is no checkpoint, one of its files is missing, or `training.json` is damaged or has an unknown
    /// version.
    pub fn open(folder: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = folder.as_ref().join(TRAINING);
        let snapshot = Snapshot::open(folder.as_ref(), KIND);
        let Snapshot { folder, files } = snapshot.map_err(|source| StoreError::io(&path, "read", source))?;
        let missing = |name| StoreError::io(&folder.join(name), "read", std::io::ErrorKind::NotFound.into());
        let mut files: BTreeMap<&str, Option<File>> = KIND.files.iter().copied().zip(files).collect();
        let mut take = |name: &'static str| files.remove(name).flatten();

        let mut text = String::new();
        take(TRAINING)
            .ok_or_else(|| missing(TRAINING))?
            .take(MAX_TRAINING_BYTES)
            .read_to_string(&mut text)
            .map_err(|source| StoreError::io(&path, "read", source))?;
        let Index { version, epoch, step, random, values, files: sums, .. } = Index::parse(&path, &text)?;

        let mut part = |name: &'static str| {
            let checksum = sums.get(name).copied();
            let is_wanted = checksum.is_some() || version == 1;
            let file = take(name).filter(|_| is_wanted)?;
            Some(Part { path: folder.join(name), file: Arc::new(Mutex::new(file)), checksum })
        };
        let model = part(MODEL).ok_or_else(|| missing(MODEL))?;
        let optimizer = part(OPTIMIZER);
        if optimizer.is_none() && sums.contains_key(OPTIMIZER) {
            return Err(missing(OPTIMIZER));
        }
        let state = TrainingState { epoch, step, random, values };
        Ok(Checkpoint { folder, state, model, optimizer })
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the position in training.
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// Loads the parameters of the checkpoint into a module. Reads the file once to verify its checksum.
    ///
    /// On the CPU, parameters may use the memory-mapped file; see [`load_module`](crate::load_module).
    ///
    /// # Errors
    /// The errors of [`load_module`](crate::load_module). [`StoreError::Damaged`] when the file differs from the saved
    /// one.
    pub fn load_module<M: Module>(&self, mut module: M) -> Result<M> {
        load_module_from(&mut module, &self.model.open()?, &LoadOptions::new())?;
        Ok(module)
    }

    /// Returns whether the checkpoint contains an optimizer state.
    pub fn has_optimizer(&self) -> bool {
        self.optimizer.is_some()
    }

    /// Restores the state of an optimizer.
    ///
    /// # Errors
    /// The errors of [`load_optimizer`](crate::load_optimizer). [`StoreError::Damaged`] when the file differs from the
    /// saved one. [`StoreError::Io`] when no optimizer state was saved.
    pub fn load_optimizer(&self, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        let Some(part) = &self.optimizer else {
            let path = self.folder.join(OPTIMIZER);
            return Err(StoreError::io(&path, "read", std::io::ErrorKind::NotFound.into()));
        };
        load_optimizer_from(optimizer, module, &part.open()?)
    }
}

impl CheckpointWriter {
    /// Locks a folder for writing checkpoints and creates its parent folders. Does not wait for another writer.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another writer holds the folder. [`StoreError::NotReplaced`] when something else
    /// exists at its path. [`StoreError::Io`] when it cannot be written.
    pub fn open(folder: impl AsRef<Path>) -> Result<CheckpointWriter> {
        let folder = FolderWriter::open(folder.as_ref(), KIND, Duration::ZERO)?;
        Ok(CheckpointWriter { folder })
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }

    /// Writes a checkpoint, replacing the previous one. On an error the previous checkpoint does not change.
    ///
    /// # Errors
    /// See [`Checkpoint::save`].
    pub fn save(
        &mut self,
        module: &dyn Module,
        optimizer: Option<&dyn Optimizer>,
        state: &TrainingState,
    ) -> Result<()> {
        let shown = self.folder.folder().to_owned();
        self.folder.write(|folder| {
            let place = StagedFolder { folder, shown: &shown };
            let (tensors, metadata) = module_tensors(module);
            let model = place.write(MODEL, tensor_writer(&shown.join(MODEL), tensors, &metadata)?)?;
            let mut files = BTreeMap::from([(MODEL.to_owned(), model)]);
            if let Some(optimizer) = optimizer {
                let path = shown.join(OPTIMIZER);
                let (tensors, metadata) = optimizer_tensors(optimizer, module, &path)?;
                let written = place.write(OPTIMIZER, tensor_writer(&path, tensors, &metadata)?)?;
                files.insert(OPTIMIZER.to_owned(), written);
            }
            let path = shown.join(TRAINING);
            let TrainingState { epoch, step, random, values } = state.clone();
            let index = Index { version: VERSION, epoch, step, random, values, files, crc32: None };
            let text = index.print().map_err(|error| StoreError::json(&path, error))?;
            let write = |writer: &mut dyn Write| {
                writer.write_all(text.as_bytes()).map_err(|source| StoreError::io(&path, "write", source))
            };
            place.write(TRAINING, write).map(|_| ())
        })
    }
}

/// A new folder under a temporary name, and its final path.
struct StagedFolder<'a> {
    folder: &'a Path,
    shown: &'a Path,
}

impl StagedFolder<'_> {
    fn write(&self, name: &str, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Checksum> {
        let shown = self.shown.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(self.folder.join(name));
        let file = file.map_err(|source| StoreError::io(&shown, "write", source))?;
        fill(&file, &shown, |writer| {
            let mut summing = ChecksumWriter::new(writer);
            write(&mut summing)?;
            Ok(summing.checksum())
        })
    }
}

/// The stacks of a module's parameters and the stacks below them, in traversal order, without duplicates.
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
