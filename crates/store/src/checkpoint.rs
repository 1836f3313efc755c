//! Checkpoints: the state that training needs to resume.

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

/// No `training.json` is longer, in bytes.
const MAX_TRAINING_BYTES: u64 = 64 << 20;

/// How long [`Checkpoint::save`] waits for another writer of the folder.
const PATIENCE: Duration = Duration::from_secs(10);

/// A folder with a model, an optimizer's state and the place in training.
///
/// It holds `model.safetensors`, `optimizer.safetensors` and `training.json`, and replaces a former one as a whole.
/// Nothing else is replaced. `training.json` is the index: it has a checksum of each file and of itself, and damage is
/// an error that names the file.
///
/// An open checkpoint is one snapshot: all of it is of the same [save](Checkpoint::save), also when the folder is
/// replaced or deleted meanwhile. Folders have one writer at a time; readers never wait.
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
/// [`Checkpoint::save`] locks a folder for one save. A training run that needs exclusive access to its folder holds
/// a writer: a second run then fails before it starts, with an error that names the holder.
///
/// It is a system lock, which ends with the process. On a network file system without locks, nothing is locked.
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

/// One of the files of an open checkpoint.
#[derive(Clone, Debug)]
struct Part {
    path: PathBuf,
    file: Arc<Mutex<File>>,
    /// `None` in version 1.
    checksum: Option<Checksum>,
}

impl Part {
    /// Opens the tensors after verifying the checksum, if there is one.
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
    /// The other files. None are listed in version 1.
    #[serde(default)]
    files: BTreeMap<String, Checksum>,
    /// Of all bytes before it.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "it is checked before the rest is parsed")]
    crc32: Option<String>,
}

/// Stands before the checksum of `training.json`, its last value.
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
            let problem = format!("is of version {version}, but this program reads versions 1 to {VERSION}");
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

/// A place in training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// Epochs that are done.
    pub epoch: u64,
    /// Optimizer steps that are done, over all epochs.
    pub step: u64,
    /// The streams of random keys of the module's devices.
    random: Vec<Keys>,
    /// Anything else, as JSON by key.
    values: BTreeMap<String, serde_json::Value>,
}

/// The position of a stream of random keys.
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
        let random = stacks(module).iter().map(keys).collect();
        TrainingState { random, ..TrainingState::default() }
    }

    /// The same state at the given epoch and step.
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
    /// Writes a checkpoint to a folder, whose parents are made. On an error a former checkpoint does not change.
    ///
    /// A symbolic link to a folder is followed. Leftovers of writers that were killed are removed. Where another
    /// writes the folder at the moment, this waits for it up to ten seconds.
    ///
    /// # Errors
    /// When the folder cannot be written, or a device failed; [`StoreError::NotReplaced`] when something else is
    /// there: a file, or a folder with anything in it that is no part of a checkpoint; [`StoreError::Locked`] when
    /// another still writes it.
    pub fn save(
        folder: impl AsRef<Path>,
        module: &dyn Module,
        optimizer: Option<&dyn Optimizer>,
        state: &TrainingState,
    ) -> Result<()> {
        let folder = FolderWriter::open(folder.as_ref(), KIND, PATIENCE)?;
        CheckpointWriter { folder }.save(module, optimizer, state)
    }

    /// Opens a checkpoint and reads its place in training.
    ///
    /// Where a writer was killed after it moved a former checkpoint away and before it put the new one in its place,
    /// which happens only on systems that cannot exchange two folders, the former one is opened.
    ///
    /// # Errors
    /// When there is none, a file of it is missing, or its `training.json` is damaged or of another version.
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

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The place in training.
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// The module with the checkpoint's parameters. The file is read once to check it.
    ///
    /// Parameters on the processor may stay in the mapped file: see [`load_module`](crate::load_module).
    ///
    /// # Errors
    /// As [`load_module`](crate::load_module); [`StoreError::Damaged`] when the file differs from the saved one.
    pub fn load_module<M: Module>(&self, mut module: M) -> Result<M> {
        load_module_from(&mut module, &self.model.open()?, &LoadOptions::new())?;
        Ok(module)
    }

    /// Whether an optimizer's state was saved.
    pub fn has_optimizer(&self) -> bool {
        self.optimizer.is_some()
    }

    /// Restores the state of an optimizer.
    ///
    /// # Errors
    /// As [`load_optimizer`](crate::load_optimizer); [`StoreError::Damaged`] when the file differs from the saved one.
    pub fn load_optimizer(&self, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        let Some(part) = &self.optimizer else {
            let path = self.folder.join(OPTIMIZER);
            return Err(StoreError::io(&path, "read", std::io::ErrorKind::NotFound.into()));
        };
        load_optimizer_from(optimizer, module, &part.open()?)
    }
}

impl CheckpointWriter {
    /// Locks a folder, whose parents are made, and makes sure that a checkpoint can be written there.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another has the folder, [`StoreError::NotReplaced`] when something else is there,
    /// [`StoreError::Io`] when nothing can be written there.
    pub fn open(folder: impl AsRef<Path>) -> Result<CheckpointWriter> {
        let folder = FolderWriter::open(folder.as_ref(), KIND, Duration::ZERO)?;
        Ok(CheckpointWriter { folder })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }

    /// Writes a checkpoint to the folder, in place of a former one. On an error the former one does not change.
    ///
    /// # Errors
    /// As [`Checkpoint::save`].
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

/// A new folder, and the name that it will have.
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
