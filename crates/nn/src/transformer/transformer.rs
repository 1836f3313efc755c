//! Encoder and decoder together.

use super::decoder::{TransformerDecoder, TransformerDecoderConfig};
use super::decoder_layer::TransformerDecoderInput;
use super::encoder::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use super::feed_forward::FeedForwardActivation;
use crate::{Config, Initializer, Module};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Bool, Tensor};

/// Settings of a [`Transformer`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Number of features of inputs and outputs. Default: 512.
    #[config(default = 512)]
    pub d_model: usize,
    /// Number of attention heads, a divisor of `d_model`. Default: 8.
    #[config(default = 8)]
    pub n_heads: usize,
    /// Number of layers of the encoder. Default: 6.
    #[config(default = 6)]
    pub n_encoder_layers: usize,
    /// Number of layers of the decoder. Default: 6.
    #[config(default = 6)]
    pub n_decoder_layers: usize,
    /// Number of features of the feed-forward networks. Default: 2,048.
    #[config(default = 2048)]
    pub d_ff: usize,
    /// The probability of dropout. Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Whether to normalise the input of each branch (pre-norm) instead of the sum after it (post-norm).
    /// Default: false.
    #[config(default = false)]
    pub norm_first: bool,
    /// The activation function of the feed-forward networks. Default: ReLU.
    #[config(default = FeedForwardActivation::Relu)]
    pub activation: FeedForwardActivation,
    /// The ε of the layer normalisations. Default: 1e-5.
    #[config(default = 1e-5)]
    pub layer_norm_eps: f64,
    /// Whether linear layers and layer normalisations have biases. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// The initializer of the weights. Default: Xavier uniform, as in PyTorch.
    #[config(default = Initializer::XavierUniform { gain: 1.0 })]
    pub initializer: Initializer,
}

/// Transformer of [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762): an encoder of the source and a decoder of
/// the target, each with a final normalisation. Embeddings and output projection are not part of it. Names and shapes
/// of its parameters are those of
/// [`torch.nn.Transformer`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html).
///
/// To generate a target, encode the source once, and call [`TransformerDecoder::forward_cache`] for each token.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::transformer::{TransformerConfig, TransformerInput};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let config = TransformerConfig::new().with_d_model(8).with_n_heads(2).with_d_ff(16);
/// let model = config.with_n_encoder_layers(1).with_n_decoder_layers(1).init::<Flex>(&device);
/// let (source, target) = (Tensor::ones([1, 6, 8], &device), Tensor::ones([1, 4, 8], &device));
/// assert_eq!(model.forward(TransformerInput::new(source, target).causal()).dims(), [1, 4, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct Transformer<B: Backend = Dyn> {
    /// The encoder of the source.
    pub encoder: TransformerEncoder<B>,
    /// The decoder of the target.
    pub decoder: TransformerDecoder<B>,
}

impl TransformerConfig {
    /// Returns a transformer with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads` is not a divisor of `d_model`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Transformer<B> {
        let encoder = TransformerEncoderConfig::part_of(self, self.n_encoder_layers);
        let decoder = TransformerDecoderConfig::part_of(self, self.n_decoder_layers);
        Transformer { encoder: encoder.init(device), decoder: decoder.init(device) }
    }
}

/// The input of a [`Transformer`]. Masks are true where a key is hidden.
#[derive(Clone, Debug)]
pub struct TransformerInput<B: Backend = Dyn> {
    source: TransformerEncoderInput<B>,
    target: Tensor<B, 3>,
    target_mask_pad: Option<Tensor<B, 2, Bool>>,
    target_mask_attn: Option<Tensor<B, 3, Bool>>,
    memory_mask_pad: Option<Tensor<B, 2, Bool>>,
    memory_mask_attn: Option<Tensor<B, 3, Bool>>,
    causal: bool,
}

impl<B: Backend> TransformerInput<B> {
    /// Returns an input: a source `[batch, source_length, d_model]`, or a [`TransformerEncoderInput`] with masks, and a
    /// target `[batch, length, d_model]`.
    pub fn new(source: impl Into<TransformerEncoderInput<B>>, target: Tensor<B, 3>) -> Self {
        TransformerInput {
            source: source.into(),
            target,
            target_mask_pad: None,
            target_mask_attn: None,
            memory_mask_pad: None,
            memory_mask_attn: None,
            causal: false,
        }
    }

    /// Hides later tokens of the target from each token. Faster than a mask.
    #[doc(alias = "tgt_is_causal")]
    #[must_use]
    pub fn causal(self) -> Self {
        TransformerInput { causal: true, ..self }
    }

    /// Sets the padding mask of the target, `[batch, length]`.
    #[must_use]
    pub fn target_mask_pad(self, mask: Tensor<B, 2, Bool>) -> Self {
        TransformerInput { target_mask_pad: Some(mask), ..self }
    }

    /// Sets the attention mask of the target, `[batch, length, length]`. The first dimension may have length 1.
    #[must_use]
    pub fn target_mask_attn(self, mask: Tensor<B, 3, Bool>) -> Self {
        TransformerInput { target_mask_attn: Some(mask), ..self }
    }

    /// Sets the padding mask of the encoded source in the decoder, `[batch, source_length]`: usually that of the
    /// source.
    #[must_use]
    pub fn memory_mask_pad(self, mask: Tensor<B, 2, Bool>) -> Self {
        TransformerInput { memory_mask_pad: Some(mask), ..self }
    }

    /// Sets the attention mask of the encoded source in the decoder, `[batch, length, source_length]`. The first
    /// dimension may have length 1.
    #[must_use]
    pub fn memory_mask_attn(self, mask: Tensor<B, 3, Bool>) -> Self {
        TransformerInput { memory_mask_attn: Some(mask), ..self }
    }
}

impl<B: Backend> Transformer<B> {
    /// Encodes the source and decodes the target. The output is `[batch, length, d_model]`.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, input: TransformerInput<B>) -> Tensor<B, 3> {
        let mut decoded = TransformerDecoderInput::new(input.target, self.encoder.forward(input.source));
        decoded.own.causal = input.causal;
        decoded.own.mask_pad = input.target_mask_pad;
        decoded.own.mask_attn = input.target_mask_attn;
        decoded.cross.mask_pad = input.memory_mask_pad;
        decoded.cross.mask_attn = input.memory_mask_attn;
        self.decoder.forward(decoded)
    }
}
