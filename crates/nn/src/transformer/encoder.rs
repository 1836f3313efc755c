//! The transformer encoder.

use super::feed_forward::{FeedForwardActivation, feed_forward};
use super::settings::transformer_config;
use crate::attention::{
    Conditions, MhaCache, MhaInput, MultiHeadAttention, StaticCache, TensorCache, conditions,
};
use crate::module::forward::forward_modules;
use crate::{Dropout, ForwardModule, LayerNorm, Linear, Module};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

transformer_config! {
    TransformerEncoder TransformerEncoderConfig
    /// Number of features of inputs and outputs.
}

/// Transformer encoder ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)): layers of self-attention and
/// feed-forward networks. Names and shapes of its parameters are those of
/// [`torch.nn.TransformerEncoder`](https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoder.html).
///
/// With [`causal`](TransformerEncoderInput::causal) inputs, pre-norm and final normalisation it is the body of GPT-2.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::transformer::{FeedForwardActivation, TransformerEncoderConfig, TransformerEncoderInput};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let config = TransformerEncoderConfig::new(8, 32, 2, 3).with_norm_first(true).with_final_norm(true);
/// let encoder = config.with_activation(FeedForwardActivation::Gelu).init::<Flex>(&device);
/// let x = Tensor::ones([1, 5, 8], &device);
/// assert_eq!(encoder.forward(TransformerEncoderInput::new(x).causal()).dims(), [1, 5, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct TransformerEncoder<B: Backend = Dyn> {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer<B>>,
    /// The normalisation of the output.
    pub norm: Option<LayerNorm<B>>,
}

/// One layer of a [`TransformerEncoder`].
#[derive(Module, Clone, Debug)]
pub struct TransformerEncoderLayer<B: Backend = Dyn> {
    /// Self-attention.
    pub self_attn: MultiHeadAttention<B>,
    /// The first layer of the feed-forward network.
    pub linear1: Linear<B>,
    /// The second layer of the feed-forward network.
    pub linear2: Linear<B>,
    /// The normalisation of self-attention.
    pub norm1: LayerNorm<B>,
    /// The normalisation of the feed-forward network.
    pub norm2: LayerNorm<B>,
    /// Dropout in the feed-forward network and of the residual branches.
    pub dropout: Dropout,
    /// The activation function of the feed-forward network.
    pub activation: FeedForwardActivation,
    /// Whether the inputs of the branches are normalised, instead of the sums.
    pub norm_first: bool,
}

impl TransformerEncoderConfig {
    /// Returns an encoder with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads` is not a divisor of `d_model`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> TransformerEncoder<B> {
        let layers = (0..self.n_layers).map(|_| TransformerEncoderLayer::new(self, device)).collect();
        TransformerEncoder { layers, norm: self.final_norm.then(|| self.layer().norm(device)) }
    }
}

/// The input of a [`TransformerEncoder`] or one of its layers. A tensor converts to an input without masks.
#[derive(Clone, Debug)]
pub struct TransformerEncoderInput<B: Backend = Dyn> {
    tensor: Tensor<B, 3>,
    conditions: Conditions<B>,
}

impl<B: Backend> TransformerEncoderInput<B> {
    /// Returns an input of `[batch, length, d_model]` without masks.
    pub fn new(tensor: Tensor<B, 3>) -> Self {
        TransformerEncoderInput { tensor, conditions: Conditions::none() }
    }
}

conditions!(TransformerEncoderInput);

impl<B: Backend> From<Tensor<B, 3>> for TransformerEncoderInput<B> {
    fn from(tensor: Tensor<B, 3>) -> Self {
        TransformerEncoderInput::new(tensor)
    }
}

impl<B: Backend> TransformerEncoderLayer<B> {
    /// Returns a layer with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads` is not a divisor of `d_model`.
    #[track_caller]
    pub fn new(config: &TransformerEncoderConfig, device: &B::Device) -> Self {
        let settings = config.layer();
        let [linear1, linear2] = settings.linears(device);
        TransformerEncoderLayer {
            self_attn: settings.attention(device),
            linear1,
            linear2,
            norm1: settings.norm(device),
            norm2: settings.norm(device),
            dropout: settings.dropout(),
            activation: config.activation,
            norm_first: config.norm_first,
        }
    }

