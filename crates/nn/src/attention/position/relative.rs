//! Relative position bias of T5.

use crate::{Config, Initializer, Module, Param};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor, module};

/// Settings of a [`RelativePositionBias`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct RelativePositionBiasConfig {
    /// Number of heads.
    pub n_heads: usize,
    /// Number of buckets of distances. Default: 32.
    #[config(default = 32)]
    pub n_buckets: usize,
    /// The distance from which all distances are in the last bucket. Default: 128.
    #[config(default = 128)]
    pub max_distance: usize,
    /// Whether keys after the query have buckets of their own, as in encoders. Otherwise they are at distance 0.
    /// Default: true.
    #[config(default = true)]
    pub bidirectional: bool,
    /// The initializer of the table. Default: normal with mean 0 and standard deviation 1.
    #[config(default = Initializer::Normal { mean: 0.0, std: 1.0 })]
    pub initializer: Initializer,
}

/// Relative position bias ([Raffel et al. 2019](https://arxiv.org/abs/1910.10683)): adds a learned number for the
/// bucket of the distance between query and key to the scores of each head. Half of the buckets hold one distance each,
/// the others grow logarithmically up to `max_distance`. Pass the bias to
/// [`MhaInput::attn_bias`](crate::attention::MhaInput::attn_bias).
///
/// T5 does not scale the scores. A field named `relative_attention_bias` has the parameter name of T5's files.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::RelativePositionBiasConfig;
///
/// let device = Default::default();
/// let bias = RelativePositionBiasConfig::new(8).init::<Flex>(&device);
/// assert_eq!(bias.forward(4, 6).dims(), [1, 8, 4, 6]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct RelativePositionBias<B: Backend = Dyn> {
    /// `[n_buckets, n_heads]`.
    pub weight: Param<Tensor<B, 2>>,
    /// The distance from which all distances are in the last bucket.
    pub max_distance: usize,
    /// Whether keys after the query have buckets of their own.
    pub bidirectional: bool,
}

impl RelativePositionBiasConfig {
    /// Returns the bias with an initialized table on a device.
    ///
    /// # Panics
    /// When there are fewer than 2 buckets (4 if bidirectional), or `max_distance` is not beyond the distances that
    /// have a bucket each.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> RelativePositionBias<B> {
        let exact = self.n_buckets / if self.bidirectional { 4 } else { 2 };
        assert!(exact > 0, "[RelativePositionBias] {} buckets are too few", self.n_buckets);
        assert!(
            self.max_distance > exact,
            "[RelativePositionBias] max_distance is {}, but distances up to {exact} have a bucket each",
            self.max_distance
        );
        RelativePositionBias {
            weight: self.initializer.init([self.n_buckets, self.n_heads], device),
            max_distance: self.max_distance,
            bidirectional: self.bidirectional,
        }
    }
}

impl<B: Backend> RelativePositionBias<B> {
    /// Returns the bias `[1, heads, queries, keys]`. The last query is at the position of the last key, as with a
    /// cache.
    #[track_caller]
    pub fn forward(&self, queries: usize, keys: usize) -> Tensor<B, 4> {
        let first = keys as i64 - queries as i64;
        let row = |query: i64| (0..keys as i64).map(move |key| key - query);
        let distances = (first..keys as i64).flat_map(row);
        let buckets: Vec<i64> = distances.map(|distance| self.bucket(distance) as i64).collect();
        let indices = Tensor::<B, 1, Int>::from_data(&buckets[..], &self.weight.device());
        let [_, heads] = self.weight.dims();
        let bias = module::embedding(self.weight.val(), indices.reshape([queries, keys]));
        bias.permute([2, 0, 1]).reshape([1, heads, queries, keys])
    }

    /// Returns the bucket of a distance: the position of the key minus that of the query.
    pub fn bucket(&self, distance: i64) -> usize {
        let [all, _] = self.weight.dims();
        let buckets = if self.bidirectional { all / 2 } else { all };
        let first = if self.bidirectional && distance > 0 { buckets } else { 0 };
        let length = if self.bidirectional { distance.unsigned_abs() } else { (-distance).max(0) as u64 };
        let exact = buckets / 2;
        if length < exact as u64 {
            return first + length as usize;
        }
        let ratio = |x: f64| libm::log(x / exact as f64);
        let share = ratio(length as f64) / ratio(self.max_distance as f64) * (buckets - exact) as f64;
        // Distances at a boundary, such as powers of two, belong to the upper bucket; rounding must not move them.
        let above = libm::floor(share + 1e-9) as usize;
        first + (exact + above).min(buckets - 1)
    }
}
