//! Multi-head attention, its masks and caches, and positional encodings.
//!
//! [`MultiHeadAttention`] has PyTorch's parameter names. [`GroupedQueryAttention`] has those of Llama and its
//! relatives, and [`CrossAttention`] has separate layers for queries and a context of another width. All compute
//! [`kiln_tensor::module::attention`], which engines run as one fused kernel; only dropout, quiet softmax and requested
//! weights need the matrix of weights.
//!
//! Masks of this module are true where a key is **hidden**, as in PyTorch's modules and in Burn.
//! [`kiln_tensor::module::AttentionMask::Visible`] is true where it is visible.
//!
//! Positions enter attention in one of three ways:
//!
//! | encoding | where it is used |
//! |---|---|
//! | [`PositionalEncoding`], [`LearnedPositionalEncoding`] | added to the embeddings |
//! | [`RotaryEncoding`] | rotates queries and keys: [`MhaInput::rotary`] |
//! | [`Alibi`], [`RelativePositionBias`] | added to the scores: [`MhaInput::attn_bias`] |
//!
//! [`MhaCache`] keeps keys and values of previous tokens while a model generates:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_nn::attention::{MhaCache, MhaInput, MultiHeadAttentionConfig};
//! use kiln_tensor::{Distribution, Tensor};
//!
//! let device = Default::default();
//! let attention = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&device);
//! let x = Tensor::<Flex, 3>::random([1, 3, 8], Distribution::Normal(0.0, 1.0), &device);
//! let whole = attention.forward(MhaInput::self_attn(x.clone()).causal()).context;
//!
//! let mut cache = MhaCache::autoregressive();
//! for token in 0..3 {
//!     let y = attention.forward_cache(x.clone().narrow(1, token, 1), &mut cache).context;
//!     assert!(y.all_close(whole.clone().narrow(1, token, 1), None, Some(1e-5)));
//! }
//! ```

mod cache;
mod cross;
mod grouped;
mod input;
mod mask;
mod mha;
mod position;
mod scores;

pub use cache::{CachePosition, MhaCache, StaticCache, TensorCache};
pub use cross::{CrossAttention, CrossAttentionConfig};
pub use grouped::{GroupedQueryAttention, GroupedQueryAttentionConfig};
pub(crate) use input::{Conditions, conditions};
pub use input::{MhaInput, MhaOutput};
pub use mask::{
    GeneratePaddingMask, SeqLengthOption, generate_autoregressive_mask, generate_padding_mask,
    sliding_window_mask,
};
pub use mha::{MultiHeadAttention, MultiHeadAttentionConfig};
pub use position::{
    Alibi, AlibiConfig, LearnedPositionalEncoding, LearnedPositionalEncodingConfig, PositionalEncoding,
    PositionalEncodingConfig, RelativePositionBias, RelativePositionBiasConfig, RotaryAngles, RotaryEncoding,
    RotaryEncodingConfig, RotaryScaling, alibi_slopes,
};
