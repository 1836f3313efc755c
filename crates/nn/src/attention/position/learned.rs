//! Learned positional encoding.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of a [`LearnedPositionalEncoding`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LearnedPositionalEncodingConfig {
    /// Number of positions.
    pub max_sequence_size: usize,
    /// Number of features.
    pub d_model: usize,
    /// The initializer of the table. Default: normal with mean 0 and standard deviation 0.02, as in GPT-2.
    #[config(default = Initializer::Normal { mean: 0.0, std: 0.02 })]
    pub initializer: Initializer,
}

/// Learned positional encoding: adds a trainable vector of each position, as in GPT-2 and BERT. A field named `wpe`
/// has the parameter name of GPT-2's files, `wpe.weight`.
#[derive(Module, Clone, Debug)]
pub struct LearnedPositionalEncoding<B: Backend = Dyn> {
    /// `[max_sequence_size, d_model]`.
    pub weight: Param<Tensor<B, 2>>,
}

impl LearnedPositionalEncodingConfig {
    /// Returns the encoding with an initialized table on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> LearnedPositionalEncoding<B> {
        let shape = [self.max_sequence_size, self.d_model];
        LearnedPositionalEncoding { weight: self.initializer.init(shape, device) }
    }
}

impl<B: Backend> LearnedPositionalEncoding<B> {
    /// Adds the vectors of positions from 0 to `[batch, length, d_model]`.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_size`, or the number of features differs.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.apply(x, 0)
    }

    /// Adds the vectors of positions from `start` to `[batch, length, d_model]`.
    ///
    /// # Panics
    /// When there are more positions than `max_sequence_size`, or the number of features differs.
    #[track_caller]
    pub fn apply(&self, x: Tensor<B, 3>, start: usize) -> Tensor<B, 3> {
        let ([_, length, _], [rows, _]) = (x.dims(), self.weight.dims());
        let end = start + length;
        assert!(
            end <= rows,
            "[LearnedPositionalEncoding] positions {start}..{end} are beyond the table\n  \
             hint: max_sequence_size is {rows}"
        );
        x + self.weight.val().narrow(0, start, length).unsqueeze::<3>()
    }

    /// Adds the vectors of positions `[length]`, such as those of a
    /// [`StaticCache`](crate::attention::StaticCache). A position out of range is an error of the result.
    #[track_caller]
    pub fn apply_at(&self, x: Tensor<B, 3>, positions: Tensor<B, 1, Int>) -> Tensor<B, 3> {
        x + self.weight.val().select(0, positions).unsqueeze::<3>()
    }
}

forward_modules! {
    LearnedPositionalEncoding<B>: 3 => 3;
}