    /// Applies the layer to `[batch, length, d_model]`. The output has the same shape.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, input: impl Into<TransformerEncoderInput<B>>) -> Tensor<B, 3> {
        self.branches(input.into(), |input| self.self_attn.forward(input).context)
    }

    /// Applies the layer to new tokens, `[batch, new, d_model]`, which attend to the tokens in the cache and causally
    /// to each other; see [`MultiHeadAttention::forward_cache`].
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask or of the cache, differs, or a static cache is full.
    #[track_caller]
    pub fn forward_cache(
        &self,
        input: impl Into<TransformerEncoderInput<B>>,
        cache: &mut MhaCache<B>,
    ) -> Tensor<B, 3> {
        self.branches(input.into(), |input| self.self_attn.forward_cache(input, cache).context)
    }

    #[track_caller]
    fn branches(
        &self,
        input: TransformerEncoderInput<B>,
        attend: impl FnOnce(MhaInput<B>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let TransformerEncoderInput { tensor: x, conditions } = input;
        let attend = |x| attend(MhaInput::self_attn(x).with_conditions(conditions));
        let feed_forward =
            |x| feed_forward(x, [&self.linear1, &self.linear2], self.activation, &self.dropout);
        let x = residual(x, &self.norm1, self.norm_first, &self.dropout, attend);
        residual(x, &self.norm2, self.norm_first, &self.dropout, feed_forward)
    }
}

/// A residual branch: `x + branch(norm(x))` with pre-norm, `norm(x + branch(x))` with post-norm.
#[track_caller]
pub(super) fn residual<B: Backend>(
    x: Tensor<B, 3>,
    norm: &LayerNorm<B>,
    norm_first: bool,
    dropout: &Dropout,
    branch: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
) -> Tensor<B, 3> {
    if norm_first {
        return x.clone() + dropout.forward(branch(norm.forward(x)));
    }
    norm.forward(x.clone() + dropout.forward(branch(x)))
}

impl<B: Backend> TransformerEncoder<B> {
    /// Encodes `[batch, length, d_model]`. The output has the same shape.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, input: impl Into<TransformerEncoderInput<B>>) -> Tensor<B, 3> {
        let TransformerEncoderInput { tensor: mut x, conditions } = input.into();
        for layer in &self.layers {
            x = layer.forward(TransformerEncoderInput { tensor: x, conditions: conditions.clone() });
        }
        self.norm.forward(x)
    }

    /// Encodes new tokens, `[batch, new, d_model]`, which attend to the tokens in the cache and causally to each other.
    /// The output has the shape of the input.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask or of the cache, differs, or a static cache is full.
    #[track_caller]
    pub fn forward_cache(
        &self,
        input: impl Into<TransformerEncoderInput<B>>,
        cache: &mut TransformerEncoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        let TransformerEncoderInput { tensor: mut x, conditions } = input.into();
        check_layers("TransformerEncoder", self.layers.len(), cache.layers.len());
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            let input = TransformerEncoderInput { tensor: x, conditions: conditions.clone() };
            x = layer.forward_cache(input, cache);
        }
        self.norm.forward(x)
    }

    /// Encodes a whole sequence causally, `[batch, length, d_model]`, and computes only the tokens that previous calls
    /// with this cache did not. The output has the shape of the input. Masks are those of the whole sequence.
    ///
    /// # Panics
    /// When the sequence is shorter than that of the previous call, or
    /// [`forward_cache`](TransformerEncoder::forward_cache) has used the cache; see also there.
    #[track_caller]
    pub fn forward_autoregressive_inference(
        &self,
        input: impl Into<TransformerEncoderInput<B>>,
        cache: &mut TransformerEncoderAutoregressiveCache<B>,
    ) -> Tensor<B, 3> {
        let TransformerEncoderInput { tensor, conditions } = input.into();
        let cached = cache.layers.first().and_then(MhaCache::len);
        let mut outputs = core::mem::replace(&mut cache.outputs, TensorCache::empty());
        let whole = only_new(tensor, &mut outputs, cached, |tensor, start, length| {
            let conditions = conditions.after(start, length);
            self.forward_cache(TransformerEncoderInput { tensor, conditions }, cache)
        });
        cache.outputs = outputs;
        whole
    }

    /// Returns an empty cache that grows with each token.
    pub fn new_autoregressive_cache(&self) -> TransformerEncoderAutoregressiveCache<B> {
        let layers = self.layers.iter().map(|_| MhaCache::autoregressive()).collect();
        TransformerEncoderAutoregressiveCache { layers, outputs: TensorCache::empty() }
    }

    /// Returns an empty cache of constant shape, for `max_length` tokens, of the dtype of the parameters; see
    /// [`StaticCache`].
    pub fn new_static_cache(
        &self,
        batch: usize,
        max_length: usize,
        device: &B::Device,
    ) -> TransformerEncoderAutoregressiveCache<B> {
        let layers =
            self.layers.iter().map(|layer| static_cache(&layer.self_attn, batch, max_length, device));
        TransformerEncoderAutoregressiveCache { layers: layers.collect(), outputs: TensorCache::empty() }
    }
}

