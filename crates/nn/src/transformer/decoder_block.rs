//! The decoder block of Llama and its relatives.

use super::feed_forward::{FeedForwardActivation, GatedFeedForward, GatedFeedForwardConfig};
use crate::attention::{
    Conditions, GroupedQueryAttention, GroupedQueryAttentionConfig, MhaCache, MhaInput, StaticCache,
    conditions,
};
use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, RmsNorm, RmsNormConfig};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, BlockFormat, Result, Tensor};

/// Settings of a [`DecoderBlock`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct DecoderBlockConfig {
    /// Number of features of inputs and outputs.
    pub d_model: usize,
    /// Number of features of the feed-forward network.
    pub d_ff: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of heads of keys and values, a divisor of `n_heads`.
    pub n_kv_heads: usize,
    /// Number of features of each head. Default: `d_model / n_heads`.
    pub head_dim: Option<usize>,
    /// The ε of the RMS normalisations. Default: 1e-5.
    #[config(default = 1e-5)]
    pub norm_epsilon: f64,
    /// The activation function of the gate. Default: SiLU (SwiGLU).
    #[config(default = FeedForwardActivation::Silu)]
    pub activation: FeedForwardActivation,
    /// Whether the projections of queries, keys and values add biases, as in Qwen2. Default: false.
    #[config(default = false)]
    pub qkv_bias: bool,
    /// Whether each head of queries and keys is normalised, as in Qwen3. Default: false.
    #[config(default = false)]
    pub qk_norm: bool,
    /// Number of keys that a query attends to, as in Mistral. Default: all.
    pub sliding_window: Option<usize>,
    /// The initializer of the weights. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Decoder block of Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)): causal
/// [`GroupedQueryAttention`] and a [`GatedFeedForward`] network, each with RMS normalisation of its input and a
/// residual connection. The names of its parameters are those of `LlamaDecoderLayer` in Hugging Face's files, which
/// also fit Mistral, Qwen2 and Qwen3.
///
/// The angles of the positions are an argument, so that all blocks of a model share them. Hugging Face's weights need
/// [`interleaved`](crate::attention::RotaryEncodingConfig::interleaved) set to false.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::RotaryEncodingConfig;
/// use kiln_nn::transformer::{DecoderBlockConfig, DecoderBlockInput};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let block = DecoderBlockConfig::new(16, 32, 4, 2).init::<Flex>(&device);
/// let rotary = RotaryEncodingConfig::new(64, 4).with_interleaved(false).init::<Flex>(&device);
///
/// let mut cache = block.new_static_cache(1, 64, &device);
/// let prompt = Tensor::ones([1, 5, 16], &device);
/// let angles = rotary.angles_after(&cache, 5);
/// let y = block.forward_cache(DecoderBlockInput::new(prompt).rotary(angles), &mut cache);
/// assert_eq!(y.dims(), [1, 5, 16]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct DecoderBlock<B: Backend = Dyn> {
    /// Self-attention.
    pub self_attn: GroupedQueryAttention<B>,
    /// The feed-forward network.
    pub mlp: GatedFeedForward<B>,
    /// The normalisation of the input of self-attention.
    pub input_layernorm: RmsNorm<B>,
    /// The normalisation of the input of the feed-forward network.
    pub post_attention_layernorm: RmsNorm<B>,
}

impl DecoderBlockConfig {
    /// Returns a block with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_kv_heads` is not a divisor of `n_heads`, or `head_dim` is absent and `n_heads` not a divisor of
    /// `d_model`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> DecoderBlock<B> {
        let norm = || RmsNormConfig::new(self.d_model).with_epsilon(self.norm_epsilon).init(device);
        let attention = GroupedQueryAttentionConfig::new(self.d_model, self.n_heads, self.n_kv_heads)
            .with_head_dim(self.head_dim)
            .with_qkv_bias(self.qkv_bias)
            .with_qk_norm_epsilon(self.qk_norm.then_some(self.norm_epsilon))
            .with_sliding_window(self.sliding_window)
            .with_initializer(self.initializer);
        let mlp = GatedFeedForwardConfig::new(self.d_model, self.d_ff).with_activation(self.activation);
        DecoderBlock {
            self_attn: attention.init(device),
            mlp: mlp.with_initializer(self.initializer).init(device),
            input_layernorm: norm(),
            post_attention_layernorm: norm(),
        }
    }
}

