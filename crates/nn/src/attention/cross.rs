//! Cross-attention to a context of another width.

use super::cache::MhaCache;
use super::input::Conditions;
use super::mha::{KeysAndValues, check_heads};
use super::scores::{HeadAttention, Reach, ScoreMask, join_heads, split_heads};
use crate::{Config, Dropout, DropoutConfig, Initializer, Linear, LinearConfig, Module};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Bool, Tensor};

/// Settings of a [`CrossAttention`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct CrossAttentionConfig {
    /// Number of features of queries and outputs.
    pub d_model: usize,
    /// Number of features of the context.
    pub d_context: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of heads of keys and values, a divisor of `n_heads`.
    pub n_heads_kv: usize,
    /// Number of features of each head.
    pub d_head: usize,
    /// Whether the projections add biases. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// The probability of setting an attention weight to zero in training. Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Whether the softmax has 1 added to its denominator, so that a head may attend to nothing. Default: false.
    #[config(default = false)]
    pub quiet_softmax: bool,
    /// The initializer of the weights and biases. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Cross-attention: queries of one sequence attend to a context with another number of features, such as the output of
/// an encoder. Keys and values may have fewer heads than queries. The layers have Burn's names; a
/// [`MultiHeadAttention`](super::MultiHeadAttention) with `kdim` and `vdim` computes the same with PyTorch's.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::CrossAttentionConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let attention = CrossAttentionConfig::new(8, 6, 4, 2, 2).init::<Flex>(&device);
/// let (x, context) = (Tensor::ones([1, 3, 8], &device), Tensor::ones([1, 5, 6], &device));
/// assert_eq!(attention.forward(x, context, None).dims(), [1, 3, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct CrossAttention<B: Backend = Dyn> {
    /// The projection of queries, weight `[n_heads d_head, d_model]`.
    pub query: Linear<B>,
    /// The projection of keys, weight `[n_heads_kv d_head, d_context]`.
    pub key: Linear<B>,
    /// The projection of values, weight `[n_heads_kv d_head, d_context]`.
    pub value: Linear<B>,
    /// The output projection, weight `[d_model, n_heads d_head]`.
    pub output: Linear<B>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of heads of keys and values.
    pub n_heads_kv: usize,
    /// Whether the softmax has 1 added to its denominator.
    pub quiet_softmax: bool,
}

impl CrossAttentionConfig {
    /// Returns a layer with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads_kv` is not a divisor of `n_heads`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> CrossAttention<B> {
        check_heads("CrossAttention", self.n_heads, self.n_heads_kv);
        let linear = |input, heads, output: Option<usize>| {
            let config = LinearConfig::new(input, output.unwrap_or(heads * self.d_head));
            config.with_bias(self.bias).with_initializer(self.initializer).init(device)
        };
        CrossAttention {
            query: linear(self.d_model, self.n_heads, None),
            key: linear(self.d_context, self.n_heads_kv, None),
            value: linear(self.d_context, self.n_heads_kv, None),
            output: linear(self.n_heads * self.d_head, 0, Some(self.d_model)),
            dropout: DropoutConfig::new(self.dropout).init(),
            n_heads: self.n_heads,
            n_heads_kv: self.n_heads_kv,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

impl<B: Backend> CrossAttention<B> {
    /// Computes attention of queries `[batch, queries, d_model]` to a context `[batch, keys, d_context]`. The mask,
    /// `[batch, keys]`, is true where an element of the context is hidden. The output is `[batch, queries, d_model]`.
    ///
    /// # Panics
    /// When the number of features, or the shape of the mask, differs.
    #[track_caller]
    pub fn forward(
        &self,
        query: Tensor<B, 3>,
        context: Tensor<B, 3>,
        mask: Option<Tensor<B, 2, Bool>>,
    ) -> Tensor<B, 3> {
        let (k, v) = self.keys_and_values(context);
        self.attend(query, k, v, mask)
    }

    /// Computes [`forward`](CrossAttention::forward) with keys and values of the context from the cache; the first call
    /// computes them.
    ///
    /// # Panics
    /// When the number of features, or the shape of the mask, differs, or the cache is not
    /// [of cross-attention](MhaCache::autoregressive_cross_attention).
    #[track_caller]
    pub fn forward_cache(
        &self,
        query: Tensor<B, 3>,
        context: Tensor<B, 3>,
        mask: Option<Tensor<B, 2, Bool>>,
        cache: &mut MhaCache<B>,
    ) -> Tensor<B, 3> {
        let (k, v, reach) = cache.update(|| self.keys_and_values(context));
        assert!(
            matches!(reach, Reach::All),
            "[CrossAttention] the cache is of self-attention\n  \
             hint: create it by `MhaCache::autoregressive_cross_attention`"
        );
        self.attend(query, k, v, mask)
    }

    fn keys_and_values(&self, context: Tensor<B, 3>) -> KeysAndValues<B> {
        let k = split_heads(self.key.forward(context.clone()), self.n_heads_kv);
        (k, split_heads(self.value.forward(context), self.n_heads_kv))
    }

    #[track_caller]
    fn attend(
        &self,
        query: Tensor<B, 3>,
        k: Tensor<B, 4>,
        v: Tensor<B, 4>,
        mask: Option<Tensor<B, 2, Bool>>,
    ) -> Tensor<B, 3> {
        let device = query.device();
        let q = split_heads(self.query.forward(query), self.n_heads);
        let ([batch, heads, queries, _], keys) = (q.dims(), k.dims()[2]);
        let conditions = Conditions { mask_pad: mask, ..Conditions::none() };
        let shape = [batch, heads, queries, keys];
        let mask = ScoreMask::new("CrossAttention", conditions, Reach::All, None, shape, &device);
        let attention =
            HeadAttention { dropout: &self.dropout, scale: None, quiet_softmax: self.quiet_softmax };
        let (context, _) = attention.run(q, k, v, mask, false);
        self.output.forward(join_heads(context))
    }
}