/// Applies `compute` to the part of a sequence that is not among the outputs, and returns all outputs. `cached` is the
/// number of tokens in the caches of the layers, if the host knows it.
#[track_caller]
pub(super) fn only_new<B: Backend>(
    sequence: Tensor<B, 3>,
    outputs: &mut TensorCache<B, 3>,
    cached: Option<usize>,
    compute: impl FnOnce(Tensor<B, 3>, usize, usize) -> Tensor<B, 3>,
) -> Tensor<B, 3> {
    let (start, length) = (outputs.len(1), sequence.dims()[1]);
    assert!(
        start <= length,
        "[forward_autoregressive_inference] the sequence has {length} tokens, the cache {start}\n  \
         hint: pass the whole sequence, or call `forward_cache` with the new tokens"
    );
    assert!(
        cached.is_none_or(|cached| cached == start),
        "[forward_autoregressive_inference] the cache has tokens without outputs, from `forward_cache`\n  \
         hint: use one of the two methods with a cache"
    );
    match outputs.get() {
        Some(whole) if start == length => whole.clone(),
        Some(_) | None => {
            let new = compute(sequence.narrow(1, start, length - start), start, length);
            outputs.append(new, 1)
        }
    }
}

pub(super) fn static_cache<B: Backend>(
    attention: &MultiHeadAttention<B>,
    batch: usize,
    max_length: usize,
    device: &B::Device,
) -> MhaCache<B> {
    let features = attention.d_model / attention.n_heads;
    let shape = [batch, attention.n_kv_heads, max_length, features];
    let zeros = || Tensor::<B, 4>::zeros(shape, device).cast(attention.out_proj.weight.dtype());
    StaticCache::from_buffers(zeros(), zeros()).into()
}

#[track_caller]
pub(super) fn check_layers(name: &str, layers: usize, cached: usize) {
    assert!(layers == cached, "[{name}] the cache has {cached} layers, the module {layers}");
}

/// The cache of a [`TransformerEncoder`] in autoregressive inference.
#[derive(Clone, Debug)]
pub struct TransformerEncoderAutoregressiveCache<B: Backend = Dyn> {
    /// The cache of each layer.
    pub layers: Vec<MhaCache<B>>,
    /// The outputs so far, for [`TransformerEncoder::forward_autoregressive_inference`].
    outputs: TensorCache<B, 3>,
}

forward_modules! {
    TransformerEncoder<B>: 3 => 3;
    TransformerEncoderLayer<B>: 3 => 3;
}
