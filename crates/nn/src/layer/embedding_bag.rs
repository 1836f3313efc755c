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
    /// Index of a row that is initialized to zeros, left out of every bag, and receives no gradient. Default: none.
    pub padding_idx: Option<usize>,
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
    /// Index of a row that is left out of every bag, and receives no gradient.
    #[module(attribute)]
    pub padding_idx: Option<usize>,
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
    ///
    /// # Panics
    /// When `padding_idx` is out of range.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> EmbeddingBag<B> {
        let mut weight: Param<Tensor<B, 2>> = self.initializer.init([self.n_embedding, self.d_model], device);
        if let Some(padding) = self.padding_idx {
            let rows = self.n_embedding;
            assert!(padding < rows, "[embedding_bag] padding_idx is {padding}, the table has {rows} vectors");
            weight = weight.map(|table| filled(table, padding, 0.0));
        }
        EmbeddingBag {
            weight,
            mode: self.mode,
            padding_idx: self.padding_idx,
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
        self.reduced(|table, mode| module::embedding_bag(table, indices.clone(), None, mode.into()))
    }

    /// Like [`forward`](EmbeddingBag::forward), with a weight for each index: `[bags, length]`.
    ///
    /// # Panics
    /// When the mode is not [`BagMode::Sum`], or the weights have another shape than the indices.
    #[doc(alias = "per_sample_weights")]
    #[track_caller]
    pub fn forward_weighted(&self, indices: Tensor<B, 2, Int>, weights: Tensor<B, 2>) -> Tensor<B, 2> {
        self.check_weighted();
        let weights = Some(weights);
        self.reduced(|table, mode| {
            module::embedding_bag(table, indices.clone(), weights.clone(), mode.into())
        })
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
        if weights.is_some() {
            self.check_weighted();
        }
        let offsets = if self.include_last_offset {
            let count = offsets.dims()[0];
            assert!(count > 0, "[embedding_bag] expected offsets that end with the number of indices");
            offsets.narrow(0, 0, count - 1)
        } else {
            offsets
        };
        self.reduced(|table, mode| {
            let (indices, offsets, weights) = (indices.clone(), offsets.clone(), weights.clone());
            module::embedding_bag_offsets(table, indices, offsets, weights, mode.into())
        })
    }

    #[track_caller]
    fn check_weighted(&self) {
        let mode = self.mode;
        assert!(
            mode == BagMode::Sum,
            "[embedding_bag] weights are only supported for sums, not for {mode:?}"
        );
    }

    /// Applies a reduction of rows of a table to the layer's, without the padding row.
    #[track_caller]
    fn reduced(&self, reduce: impl Fn(Tensor<B, 2>, BagMode) -> Tensor<B, 2>) -> Tensor<B, 2> {
        let table = self.table();
        let Some(padding) = self.padding_idx else { return reduce(table, self.mode) };
        match self.mode {
            BagMode::Sum => reduce(filled(table, padding, 0.0), BagMode::Sum),
            BagMode::Mean => {
                let ones = table.clone().detach().narrow(1, 0, 1).ones_like();
                let counts = reduce(filled(ones, padding, 0.0), BagMode::Sum).clamp_min(1.0);
                reduce(filled(table, padding, 0.0), BagMode::Sum) / counts
            }
            BagMode::Max => {
                let greatest = reduce(filled(table, padding, f64::NEG_INFINITY), BagMode::Max);
                // A bag of padding only becomes zeros, like an empty bag.
                let is_empty = greatest.clone().equal_scalar(f64::NEG_INFINITY);
                greatest.mask_fill(is_empty, 0.0)
            }
        }
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

/// Replaces a row by a number.
#[track_caller]
fn filled<B: Backend>(table: Tensor<B, 2>, row: usize, value: f64) -> Tensor<B, 2> {
    let index = Tensor::from_data([row as i64], &table.device());
    table.index_fill(0, index, value)
}

forward_modules! {
    EmbeddingBag<B>: 2 Int => 2;
}
