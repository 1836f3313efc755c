//! Models of the [Hugging Face hub](https://huggingface.co): folders, the cache, and downloads.
//!
//! [`open`] opens a folder of a model, [`find`] finds a model in the cache that the Python package `huggingface_hub`
//! uses too. Neither accesses the network. With the feature `hub`, `Downloader` downloads models into that cache.
//!
//! ```no_run
//! use kiln_store::hub;
//!
//! let model = hub::find("HuggingFaceTB/SmolLM2-135M-Instruct")?;
//! println!("{} {}", model.config()?["model_type"], model.weights()?.display());
//! # Ok::<(), kiln_store::StoreError>(())
//! ```
//!
//! The layout of the cache:
//!
//! ```text
//! ~/.cache/huggingface/hub/models--ORG--NAME/
//!     refs/main                           the commit of the branch `main`
//!     snapshots/COMMIT/config.json        a symbolic link to ../../blobs/ETAG
//!     blobs/ETAG                          the contents; ETAG is their SHA-256 if the file is large
//!     blobs/ETAG.incomplete               a download that can be resumed
//! ```

mod cache;
#[cfg(feature = "hub")]
mod download;
mod folder;
mod name;

use std::path::{Path, PathBuf};

use crate::error::{Result, StoreError};
use name::RepositoryName;

pub use cache::HubCache;
#[cfg(feature = "hub")]
pub use download::{DownloadProgress, Downloader};
pub use folder::HubFolder;

/// Opens a folder with a model: a plain folder, an entry of the cache (`models--ORG--NAME`), or one of its snapshots.
///
/// # Errors
/// See [`HubFolder::open`].
pub fn open(path: impl AsRef<Path>) -> Result<HubFolder> {
    HubFolder::open(path)
}

/// Finds a model by its name, such as `org/name`, in the cache. The revision is the branch `main`.
///
/// # Errors
/// See [`HubCache::find`].
pub fn find(name: &str) -> Result<HubFolder> {
    HubCache::from_environment()?.find(name)
}

/// Returns the path of a model: a file, such as GGUF, or a folder with `config.json`. `model` is a path, or the name of a
/// model in the cache. Of a folder without `config.json`, the path is that of its only file of weights.
///
/// # Errors
/// [`StoreError::NotInCache`] when the cache does not contain the model; [`StoreError::InvalidArgument`] when `model` is
/// neither an existing path nor a name, or the folder does not contain a model.
pub fn locate(model: &str) -> Result<PathBuf> {
    let path = Path::new(model);
    let folder = match path {
        path if path.is_file() => return Ok(path.to_owned()),
        path if path.is_dir() => open(path)?,
        _ if RepositoryName::parse(model).is_ok() => find(model)?,
        _ => {
            let problem = "no such file or folder\n  hint: give a file, a folder, or a name like `org/name`";
            return Err(StoreError::InvalidArgument {
                argument: model.to_owned(),
                problem: problem.to_owned(),
            });
        }
    };
    if folder.file("config.json")?.is_some() { Ok(folder.path().to_owned()) } else { folder.weights() }
}
