//! Embeddings.

use crate::{Config, Initializer, Module, Param};
use kiln_tensor::{Backend, Dyn, Int, Tensor, module};

/// Settings of an [`Embedding`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct EmbeddingConfig {
    /// How many vectors.
    pub n_embedding: usize,
    /// The length of each.
    pub d_model: usize,
    /// What the vectors start from. Default: normal with mean 0 and standard deviation 1.
    #[config(default = Initializer::Normal { mean: 0.0, std: 1.0 })]
    pub initializer: Initializer,
}

/// A table of vectors, looked up by number.
#[derive(Module, Clone, Debug)]
pub struct Embedding<B: Backend = Dyn> {
    /// `[n_embedding, d_model]`.
    pub weight: Param<Tensor<B, 2>>,
}

impl EmbeddingConfig {
    /// A table with fresh vectors on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Embedding<B> {
        Embedding { weight: self.initializer.init([self.n_embedding, self.d_model], device) }
    }
}

impl<B: Backend> Embedding<B> {
    /// `[batch, length]` to `[batch, length, d_model]`. A number outside the table is an error of the result, met
    /// where it is read.
    #[track_caller]
    pub fn forward(&self, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        module::embedding(self.weight.val(), indices)
    }
}
