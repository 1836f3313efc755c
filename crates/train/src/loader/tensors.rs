//! Batches of tensors in memory.

use kiln_data::DataError;
use kiln_tensor::{Backend, Int, Tensor};

use super::{Batches, Loader, LoaderIdentity};

/// A loader over tensors whose first dimension is the items: a tensor, or a tuple of two or three.
///
/// Defaults: batches of 32, in order; an incomplete last batch is kept. See [`Supervised`](crate::Supervised) for an
/// example.
#[derive(Clone, Debug)]
pub struct TensorLoader<T> {
    tensors: T,
    batch_size: usize,
    shuffle: Option<u64>,
    drop_last: bool,
}

/// Tensors that are divided into batches along their first dimension.
pub trait BatchTensors: Clone + Send + 'static {
    /// Returns the number of items of each tensor.
    fn lengths(&self) -> Vec<usize>;

    /// Returns the items at these indices.
    fn select(&self, indices: &[usize]) -> Self;
}

impl<T: BatchTensors> TensorLoader<T> {
    /// Returns a loader of tensors.
    pub fn new(tensors: T) -> TensorLoader<T> {
        TensorLoader { tensors, batch_size: 32, shuffle: None, drop_last: false }
    }

    kiln_ir::setters! {
        /// Sets the number of items of a batch: at least 1. The last batch may be smaller, unless it is
        /// [dropped](TensorLoader::drop_last). Default: 32.
        batch_size(batch_size: usize) => batch_size = batch_size.max(1);

        /// Shuffles each epoch. The order depends on the seed and the epoch. Default: no shuffling.
        shuffle(seed: u64) => shuffle = Some(seed);

        /// Sets whether to drop an incomplete last batch, as PyTorch's `DataLoader` does. A shuffling loader drops other items in
        /// each epoch. Default: no.
        ///
        /// ```
        /// use kiln_backends::Flex;
        /// use kiln_tensor::Tensor;
        /// use kiln_train::Loader;
        /// use kiln_train::loader::TensorLoader;
        ///
        /// let x = Tensor::<Flex, 1>::arange_float(0.0..7.0, 1.0, &Default::default());
        /// let loader = TensorLoader::new(x).batch_size(3).drop_last(true);
        /// let lengths: Vec<usize> = loader.batches(0, 0).map(|batch| batch.unwrap().dims()[0]).collect();
        /// assert_eq!((lengths, loader.num_batches()), (vec![3, 3], Some(2)));
        /// ```
        drop_last(drop_last: bool) => drop_last = drop_last;
    }

    fn len(&self) -> usize {
        self.tensors.lengths().into_iter().min().unwrap_or(0)
    }

    /// The number of items in the batches of an epoch.
    fn num_items(&self) -> usize {
        let len = self.len();
        if self.drop_last { len - len % self.batch_size } else { len }
    }

    /// Rejects tensors of different lengths, and those that do not fill a batch where an incomplete one is dropped.
    fn check(&self) -> Result<(), DataError> {
        let invalid = |message: String, hint: &str| {
            Err(DataError::InvalidArgument { operation: "tensor_loader", message, hint: hint.to_owned() })
        };
        let (lengths, len, batch_size) = (self.tensors.lengths(), self.len(), self.batch_size);
        if lengths.windows(2).any(|pair| pair[0] != pair[1]) {
            let message = format!("the tensors have {lengths:?} items");
            return invalid(message, "all tensors need the same first dimension");
        }
        if len > 0 && self.num_items() == 0 {
            let message =
                format!("no batch of {batch_size} items can be filled from {len}, and drop_last is on");
            return invalid(message, "lower batch_size or disable drop_last");
        }
        Ok(())
    }
}

impl<T: BatchTensors> Loader<T> for TensorLoader<T> {
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, T> {
        if let Err(error) = self.check() {
            return Box::new(std::iter::once(Err(error)));
        }
        let mut order = kiln_data::epoch_order(self.len(), self.shuffle, epoch);
        order.truncate(self.num_items());
        let starts = (0..order.len()).step_by(self.batch_size);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let batch_size = self.batch_size;
        Box::new(starts.skip(skip).map(move |start| {
            let end = order.len().min(start.saturating_add(batch_size));
            Ok(self.tensors.select(&order[start..end]))
        }))
    }

    fn num_batches(&self) -> Option<u64> {
        Some(self.num_items().div_ceil(self.batch_size) as u64)
    }

    fn identity(&self) -> LoaderIdentity {
        LoaderIdentity { items: Some(self.num_items() as u64), batch_size: Some(self.batch_size as u64) }
    }
}

macro_rules! batch_tensor {
    ($($kind:ty),*) => {$(
        impl<B: Backend, const D: usize> BatchTensors for Tensor<B, D, $kind> {
            fn lengths(&self) -> Vec<usize> {
                vec![self.dims().first().copied().unwrap_or(0)]
            }

            fn select(&self, indices: &[usize]) -> Self {
                let indices: Vec<i32> = indices.iter().map(|&index| index as i32).collect();
                let indices = Tensor::<B, 1, Int>::from_ints(indices, &self.device());
                self.clone().select(0, indices)
            }
        }
    )*};
}

batch_tensor!(kiln_tensor::Float, Int);

impl<S: BatchTensors, T: BatchTensors> BatchTensors for (S, T) {
    fn lengths(&self) -> Vec<usize> {
        [self.0.lengths(), self.1.lengths()].concat()
    }

    fn select(&self, indices: &[usize]) -> Self {
        (self.0.select(indices), self.1.select(indices))
    }
}

impl<S: BatchTensors, T: BatchTensors, U: BatchTensors> BatchTensors for (S, T, U) {
    fn lengths(&self) -> Vec<usize> {
        [self.0.lengths(), self.1.lengths(), self.2.lengths()].concat()
    }

    fn select(&self, indices: &[usize]) -> Self {
        (self.0.select(indices), self.1.select(indices), self.2.select(indices))
    }
}
