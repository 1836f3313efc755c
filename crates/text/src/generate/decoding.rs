//! The loop of generation, over token ids.

use super::config::GenerateConfig;
use super::sampler::{Sampler, TokenHistory};
use crate::{LanguageModel, PaddingSide, Result, TextError, TokenBatch, TokenInput};
use kiln_tensor::{Backend, Int, Tensor, TensorData};
use std::collections::VecDeque;

/// A running generation of a batch. The cache is an argument of each step, so that a chat can keep it.
pub(crate) struct Decoding<B: Backend> {
    rows: Vec<Row>,
    /// The tokens of the next forward pass.
    next: Tensor<B, 2, Int>,
    padding: Option<Tensor<B, 1, Int>>,
    /// Whether the greatest logit is selected, on the device. Otherwise the samplers select on the host.
    is_argmax: bool,
    /// The tokens of argmax that are not read yet.
    started: VecDeque<Tensor<B, 2, Int>>,
    run_ahead: usize,
    /// Number of forward passes, and of tokens of each row, that remain.
    passes_left: usize,
    tokens_left: usize,
    passes: usize,
    device: B::Device,
}

struct Row {
    sampler: Sampler,
    history: TokenHistory,
    is_finished: bool,
}

impl<B: Backend> Decoding<B> {
    /// Starts a generation with an empty cache. `padding_id` fills shorter rows; the model hides it.
    pub(crate) fn start<M: LanguageModel<B>>(
        model: &M,
        prompts: &[Vec<u32>],
        config: &GenerateConfig,
        padding_id: u32,
    ) -> Result<(Self, M::Cache)> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let new = new_tokens(longest, config, model.max_length())?;
        let decoding = Decoding::resume(model, prompts, 0, config, new, padding_id)?;
        // The last new token is not computed.
        let cache = model.new_cache(prompts.len(), longest + new - 1);
        Ok((decoding, cache))
    }

    /// Starts a generation of `new` tokens whose cache contains the first `cached` tokens of each prompt.
    ///
    /// The caller has checked that the tokens fit in the cache. More than 0 cached tokens need prompts of one length.
    pub(crate) fn resume<M: LanguageModel<B>>(
        model: &M,
        prompts: &[Vec<u32>],
        cached: usize,
        config: &GenerateConfig,
        new: usize,
        padding_id: u32,
    ) -> Result<Self> {
        if prompts.is_empty() {
            let problem = "there are no prompts".to_owned();
            return Err(TextError::InvalidArgument { function: "generate", problem });
        }
        if let Some(row) = prompts.iter().position(|prompt| prompt.len() <= cached) {
            return Err(TextError::EmptyPrompt { row });
        }
        check_ids(prompts, model.vocabulary_size())?;
        let device = model.device();
        let uncached: Vec<&[u32]> = prompts.iter().map(|prompt| &prompt[cached..]).collect();
        let batch = TokenBatch::from_rows(&uncached, padding_id, PaddingSide::Left);
        let row = |(row, prompt): (usize, &Vec<u32>)| {
            let sampler = Sampler::new(config, row)?;
            Ok(Row { sampler, history: TokenHistory::of_prompt(prompt), is_finished: false })
        };
        Ok(Decoding {
            rows: prompts.iter().enumerate().map(row).collect::<Result<_>>()?,
            next: batch.ids_tensor::<B>(&device)?,
            padding: padding_tensor(&batch.padding(), &device)?,
            is_argmax: config.is_argmax(),
            started: VecDeque::new(),
            run_ahead: config.run_ahead,
            passes_left: new,
            tokens_left: new,
            passes: 0,
            device,
        })
    }

    /// Computes the next token of each row; `None` for a row that is finished. Returns `None` when all rows are
    /// finished, or the maximum length is reached.
    pub(crate) fn step<M: LanguageModel<B>>(
        &mut self,
        model: &M,
        cache: &mut M::Cache,
    ) -> Result<Option<Vec<Option<u32>>>> {
        if self.tokens_left == 0 || self.rows.iter().all(|row| row.is_finished) {
            return Ok(None);
        }
        let ids = if self.is_argmax {
            self.step_on_device(model, cache)?
        } else {
            self.step_on_host(model, cache)?
        };
        self.tokens_left -= 1;
        let of_row = |(row, id): (&mut Row, u32)| (!row.is_finished).then(|| row.take(id));
        Ok(Some(self.rows.iter_mut().zip(ids).map(of_row).collect()))
    }

    /// Ends a row: later steps return no tokens of it.
    pub(crate) fn finish(&mut self, row: usize) {
        self.rows[row].is_finished = true;
    }

    /// Returns whether the last step reached the maximum length.
    #[cfg(feature = "tokenizers")]
    pub(crate) fn is_at_end(&self) -> bool {
        self.tokens_left == 0
    }

    /// Returns the number of new tokens of each row that the cache contains.
    #[cfg(all(feature = "templates", feature = "tokenizers"))]
    pub(crate) fn cached_new_tokens(&self) -> usize {
        self.passes.saturating_sub(1)
    }

    fn step_on_device<M: LanguageModel<B>>(&mut self, model: &M, cache: &mut M::Cache) -> Result<Vec<u32>> {
        while self.started.len() <= self.run_ahead && self.passes_left > 0 {
            let logits = self.forward(model, cache);
            let [batch, _, _] = logits.dims();
            self.next = logits.argmax(2).reshape([batch, 1]);
            self.started.push_back(self.next.clone());
        }
        let Some(ids) = self.started.pop_front() else { return Ok(vec![0; self.rows.len()]) };
        let ids: Vec<i64> = ids.try_into_vec_as()?;
        Ok(ids.into_iter().map(|id| u32::try_from(id).unwrap_or(0)).collect())
    }

    fn step_on_host<M: LanguageModel<B>>(&mut self, model: &M, cache: &mut M::Cache) -> Result<Vec<u32>> {
        let logits = self.forward(model, cache);
        let mut logits: Vec<f32> = logits.try_into_vec_as()?;
        let vocabulary = logits.len() / self.rows.len();
        let mut ids = Vec::with_capacity(self.rows.len());
        for (index, (row, logits)) in self.rows.iter_mut().zip(logits.chunks_mut(vocabulary)).enumerate() {
            if row.is_finished {
                ids.push(0);
                continue;
            }
            let id = row.sampler.sample(logits, &row.history);
            ids.push(id.ok_or(TextError::NoFiniteLogits { row: index })?);
        }
        let data: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        self.next = Tensor::from_data(TensorData::new(data, [self.rows.len(), 1])?, &self.device);
        Ok(ids)
    }

    fn forward<M: LanguageModel<B>>(&mut self, model: &M, cache: &mut M::Cache) -> Tensor<B, 3> {
        let input = TokenInput::new(self.next.clone()).with_padding(self.padding.clone());
        self.passes += 1;
        self.passes_left = self.passes_left.saturating_sub(1);
        model.forward(input, cache)
    }
}

