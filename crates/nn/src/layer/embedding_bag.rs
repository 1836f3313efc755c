//! Embeddings of bags of indices.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param, plain_data};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor, linalg, module};

/// The reduction of the vectors of a bag.
#[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// The sum, in which each vector may have a weight.
    Sum,
    /// The mean.
    #[default]
    Mean,
    /// The maximum of each element.
    Max,
}

plain_data!(BagMode);

impl From<BagMode> for module::BagMode {
    fn from(mode: BagMode) -> module::BagMode {
        match mode {
            BagMode::Sum => module::BagMode::Sum,
            BagMode::Mean => module::BagMode::Mean,
            BagMode::Max => module::BagMode::Max,
        }
    }
}

/// Settings of an [`EmbeddingBag`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct EmbeddingBagConfig {
    /// Number of embeddings: the size of the vocabulary.
    pub n_embedding: usize,
    /// Length of each embedding vector.
    pub d_model: usize,
    /// The reduction of the vectors of a bag. Default: the mean.
    #[config(default = BagMode::Mean)]
    pub mode: BagMode,
    /// The initializer of the table. Default: normal with mean 0 and standard deviation 1.
    #[config(default = Initializer::Normal { mean: 0.0, std: 1.0 })]
    pub initializer: Initializer,
    /// Maximum norm: looked-up vectors with a larger norm are scaled down to it. Default: none.
    pub max_norm: Option<f64>,
    /// The `p` of the p-norm in `max_norm`, `(Σ |x|^p)^(1/p)`. Default: 2.
    #[config(default = 2.0)]
    pub norm_type: f64,
    /// Whether the offsets of [`forward_with_offsets`](EmbeddingBag::forward_with_offsets) end with the number of
    /// indices, as in the CSR format. Default: false.
    #[config(default = false)]
    pub include_last_offset: bool,
}

/// Embedding of bags: looks up the vectors of a bag of indices and reduces them to one, without storing them. An empty
/// bag becomes zeros.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{BagMode, EmbeddingBagConfig, Initializer};
/// use kiln_tensor::{Int, Tensor};
///
/// let device = Default::default();
/// let layer = EmbeddingBagConfig::new(10, 2)
///     .with_mode(BagMode::Sum)
///     .with_initializer(Initializer::Ones)
///     .init::<Flex>(&device);
/// // Two bags of different lengths: 4, 1, 7 and 2.
/// let indices = Tensor::<Flex, 1, Int>::from_ints([4, 1, 7, 2], &device);
/// let offsets = Tensor::<Flex, 1, Int>::from_ints([0, 3], &device);
/// let y = layer.forward_with_offsets(indices, offsets, None);
/// assert_eq!(y.into_data().to_vec::<f32>(), [3.0, 3.0, 1.0, 1.0]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct EmbeddingBag<B: Backend = Dyn> {
    /// `[n_embedding, d_model]`.
    pub weight: Param<Tensor<B, 2>>,
    /// The reduction of the vectors of a bag.
    pub mode: BagMode,
    /// Maximum norm of looked-up vectors. The table itself is not rescaled.
    #[module(attribute)]
    pub max_norm: Option<f64>,
    /// The `p` of the p-norm in `max_norm`.
    #[module(attribute)]
    pub norm_type: f64,
    /// Whether offsets end with the number of indices.
    #[module(attribute)]
    pub include_last_offset: bool,
}

impl EmbeddingBagConfig {
    /// Returns a layer with an initialized table on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> EmbeddingBag<B> {
        EmbeddingBag {
            weight: self.initializer.init([self.n_embedding, self.d_model], device),
            mode: self.mode,
            max_norm: self.max_norm,
            norm_type: self.norm_type,
            include_last_offset: self.include_last_offset,
        }
    }
}

impl<B: Backend> EmbeddingBag<B> {
    /// Reduces bags of one length: indices are `[bags, length]`, the output `[bags, d_model]`. An index out of range
    /// poisons the result: reading it returns the error.
    #[track_caller]
    pub fn forward(&self, indices: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        module::embedding_bag(self.table(), indices, None, self.mode.into())
    }

    /// Like [`forward`](EmbeddingBag::forward), with a weight for each index: `[bags, length]`.
    ///
    /// # Panics
    /// When the mode is not [`BagMode::Sum`], or the weights have another shape than the indices.
    #[doc(alias = "per_sample_weights")]
    #[track_caller]
    pub fn forward_weighted(&self, indices: Tensor<B, 2, Int>, weights: Tensor<B, 2>) -> Tensor<B, 2> {
        module::embedding_bag(self.table(), indices, Some(weights), self.mode.into())
    }

    /// Reduces bags of different lengths: indices are `[count]`, the concatenated bags; offsets are the start of each
    /// bag, ascending from 0; weights, if any, are `[count]`. The output is `[bags, d_model]`.
    ///
    /// # Panics
    /// With weights, when the mode is not [`BagMode::Sum`]. Without offsets, when they include the last one.
    #[track_caller]
    pub fn forward_with_offsets(
        &self,
        indices: Tensor<B, 1, Int>,
        offsets: Tensor<B, 1, Int>,
        weights: Option<Tensor<B, 1>>,
    ) -> Tensor<B, 2> {
        let offsets = if self.include_last_offset {
            let count = offsets.dims()[0];
            assert!(count > 0, "[embedding_bag] expected offsets that end with the number of indices");
            offsets.narrow(0, 0, count - 1)
        } else {
            offsets
        };
        module::embedding_bag_offsets(self.table(), indices, offsets, weights, self.mode.into())
    }

    /// The table with vectors scaled down to the maximum norm. The gradient is that of the scaled vectors, as in
    /// PyTorch, which stores them in the table.
    #[track_caller]
    fn table(&self) -> Tensor<B, 2> {
        let table = self.weight.val();
        let Some(max_norm) = self.max_norm else { return table };
        let detached = table.clone().detach();
        let scaled = linalg::renorm(detached.clone(), self.norm_type, 0, max_norm);
        table + (scaled - detached)
    }
}

forward_modules! {
    EmbeddingBag<B>: 2 Int => 2;
}
