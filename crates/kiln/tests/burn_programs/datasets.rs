//! Composed datasets, a batcher and a loader.

use kiln as burn;

use burn::backend::{Flex, flex::FlexDevice};
use burn::data::DataError;
use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::transform::{
    ComposedDataset, Mapper, MapperDataset, PartialDataset, SamplerDataset, Sampling, ShuffledDataset,
};
use burn::data::dataset::{Dataset, InMemDataset};
use burn::prelude::*;

struct Centered;

impl Mapper<u8, f32> for Centered {
    fn map(&self, item: u8) -> f32 {
        f32::from(item) - 4.5
    }
}

struct Column<B: Backend>(B::Device);

impl<B: Backend> Batcher<f32, Tensor<B, 1>> for Column<B> {
    fn batch(&self, items: Vec<f32>) -> Result<Tensor<B, 1>, DataError> {
        Ok(Tensor::from_floats(items.as_slice(), &self.0))
    }
}

type Part = PartialDataset<InMemDataset<u8>, u8>;

#[test]
fn a_loader_iterates_over_mapped_partial_datasets() {
    let digits = InMemDataset::new((0..10).collect::<Vec<u8>>());
    let [low, high]: [Part; 2] =
        [PartialDataset::new(digits.clone(), 0, 5), PartialDataset::new(digits.clone(), 5, 99)];
    let composed = ComposedDataset::new(vec![high, low]).unwrap();
    let mapped: MapperDataset<_, _, u8> = MapperDataset::new(composed, Centered);
    assert_eq!((mapped.len(), mapped.get(0), mapped.get(9)), (10, Some(0.5), Some(-0.5)));

    let loader = DataLoaderBuilder::new(Column::<Flex>(FlexDevice))
        .batch_size(4)
        .num_workers(2)
        .build(mapped)
        .unwrap();
    let sums: Vec<f32> = loader.iter().map(|batch| batch.unwrap().sum().into_scalar::<f32>()).collect();
    assert_eq!(sums, [0.5 + 1.5 + 2.5 + 3.5, 4.5 - 4.5 - 3.5 - 2.5, -2.0]);

    let shuffled = ShuffledDataset::new(digits.clone(), 3);
    let mut items: Vec<u8> = shuffled.iter().collect();
    assert_ne!(items, (0..10).collect::<Vec<u8>>());
    items.sort_unstable();
    assert_eq!(items, (0..10).collect::<Vec<u8>>());

    let sampled = SamplerDataset::new(digits.clone(), Sampling::new(1).replacement(true).size(25)).unwrap();
    assert_eq!(sampled.len(), 25);
    assert_eq!(SamplerDataset::new(digits.clone(), 5).unwrap().len(), 5);
    assert_eq!(SamplerDataset::with_replacement(digits.clone(), 25).unwrap().len(), 25);
    let mut twice: Vec<u8> =
        SamplerDataset::without_replacement(digits.clone(), 20).unwrap().iter().collect();
    twice.sort_unstable();
    assert_eq!(twice, (0..20).map(|i| i / 2).collect::<Vec<u8>>());
    let parts = PartialDataset::split(digits, 3);
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [3, 3, 4]);
}
