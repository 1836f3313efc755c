//! The cache of the Hugging Face hub on this machine.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::folder::HubFolder;
use super::name::{self, MAIN, RepositoryName};
use crate::error::{Result, StoreError};

/// Maximum length of a file in `refs`, which contains one commit.
const MAX_REF: u64 = 256;

/// A folder of models in the layout of the Python package `huggingface_hub`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubCache {
    root: PathBuf,
}

impl HubCache {
    /// Returns the cache of this user: the first of `$HF_HUB_CACHE`, `$HUGGINGFACE_HUB_CACHE`, `$HF_HOME/hub`,
    /// `$XDG_CACHE_HOME/huggingface/hub` and `~/.cache/huggingface/hub`. It may not exist.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when none of the variables is set and there is no home folder.
    pub fn from_environment() -> Result<HubCache> {
        HubCache::from_variables(&|name| env::var_os(name), env::home_dir())
    }

    fn from_variables(
        variable: &dyn Fn(&str) -> Option<OsString>,
        home: Option<PathBuf>,
    ) -> Result<HubCache> {
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| path("HF_HOME").map(|home| home.join("hub")))
            .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
            .or_else(|| home.as_ref().map(|home| home.join(".cache/huggingface/hub")));
        let root = root.ok_or_else(|| StoreError::InvalidArgument {
            argument: "the cache of the Hugging Face hub".to_owned(),
            problem: "there is no home folder\n  hint: set HF_HUB_CACHE to a folder".to_owned(),
        })?;
        match (root.strip_prefix("~"), home) {
            (Ok(inside), Some(home)) => Ok(HubCache::new(home.join(inside))),
            (Ok(_) | Err(_), _) => Ok(HubCache::new(root)),
        }
    }

    /// Returns the cache in a folder, which may not exist.
    pub fn new(root: impl Into<PathBuf>) -> HubCache {
        HubCache { root: root.into() }
    }

    /// Returns the folder of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the names of the models in the cache, sorted. A cache that does not exist has none.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be read.
    pub fn models(&self) -> Result<Vec<String>> {
        let failed = |source| StoreError::io(&self.root, "read", source);
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let folder = entry.map_err(failed)?.file_name();
            names.extend(folder.to_str().and_then(RepositoryName::from_folder).map(|name| name.to_string()));
        }
        names.sort();
        Ok(names)
    }

    /// Finds the branch `main` of a model by its name, such as `org/name`.
    ///
    /// # Errors
    /// See [`find_revision`](HubCache::find_revision).
    pub fn find(&self, name: &str) -> Result<HubFolder> {
        self.find_revision(name, MAIN)
    }

    /// Finds a revision of a model: a branch, a tag or a commit of 40 hexadecimal digits.
    ///
    /// # Errors
    /// [`StoreError::NotInCache`] when the cache does not contain the revision; [`StoreError::InvalidArgument`] when
    /// the name or the revision is invalid.
    pub fn find_revision(&self, name: &str, revision: &str) -> Result<HubFolder> {
        let name = RepositoryName::parse(name)?;
        name::check_revision(revision)?;
        let entry = self.entry(&name);
        match snapshot_of(&entry, revision)? {
            Some(snapshot) => HubFolder::open(snapshot),
            None => Err(StoreError::NotInCache {
                model: name.to_string(),
                revision: revision.to_owned(),
                cache: self.root.clone(),
            }),
        }
    }

    /// Returns the folder of a model.
    pub(super) fn entry(&self, name: &RepositoryName) -> PathBuf {
        self.root.join(name.folder())
    }
}

/// Returns the snapshot of a revision in the entry of a model. Without `refs/main`, the only snapshot is `main`.
pub(super) fn snapshot_of(entry: &Path, revision: &str) -> Result<Option<PathBuf>> {
    let snapshots = entry.join("snapshots");
    let existing = |commit: &str| Some(snapshots.join(commit)).filter(|path| path.is_dir());
    if name::is_commit(revision)
        && let Some(path) = existing(revision)
    {
        return Ok(Some(path));
    }
    match read_ref(&entry.join("refs").join(revision))? {
        Some(commit) => Ok(existing(&commit)),
        None if revision == MAIN => Ok(only_folder(&snapshots)),
        None => Ok(None),
    }
}

/// Reads the commit that a branch or tag refers to; `None` if there is no such branch.
fn read_ref(path: &Path) -> Result<Option<String>> {
    let failed = |source| StoreError::io(path, "read", source);
    let file = match File::open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        file => file.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_REF).read_to_string(&mut text).map_err(failed)?;
    let commit = text.trim();
    if commit.contains('/') || name::check_revision(commit).is_err() {
        return Err(StoreError::malformed(path, 0, "does not contain a commit"));
    }
    Ok(Some(commit.to_owned()))
}

/// Returns the only folder in a folder.
fn only_folder(path: &Path) -> Option<PathBuf> {
    let mut folders =
        fs::read_dir(path).ok()?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let first = folders.next()?;
    folders.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(variables: &[(&str, &str)], home: Option<&str>) -> Option<PathBuf> {
        let variable = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        HubCache::from_variables(&variable, home.map(PathBuf::from)).ok().map(|cache| cache.root)
    }

    #[test]
    fn variables_locate_the_cache() {
        let all = [("HF_HUB_CACHE", "/a"), ("HF_HOME", "/b"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(root(&all, Some("/h")), Some(PathBuf::from("/a")));
        assert_eq!(root(&all[1..], Some("/h")), Some(PathBuf::from("/b/hub")));
        assert_eq!(root(&all[2..], Some("/h")), Some(PathBuf::from("/c/huggingface/hub")));
        assert_eq!(root(&[("HF_HOME", "")], Some("/h")), Some(PathBuf::from("/h/.cache/huggingface/hub")));
        assert_eq!(root(&[("HF_HOME", "~/hf")], Some("/h")), Some(PathBuf::from("/h/hf/hub")));
        assert_eq!(root(&[], None), None);
    }
}