impl Row {
    fn take(&mut self, id: u32) -> u32 {
        self.history.push(id);
        id
    }
}

/// The number of new tokens that the settings allow and a context of `context` tokens has room for. The last new token
/// is not computed, so that it needs no room.
pub(crate) fn new_tokens(prompt: usize, config: &GenerateConfig, context: usize) -> Result<usize> {
    let max_length = config.max_length.unwrap_or(usize::MAX).min(context.saturating_add(1));
    if prompt >= max_length {
        return Err(TextError::ContextOverflow { prompt, max_length: max_length.min(context) });
    }
    Ok(config.max_new_tokens.min(max_length - prompt))
}

/// Refuses ids beyond the logits of the model, which are of another tokenizer.
fn check_ids(prompts: &[Vec<u32>], vocabulary: usize) -> Result<()> {
    match prompts.iter().flatten().find(|&&id| id as usize >= vocabulary) {
        Some(&id) => Err(TextError::UnknownId { id, size: vocabulary }),
        None => Ok(()),
    }
}

/// The number of padding tokens of each row; `None` if no row has any.
fn padding_tensor<B: Backend>(padding: &[usize], device: &B::Device) -> Result<Option<Tensor<B, 1, Int>>> {
    if padding.iter().all(|&count| count == 0) {
        return Ok(None);
    }
    let counts: Vec<i64> = padding.iter().map(|&count| count as i64).collect();
    Ok(Some(Tensor::from_data(TensorData::new(counts, [padding.len()])?, device)))
}
