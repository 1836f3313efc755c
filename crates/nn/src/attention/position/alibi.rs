//! Attention with linear biases.

use super::table::tensor;
use crate::{Config, Module};
use alloc::vec::Vec;
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of [`Alibi`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct AlibiConfig {
    /// Number of heads.
    pub n_heads: usize,
}

/// Attention with linear biases (ALiBi, [Press et al. 2021](https://arxiv.org/abs/2108.12409)): adds
/// `-slope |i - j|` to the score of query `i` and key `j`, with another slope in each head ([`alibi_slopes`]). Pass the
/// bias to [`MhaInput::attn_bias`](crate::attention::MhaInput::attn_bias).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::AlibiConfig;
/// use kiln_tensor::Tensor;
///
/// let bias: Tensor<Flex, 4> = AlibiConfig::new(1).init().bias(1, 3, &Default::default());
/// let slope = 2f32.powi(-8);
/// assert_eq!(bias.into_data().to_vec::<f32>(), [-2.0 * slope, -slope, 0.0]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct Alibi {
    /// Number of heads.
    pub n_heads: usize,
}

impl AlibiConfig {
    /// Returns the encoding.
    pub fn init(&self) -> Alibi {
        Alibi { n_heads: self.n_heads }
    }
}

impl Alibi {
    /// Returns the bias `[1, heads, queries, keys]`. The last query is at the position of the last key, as with a
    /// cache.
    #[track_caller]
    pub fn bias<B: Backend>(&self, queries: usize, keys: usize, device: &B::Device) -> Tensor<B, 4> {
        let start = keys as i64 - queries as i64;
        self.bias_at(Tensor::<B, 1, Int>::arange(start..keys as i64, device), keys)
    }

    /// Returns the bias `[1, heads, queries, keys]` of queries at positions `[queries]`, such as those of a
    /// [`StaticCache`](crate::attention::StaticCache), for keys at positions from 0.
    #[track_caller]
    pub fn bias_at<B: Backend>(&self, positions: Tensor<B, 1, Int>, keys: usize) -> Tensor<B, 4> {
        let (queries, device) = (positions.dims()[0], positions.device());
        let at = Tensor::<B, 1, Int>::arange(0..keys as i64, &device).cast(positions.dtype());
        let distances = (at.reshape([1, keys]) - positions.reshape([queries, 1])).abs().float();
        let slopes = alibi_slopes(self.n_heads).into_iter().map(|slope| -slope).collect();
        let slopes: Tensor<B, 4> = tensor(slopes, [1, self.n_heads, 1, 1], &device);
        distances.reshape([1, 1, queries, keys]) * slopes
    }
}

/// Returns the slopes of ALiBi, one for each head. For a power of two they are `2^(-8 (i + 1) / heads)`; otherwise the
/// slopes of the next lower power of two `n`, followed by the odd slopes of `2 n` heads, as in the authors' code.
///
/// ```
/// assert_eq!(kiln_nn::attention::alibi_slopes(4), [1.0 / 4.0, 1.0 / 16.0, 1.0 / 64.0, 1.0 / 256.0]);
/// ```
pub fn alibi_slopes(n_heads: usize) -> Vec<f64> {
    let Some(exponent) = n_heads.checked_ilog2() else { return Vec::new() };
    let power = 1usize << exponent;
    let slope = |index: usize, heads: usize| libm::exp2(-8.0 * (index + 1) as f64 / heads as f64);
    let between = (0..n_heads - power).map(|index| slope(2 * index, 2 * power));
    (0..power).map(|index| slope(index, power)).chain(between).collect()
}
