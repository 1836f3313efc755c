//! Embeddings.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::module::{self, EmbeddingOptions};
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of an [`Embedding`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct EmbeddingConfig {
    /// Number of embeddings: the size of the vocabulary.
    pub n_embedding: usize,
    /// Length of each embedding vector.
    pub d_model: usize,
    /// The initializer of the table. Default: normal with mean 0 and standard deviation 1.
    #[config(default = Initializer::Normal { mean: 0.0, std: 1.0 })]
    pub initializer: Initializer,
    /// Index of a row that is initialized to zeros and receives no gradient. Default: none.
    pub padding_idx: Option<usize>,
    /// Maximum norm: looked-up vectors with a larger norm are scaled down to it. Default: none.
    pub max_norm: Option<f64>,
    /// The `p` of the p-norm in `max_norm`, `(Σ |x|^p)^(1/p)`. Default: 2.
    #[config(default = 2.0)]
    pub norm_type: f64,
}

/// Embedding: a table of vectors, looked up by index.
#[derive(Module, Clone, Debug)]
pub struct Embedding<B: Backend = Dyn> {
    /// `[n_embedding, d_model]`.
    pub weight: Param<Tensor<B, 2>>,
    /// Index of a row that receives no gradient.
    #[module(attribute)]
    pub padding_idx: Option<usize>,
    /// Maximum norm of looked-up vectors. The table itself is not rescaled.
    #[module(attribute)]
    pub max_norm: Option<f64>,
    /// The `p` of the p-norm in `max_norm`.
    #[module(attribute)]
    pub norm_type: f64,
}

impl EmbeddingConfig {
    /// Returns a layer with an initialized table on a device.
    ///
    /// # Panics
    /// When `padding_idx` is out of range.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Embedding<B> {
        let mut weight: Param<Tensor<B, 2>> = self.initializer.init([self.n_embedding, self.d_model], device);
        if let Some(padding) = self.padding_idx {
            let rows = self.n_embedding;
            assert!(padding < rows, "[Embedding] padding_idx is {padding}, the table has {rows} vectors");
            let index = Tensor::from_data([padding as i64], device);
            weight = weight.map(|table| table.index_fill(0, index, 0));
        }
        let EmbeddingConfig { padding_idx, max_norm, norm_type, .. } = *self;
        Embedding { weight, padding_idx, max_norm, norm_type }
    }
}

impl<B: Backend> Embedding<B> {
    /// Looks up indices `[batch, length]`; the output is `[batch, length, d_model]`. An index out of range poisons the
    /// result: reading it returns the error.
    #[track_caller]
    pub fn forward(&self, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        if self.padding_idx.is_none() && self.max_norm.is_none() {
            return module::embedding(self.weight.val(), indices);
        }
        let options = EmbeddingOptions {
            padding_idx: self.padding_idx,
            max_norm: self.max_norm,
            norm_type: self.norm_type,
        };
        module::embedding_with(self.weight.val(), indices, &options)
    }
}

forward_modules! {
    Embedding<B>: 2 Int => 3;
}
