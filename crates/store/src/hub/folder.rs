//! The files of one model.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cache::snapshot_of;
use super::name::{self, MAIN, RepositoryName};
use crate::error::{Result, StoreError};

/// The configuration of a model's architecture.
const CONFIG: &str = "config.json";
/// Files of weights, the preferred ones first. An index lists the shards of sharded weights.
const WEIGHTS: [&str; 5] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "flax_model.msgpack",
];
/// Files that tokenizers and chat templates are read from.
const TOKENIZERS: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
];
/// Extensions of files of weights, the preferred ones first.
const EXTENSIONS: [&str; 5] = ["safetensors", "gguf", "bin", "pth", "pt"];
/// Files of training that have such an extension.
const OTHERS: [&str; 4] = ["training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"];
/// Maximum length of a JSON file, in bytes. The index of a model with 100,000 tensors has 10 MB.
const MAX_JSON: u64 = 64 << 20;
/// Maximum depth of folders, and maximum number of files.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 10_000;

/// A folder with the files of one model: `config.json`, weights and a tokenizer.
///
/// In the cache, files are symbolic links to blobs. A link that leaves the entry of the model is an error. In a plain
/// folder, links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFolder {
    path: PathBuf,
    /// The entry of the model in the cache; `None` for a plain folder.
    entry: Option<PathBuf>,
}

impl HubFolder {
    /// Opens a folder that contains `config.json` or weights: a plain folder, an entry of the cache
    /// (`models--ORG--NAME`), or one of its snapshots. The path of a file `config.json` opens its folder.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be read; [`StoreError::InvalidArgument`] when it does not contain a
    /// model.
    pub fn open(path: impl AsRef<Path>) -> Result<HubFolder> {
        open(path.as_ref())
    }

    /// The snapshot in the entry of a model.
    pub(super) fn snapshot(path: PathBuf, entry: PathBuf) -> HubFolder {
        HubFolder { path, entry: Some(entry) }
    }

    /// Returns the path of the folder. For an entry of the cache, it is the path of the snapshot.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the model, such as `org/name`; `None` for a plain folder.
    pub fn name(&self) -> Option<String> {
        let folder = self.entry.as_ref()?.file_name()?.to_str()?;
        RepositoryName::from_folder(folder).map(|name| name.to_string())
    }

    /// Returns the commit of the snapshot; `None` for a plain folder.
    pub fn commit(&self) -> Option<&str> {
        self.entry.as_ref()?;
        self.path.file_name()?.to_str()
    }

