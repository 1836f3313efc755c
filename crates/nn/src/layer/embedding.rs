//! Embeddings.

use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::module::{self, EmbeddingOptions};
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of an [`Embedding`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct EmbeddingConfig {
    /// The number of vectors.
    pub n_embedding: usize,
    /// The length of each vector.
    pub d_model: usize,
    /// The initializer of the vectors. Default: normal with mean 0 and standard deviation 1.
    #[config(default = Initializer::Normal { mean: 0.0, std: 1.0 })]
    pub initializer: Initializer,
    /// A vector that starts as zeros and gets no gradient. Default: none.
    pub padding_idx: Option<usize>,
    /// Vectors that are looked up with a greater norm are scaled down to this one. Default: none.
    pub max_norm: Option<f64>,
    /// The `p` of that norm, `(Σ |x|^p)^(1/p)`. Default: 2.
    #[config(default = 2.0)]
    pub norm_type: f64,
}

/// A table of vectors, looked up by number.
#[derive(Module, Clone, Debug)]
pub struct Embedding<B: Backend = Dyn> {
    /// `[n_embedding, d_model]`.
    pub weight: Param<Tensor<B, 2>>,
    /// A vector that gets no gradient.
    #[module(attribute)]
    pub padding_idx: Option<usize>,
    /// The greatest norm of a vector that is looked up. The table keeps longer ones as they are.
    #[module(attribute)]
    pub max_norm: Option<f64>,
    /// The `p` of that norm.
    #[module(attribute)]
    pub norm_type: f64,
}

impl EmbeddingConfig {
    /// A table with fresh vectors on a device.
    ///
    /// # Panics
    /// When the padding is not in the table.
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
    /// `[batch, length]` to `[batch, length, d_model]`. A number outside the table is an error of the result, met
    /// where it is read.
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
