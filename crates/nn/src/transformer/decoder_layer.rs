//! One layer of the transformer decoder, and its input and cache.

use super::decoder::TransformerDecoderConfig;
use super::encoder::residual;
use super::feed_forward::{FeedForwardActivation, feed_forward};
use crate::attention::{Conditions, MhaCache, MhaInput, MultiHeadAttention, RotaryAngles};
use crate::{Dropout, LayerNorm, Linear, Module};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Bool, Tensor};

/// The input of a [`TransformerDecoder`](super::TransformerDecoder) or one of its layers. Masks are true where a key is
/// hidden.
#[derive(Clone, Debug)]
pub struct TransformerDecoderInput<B: Backend = Dyn> {
    pub(super) target: Tensor<B, 3>,
    pub(super) memory: Tensor<B, 3>,
    /// The conditions of self-attention.
    pub(super) own: Conditions<B>,
    /// The conditions of cross-attention.
    pub(super) cross: Conditions<B>,
}

impl<B: Backend> TransformerDecoderInput<B> {
    /// Returns an input without masks: a target `[batch, length, d_model]` and the memory
    /// `[batch, memory_length, d_model]` that it attends to, the output of an encoder.
    pub fn new(target: Tensor<B, 3>, memory: Tensor<B, 3>) -> Self {
        TransformerDecoderInput { target, memory, own: Conditions::none(), cross: Conditions::none() }
    }

    /// Hides later tokens of the target from each token. Faster than a mask.
    #[doc(alias = "tgt_is_causal")]
    #[must_use]
    pub fn causal(mut self) -> Self {
        self.own.causal = true;
        self
    }

    /// Sets the padding mask of the target, `[batch, length]`.
    #[doc(alias = "tgt_key_padding_mask")]
    #[must_use]
    pub fn target_mask_pad(mut self, mask: Tensor<B, 2, Bool>) -> Self {
        self.own.mask_pad = Some(mask);
        self
    }

    /// Sets the attention mask of the target, `[batch, length, length]`. The first dimension may have length 1.
    #[doc(alias = "tgt_mask")]
    #[must_use]
    pub fn target_mask_attn(mut self, mask: Tensor<B, 3, Bool>) -> Self {
        self.own.mask_attn = Some(mask);
        self
    }

    /// Sets the bias of the scores of self-attention, `[batch, heads, length, length]`.
    #[must_use]
    pub fn target_attn_bias(mut self, bias: Tensor<B, 4>) -> Self {
        self.own.attn_bias = Some(bias);
        self
    }

    /// Sets the angles by which queries and keys of self-attention are rotated.
    #[must_use]
    pub fn rotary(mut self, angles: RotaryAngles<B>) -> Self {
        self.own.rotary = Some(angles);
        self
    }

    /// Sets the padding mask of the memory, `[batch, memory_length]`.
    #[doc(alias = "memory_key_padding_mask")]
    #[must_use]
    pub fn memory_mask_pad(mut self, mask: Tensor<B, 2, Bool>) -> Self {
        self.cross.mask_pad = Some(mask);
        self
    }

    /// Sets the attention mask of the memory, `[batch, length, memory_length]`. The first dimension may have length 1.
    #[doc(alias = "memory_mask")]
    #[must_use]
    pub fn memory_mask_attn(mut self, mask: Tensor<B, 3, Bool>) -> Self {
        self.cross.mask_attn = Some(mask);
        self
    }
}

/// One layer of a [`TransformerDecoder`](super::TransformerDecoder): self-attention, attention to the memory, and a
/// feed-forward network.
#[derive(Module, Clone, Debug)]
pub struct TransformerDecoderLayer<B: Backend = Dyn> {
    /// Self-attention.
    pub self_attn: MultiHeadAttention<B>,
    /// Attention to the memory.
    pub multihead_attn: MultiHeadAttention<B>,
    /// The first layer of the feed-forward network.
    pub linear1: Linear<B>,
    /// The second layer of the feed-forward network.
    pub linear2: Linear<B>,
    /// The normalisation of self-attention.
    pub norm1: LayerNorm<B>,
    /// The normalisation of the attention to the memory.
    pub norm2: LayerNorm<B>,
    /// The normalisation of the feed-forward network.
    pub norm3: LayerNorm<B>,
    /// Dropout in the feed-forward network and of the residual branches.
    pub dropout: Dropout,
    /// The activation function of the feed-forward network.
    pub activation: FeedForwardActivation,
    /// Whether the inputs of the branches are normalised, instead of the sums.
    pub norm_first: bool,
}

/// The cache of a [`TransformerDecoderLayer`] in autoregressive inference.
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayerAutoregressiveCache<B: Backend = Dyn> {
    /// The cache of self-attention.
    pub self_attn: MhaCache<B>,
    /// The cache of the attention to the memory.
    pub cross_attn: MhaCache<B>,
}

impl<B: Backend> TransformerDecoderLayerAutoregressiveCache<B> {
    /// Returns an empty cache that grows with each token.
    pub fn empty() -> Self {
        TransformerDecoderLayerAutoregressiveCache {
            self_attn: MhaCache::autoregressive(),
            cross_attn: MhaCache::autoregressive_cross_attention(),
        }
    }
}

impl<B: Backend> TransformerDecoderLayer<B> {
    /// Returns a layer with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads` is not a divisor of `d_model`.
    #[track_caller]
    pub fn new(config: &TransformerDecoderConfig, device: &B::Device) -> Self {
        let settings = config.layer();
        let [linear1, linear2] = settings.linears(device);
        TransformerDecoderLayer {
            self_attn: settings.attention(device),
            multihead_attn: settings.attention(device),
            linear1,
            linear2,
            norm1: settings.norm(device),
            norm2: settings.norm(device),
            norm3: settings.norm(device),
            dropout: settings.dropout(),
            activation: config.activation,
            norm_first: config.norm_first,
        }
    }

    /// Applies the layer. The output has the shape of the target.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, input: TransformerDecoderInput<B>) -> Tensor<B, 3> {
        let attend = |input| self.self_attn.forward(input).context;
        self.branches(input, attend, |input| self.multihead_attn.forward(input).context)
    }

    /// Applies the layer to new tokens of the target, which attend to the tokens in the cache, causally to each other,
    /// and to the memory, whose keys and values the first call computes.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask or of the cache, differs, or a static cache is full.
    #[track_caller]
    pub fn forward_cache(
        &self,
        input: TransformerDecoderInput<B>,
        cache: &mut TransformerDecoderLayerAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        let TransformerDecoderLayerAutoregressiveCache { self_attn, cross_attn } = cache;
        let attend = |input| self.self_attn.forward_cache(input, self_attn).context;
        self.branches(input, attend, |input| self.multihead_attn.forward_cache(input, cross_attn).context)
    }

    #[track_caller]
    fn branches(
        &self,
        input: TransformerDecoderInput<B>,
        attend: impl FnOnce(MhaInput<B>) -> Tensor<B, 3>,
        attend_to_memory: impl FnOnce(MhaInput<B>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let TransformerDecoderInput { target, memory, own, cross } = input;
        let first = self.norm_first;
        let x = residual(target, &self.norm1, first, &self.dropout, |x| {
            attend(MhaInput::self_attn(x).with_conditions(own))
        });
        let x = residual(x, &self.norm2, first, &self.dropout, |x| {
            attend_to_memory(MhaInput::cross_attn(x, memory).with_conditions(cross))
        });
        residual(x, &self.norm3, first, &self.dropout, |x| {
            feed_forward(x, [&self.linear1, &self.linear2], self.activation, &self.dropout)
        })
    }
}
