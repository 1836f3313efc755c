//! Batches for the replicas of data-parallel training.

use std::fmt;
use std::marker::PhantomData;

use kiln_data::DataError;

use super::{BatchTensors, Batches, Loader, LoaderIdentity};

/// A loader of one batch for each replica of a [`DataParallel`](crate::DataParallel) task: of one loader for each, over its
/// share of the items.
///
/// An epoch ends with the longest loader. Its last steps may have fewer batches than replicas: those of the first loaders. A
/// loader must have at least as many batches as those after it.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_train::loader::{Loader, ShardedLoader, TensorLoader};
///
/// let shard = |items| TensorLoader::new(Tensor::<Flex, 1>::ones([items], &Default::default())).batch_size(2);
/// let loader = ShardedLoader::new(vec![shard(6), shard(4)]);
/// let lengths: Vec<usize> = loader.batches(0, 0).map(|batches| batches.unwrap().len()).collect();
/// assert_eq!(lengths, [2, 2, 1]);
/// assert_eq!(loader.num_batches(), Some(3));
/// ```
#[derive(Clone, Debug)]
pub struct ShardedLoader<L> {
    loaders: Vec<L>,
}

impl<L> ShardedLoader<L> {
    /// Returns a loader of one loader for each replica, in their order.
    pub fn new(loaders: Vec<L>) -> ShardedLoader<L> {
        ShardedLoader { loaders }
    }
}

impl<Batch: 'static, L: Loader<Batch>> Loader<Vec<Batch>> for ShardedLoader<L> {
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, Vec<Batch>> {
        let mut shards: Vec<Batches<'_, Batch>> =
            self.loaders.iter().map(|loader| loader.batches(epoch, skip)).collect();
        Box::new(std::iter::from_fn(move || next_of_all(&mut shards).transpose()))
    }

    fn num_batches(&self) -> Option<u64> {
        let numbers: Option<Vec<u64>> = self.loaders.iter().map(Loader::num_batches).collect();
        Some(numbers?.into_iter().max().unwrap_or(0))
    }

    /// The sums over the loaders.
    fn identity(&self) -> LoaderIdentity {
        let sum = |number: fn(LoaderIdentity) -> Option<u64>| {
            self.loaders.iter().map(|loader| number(loader.identity())).sum::<Option<u64>>()
        };
        LoaderIdentity {
            items: sum(|identity| identity.items),
            batch_size: sum(|identity| identity.batch_size),
        }
    }
}

/// The next batch of each loader; `None` if all are at their end.
fn next_of_all<Batch>(shards: &mut [Batches<'_, Batch>]) -> Result<Option<Vec<Batch>>, DataError> {
    let mut batches = Vec::new();
    for (rank, shard) in shards.iter_mut().enumerate() {
        let Some(batch) = shard.next() else { continue };
        if batches.len() < rank {
            return Err(DataError::InvalidArgument {
                operation: "sharded_loader",
                message: format!("loader {rank} has more batches than loader {}", batches.len()),
                hint: "order the loaders by their number of batches, largest first".to_owned(),
            });
        }
        batches.push(batch?);
    }
    Ok(if batches.is_empty() { None } else { Some(batches) })
}

/// A loader of one batch for each replica of a [`DataParallel`](crate::DataParallel) task: consecutive parts of the batches of
/// one loader, of equal size or one item less.
///
/// A batch with fewer items than devices has one part for each item. See [`DataParallel`](crate::DataParallel) for an
/// example.
pub struct SplitLoader<Batch, L, D, F> {
    loader: L,
    devices: Vec<D>,
    place: F,
    batch: PhantomData<fn(Batch)>,
}

impl<Batch, L, D, F> SplitLoader<Batch, L, D, F> {
    /// Returns a loader of parts of the batches of another loader. The closure moves a part to its device.
    pub fn new<Part>(loader: L, devices: impl Into<Vec<D>>, place: F) -> SplitLoader<Batch, L, D, F>
    where
        L: Loader<Batch>,
        F: Fn(Batch, &D) -> Part,
    {
        SplitLoader { loader, devices: devices.into(), place, batch: PhantomData }
    }
}

impl<Batch, Part, L, D, F> Loader<Vec<Part>> for SplitLoader<Batch, L, D, F>
where
    Batch: BatchTensors,
    L: Loader<Batch>,
    F: Fn(Batch, &D) -> Part,
{
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, Vec<Part>> {
        let place = |(part, device)| (self.place)(part, device);
        Box::new(self.loader.batches(epoch, skip).map(move |batch| {
            let parts = parts_of(&batch?, self.devices.len());
            Ok(parts.into_iter().zip(&self.devices).map(place).collect())
        }))
    }

    fn num_batches(&self) -> Option<u64> {
        self.loader.num_batches()
    }

    fn identity(&self) -> LoaderIdentity {
        self.loader.identity()
    }
}

/// Consecutive parts of a batch: at most `count`, none of them empty.
fn parts_of<Batch: BatchTensors>(batch: &Batch, count: usize) -> Vec<Batch> {
    let items = batch.lengths().into_iter().min().unwrap_or(0);
    let count = count.min(items).max(1);
    let start = |part: usize| part * (items / count) + part.min(items % count);
    let part = |part: usize| batch.select(&(start(part)..start(part + 1)).collect::<Vec<usize>>());
    (0..count).map(part).collect()
}

impl<Batch, L: fmt::Debug, D: fmt::Debug, F> fmt::Debug for SplitLoader<Batch, L, D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SplitLoader")
            .field("loader", &self.loader)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}
