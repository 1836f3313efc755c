//! The transformer decoder.

use super::decoder_layer::{
    TransformerDecoderInput, TransformerDecoderLayer, TransformerDecoderLayerAutoregressiveCache,
};
use super::encoder::{check_layers, only_new, static_cache};
use super::settings::transformer_config;
use crate::attention::{MhaCache, TensorCache};
use crate::{ForwardModule, LayerNorm, Module};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

transformer_config! {
    TransformerDecoder TransformerDecoderConfig
    /// Number of features of targets, memory and outputs.
}

/// Transformer decoder ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)): layers of self-attention, attention
/// to a memory, and feed-forward networks. Names and shapes of its parameters are those of
/// [`torch.nn.TransformerDecoder`](https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerDecoder.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::transformer::{TransformerDecoderConfig, TransformerDecoderInput};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let decoder = TransformerDecoderConfig::new(8, 32, 2, 3).init::<Flex>(&device);
/// let (target, memory) = (Tensor::ones([1, 4, 8], &device), Tensor::ones([1, 6, 8], &device));
/// let y = decoder.forward(TransformerDecoderInput::new(target.clone(), memory.clone()).causal());
/// assert_eq!(y.dims(), [1, 4, 8]);
///
/// // Token by token.
/// let mut cache = decoder.new_autoregressive_cache();
/// for token in 0..4 {
///     let input = TransformerDecoderInput::new(target.clone().narrow(1, token, 1), memory.clone());
///     let next = decoder.forward_cache(input, &mut cache);
///     assert!(next.all_close(y.clone().narrow(1, token, 1), None, Some(1e-5)));
/// }
/// ```
#[derive(Module, Clone, Debug)]
pub struct TransformerDecoder<B: Backend = Dyn> {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer<B>>,
    /// The normalisation of the output.
    pub norm: Option<LayerNorm<B>>,
}

/// The cache of a [`TransformerDecoder`] in autoregressive inference.
#[derive(Clone, Debug)]
pub struct TransformerDecoderAutoregressiveCache<B: Backend = Dyn> {
    /// The cache of each layer.
    pub layers: Vec<TransformerDecoderLayerAutoregressiveCache<B>>,
    /// The outputs so far, for [`TransformerDecoder::forward_autoregressive_inference`].
    outputs: TensorCache<B, 3>,
}

impl TransformerDecoderConfig {
    /// Returns a decoder with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads` is not a divisor of `d_model`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> TransformerDecoder<B> {
        let layers = (0..self.n_layers).map(|_| TransformerDecoderLayer::new(self, device)).collect();
        TransformerDecoder { layers, norm: self.final_norm.then(|| self.layer().norm(device)) }
    }
}

impl<B: Backend> TransformerDecoder<B> {
    /// Decodes a target `[batch, length, d_model]`. The output has the same shape.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, mut input: TransformerDecoderInput<B>) -> Tensor<B, 3> {
        for layer in &self.layers {
            input.target = layer.forward(input.clone());
        }
        self.norm.forward(input.target)
    }

    /// Decodes new tokens of the target, `[batch, new, d_model]`, which attend to the tokens in the cache and causally
    /// to each other. The first call computes the keys and values of the memory. The output has the shape of the
    /// target.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask or of the cache, differs, or a static cache is full.
    #[track_caller]
    pub fn forward_cache(
        &self,
        mut input: TransformerDecoderInput<B>,
        cache: &mut TransformerDecoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        check_layers("TransformerDecoder", self.layers.len(), cache.layers.len());
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            input.target = layer.forward_cache(input.clone(), cache);
        }
        self.norm.forward(input.target)
    }

    /// Decodes a whole target causally, `[batch, length, d_model]`, and computes only the tokens that previous calls
    /// with this cache did not. The output has the shape of the target. Masks are those of the whole target.
    ///
    /// # Panics
    /// When the target is shorter than that of the previous call, or
    /// [`forward_cache`](TransformerDecoder::forward_cache) has used the cache; see also there.
    #[track_caller]
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerDecoderInput<B>,
        cache: &mut TransformerDecoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        let TransformerDecoderInput { target, memory, own, cross } = input;
        let cached = cache.layers.first().and_then(|layer| layer.self_attn.len());
        let mut outputs = core::mem::replace(&mut cache.outputs, TensorCache::empty());
        let whole = only_new(target, &mut outputs, cached, |target, start, length| {
            let (own, cross) = (own.after(start, length), cross.after(start, length));
            self.forward_cache(TransformerDecoderInput { target, memory, own, cross }, cache)
        });
        cache.outputs = outputs;
        whole
    }

    /// Returns an empty cache that grows with each token.
    pub fn new_autoregressive_cache(&self) -> TransformerDecoderAutoregressiveCache<B> {
        let layers =
            self.layers.iter().map(|_| TransformerDecoderLayerAutoregressiveCache::empty()).collect();
        TransformerDecoderAutoregressiveCache { layers, outputs: TensorCache::empty() }
    }

    /// Returns an empty cache of constant shape, for `max_length` tokens; see
    /// [`StaticCache`](crate::attention::StaticCache).
    pub fn new_static_cache(
        &self,
        batch: usize,
        max_length: usize,
        device: &B::Device,
    ) -> TransformerDecoderAutoregressiveCache<B> {
        let layers = self.layers.iter().map(|layer| TransformerDecoderLayerAutoregressiveCache {
            self_attn: static_cache(&layer.self_attn, batch, max_length, device),
            cross_attn: MhaCache::autoregressive_cross_attention(),
        });
        TransformerDecoderAutoregressiveCache { layers: layers.collect(), outputs: TensorCache::empty() }
    }
}
