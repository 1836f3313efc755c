//! Checkpoints of several files with an index, as Hugging Face stores large models.
//!
//! `model.safetensors.index.json` maps each tensor to the file that contains it. Source:
//! <https://huggingface.co/docs/transformers/big_models#sharded-checkpoints>.

mod index;
mod save;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::{Result, StoreError};
use crate::file::TensorFile;
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use index::Index;

pub use save::{SaveOptions, save_module_sharded, save_sharded, save_sharded_with};

/// The names of a checkpoint of one file, and of the index of several.
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The suffixes of other names.
const SINGLE_ENDING: &str = ".safetensors";
const INDEX_ENDING: &str = ".safetensors.index.json";

/// Files of tensors (shards) with an index, open for reading as one source.
///
/// Opening reads the index and the header of each shard once. Large shards are memory-mapped, as in [`TensorFile`]. The
/// index decides which shard a tensor is read from; tensors that it does not list are not visible.
///
/// ```
/// use kiln_store::{SaveOptions, ShardedFile, TensorSource, save_sharded};
/// use kiln_tensor::TensorData;
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let tensors = ["a", "b", "c"].map(|name| (name.to_owned(), TensorData::from(vec![1.0f32; 100])));
/// save_sharded(folder, tensors, &SaveOptions::new().max_shard_bytes(800))?;
///
/// let file = ShardedFile::open(folder)?;
/// assert_eq!(file.names(), ["a", "b", "c"]);
/// assert_eq!(file.num_shards(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ShardedFile {
    path: PathBuf,
    format: WeightFormat,
    metadata: BTreeMap<String, String>,
    shards: Vec<Box<dyn TensorSource>>,
    /// Index into `shards` of each tensor.
    tensors: BTreeMap<String, usize>,
}

impl ShardedFile {
    /// Opens safetensors files by their index, or by the folder that contains it.
    ///
    /// In a folder, `model.safetensors` comes first, then `model.safetensors.index.json`, then the only other index or
    /// safetensors file.
    ///
    /// # Errors
    /// When the index is damaged, a shard is missing or damaged, or a shard does not contain a tensor that the index
    /// lists. Also when the name of a shard leads out of the folder of the index.
    pub fn open(path: impl AsRef<Path>) -> Result<ShardedFile> {
        let path = path.as_ref();
        let found = if path.is_dir() { find(path)? } else { path.to_owned() };
        let open = |path: &Path| Ok(Box::new(TensorFile::open(path)?) as Box<dyn TensorSource>);
        if found.extension().is_some_and(|ending| ending == "safetensors") {
            return Ok(ShardedFile::single(TensorFile::open(&found)?));
        }
        ShardedFile::open_index(&found, WeightFormat::ShardedSafetensors, &open)
    }

    /// Opens files of another format by their index, such as `pytorch_model.bin.index.json`. `open` opens a shard, and is
    /// called once for each.
    ///
    /// # Errors
    /// See [`open`](ShardedFile::open). Also the errors of the function.
    pub fn open_with(
        index: impl AsRef<Path>,
        format: WeightFormat,
        open: impl Fn(&Path) -> Result<Box<dyn TensorSource>>,
    ) -> Result<ShardedFile> {
        ShardedFile::open_index(index.as_ref(), format, &open)
    }

    fn single(file: TensorFile) -> ShardedFile {
        ShardedFile {
            path: file.path().to_owned(),
            format: WeightFormat::Safetensors,
            metadata: file.metadata().clone(),
            tensors: file.names().map(|name| (name.to_owned(), 0)).collect(),
            shards: vec![Box::new(file)],
        }
    }