    /// Returns the path of a file; `None` if the folder does not contain it.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when the name is not a relative path without `..`;
    /// [`StoreError::OutsideFolder`] when a link leaves the entry of the model.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>> {
        name::check_file(name)?;
        let path = self.path.join(name);
        let real = match fs::canonicalize(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            real => real.map_err(|source| StoreError::io(&path, "read", source))?,
        };
        if let Some(entry) = &self.entry {
            let boundary = fs::canonicalize(entry).map_err(|source| StoreError::io(entry, "read", source))?;
            if !real.starts_with(&boundary) {
                return Err(StoreError::OutsideFolder { path, folder: entry.clone() });
            }
        }
        Ok(real.is_file().then_some(path))
    }

    /// Returns the names of all files, sorted, with `/` between folders. Hidden files and folders are left out.
    ///
    /// # Errors
    /// [`StoreError::Io`] when a folder cannot be read; [`StoreError::InvalidArgument`] when there are more than 10,000
    /// files, or more than 8 levels of folders.
    pub fn files(&self) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        self.collect(&self.path, "", MAX_DEPTH, &mut names)?;
        Ok(names.into_iter().collect())
    }

    /// Returns `config.json`: the architecture of the model and its sizes.
    ///
    /// # Errors
    /// See [`json`](HubFolder::json); [`StoreError::InvalidArgument`] when there is no such file.
    pub fn config(&self) -> Result<Value> {
        self.json(CONFIG)?.ok_or_else(|| self.lacks("does not contain `config.json`"))
    }

    /// Reads a JSON file of at most 64 MiB; `None` if the folder does not contain it.
    ///
    /// # Errors
    /// [`StoreError::Json`] when the contents are not JSON; the errors of [`file`](HubFolder::file).
    pub fn json(&self, name: &str) -> Result<Option<Value>> {
        let Some(path) = self.file(name)? else { return Ok(None) };
        let failed = |source| StoreError::io(&path, "read", source);
        let mut text = Vec::new();
        File::open(&path).map_err(failed)?.take(MAX_JSON + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_JSON {
            return Err(StoreError::malformed(&path, MAX_JSON, "longer than 64 MiB"));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| StoreError::json(&path, error))
    }

    /// Returns the path of the weights, for [`Weights::open`](crate::Weights::open): a file, or the index of sharded
    /// weights. Safetensors come before PyTorch files, these before Flax; one other file of weights, such as GGUF, is
    /// found by its extension.
    ///
    /// # Errors
    /// [`StoreError::InvalidArgument`] when there are no weights, or several files that are no shards of one model.
    pub fn weights(&self) -> Result<PathBuf> {
        for name in WEIGHTS {
            if let Some(path) = self.file(name)? {
                return Ok(path);
            }
        }
        let names = self.files()?;
        for extension in EXTENSIONS {
            let of_format: Vec<&String> =
                names.iter().filter(|name| has_extension(name, extension)).collect();
            match of_format.as_slice() {
                [] => {}
                [name] => return self.file(name)?.ok_or_else(|| self.lacks("changed while it was read")),
                several => {
                    let shown: Vec<&str> = several.iter().take(8).map(|name| name.as_str()).collect();
                    let list = shown.join("`, `");
                    let problem =
                        format!("contains {} files of weights\n  hint: open one of `{list}`", several.len());
                    return Err(self.lacks(&problem));
                }
            }
        }
        Err(self.lacks("does not contain weights (safetensors, PyTorch, Flax or GGUF)"))
    }

    /// Returns the paths of all files of the weights: the shards of sharded weights, otherwise one file.
    ///
    /// # Errors
    /// Those of [`weights`](HubFolder::weights), and [`StoreError::InvalidArgument`] when a shard is missing.
    pub fn weight_files(&self) -> Result<Vec<PathBuf>> {
        let path = self.weights()?;
        let Some(index) =
            path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".json"))
        else {
            return Ok(vec![path]);
        };
        let json = self.json(index)?.unwrap_or_default();
        let Some(map) = json.get("weight_map").and_then(Value::as_object) else {
            return Err(StoreError::json(&path, "no object `weight_map`"));
        };
        let shards: Option<BTreeSet<&str>> = map.values().map(Value::as_str).collect();
        let shards = shards
            .ok_or_else(|| StoreError::json(&path, "`weight_map` contains a value that is no string"))?;
        let found = |shard: &str| {
            self.file(shard)?.ok_or_else(|| self.lacks(&format!("does not contain the shard `{shard}`")))
        };
        shards.into_iter().map(found).collect()
    }

    /// Returns the paths of the files of the tokenizer and the chat template, `tokenizer.json` first.
    ///
    /// # Errors
    /// Those of [`file`](HubFolder::file).
    pub fn tokenizer_files(&self) -> Result<Vec<PathBuf>> {
        TOKENIZERS.iter().filter_map(|name| self.file(name).transpose()).collect()
    }

    fn collect(&self, folder: &Path, prefix: &str, depth: usize, names: &mut BTreeSet<String>) -> Result<()> {
        let failed = |source| StoreError::io(folder, "read", source);
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with('.') {
                continue;
            }
            if names.len() == MAX_FILES || depth == 0 {
                return Err(self.lacks("contains more than 10,000 files, or more than 8 levels of folders"));
            }
            let relative = format!("{prefix}{name}");
            // Links to folders are not followed: they can form cycles.
            if entry.file_type().map_err(failed)?.is_dir() {
                self.collect(&entry.path(), &format!("{relative}/"), depth - 1, names)?;
            } else if entry.path().is_file() {
                names.insert(relative);
            }
        }
        Ok(())
    }

    fn lacks(&self, problem: &str) -> StoreError {
        StoreError::InvalidArgument { argument: self.path.display().to_string(), problem: problem.to_owned() }
    }
}

fn open(path: &Path) -> Result<HubFolder> {
    let folder = if path.is_file() && path.file_name().is_some_and(|name| name == CONFIG) {
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    } else {
        path
    };
    // A relative path such as `.` hides the names of the folders around it.
    let absolute = std::path::absolute(folder).map_err(|source| StoreError::io(path, "read", source))?;
    if !absolute.is_dir() {
        let error = if path.exists() { io::ErrorKind::NotADirectory } else { io::ErrorKind::NotFound };
        return Err(StoreError::io(path, "read", error.into()));
    }
    let opened = if is_entry(&absolute) {
        let snapshot = snapshot_of(&absolute, MAIN)?;
        let snapshot = snapshot.ok_or_else(|| StoreError::InvalidArgument {
            argument: path.display().to_string(),
            problem: "has no snapshot of the branch `main`\n  hint: open a folder in `snapshots`".to_owned(),
        })?;
        HubFolder::snapshot(snapshot, absolute)
    } else {
        let entry = absolute.ancestors().nth(2).filter(|entry| {
            is_entry(entry) && absolute.parent().is_some_and(|parent| parent.ends_with("snapshots"))
        });
        match entry {
            Some(entry) => HubFolder::snapshot(absolute.clone(), entry.to_owned()),
            None => HubFolder { path: folder.to_owned(), entry: None },
        }
    };
    let has_config = opened.file(CONFIG)?.is_some();
    if !has_config && !opened.files()?.iter().any(|name| is_weights(name)) {
        return Err(opened.lacks("contains neither `config.json` nor weights"));
    }
    Ok(opened)
}

/// Whether a folder is the entry of a model in a cache.
fn is_entry(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| RepositoryName::from_folder(name).is_some()) && path.join("snapshots").is_dir()
}

fn is_weights(name: &str) -> bool {
    WEIGHTS.contains(&name) || EXTENSIONS.iter().any(|extension| has_extension(name, extension))
}

/// Whether a file in the folder itself has an extension of weights.
fn has_extension(name: &str, extension: &str) -> bool {
    !name.contains('/')
        && !OTHERS.contains(&name)
        && Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}
