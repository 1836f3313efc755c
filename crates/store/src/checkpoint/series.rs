//! The last checkpoints of a training run, each in a folder of its own.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Checkpoint;
use super::index::KIND;
use crate::atomic::{FolderWriter, beside};
use crate::error::{Result, StoreError};

/// The folders of a training run, of which the last ones are kept: `step-00000938` or `epoch-0003`.
///
/// Only complete checkpoints in folders with such names are removed. Everything else in the parent folder is kept:
/// other files and folders, symbolic links, incomplete checkpoints, checkpoints with other files beside theirs, and
/// checkpoints that another writer holds.
///
/// The order is that of the position in training: epochs, then steps. After resuming from an earlier checkpoint, the
/// checkpoints of later steps are still the last ones. Move them away to continue from the new ones.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_store::{CheckpointContents, CheckpointSeries, CheckpointWriter, TrainingState};
///
/// # let temporary = tempfile::tempdir()?;
/// # let run = temporary.path().join("run");
/// let model: Linear<Flex> = LinearConfig::new(2, 2).init(&Default::default());
/// let mut series = CheckpointSeries::open(&run, 2)?;
/// for step in [100, 200, 300] {
///     let state = TrainingState::of(&model).at(0, step);
///     let contents = CheckpointContents::new(state).with_module("model", &model)?;
///     CheckpointWriter::open(series.next_folder(step))?.write(&contents)?;
///     series.prune()?;
/// }
/// let steps: Vec<u64> = series.list()?.iter().map(|saved| saved.step).collect();
/// assert_eq!(steps, [200, 300]);
/// assert_eq!(series.latest()?.unwrap().folder(), run.join("step-00000300"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CheckpointSeries {
    parent: PathBuf,
    keep: usize,
    /// The folder of the newest save, which is never removed.
    newest: Option<PathBuf>,
}

/// A checkpoint of a [`CheckpointSeries`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// The folder.
    pub folder: PathBuf,
    /// Number of complete epochs.
    pub epoch: u64,
    /// Number of optimizer steps over all epochs.
    pub step: u64,
}

impl CheckpointSeries {
    /// Opens the parent folder of a training run, and creates it if it does not exist. `keep` is the number of
    /// checkpoints to keep.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when `keep` is 0. [`StoreError::Io`] when the folder cannot be created.
    pub fn open(parent: impl AsRef<Path>, keep: usize) -> Result<CheckpointSeries> {
        let parent = parent.as_ref().to_owned();
        if keep == 0 {
            let (argument, problem) =
                ("the number of checkpoints to keep, 0".to_owned(), "use at least 1".to_owned());
            return Err(StoreError::InvalidArgument { argument, problem });
        }
        fs::create_dir_all(&parent).map_err(|source| StoreError::io(&parent, "create the folder", source))?;
        Ok(CheckpointSeries { parent, keep, newest: None })
    }

    /// Returns the path of the parent folder.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// Returns the folder for a checkpoint after a number of steps: `step-00000938`. Creates nothing.
    /// [`prune`](CheckpointSeries::prune) keeps it.
    pub fn next_folder(&mut self, step: u64) -> PathBuf {
        self.next(format!("step-{step:08}"))
    }

    /// Returns the folder for a checkpoint after a number of epochs: `epoch-0003`. Creates nothing.
    /// [`prune`](CheckpointSeries::prune) keeps it.
    pub fn next_epoch_folder(&mut self, epoch: u64) -> PathBuf {
        self.next(format!("epoch-{epoch:04}"))
    }

    fn next(&mut self, name: String) -> PathBuf {
        let folder = self.parent.join(name);
        self.newest = Some(folder.clone());
        folder
    }

    /// Returns the complete checkpoints in the order of their positions in training. Damage inside of files of the right
    /// length is not found; loading them finds it.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the parent folder cannot be listed.
    pub fn list(&self) -> Result<Vec<SavedCheckpoint>> {
        let mut saved: Vec<SavedCheckpoint> =
            self.folders()?.into_iter().filter_map(SavedCheckpoint::read).collect();
        saved.sort_by(|a, b| (a.epoch, a.step, &a.folder).cmp(&(b.epoch, b.step, &b.folder)));
        Ok(saved)
    }

