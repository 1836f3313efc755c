//! Grouped-query attention with the parameters of Llama and its relatives.

use super::cache::MhaCache;
use super::input::{MhaInput, MhaOutput};
use super::mha::{KeysAndValues, check_heads};
use super::scores::{HeadAttention, Reach, ScoreMask, join_heads, split_heads};
use crate::{
    Config, Dropout, DropoutConfig, ForwardModule, Initializer, LinearConfig, Module, Projection, RmsNorm,
    RmsNormConfig,
};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, BlockFormat, Result, Tensor};

/// Settings of a [`GroupedQueryAttention`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GroupedQueryAttentionConfig {
    /// Number of features of inputs and outputs.
    pub d_model: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of heads of keys and values, a divisor of `n_heads`.
    pub n_kv_heads: usize,
    /// Number of features of each head. Default: `d_model / n_heads`.
    pub head_dim: Option<usize>,
    /// Whether the projections of queries, keys and values add biases, as in Qwen2. Default: false.
    #[config(default = false)]
    pub qkv_bias: bool,
    /// Whether the output projection adds a bias. Default: false.
    #[config(default = false)]
    pub output_bias: bool,
    /// The ε of the RMS normalisation of each head of queries and keys, as in Qwen3. Default: no normalisation.
    pub qk_norm_epsilon: Option<f64>,
    /// Number of keys that a query attends to, the last of which is its own, as in Mistral. Default: all.
    pub sliding_window: Option<usize>,
    /// The scale of the scores. Default: `1 / √head_dim`.
    pub scale: Option<f64>,
    /// The probability of setting an attention weight to zero in training. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// The initializer of the weights. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Causal self-attention with fewer heads of keys and values than of queries
/// ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245)): adjacent query heads share a head of keys and values. The
/// names of the parameters are those of Llama, Mistral and Qwen in Hugging Face's files.
///
/// Positions are an argument: [`MhaInput::rotary`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::{GroupedQueryAttentionConfig, MhaInput, RotaryEncodingConfig};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let rotary = RotaryEncodingConfig::new(64, 4).with_interleaved(false).init::<Flex>(&device);
/// let attention = GroupedQueryAttentionConfig::new(16, 4, 2).init::<Flex>(&device);
/// let x = Tensor::<Flex, 3>::ones([1, 5, 16], &device);
/// let y = attention.forward(MhaInput::self_attn(x).rotary(rotary.angles(0, 5)));
/// assert_eq!(y.context.dims(), [1, 5, 16]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct GroupedQueryAttention<B: Backend = Dyn> {
    /// The projection of queries, weight `[n_heads head_dim, d_model]`.
    pub q_proj: Projection<B>,
    /// The projection of keys, weight `[n_kv_heads head_dim, d_model]`.
    pub k_proj: Projection<B>,
    /// The projection of values, weight `[n_kv_heads head_dim, d_model]`.
    pub v_proj: Projection<B>,
    /// The output projection, weight `[d_model, n_heads head_dim]`.
    pub o_proj: Projection<B>,
    /// The normalisation of each query head.
    pub q_norm: Option<RmsNorm<B>>,
    /// The normalisation of each key head.
    pub k_norm: Option<RmsNorm<B>>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of heads of keys and values.
    pub n_kv_heads: usize,
    /// Number of keys that a query attends to.
    #[module(attribute)]
    pub sliding_window: Option<usize>,
    /// The scale of the scores.
    #[module(attribute)]
    pub scale: Option<f64>,
}

impl GroupedQueryAttentionConfig {
    /// Returns a layer with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_kv_heads` is not a divisor of `n_heads`, or `head_dim` is absent and `n_heads` not a divisor of
    /// `d_model`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> GroupedQueryAttention<B> {
        let (d, heads, kv_heads) = (self.d_model, self.n_heads, self.n_kv_heads);
        check_heads("GroupedQueryAttention", heads, kv_heads);
        let head = self.head_dim();
        let linear = |input, output, bias| {
            let config = LinearConfig::new(input, output).with_bias(bias);
            Projection::Float(config.with_initializer(self.initializer).init(device))
        };
        let norm = || {
            let config = |epsilon| RmsNormConfig::new(head).with_epsilon(epsilon);
            self.qk_norm_epsilon.map(|epsilon| config(epsilon).init(device))
        };
        GroupedQueryAttention {
            q_proj: linear(d, heads * head, self.qkv_bias),
            k_proj: linear(d, kv_heads * head, self.qkv_bias),
            v_proj: linear(d, kv_heads * head, self.qkv_bias),
            o_proj: linear(heads * head, d, self.output_bias),
            q_norm: norm(),
            k_norm: norm(),
            dropout: DropoutConfig::new(self.dropout).init(),
            n_heads: heads,
            n_kv_heads: kv_heads,
            sliding_window: self.sliding_window,
            scale: self.scale,
        }
    }

    /// Returns the number of features of each head.
    ///
    /// # Panics
    /// When it is absent, and `n_heads` is not a divisor of `d_model`.
    #[track_caller]
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or_else(|| {
            let (d, heads) = (self.d_model, self.n_heads);
            assert!(
                heads > 0 && d.is_multiple_of(heads),
                "[GroupedQueryAttention] {heads} heads cannot share {d} features (d_model)\n  hint: set head_dim"
            );
            d / heads
        })
    }
}