/// The input of a [`DecoderBlock`]. A tensor converts to an input without masks and positions.
#[derive(Clone, Debug)]
pub struct DecoderBlockInput<B: Backend = Dyn> {
    tensor: Tensor<B, 3>,
    conditions: Conditions<B>,
}

impl<B: Backend> DecoderBlockInput<B> {
    /// Returns an input of `[batch, length, d_model]` without masks and positions. Attention is always causal.
    pub fn new(tensor: Tensor<B, 3>) -> Self {
        DecoderBlockInput { tensor, conditions: Conditions::none() }
    }

    /// Returns this input with another tensor: the input of the next block.
    #[must_use]
    pub fn with_tensor(self, tensor: Tensor<B, 3>) -> Self {
        DecoderBlockInput { tensor, ..self }
    }
}

conditions!(DecoderBlockInput);

impl<B: Backend> From<Tensor<B, 3>> for DecoderBlockInput<B> {
    fn from(tensor: Tensor<B, 3>) -> Self {
        DecoderBlockInput::new(tensor)
    }
}

impl<B: Backend> DecoderBlock<B> {
    /// Returns the block with the weights of its projections in quantized blocks; see
    /// [`Projection::quantize`](crate::Projection::quantize).
    ///
    /// # Errors
    /// When the rows of a weight are not whole blocks; [`BlockFormat::fitting`] has a format that fits.
    pub fn quantize(self, format: BlockFormat) -> Result<Self> {
        Ok(DecoderBlock {
            self_attn: self.self_attn.quantize(format)?,
            mlp: self.mlp.quantize(format)?,
            ..self
        })
    }

    /// Applies the block to `[batch, length, d_model]`. The output has the same shape.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, input: impl Into<DecoderBlockInput<B>>) -> Tensor<B, 3> {
        self.branches(input.into(), |input| self.self_attn.forward(input).context)
    }

    /// Applies the block to new tokens, `[batch, new, d_model]`, which attend to the tokens in the cache and causally
    /// to each other.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask or of the cache, differs, or a static cache is full.
    #[track_caller]
    pub fn forward_cache(
        &self,
        input: impl Into<DecoderBlockInput<B>>,
        cache: &mut MhaCache<B>,
    ) -> Tensor<B, 3> {
        self.branches(input.into(), |input| self.self_attn.forward_cache(input, cache).context)
    }

    /// Returns an empty cache of constant shape, for `max_length` tokens, of the dtype of the parameters (of the
    /// normalisations, if the projections are in blocks); see [`StaticCache`].
    #[track_caller]
    pub fn new_static_cache(&self, batch: usize, max_length: usize, device: &B::Device) -> MhaCache<B> {
        let (k_proj, heads) = (&self.self_attn.k_proj, self.self_attn.n_kv_heads);
        let shape = [batch, heads, max_length, k_proj.d_output() / heads];
        let dtype =
            k_proj.linear().map_or(self.input_layernorm.weight.dtype(), |linear| linear.weight.dtype());
        let zeros = || Tensor::<B, 4>::zeros(shape, device).cast(dtype);
        StaticCache::from_buffers(zeros(), zeros()).into()
    }

    #[track_caller]
    fn branches(
        &self,
        input: DecoderBlockInput<B>,
        attend: impl FnOnce(MhaInput<B>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let DecoderBlockInput { tensor: x, conditions } = input;
        let normed = self.input_layernorm.forward(x.clone());
        let x = x + attend(MhaInput::self_attn(normed).with_conditions(conditions));
        x.clone() + self.mlp.forward(self.post_attention_layernorm.forward(x))
    }
}

forward_modules! {
    DecoderBlock<B>: 3 => 3;
}
