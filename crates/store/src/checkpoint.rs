//! Checkpoints: the state for resuming training.

mod background;
mod contents;
mod index;
mod part;
mod series;
mod state;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kiln_nn::Module;
use kiln_optim::Optimizer;
use kiln_tensor::TensorData;

use self::index::{Index, KIND};
use self::part::{PartKind, PartName, TRAINING};
use crate::atomic::{FolderWriter, Snapshot, fill};
use crate::checksum::{Checksum, ChecksumWriter};
use crate::error::{Result, StoreError};
use crate::file::{MAPS, TensorFile, lock, tensor_writer};
use crate::module::{LoadOptions, load_module_from};
use crate::optimizer::load_optimizer_from;

pub use background::BackgroundWriter;
pub use contents::CheckpointContents;
pub use series::{CheckpointSeries, SavedCheckpoint};
pub use state::TrainingState;

/// The names of the model and of the optimizer of a checkpoint with one of each.
const MODEL: &str = "model";
const OPTIMIZER: &str = "optimizer";

/// Time that [`Checkpoint::save`] waits for another writer of the folder.
const PATIENCE: Duration = Duration::from_secs(10);

/// A checkpoint: a folder with models, the states of optimizers, named tensors and the position in training.
///
/// It contains `training.json` and, for one model and one optimizer, `model.safetensors` and `optimizer.safetensors`;
/// [`CheckpointContents`] lists the names of other files. A save replaces the previous checkpoint atomically; nothing
/// else is replaced. `training.json` is the index: it contains the checksums of each
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
    parts: BTreeMap<PartName, Part>,
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

    /// Whether the file has its saved length. Does not read it.
    fn is_whole(&self) -> bool {
        let length = || lock(&self.file).metadata().map(|metadata| metadata.len());
        self.checksum.is_none_or(|checksum| length().is_ok_and(|bytes| bytes == checksum.bytes()))
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
        CheckpointWriter::open_patiently(folder.as_ref())?.save(module, optimizer, state)
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
        let Snapshot { folder, index, mut files } =
            snapshot.map_err(|source| StoreError::io(&path, "read", source))?;
        let Index { state, files: listed } = Index::parse(&path, &index)?;
        let mut parts = BTreeMap::new();
        for (part, checksum, is_required) in listed.expected() {
            let path = folder.join(part.file_name());
            match files.remove(&part.file_name()) {
                Some(file) => {
                    let file = Arc::new(Mutex::new(file));
                    drop(parts.insert(part, Part { path, file, checksum }));
                }
                None if is_required => {
                    return Err(StoreError::io(&path, "read", std::io::ErrorKind::NotFound.into()));
                }
                None => {}
            }
        }
        Ok(Checkpoint { folder, state, parts })
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the position in training.
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// Returns the names of the modules, in alphabetical order. The module of [`save`](Checkpoint::save) is `model`.
    pub fn module_names(&self) -> Vec<&str> {
        self.names(PartKind::Module)
    }

    /// Returns the names of the optimizers, in alphabetical order. The optimizer of [`save`](Checkpoint::save) is
    /// `optimizer`.
    pub fn optimizer_names(&self) -> Vec<&str> {
        self.names(PartKind::Optimizer)
    }

    /// Returns the names of the groups of tensors, in alphabetical order.
    pub fn tensor_names(&self) -> Vec<&str> {
        self.names(PartKind::Tensors)
    }

    /// Loads the parameters of the module `model` into a module. Reads the file once to verify its checksum.
    ///
    /// On the CPU, parameters may use the memory-mapped file; see [`load_module`](crate::load_module).
    ///
    /// # Errors
    /// See [`load_module_into`](Checkpoint::load_module_into).
    pub fn load_module<M: Module>(&self, mut module: M) -> Result<M> {
        self.load_module_into(MODEL, &mut module)?;
        Ok(module)
    }

    /// Loads the parameters of a module of the checkpoint in place. On an error the module does not change.
    ///
    /// # Errors
    /// The errors of [`load_module`](crate::load_module). [`StoreError::Damaged`] when the file differs from the saved
    /// one. [`StoreError::NoSuchPart`] when the checkpoint has no module of that name.
    pub fn load_module_into(&self, name: &str, module: &mut dyn Module) -> Result<()> {
        load_module_from(module, &self.part(PartKind::Module, name)?.open()?, &LoadOptions::new())?;
        Ok(())
    }

    /// Returns whether the checkpoint contains an optimizer state of the name `optimizer`.
    pub fn has_optimizer(&self) -> bool {
        self.part(PartKind::Optimizer, OPTIMIZER).is_ok()
    }

    /// Restores the state of the optimizer `optimizer`.
    ///
    /// # Errors
    /// See [`load_named_optimizer`](Checkpoint::load_named_optimizer).
    pub fn load_optimizer(&self, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        self.load_named_optimizer(OPTIMIZER, optimizer, module)
    }

    /// Restores the state of an optimizer. On an error the optimizer does not change.
    ///
    /// # Errors
    /// The errors of [`load_optimizer`](crate::load_optimizer). [`StoreError::Damaged`] when the file differs from the
    /// saved one. [`StoreError::NoSuchPart`] when the checkpoint has no optimizer of that name.
    pub fn load_named_optimizer(
        &self,
        name: &str,
        optimizer: &mut dyn Optimizer,
        module: &dyn Module,
    ) -> Result<()> {
        load_optimizer_from(optimizer, module, &self.part(PartKind::Optimizer, name)?.open()?)
    }

    /// Reads a group of tensors to host memory.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file differs from the saved one. [`StoreError::NoSuchPart`] when the checkpoint
    /// has no group of that name.
    pub fn tensors(&self, name: &str) -> Result<BTreeMap<String, TensorData>> {
        let file = self.part(PartKind::Tensors, name)?.open()?;
        file.names().map(|name| Ok((name.to_owned(), file.read(name)?))).collect()
    }

    fn names(&self, kind: PartKind) -> Vec<&str> {
        let names = self.parts.keys().filter(|part| part.kind == kind);
        names.map(|part| part.name.as_str()).collect()
    }

    fn part(&self, kind: PartKind, name: &str) -> Result<&Part> {
        let part = PartName { kind, name: name.to_owned() };
        self.parts.get(&part).ok_or_else(|| StoreError::NoSuchPart {
            folder: self.folder.clone(),
            kind: kind.to_string(),
            name: name.to_owned(),
            available: self.names(kind).into_iter().map(str::to_owned).collect(),
        })
    }

    /// Whether all files have their saved lengths. Does not read them.
    fn is_whole(&self) -> bool {
        self.parts.values().all(Part::is_whole)
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

    /// Locks a folder and waits for another writer for up to ten seconds.
    fn open_patiently(folder: &Path) -> Result<CheckpointWriter> {
        Ok(CheckpointWriter { folder: FolderWriter::open(folder, KIND, PATIENCE)? })
    }

    /// Returns the path of the folder.
    pub fn folder(&self) -> &Path {
        self.folder.folder()
    }

    /// Writes a checkpoint of one module and at most one optimizer, replacing the previous one. On an error the previous
    /// checkpoint does not change.
    ///
    /// # Errors
    /// See [`Checkpoint::save`].
    pub fn save(
        &mut self,
        module: &dyn Module,
        optimizer: Option<&dyn Optimizer>,
        state: &TrainingState,
    ) -> Result<()> {
        let mut contents = CheckpointContents::new(state.clone()).with_module(MODEL, module)?;
        if let Some(optimizer) = optimizer {
            contents = contents.with_optimizer(OPTIMIZER, optimizer, module)?;
        }
        self.write(&contents)
    }

    /// Writes a checkpoint with these contents, replacing the previous one. On an error the previous checkpoint does not
    /// change. Reads one parameter at a time from its device.
    ///
    /// # Errors
    /// See [`Checkpoint::save`].
    pub fn write(&mut self, contents: &CheckpointContents) -> Result<()> {
        let shown = self.folder.folder().to_owned();
        self.folder.write(|folder| {
            let place = StagedFolder { folder, shown: &shown };
            let mut files = BTreeMap::new();
            for (part, file) in contents.parts() {
                let name = part.file_name();
                let write = tensor_writer(&shown.join(&name), &file.tensors, &file.metadata)?;
                files.insert(part.clone(), place.write(&name, write)?);
            }
            let path = shown.join(TRAINING);
            let text = Index::print(contents.state(), &files);
            let text = text.map_err(|error| StoreError::json(&path, error))?;
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
