//! Generation of text.

use super::FinishReason;
use super::config::GenerateConfig;
use super::decoding::Decoding;
use super::statistics::Statistics;
use super::stop::StopFinder;
use crate::{DecodeStream, LanguageModel, Result, Tokenizer};
use kiln_tensor::Backend;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::time::Instant;

/// Generates text with a model and its tokenizer.
///
/// ```no_run
/// # use kiln_backends::Flex;
/// # use kiln_text::{GenerateConfig, LanguageModel, TextGenerator, Tokenizer};
/// # fn run(model: impl LanguageModel<Flex>, tokenizer: Tokenizer) -> kiln_text::Result<()> {
/// let generator = TextGenerator::new(&model, &tokenizer);
/// let config = GenerateConfig::new().with_max_new_tokens(32);
/// for event in generator.stream("The capital of France is", &config)? {
///     print!("{}", event?.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TextGenerator<'a, B: Backend, M: LanguageModel<B>> {
    model: &'a M,
    tokenizer: &'a Tokenizer,
    backend: PhantomData<B>,
}

/// The new text of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedText {
    /// The text, without the stop string.
    pub text: String,
    /// The ids of the new tokens, without the token that ended the row.
    pub ids: Vec<u32>,
    /// The reason that the row ended.
    pub finish: FinishReason,
}

/// The result of [`TextGenerator::generate`].
#[derive(Clone, Debug)]
pub struct Generation {
    /// The new text of each prompt.
    pub rows: Vec<GeneratedText>,
    /// Numbers of tokens, and times.
    pub statistics: Statistics,
}

/// A new token of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenEvent {
    /// The row of the prompt in the batch.
    pub row: usize,
    /// The token.
    pub id: u32,
    /// The text that the token completes. It may be empty, and contain text of earlier tokens: incomplete characters,
    /// and text that may be the start of a stop string, are held back.
    pub text: String,
    /// The reason that the row ends with this token.
    pub finish: Option<FinishReason>,
}

impl<'a, B: Backend, M: LanguageModel<B>> TextGenerator<'a, B, M> {
    /// Returns a generator.
    pub fn new(model: &'a M, tokenizer: &'a Tokenizer) -> Self {
        TextGenerator { model, tokenizer, backend: PhantomData }
    }

    /// Generates text after each prompt, all in one batch. Prompts start with the special tokens of the tokenizer, such
    /// as BOS.
    ///
    /// # Errors
    /// When a setting is invalid, a prompt is empty or too long for the context, or the computation fails.
    pub fn generate<T: AsRef<str>>(&self, prompts: &[T], config: &GenerateConfig) -> Result<Generation> {
        let encode = |prompt: &T| self.tokenizer.encode(prompt.as_ref(), true);
        let prompts = prompts.iter().map(encode).collect::<Result<Vec<_>>>()?;
        self.generate_from_ids(&prompts, config)
    }

    /// Generates text after prompts of token ids; see [`generate`](TextGenerator::generate).
    ///
    /// # Errors
    /// As [`generate`](TextGenerator::generate).
    pub fn generate_from_ids(&self, prompts: &[Vec<u32>], config: &GenerateConfig) -> Result<Generation> {
        let mut stream = self.stream_from_ids(prompts, config)?;
        let empty = GeneratedText { text: String::new(), ids: Vec::new(), finish: FinishReason::Length };
        let mut rows = vec![empty; prompts.len()];
        for event in stream.by_ref() {
            let TokenEvent { row, id, text, finish } = event?;
            rows[row].text.push_str(&text);
            if !matches!(finish, Some(FinishReason::EndToken(_))) {
                rows[row].ids.push(id);
            }
            if let Some(finish) = finish {
                rows[row].finish = finish;
            }
        }
        Ok(Generation { rows, statistics: stream.statistics() })
    }

