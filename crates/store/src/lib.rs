//! Files for weights, optimizer states and checkpoints.
//!
//! The format is [safetensors](https://huggingface.co/docs/safetensors): a header with names and types, then the
//! elements. Parameters have the names and layouts of PyTorch, so PyTorch can read the files and write them.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_nn::{Module, Param};
//! use kiln_store::{load_module, save_module};
//! use kiln_tensor::{Backend, Tensor};
//!
//! #[derive(Debug, Module)]
//! struct Line<B: Backend> {
//!     slope: Param<Tensor<B, 1>>,
//! }
//!
//! let device = Default::default();
//! let line = |slope: f32| Line::<Flex> { slope: Param::from_tensor(Tensor::from_floats([slope], &device)) };
//! # let folder = std::env::temp_dir().join(format!("kiln-store-tour-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let path = folder.join("line.safetensors");
//! save_module(&line(3.0), &path)?;
//! let loaded = load_module(line(0.0), &path)?;
//! assert_eq!(loaded.slope.val().into_scalar::<f32>(), 3.0);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`save_module`] and [`load_module`] for weights. Loading is strict: the error lists all mismatches.
//!   [`LoadOptions`] rename, cast and skip tensors.
//! * [`save_optimizer`] and [`load_optimizer`] for optimizer states.
//! * [`Checkpoint`] stores both, the training position and the state of the random number generators, in a folder with
//!   checksums. [`CheckpointWriter`] locks a folder for one training run.
//! * [`CheckpointContents`] holds several modules, optimizers and groups of tensors for one checkpoint.
//!   [`BackgroundWriter`] writes it while training continues; [`CheckpointSeries`] keeps the last checkpoints of a run.
//! * [`Weights`] for files of other programs: PyTorch, GGUF, NumPy, Flax, Burn. [`load_module`] reads them all;
//!   [`Mapping`] converts names and layouts.
//! * [`TensorFile`] and [`save_tensors`] for any named tensors.
//! * [`ShardedFile`] and [`save_sharded`] for checkpoints of several files with an index.
//! * [`numpy`] for `.npy` and `.npz` files.
//! * [`gguf`] for files of llama.cpp, [`flax`] and [`burn`] for those of these frameworks.
//! * [`pytorch`] for the files of `torch.save` and `torch.jit.save`.
//! * [`json`] for JSON values with NaN and infinity, as checkpoints keep them.
//! * [`hub`] for models of the Hugging Face hub: folders, the cache, and with the feature `hub` downloads.
//!
//! Writes are atomic: a file is written beside its target and renamed. Only plain files and checkpoints are replaced.
//! Reads allocate at most the length of the file. A damaged file is an error that names the file and the byte.
#![forbid(unsafe_code)]

pub mod atomic;
pub mod burn;
mod bytes;
mod checkpoint;
mod checksum;
mod error;
mod file;
pub mod flax;
mod float8;
pub mod gguf;
mod header;
pub mod hub;
pub mod json;
mod mapping;
mod module;
mod msgpack;
mod names;
pub mod numpy;
mod optimizer;
pub mod pytorch;
mod sharded;
mod source;
mod stand_in;
mod tensor_spans;
mod version;
mod weights;
mod zip;

pub use checkpoint::{
    BackgroundWriter, Checkpoint, CheckpointContents, CheckpointSeries, CheckpointWriter, SavedCheckpoint,
    TrainingState,
};
pub use error::{FailedSave, Mismatch, Result, StoreError, TypeMismatch, Unexpected};
pub use file::{TensorFile, save_tensors};
pub use mapping::Mapping;
pub use module::{
    DTypePolicy, LoadOptions, LoadReport, load_module, load_module_from, load_module_into, load_module_with,
    save_module, save_module_with,
};
pub use optimizer::{load_optimizer, save_optimizer};
pub use sharded::{SaveOptions, ShardedFile, save_module_sharded, save_sharded, save_sharded_with};
pub use source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
#[doc(hidden)]
pub use stand_in::refuse as refuse_stand_in;
pub use weights::Weights;
