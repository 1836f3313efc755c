//! Batches of tensors in memory.

use kiln_data::DataError;
use kiln_tensor::{Backend, Int, Tensor};

use super::{Batches, Loader, LoaderIdentity};

/// A loader over tensors whose first dimension is the items: a tensor, or a tuple of two or three.
///
/// Defaults: batches of 32, in order. See [`Supervised`](crate::Supervised) for an example.
#[derive(Clone, Debug)]
pub struct TensorLoader<T> {
    tensors: T,
    batch_size: usize,
    shuffle: Option<u64>,
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
        TensorLoader { tensors, batch_size: 32, shuffle: None }
    }

    /// Sets the number of items of a batch: at least 1. The last batch may be smaller. Default: 32.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> TensorLoader<T> {
        self.batch_size = batch_size.max(1);
        self
    }

    /// Shuffles each epoch. The order depends on the seed and the epoch. Default: no shuffling.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> TensorLoader<T> {
        self.shuffle = Some(seed);
        self
    }

    fn len(&self) -> usize {
        self.tensors.lengths().into_iter().min().unwrap_or(0)
    }

    /// Rejects tensors of different lengths.
    fn check(&self) -> Result<(), DataError> {
        let lengths = self.tensors.lengths();
        if lengths.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(());
        }
        Err(DataError::InvalidArgument {
            operation: "tensor_loader",
            message: format!("the tensors have {lengths:?} items"),
            hint: "all tensors need the same first dimension".to_owned(),
        })
    }
}

impl<T: BatchTensors> Loader<T> for TensorLoader<T> {
    fn batches(&self, epoch: u64, skip: u64) -> Batches<'_, T> {
        if let Err(error) = self.check() {
            return Box::new(std::iter::once(Err(error)));
        }
        let order = kiln_data::epoch_order(self.len(), self.shuffle, epoch);
        let starts = (0..self.len()).step_by(self.batch_size);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let batch_size = self.batch_size;
        Box::new(starts.skip(skip).map(move |start| {
            let end = order.len().min(start + batch_size);
            Ok(self.tensors.select(&order[start..end]))
        }))
    }

    fn num_batches(&self) -> Option<u64> {
        Some(self.len().div_ceil(self.batch_size) as u64)
    }

    fn identity(&self) -> LoaderIdentity {
        LoaderIdentity { items: Some(self.len() as u64), batch_size: Some(self.batch_size as u64) }
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
