//! Datasets and data loading.
//!
//! - A [`Dataset`] is an indexed collection of items: [`InMemoryDataset`] holds a `Vec`, [`vision::MnistDataset`]
//!   the digits of MNIST. Transforms wrap a dataset: [`MapDataset`], [`SubsetDataset`] and
//!   [`split`], [`split_consecutive`], [`ShuffledDataset`], [`WindowsDataset`], [`ConcatDataset`], [`SamplerDataset`].
//! - A [`Batcher`] turns a `Vec` of items into the input of a model, usually tensors. This crate does
//!   not depend on tensors.
//! - A [`DataLoader`] iterates over a dataset in batches: shuffled by a seed, prefetched by worker threads, in an order
//!   that does not depend on the number of workers.
//!
//! ```
//! use kiln_data::{DataError, DataLoaderBuilder, InMemoryDataset};
//!
//! let dataset = InMemoryDataset::new((0..10).collect::<Vec<i32>>());
//! let loader = DataLoaderBuilder::new(|items: Vec<i32>| Ok::<_, DataError>(items.iter().sum::<i32>()))
//!     .batch_size(4)
//!     .shuffle(42)
//!     .num_workers(2)
//!     .build(dataset)?;
//!
//! let mut total = 0;
//! for batch in loader.iter() {
//!     total += batch?;
//! }
//! assert_eq!(total, 45);
//! # Ok::<(), DataError>(())
//! ```
//!
//! Fallible functions return a [`DataError`], which names the file and the byte, or the option, and suggests a fix.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod dataloader;
pub mod dataset;
mod error;
pub mod idx;
mod random;
pub mod vision;

pub use dataloader::batcher::Batcher;
pub use dataloader::{DataLoader, DataLoaderBuilder, DataLoaderIter, Progress};
pub use dataset::{
    ComposedDataset, ConcatDataset, Dataset, DatasetIter, InMemDataset, InMemoryDataset, MapDataset, Mapper,
    MapperDataset, PartialDataset, SamplerDataset, Sampling, ShuffledDataset, SubsetDataset, WindowsDataset,
    split, split_consecutive,
};
pub use error::{BoxError, DataError};
pub use random::epoch_order;