    /// Opens the last complete checkpoint, if there is one.
    ///
    /// # Errors
    /// When the parent folder cannot be listed, or the checkpoint was replaced by a damaged one meanwhile.
    pub fn latest(&self) -> Result<Option<Checkpoint>> {
        self.list()?.last().map(|saved| Checkpoint::open(&saved.folder)).transpose()
    }

    /// Removes all complete checkpoints except the last ones, and leftovers of killed processes. Returns the removed
    /// folders. The folder that [`next_folder`](CheckpointSeries::next_folder) returned last counts as the last one.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the parent folder cannot be listed, or a checkpoint cannot be removed. The others are
    /// removed nevertheless.
    pub fn prune(&self) -> Result<Vec<PathBuf>> {
        self.prune_after(self.newest.as_deref())
    }

    /// Removes checkpoints like [`prune`](CheckpointSeries::prune), with the folder that counts as the last one.
    pub(super) fn prune_after(&self, newest: Option<&Path>) -> Result<Vec<PathBuf>> {
        self.remove_leftovers()?;
        if self.folders()?.len() <= self.keep {
            return Ok(Vec::new());
        }
        let mut saved = self.list()?;
        if let Some(place) = saved.iter().position(|saved| Some(saved.folder.as_path()) == newest) {
            let newest = saved.remove(place);
            saved.push(newest);
        }
        let surplus = saved.len().saturating_sub(self.keep);
        let (mut removed, mut failed) = (Vec::new(), None);
        for SavedCheckpoint { folder, .. } in saved.into_iter().take(surplus) {
            match FolderWriter::open(&folder, KIND, Duration::ZERO).and_then(FolderWriter::remove) {
                Ok(()) => removed.push(folder),
                // It contains other files, or another writer holds it.
                Err(StoreError::NotReplaced { .. } | StoreError::Locked { .. }) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// The folders of the series, in no order.
    fn folders(&self) -> Result<Vec<PathBuf>> {
        let is_own = |entry: &fs::DirEntry| {
            // The type of a symbolic link is not that of its target.
            is_name_of_series(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        let folders = self.entries()?.into_iter().filter(is_own);
        Ok(folders.map(|entry| self.parent.join(entry.file_name())).collect())
    }

    /// Removes the temporary folders of killed processes.
    fn remove_leftovers(&self) -> Result<()> {
        let targets =
            self.entries()?.into_iter().filter_map(|entry| beside::target_of_temporary(&entry.file_name()));
        for target in targets.filter(|target| is_name_of_series(target)) {
            // Opening a folder removes its leftovers. An error means that another writer holds it, or that it is not
            // a checkpoint.
            let _ = FolderWriter::open(&self.parent.join(target), KIND, Duration::ZERO);
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<fs::DirEntry>> {
        let entries = match fs::read_dir(&self.parent) {
            Ok(entries) => entries.collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        entries.map_err(|source| StoreError::io(&self.parent, "read", source))
    }
}

impl SavedCheckpoint {
    /// Reads the position of a checkpoint; `None` if the folder is not a complete one. Keeps no file open.
    fn read(folder: PathBuf) -> Option<SavedCheckpoint> {
        let checkpoint = Checkpoint::open(&folder).ok().filter(Checkpoint::is_whole)?;
        let (epoch, step) = (checkpoint.state().epoch, checkpoint.state().step);
        Some(SavedCheckpoint { folder, epoch, step })
    }
}

/// Whether a name is `epoch-` or `step-` and a number.
fn is_name_of_series(name: &OsStr) -> bool {
    let number = |name: &str| {
        let digits = name.strip_prefix("epoch-").or_else(|| name.strip_prefix("step-"))?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()
    };
    name.to_str().is_some_and(|name| number(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_series() {
        let is = |name: &str| is_name_of_series(OsStr::new(name));
        for name in ["step-0", "step-00000100", "epoch-0003", "epoch-18446744073709551615"] {
            assert!(is(name), "{name}");
        }
        for name in [
            "",
            "step-",
            "step",
            "step-+1",
            "step--1",
            "step-1a",
            "step-1.bak",
            "steps-1",
            "Step-1",
            ".step-1",
            "my-step-1",
            "epoch-18446744073709551616",
            "step- 1",
        ] {
            assert!(!is(name), "{name}");
        }
    }
}
