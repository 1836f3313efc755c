//! Pre-trained models for Kiln, one readable file for each.
//!
//! | model | kind | file |
//! |---|---|---|
//! | [`Llama`] | language model: Llama 1 to 3, SmolLM, Qwen 1.5 to 3, Mistral, Gemma 1 and 2 | `llama.rs` |
//! | [`Gpt2`] | language model: GPT-2 | `gpt2.rs` |
//! | [`Bert`], [`SentenceEncoder`] | text encoder: BERT, MiniLM, sentence embeddings | `bert.rs`, `sentence.rs` |
//! | [`EfficientNetLite`] | image classifier: EfficientNet-Lite0 to 4 | `efficientnet.rs` |
//! | [`ResNet`] | image classifier: ResNet-18 to 152 and Wide ResNet | `resnet.rs` |
//!
//! Each model is a module with the parameter names of the files in which its weights are published, and a configuration:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_models::LlamaConfig;
//! use kiln_nn::Module;
//! use kiln_tensor::Tensor;
//! use kiln_text::{LanguageModel, TokenInput};
//!
//! let device = Default::default();
//! let config = LlamaConfig::new(100, 32, 64, 2, 4, 2).with_tie_word_embeddings(true);
//! let model = config.init::<Flex>(&device);
//! assert_eq!(model.named_parameters()[0].0, "model.embed_tokens.weight");
//!
//! // The prompt fills the cache; each later token is one row.
//! let mut cache = model.new_cache(1, 16);
//! let prompt = Tensor::from_ints([[5, 7, 11]], &device);
//! let logits = model.forward_cache(TokenInput::new(prompt), &mut cache);
//! let token = logits.argmax(2).reshape([1, 1]);
//! let logits = model.forward_cache(TokenInput::new(token), &mut cache);
//! assert_eq!(logits.dims(), [1, 1, 100]);
//! ```
//!
//! * `Config::init` returns a model with random weights, to train from scratch. `from_pretrained` loads published
//!   weights; language models and BERT also read their configuration from the folder.
//! * Weights keep the dtype of their file, and activations have the dtype of the embeddings.
//! * [`Llama`] and [`Gpt2`] implement [`LanguageModel`](kiln_text::LanguageModel): batches with padding on the left, and
//!   a cache of constant size ([`DecoderCache`]) that is written in place.
//! * [`ImagePreprocessor`] resizes, crops and normalises images for the classifiers.
#![forbid(unsafe_code)]

mod bert;
mod decoding;
mod efficientnet;
mod error;
mod gpt2;
mod hugging_face;
mod image;
mod layers;
mod llama;
mod loading;
mod pretrained;
mod resnet;
mod sentence;

pub use bert::{
    Bert, BertAttention, BertConfig, BertEmbeddings, BertEncoder, BertIntermediate, BertLayer, BertOutput,
    BertPooler, BertSelfAttention,
};
pub use decoding::DecoderCache;
pub use efficientnet::{EfficientNetLite, EfficientNetLiteConfig, MbConvBlock};
pub use error::{ModelError, Result};
pub use gpt2::{Gpt2, Gpt2Attention, Gpt2Config, Gpt2Layer, Gpt2Mlp, Gpt2Model};
pub use image::{ImagePreprocessor, Interpolation};
pub use llama::{
    LLAMA_MODEL_TYPES, Llama, LlamaAttention, LlamaConfig, LlamaLayer, LlamaMlp, LlamaModel, LlamaNorm,
};
pub use loading::{OpenOptions, cast};
pub use pretrained::{CausalLanguageModel, PretrainedLanguageModel};
pub use resnet::{ResNet, ResNetBlock, ResNetBlockKind, ResNetConfig};
pub use sentence::{Pooling, SentenceEncoder};
