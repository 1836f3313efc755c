//! Transformers: encoder, decoder and both together with PyTorch's parameter names, and the decoder block of Llama.
//!
//! | module | where it is used | names of parameters |
//! |---|---|---|
//! | [`TransformerEncoder`] | BERT, ViT; with [`causal`] inputs GPT-2 | `torch.nn.TransformerEncoder` |
//! | [`TransformerDecoder`] | decoders with a memory | `torch.nn.TransformerDecoder` |
//! | [`Transformer`] | translation | `torch.nn.Transformer` |
//! | [`DecoderBlock`] | Llama, Mistral, Qwen | Hugging Face's `LlamaDecoderLayer` |
//!
//! The defaults are PyTorch's: post-norm, ReLU, dropout 0.1, and no normalisation after the last layer (except in
//! [`Transformer`]). Sequences are `[batch, length, d_model]`.
//!
//! [`causal`]: TransformerEncoderInput::causal

mod decoder;
mod decoder_block;
mod decoder_layer;
mod encoder;
mod feed_forward;
mod settings;
#[allow(clippy::module_inception, reason = "the module of the type with this name")]
mod transformer;

pub use decoder::{TransformerDecoder, TransformerDecoderAutoregressiveCache, TransformerDecoderConfig};
pub use decoder_block::{DecoderBlock, DecoderBlockConfig, DecoderBlockInput};
pub use decoder_layer::{
    TransformerDecoderInput, TransformerDecoderLayer, TransformerDecoderLayerAutoregressiveCache,
};
pub use encoder::{
    TransformerEncoder, TransformerEncoderAutoregressiveCache, TransformerEncoderConfig,
    TransformerEncoderInput, TransformerEncoderLayer,
};
pub use feed_forward::{
    FeedForwardActivation, GatedFeedForward, GatedFeedForwardConfig, PositionWiseFeedForward,
    PositionWiseFeedForwardConfig,
};
pub use transformer::{Transformer, TransformerConfig, TransformerInput};