    fn open_index(
        path: &Path,
        format: WeightFormat,
        open: &dyn Fn(&Path) -> Result<Box<dyn TensorSource>>,
    ) -> Result<ShardedFile> {
        let index = Index::read(path)?;
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut shards: Vec<Box<dyn TensorSource>> = Vec::new();
        let mut tensors = BTreeMap::new();
        for (name, shard) in &index.weight_map {
            let place = match places.get(shard.as_str()) {
                Some(&place) => place,
                None => {
                    let shard_path = shard_path(path, shard)?;
                    if !shard_path.exists() {
                        return Err(missing_shard(path, shard, &index));
                    }
                    shards.push(open(&shard_path)?);
                    places.insert(shard, shards.len() - 1);
                    shards.len() - 1
                }
            };
            if shards[place].info(name).is_none() {
                return Err(missing_tensor(path, name, shards[place].as_ref()));
            }
            tensors.insert(name.clone(), place);
        }
        let mut metadata = shards.first().map(|shard| shard.metadata()).unwrap_or_default();
        metadata.extend(index.metadata);
        Ok(ShardedFile { path: path.to_owned(), format, metadata, shards, tensors })
    }

    /// Returns the number of shards.
    pub fn num_shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns the paths of the shards, in the order of their first tensor.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|shard| shard.path())
    }
}

impl TensorSource for ShardedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn format(&self) -> WeightFormat {
        self.format
    }

    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        self.shards[*self.tensors.get(name)?].info(name)
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        match self.tensors.get(name) {
            Some(&place) => self.shards[place].contents(name),
            None => Err(StoreError::NotFound {
                file: self.path.clone(),
                name: name.to_owned(),
                suggestion: closest(name, self.tensors.keys().map(String::as_str)).map(str::to_owned),
            }),
        }
    }

    /// Returns the metadata of the first shard and of the index, such as `total_size`.
    fn metadata(&self) -> BTreeMap<String, String> {
        self.metadata.clone()
    }
}

impl fmt::Debug for ShardedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedFile")
            .field("path", &self.path)
            .field("shards", &self.shards.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// The checkpoint in a folder: its index, or its only file.
fn find(folder: &Path) -> Result<PathBuf> {
    for name in [SINGLE, INDEX] {
        let path = folder.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    let failed = |source| StoreError::io(folder, "read", source);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    for ending in [INDEX_ENDING, SINGLE_ENDING] {
        let mut found = names.iter().filter(|name| name.ends_with(ending));
        match (found.next(), found.next()) {
            (Some(name), None) => return Ok(folder.join(name)),
            (Some(one), Some(other)) => {
                let problem =
                    format!("contains `{one}`, `{other}` and no `{INDEX}`\n  hint: open one of them");
                return Err(StoreError::malformed(folder, 0, problem));
            }
            (None, _) => {}
        }
    }
    let problem = format!("contains no `{SINGLE}` and no `{INDEX}`");
    Err(StoreError::malformed(folder, 0, problem))
}

/// The path of a shard: relative to the index, within its folder.
fn shard_path(index: &Path, shard: &str) -> Result<PathBuf> {
    let inside = Path::new(shard).components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || shard.is_empty() {
        let problem =
            format!("the shard `{}` is not a file in the folder of the index", shard.escape_debug());
        return Err(StoreError::malformed(index, 0, problem));
    }
    Ok(index.with_file_name(shard))
}

fn missing_shard(path: &Path, shard: &str, index: &Index) -> StoreError {
    let mut tensors = index.weight_map.iter().filter(|(_, other)| *other == shard).map(|(name, _)| name);
    let first = tensors.next().map_or("", String::as_str);
    let problem = format!(
        "the shard `{}` is missing; it contains `{}` and {} other tensors\n  hint: download it to the folder of the index",
        shard.escape_debug(),
        first.escape_debug(),
        tensors.count()
    );
    StoreError::malformed(path, 0, problem)
}

fn missing_tensor(index: &Path, name: &str, shard: &dyn TensorSource) -> StoreError {
    let index = index.file_name().unwrap_or_default().display();
    let problem = format!(
        "no tensor `{}`, which `{index}` lists in this file\n  hint: the files belong to different versions of a model",
        name.escape_debug()
    );
    StoreError::malformed(shard.path(), 0, problem)
}
