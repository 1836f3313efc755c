//! Generation: token by token, each from the logits of a language model.

mod config;
mod decoding;
mod defaults;
mod random;
mod sampler;
mod statistics;
#[cfg(feature = "tokenizers")]
mod stop;
#[cfg(feature = "tokenizers")]
mod text;

use crate::{LanguageModel, Result};
use decoding::Decoding;
use kiln_tensor::Backend;
use std::time::Instant;

pub use config::GenerateConfig;
pub use defaults::GenerationDefaults;
pub use sampler::{Sampler, TokenHistory};
pub use statistics::Statistics;
#[cfg(feature = "tokenizers")]
pub use text::{GeneratedText, Generation, GenerationStream, TextGenerator, TokenEvent};

#[cfg(feature = "tokenizers")]
pub(crate) use defaults::end_ids as end_ids_of_folder;

#[cfg(all(feature = "templates", feature = "tokenizers"))]
pub(crate) use decoding::{Decoding as TokenDecoding, new_tokens};
#[cfg(all(feature = "templates", feature = "tokenizers"))]
pub(crate) use text::{RowText, end_ids};

/// The reason that a row ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model produced this token, one of [`GenerateConfig::stop_ids`] or of the tokenizer's
    /// [`SpecialTokens::end`](crate::SpecialTokens::end).
    EndToken(u32),
    /// The text contains this string of [`GenerateConfig::stop`].
    StopString(String),
    /// [`GenerateConfig::max_new_tokens`], or the context of the model, is reached.
    Length,
    /// The caller stopped it; see `Chat::send_while`.
    Stopped,
}

/// The new tokens of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedTokens {
    /// The ids, without the token that ended the row.
    pub ids: Vec<u32>,
    /// The reason that the row ended.
    pub finish: FinishReason,
}

/// The result of [`generate_ids`].
#[derive(Clone, Debug)]
pub struct GeneratedBatch {
    /// The new tokens of each prompt.
    pub rows: Vec<GeneratedTokens>,
    /// Numbers of tokens, and times.
    pub statistics: Statistics,
}

/// Generates tokens after prompts of token ids, all in one batch. Rows end by [`GenerateConfig::stop_ids`] or at the
/// maximum length. [`TextGenerator`] generates text.
///
/// Shorter prompts have padding at their start, which the model hides: each row is the same as if it were alone. Greedy
/// decoding selects tokens on the device of the model, and reads only their ids.
///
/// # Errors
/// When a setting is invalid, stop strings are set (they need text), a prompt is empty or too long for the context, or
/// the computation fails.
pub fn generate_ids<B: Backend, M: LanguageModel<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    config: &GenerateConfig,
) -> Result<GeneratedBatch> {
    config.validate()?;
    config.refuse_stop_strings()?;
    let start = Instant::now();
    let (mut decoding, mut cache) = Decoding::start(model, prompts, config, 0)?;
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); prompts.len()];
    let mut finish = vec![FinishReason::Length; prompts.len()];
    let mut statistics = Statistics::new(start, prompts.iter().map(Vec::len).sum());
    while let Some(step) = decoding.step(model, &mut cache)? {
        statistics.count(step.iter().flatten().count());
        for (row, id) in step.into_iter().enumerate() {
            let Some(id) = id else { continue };
            if config.stop_ids.contains(&id) {
                finish[row] = FinishReason::EndToken(id);
                decoding.finish(row);
            } else {
                rows[row].push(id);
            }
        }
    }
    statistics.end();
    let rows = rows.into_iter().zip(finish).map(|(ids, finish)| GeneratedTokens { ids, finish }).collect();
    Ok(GeneratedBatch { rows, statistics })
}
