//! Text for Kiln's language models: tokenizers, chat templates and generation.
//!
//! | item | task |
//! |---|---|
//! | [`Tokenizer`] | text to token ids and back, from `tokenizer.json` or the vocabulary of a GGUF file |
//! | [`ChatTemplate`] | messages to the text of a prompt |
//! | [`LanguageModel`] | the interface that a model implements |
//! | [`TextGenerator`], [`generate_ids`] | new tokens: greedy or sampled, streamed, in batches |
//! | [`GenerationDefaults`] | the settings that the authors of a model recommend |
//! | [`Chat`] | turns that reuse the keys and values of earlier turns |
//! | [`perplexity`] | the likelihood of a text, to compare quantised weights |
//!
//! Features: `tokenizers` and `templates`, both on by default. Without `tokenizers`, [`generate_ids`] generates token
//! ids.
//!
//! # Tokenize
//!
//! ```
//! # #[cfg(feature = "tokenizers")] {
//! use kiln_text::{BatchOptions, GgufVocabulary, PaddingSide, Tokenizer};
//!
//! let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
//!     model: "gpt2".into(),
//!     pre: Some("gpt-2".into()),
//!     tokens: ["a", "b", "Ġ", "ab", "<|end|>"].map(String::from).to_vec(),
//!     token_types: vec![1, 1, 1, 1, 3],
//!     merges: vec!["a b".into()],
//!     eos: Some(4),
//!     ..GgufVocabulary::default()
//! })?;
//! assert_eq!(tokenizer.encode("ab a", false)?, [3, 2, 0]);
//! assert_eq!(tokenizer.decode(&[3, 2, 0], true)?, "ab a");
//!
//! let options = BatchOptions { padding: PaddingSide::Left, ..BatchOptions::default() };
//! let batch = tokenizer.encode_batch(&["ab a", "b"], &options)?;
//! assert_eq!(batch.row(1), [4, 4, 1]);
//! # }
//! # Ok::<(), kiln_text::TextError>(())
//! ```
//!
//! # Generate
//!
//! A model implements [`LanguageModel`]. This one predicts the id after the last, and needs no cache:
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::Tensor;
//! use kiln_text::{
//!     FinishReason, GenerateConfig, GenerationCache, LanguageModel, TokenInput, generate_ids,
//! };
//!
//! struct Successor;
//!
//! struct NoCache;
//!
//! impl GenerationCache for NoCache {
//!     fn reset(&mut self) {}
//!
//!     fn truncate(&mut self, _length: usize) -> bool {
//!         true
//!     }
//! }
//!
//! impl LanguageModel<Flex> for Successor {
//!     type Cache = NoCache;
//!
//!     fn new_cache(&self, _batch: usize, _max_length: usize) -> NoCache {
//!         NoCache
//!     }
//!
//!     fn forward(&self, input: TokenInput<Flex>, _cache: &mut NoCache) -> Tensor<Flex, 3> {
//!         let next = (input.ids.clone() + 1).remainder_scalar(10);
//!         input.needed(next.one_hot::<3>(10).float())
//!     }
//!
//!     fn vocabulary_size(&self) -> usize {
//!         10
//!     }
//!
//!     fn max_length(&self) -> usize {
//!         64
//!     }
//!
//!     fn device(&self) -> <Flex as kiln_tensor::Backend>::Device {
//!         Default::default()
//!     }
//! }
//!
//! let config = GenerateConfig::new().with_stop_ids(vec![7]).with_max_new_tokens(3);
//! let batch = generate_ids(&Successor, &[vec![1, 2], vec![4]], &config)?;
//! assert_eq!(batch.rows[0].ids, [3, 4, 5]);
//! assert_eq!(batch.rows[1].ids, [5, 6]);
//! assert_eq!(batch.rows[1].finish, FinishReason::EndToken(7));
//! # Ok::<(), kiln_text::TextError>(())
//! ```
//!
//! # Chat
//!
//! ```no_run
//! # #[cfg(all(feature = "tokenizers", feature = "templates"))] {
//! # use kiln_backends::Flex;
//! # use kiln_text::{Chat, GenerateConfig, LanguageModel, Tokenizer};
//! # fn run(model: impl LanguageModel<Flex>) -> kiln_text::Result<()> {
//! let tokenizer = Tokenizer::from_folder("SmolLM2-135M-Instruct")?;
//! let mut chat = Chat::new(&model, &tokenizer)?;
//! chat.send("Name three rivers.", |text| print!("{text}"))?;
//! chat.send("Which one is the longest?", |text| print!("{text}"))?;
//! # Ok(())
//! # }
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(all(feature = "templates", feature = "tokenizers"))]
mod chat;
#[cfg(feature = "templates")]
mod chat_template;
mod error;
mod generate;
mod guard;
mod language_model;
mod perplexity;
mod token_batch;
#[cfg(feature = "tokenizers")]
mod tokenizer;

#[cfg(all(feature = "templates", feature = "tokenizers"))]
pub use chat::{Chat, Overflow, Reply};
#[cfg(feature = "templates")]
pub use chat_template::{ChatTemplate, Message, RenderOptions, TemplateValue};
pub use error::{Result, TextError};
pub use generate::{
    FinishReason, GenerateConfig, GeneratedBatch, GeneratedTokens, GenerationDefaults, Sampler, Statistics,
    TokenHistory, generate_ids,
};
#[cfg(feature = "tokenizers")]
pub use generate::{GeneratedText, Generation, GenerationStream, TextGenerator, TokenEvent};
pub use language_model::{GenerationCache, KeyValueCache, LanguageModel, LogitsOf, TokenInput};
pub use perplexity::{Perplexity, PerplexityOptions, perplexity, perplexity_with_progress};
pub use token_batch::{PaddingSide, TokenBatch};
#[cfg(feature = "tokenizers")]
pub use tokenizer::{BatchOptions, DecodeStream, GgufVocabulary, SpecialTokens, Tokenizer};