impl<B: Backend> GroupedQueryAttention<B> {
    /// Returns the layer with the weights of its projections in quantized blocks; see [`Projection::quantize`].
    ///
    /// # Errors
    /// When the rows of a weight are not whole blocks; [`BlockFormat::fitting`] has a format that fits.
    pub fn quantize(self, format: BlockFormat) -> Result<Self> {
        Ok(GroupedQueryAttention {
            q_proj: self.q_proj.quantize(format)?,
            k_proj: self.k_proj.quantize(format)?,
            v_proj: self.v_proj.quantize(format)?,
            o_proj: self.o_proj.quantize(format)?,
            ..self
        })
    }

    /// Computes causal self-attention of `[batch, length, d_model]`. The context has the same shape.
    ///
    /// # Panics
    /// When the input has keys of its own, or the number of features or the shape of a mask differs.
    #[track_caller]
    pub fn forward(&self, input: impl Into<MhaInput<B>>) -> MhaOutput<B> {
        self.attend(input.into(), |(k, v)| (k, v, Reach::Causal))
    }

    /// Computes [`forward`](GroupedQueryAttention::forward) for new tokens, `[batch, new, d_model]`, and adds their
    /// keys and values to a cache; see [`MultiHeadAttention::forward_cache`](super::MultiHeadAttention::forward_cache).
    ///
    /// # Panics
    /// When the input has keys of its own, the number of features, or the shape of a mask or of the cache, differs, or
    /// a static cache is full.
    #[track_caller]
    pub fn forward_cache(&self, input: impl Into<MhaInput<B>>, cache: &mut MhaCache<B>) -> MhaOutput<B> {
        self.attend(input.into(), |new| cache.update(|| new))
    }

    #[track_caller]
    fn attend(
        &self,
        input: MhaInput<B>,
        gather: impl FnOnce(KeysAndValues<B>) -> (Tensor<B, 4>, Tensor<B, 4>, Reach<B>),
    ) -> MhaOutput<B> {
        assert!(
            input.key.is_none(),
            "[GroupedQueryAttention] the input has keys, but the layer is self-attention\n  \
             hint: use `CrossAttention` or `MultiHeadAttention`"
        );
        let device = input.query.device();
        let x = input.query;
        let heads = |projection: &Projection<B>, norm: &Option<RmsNorm<B>>, count| {
            let x = split_heads(projection.forward(x.clone()), count);
            let x = match norm {
                Some(norm) => norm.forward(x),
                None => x,
            };
            match &input.conditions.rotary {
                Some(rotary) => rotary.apply(x),
                None => x,
            }
        };
        let q = heads(&self.q_proj, &self.q_norm, self.n_heads);
        let k = heads(&self.k_proj, &self.k_norm, self.n_kv_heads);
        let v = split_heads(self.v_proj.forward(x.clone()), self.n_kv_heads);
        let (k, v, reach) = gather((k, v));
        let ([batch, heads, queries, _], keys) = (q.dims(), k.dims()[2]);
        let (name, shape) = ("GroupedQueryAttention", [batch, heads, queries, keys]);
        let mask = ScoreMask::new(name, input.conditions, reach, self.sliding_window, shape, &device);
        let attention = HeadAttention { dropout: &self.dropout, scale: self.scale, quiet_softmax: false };
        let (context, weights) = attention.run(q, k, v, mask, input.need_weights);
        MhaOutput { context: self.o_proj.forward(join_heads(context)), weights }
    }
}

/// Causal self-attention without positions.
impl<B: Backend> ForwardModule<Tensor<B, 3>> for GroupedQueryAttention<B> {
    type Output = Tensor<B, 3>;

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        GroupedQueryAttention::forward(self, x).context
    }
}
