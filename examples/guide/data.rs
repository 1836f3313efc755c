//! The data: batches of MNIST.

use kiln::data::DataError;
use kiln::data::dataloader::batcher::Batcher;
use kiln::data::vision::{MnistDataset, MnistItem};
use kiln::prelude::*;

/// Images and labels on a device.
#[derive(Clone, Debug)]
pub(crate) struct MnistBatch<B: Backend> {
    /// Pixels with mean 0 and variance 1, `[batch, 28, 28]`.
    pub(crate) images: Tensor<B, 3>,
    /// Digits 0 to 9, `[batch]`.
    pub(crate) targets: Tensor<B, 1, Int>,
}

/// Makes a batch of items on its device.
#[derive(Clone, Debug)]
pub(crate) struct MnistBatcher<B: Backend> {
    pub(crate) device: B::Device,
}

impl<B: Backend> Batcher<MnistItem, MnistBatch<B>> for MnistBatcher<B> {
    fn batch(&self, items: Vec<MnistItem>) -> Result<MnistBatch<B>, DataError> {
        let pixels: Vec<u8> = items.iter().flat_map(|item| item.image.as_flattened()).copied().collect();
        let pixels = TensorData::new(pixels, [items.len(), 28, 28]).map_err(DataError::batcher)?;
        let images = Tensor::from_data(pixels, &self.device);
        let targets: Vec<i32> = items.iter().map(|item| i32::from(item.label)).collect();
        Ok(MnistBatch {
            images: (images / 255 - MnistDataset::MEAN) / MnistDataset::STD,
            targets: Tensor::from_data(targets, &self.device),
        })
    }
}