    /// Generates text after a prompt, token by token.
    ///
    /// # Errors
    /// As [`generate`](TextGenerator::generate).
    pub fn stream(&self, prompt: &str, config: &GenerateConfig) -> Result<GenerationStream<'a, B, M>> {
        self.stream_from_ids(&[self.tokenizer.encode(prompt, true)?], config)
    }

    /// Generates text after prompts of token ids, token by token. Events of a step are in the order of the rows.
    ///
    /// # Errors
    /// As [`generate`](TextGenerator::generate).
    pub fn stream_from_ids(
        &self,
        prompts: &[Vec<u32>],
        config: &GenerateConfig,
    ) -> Result<GenerationStream<'a, B, M>> {
        config.validate()?;
        let statistics = Statistics::new(Instant::now(), prompts.iter().map(Vec::len).sum());
        let (decoding, cache) =
            Decoding::start(self.model, prompts, config, self.tokenizer.padding_or_end())?;
        let end = end_ids(self.tokenizer, config);
        let row = |prompt: &Vec<u32>| RowText::new(self.tokenizer, config, prompt);
        let rows = prompts.iter().map(row).collect::<Result<_>>()?;
        Ok(GenerationStream {
            model: self.model,
            cache,
            decoding,
            rows,
            end,
            events: VecDeque::new(),
            statistics,
        })
    }
}

impl<B: Backend, M: LanguageModel<B>> Clone for TextGenerator<'_, B, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, M: LanguageModel<B>> Copy for TextGenerator<'_, B, M> {}

/// New tokens with their text, as they are generated; see [`TextGenerator::stream`]. The iterator ends when all rows
/// have ended, or after an error.
pub struct GenerationStream<'a, B: Backend, M: LanguageModel<B>> {
    model: &'a M,
    cache: M::Cache,
    decoding: Decoding<B>,
    rows: Vec<RowText<'a>>,
    end: Vec<u32>,
    events: VecDeque<TokenEvent>,
    statistics: Statistics,
}

impl<B: Backend, M: LanguageModel<B>> GenerationStream<'_, B, M> {
    /// Returns numbers of tokens and times so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Computes a step; returns whether there are more.
    fn step(&mut self) -> Result<bool> {
        let Some(step) = self.decoding.step(self.model, &mut self.cache)? else { return Ok(false) };
        self.statistics.count(step.iter().flatten().count());
        let is_last = self.decoding.is_at_end();
        for (row, id) in step.into_iter().enumerate() {
            let Some(id) = id else { continue };
            let (text, finish) = self.rows[row].push(id, &self.end, is_last)?;
            if finish.is_some() {
                self.decoding.finish(row);
            }
            self.events.push_back(TokenEvent { row, id, text, finish });
        }
        self.statistics.end();
        Ok(true)
    }
}

impl<B: Backend, M: LanguageModel<B>> Iterator for GenerationStream<'_, B, M> {
    type Item = Result<TokenEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.events.is_empty() {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    (0..self.rows.len()).for_each(|row| self.decoding.finish(row));
                    return Some(Err(error));
                }
            }
        }
        self.events.pop_front().map(Ok)
    }
}

/// The tokens that end a row.
pub(crate) fn end_ids(tokenizer: &Tokenizer, config: &GenerateConfig) -> Vec<u32> {
    let of_tokenizer = if config.ignore_end { &[] } else { tokenizer.end_ids() };
    [of_tokenizer, &config.stop_ids].concat()
}

/// The text of a row.
pub(crate) struct RowText<'a> {
    decoder: DecodeStream<'a>,
    stops: StopFinder,
}

impl<'a> RowText<'a> {
    /// The text after a prompt.
    pub(crate) fn new(tokenizer: &'a Tokenizer, config: &GenerateConfig, prompt: &[u32]) -> Result<Self> {
        let decoder = tokenizer.decode_stream(true).after(prompt)?;
        Ok(RowText { decoder, stops: StopFinder::new(&config.stop) })
    }

    /// Takes a token. Returns the text that it releases, and the reason that the row ends.
    pub(crate) fn push(
        &mut self,
        id: u32,
        end: &[u32],
        is_last: bool,
    ) -> Result<(String, Option<FinishReason>)> {
        let is_end = end.contains(&id);
        let new = if is_end { self.decoder.finish()? } else { self.decoder.push(id)? };
        let released = self.stops.push(&new);
        if let Some(stop) = released.stop {
            return Ok((released.text, Some(FinishReason::StopString(stop))));
        }
        if is_end {
            return Ok((released.text + &self.stops.finish(), Some(FinishReason::EndToken(id))));
        }
        if !is_last {
            return Ok((released.text, None));
        }
        let rest = self.decoder.finish()?;
        let last = self.stops.push(&rest);
        let text = released.text + &last.text;
        match last.stop {
            Some(stop) => Ok((text, Some(FinishReason::StopString(stop)))),
            None => Ok((text + &self.stops.finish(), Some(FinishReason::Length))),
        }
    }
}
