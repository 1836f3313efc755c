//! Writing a checkpoint of several files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kiln_nn::Module;
use kiln_tensor::{DType, TensorData, TensorType};

use super::index::Index;
use super::{INDEX, SINGLE};
use crate::atomic::write_file;
use crate::error::{Result, StoreError};
use crate::file::{NamedSources, Source, check_names, write_tensors};
use crate::module::module_tensors;

/// The default limit on the size of a shard in bytes, that of Hugging Face.
const DEFAULT_SHARD_BYTES: u64 = 5_000_000_000;

/// Options of [`save_sharded`].
///
/// ```
/// use kiln_store::SaveOptions;
/// use kiln_tensor::DType;
///
/// let options = SaveOptions::new().dtype(DType::BF16).max_shard_bytes(2_000_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct SaveOptions {
    dtype: Option<DType>,
    max_shard_bytes: u64,
    metadata: BTreeMap<String, String>,
}

impl Default for SaveOptions {
    fn default() -> SaveOptions {
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        SaveOptions { dtype: None, max_shard_bytes: DEFAULT_SHARD_BYTES, metadata }
    }
}

impl SaveOptions {
    /// Returns the default options.
    pub fn new() -> SaveOptions {
        SaveOptions::default()
    }

    /// Casts float tensors to a float dtype. Integers and `bool` keep their dtype. Default: no cast.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> SaveOptions {
        self.dtype = Some(dtype);
        self
    }

    /// Sets the limit on the elements of a shard in bytes. A tensor above the limit gets a shard of its own. Default:
    /// 5,000,000,000.
    #[must_use]
    pub fn max_shard_bytes(mut self, bytes: u64) -> SaveOptions {
        self.max_shard_bytes = bytes;
        self
    }

    /// Adds metadata to every file. Default: `format: pt`, which programs that share weights with PyTorch expect.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, text: impl Into<String>) -> SaveOptions {
        self.metadata.insert(key.into(), text.into());
        self
    }

    /// Adds metadata under keys that have none.
    pub(crate) fn with_more(mut self, metadata: BTreeMap<String, String>) -> SaveOptions {
        for (key, text) in metadata {
            self.metadata.entry(key).or_insert(text);
        }
        self
    }

    /// The type of a tensor in the file.
    pub(crate) fn written(&self, ty: TensorType) -> TensorType {
        match self.dtype {
            Some(dtype) if ty.dtype.is_float() => ty.with_dtype(dtype),
            Some(_) | None => ty,
        }
    }

    /// The metadata of every file.
    pub(crate) fn all_metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    fn check(&self) -> Result<()> {
        match self.dtype {
            Some(dtype) if !dtype.is_float() => Err(StoreError::InvalidArgument {
                argument: format!("dtype = {dtype}"),
                problem: "weights can be cast to f64, f32, f16 or bf16".to_owned(),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// Writes tensors to a folder in Hugging Face's layout: `model.safetensors` if all fit in one shard, otherwise
/// `model-00001-of-00003.safetensors` and so on with `model.safetensors.index.json`. Returns the paths of the shards.
///
/// The folder is created if it is missing. Tensors fill the shards in their order, as in Hugging Face's `save_pretrained`.
/// Files of an earlier checkpoint under these names are removed after the new one is complete. Until then the old one
/// opens; if both have shards of the same names, neither opens while these are replaced.
///
/// # Errors
/// When two tensors have the same name, the dtype of the options is not a float, or a file cannot be written.
#[doc(alias = "save_pretrained")]
pub fn save_sharded(
    folder: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
    options: &SaveOptions,
) -> Result<Vec<PathBuf>> {
    let tensors = tensors.into_iter().map(|(name, data)| (name, Source::Host(data)));
    save_sources(folder.as_ref(), tensors.collect(), options)
}

/// Writes all parameters and buffers of a module to a folder, like [`save_sharded`]. Parameters are read from their device
/// one at a time. The metadata contains the other names of tied parameters, as in [`save_module`](crate::save_module).
///
/// # Errors
/// See [`save_sharded`]. Also when a device failed.
pub fn save_module_sharded(
    module: &dyn Module,
    folder: impl AsRef<Path>,
    options: &SaveOptions,
) -> Result<Vec<PathBuf>> {
    let (tensors, metadata) = module_tensors(module);
    save_sources(folder.as_ref(), tensors, &options.clone().with_more(metadata))
}

/// Writes tensors to a folder, like [`save_sharded`]. `read` returns the tensor of each name in `types`; those of one shard
/// are in memory at a time.
///
/// # Errors
/// See [`save_sharded`]. Also the errors of `read`, and when it returns a tensor of another type.
pub fn save_sharded_with(
    folder: impl AsRef<Path>,
    types: impl IntoIterator<Item = (String, TensorType)>,
    mut read: impl FnMut(&str) -> Result<TensorData>,
    options: &SaveOptions,
) -> Result<Vec<PathBuf>> {
    let types: Vec<(String, TensorType)> = types.into_iter().collect();
    let expected: BTreeMap<String, TensorType> = types.iter().cloned().collect();
    let mut source = |name: &str| {
        let data = read(name)?;
        match expected.get(name) {
            Some(&ty) if ty != data.ty() => Err(StoreError::InvalidArgument {
                argument: format!("tensor `{name}`"),
                problem: format!("was announced as {ty}, but is {}", data.ty()),
            }),
            Some(_) | None => Ok(Source::Host(data)),
        }
    };
    Save { folder: folder.as_ref(), options }.run(&types, &mut source)
}

fn save_sources(folder: &Path, tensors: NamedSources, options: &SaveOptions) -> Result<Vec<PathBuf>> {
    check_names(&folder.join(INDEX), &tensors)?;
    let types: Vec<(String, TensorType)> =
        tensors.iter().map(|(name, source)| (name.clone(), source.ty())).collect();
    let mut tensors: BTreeMap<String, Source> = tensors.into_iter().collect();
    let mut source = |name: &str| {
        tensors
            .remove(name)
            .ok_or_else(|| StoreError::Duplicate { file: folder.join(INDEX), name: name.to_owned() })
    };
    Save { folder, options }.run(&types, &mut source)
}

/// A checkpoint to write.
struct Save<'a> {
    folder: &'a Path,
    options: &'a SaveOptions,
}

/// Names and types of the tensors of a shard.
type Shard = Vec<(String, TensorType)>;

impl Save<'_> {
    fn run(
        &self,
        types: &[(String, TensorType)],
        source: &mut dyn FnMut(&str) -> Result<Source>,
    ) -> Result<Vec<PathBuf>> {
        self.options.check()?;
        self.check_names(types)?;
        fs::create_dir_all(self.folder).map_err(|error| StoreError::io(self.folder, "create", error))?;
        let shards = split(types, self.options);
        let names: Vec<String> = match shards.len() {
            0 | 1 => vec![SINGLE.to_owned()],
            count => (1..=count).map(|number| shard_name(number, count)).collect(),
        };
        if let [single] = names.as_slice() {
            let path = self.folder.join(single);
            let shard = shards.into_iter().next().unwrap_or_default();
            self.write(&path, &shard, source)?;
        } else {
            self.write_all(&names, &shards, source)?;
        }
        self.remove_stale(&names);
        Ok(names.iter().map(|name| self.folder.join(name)).collect())
    }

    fn check_names(&self, types: &[(String, TensorType)]) -> Result<()> {
        let mut names = BTreeSet::new();
        match types.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => {
                Err(StoreError::Duplicate { file: self.folder.to_owned(), name: name.clone() })
            }
            None => Ok(()),
        }
    }

    /// Writes all shards under temporary names, renames them, and writes the index last.
    fn write_all(
        &self,
        names: &[String],
        shards: &[Shard],
        source: &mut dyn FnMut(&str) -> Result<Source>,
    ) -> Result<()> {
        let mut staged = Staged(Vec::new());
        for (name, shard) in names.iter().zip(shards) {
            let path = self.folder.join(format!(".{name}.new"));
            staged.0.push(path.clone());
            self.write(&path, shard, source)?;
        }
        let index = self.folder.join(INDEX);
        // An old index must not point to new shards.
        if names.iter().any(|name| self.folder.join(name).exists()) && index.exists() {
            fs::remove_file(&index).map_err(|error| StoreError::io(&index, "replace", error))?;
        }
        for (name, from) in names.iter().zip(&staged.0) {
            let to = self.folder.join(name);
            fs::rename(from, &to).map_err(|error| StoreError::io(&to, "write", error))?;
        }
        let written = |(_, ty): &(String, TensorType)| self.options.written(*ty).num_bytes() as u64;
        let total = shards.iter().flatten().map(written).sum();
        let files = names
            .iter()
            .zip(shards)
            .flat_map(|(name, shard)| shard.iter().map(move |(tensor, _)| (tensor.clone(), name.clone())));
        let text = Index::print(total, &files.collect());
        write_file(&index, |writer| {
            writer.write_all(text.as_bytes()).map_err(|error| StoreError::io(&index, "write", error))
        })
    }

    fn write(
        &self,
        path: &Path,
        shard: &Shard,
        source: &mut dyn FnMut(&str) -> Result<Source>,
    ) -> Result<()> {
        let mut tensors = NamedSources::with_capacity(shard.len());
        for (name, ty) in shard {
            let (own, written) = (source(name)?, self.options.written(*ty).dtype);
            let cast = if written == ty.dtype { own } else { Source::Cast(Box::new(own), written) };
            tensors.push((name.clone(), cast));
        }
        write_tensors(path, tensors, &self.options.metadata)
    }

    /// Removes the files of an earlier checkpoint. One that cannot be removed does no harm.
    fn remove_stale(&self, names: &[String]) {
        let Ok(entries) = fs::read_dir(self.folder) else { return };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let ours = name == SINGLE || name == INDEX || is_shard(&name);
            let kept = names.contains(&name) || name == INDEX && names.len() > 1;
            if ours && !kept {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Temporary files, removed on drop. After success none has these names.
struct Staged(Vec<PathBuf>);

impl Drop for Staged {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Fills shards with tensors in their order. One above the limit gets a shard of its own, in front of the unfinished one.
fn split(types: &[(String, TensorType)], options: &SaveOptions) -> Vec<Shard> {
    let (mut shards, mut current, mut filled) = (Vec::new(), Shard::new(), 0u64);
    for (name, ty) in types {
        let bytes = options.written(*ty).num_bytes() as u64;
        if bytes > options.max_shard_bytes {
            shards.push(vec![(name.clone(), *ty)]);
            continue;
        }
        if filled + bytes > options.max_shard_bytes && !current.is_empty() {
            shards.push(std::mem::take(&mut current));
            filled = 0;
        }
        current.push((name.clone(), *ty));
        filled += bytes;
    }
    if !current.is_empty() {
        shards.push(current);
    }
    shards
}

fn shard_name(number: usize, count: usize) -> String {
    format!("model-{number:05}-of-{count:05}.safetensors")
}

/// Whether a file name is `model-NNNNN-of-NNNNN.safetensors`.
fn is_shard(name: &str) -> bool {
    let middle = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    middle
        .and_then(|middle| middle.split_once("-of-"))
        .is_some_and(|(number, count)| is_number(number) && is_number(count))
}
