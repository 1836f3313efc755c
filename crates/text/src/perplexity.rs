//! Perplexity of a language model.

use crate::{GenerationCache, LanguageModel, LogitsOf, Result, TextError, TokenInput};
use kiln_tensor::{Backend, Int, Tensor, TensorData, activation};

/// Settings of [`perplexity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerplexityOptions {
    /// Number of tokens that the model sees at once.
    pub window: usize,
    /// Number of tokens from one window to the next. Each token after the first window has at least
    /// `window - stride` tokens of context.
    pub stride: usize,
}

impl PerplexityOptions {
    /// Returns options with windows that do not overlap.
    pub fn new(window: usize) -> Self {
        PerplexityOptions { window, stride: window }
    }

    /// Sets the number of tokens from one window to the next.
    #[must_use]
    pub fn with_stride(self, stride: usize) -> Self {
        PerplexityOptions { stride, ..self }
    }
}

/// The likelihood of a text under a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Perplexity {
    /// The negative log likelihood of each predicted token, in nats.
    pub losses: Vec<f32>,
}

impl Perplexity {
    /// Returns the mean negative log likelihood of a token, in nats.
    pub fn mean_loss(&self) -> f64 {
        self.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / self.losses.len() as f64
    }

    /// Returns the perplexity: the exponential of the mean loss.
    pub fn value(&self) -> f64 {
        self.mean_loss().exp()
    }

    /// Returns the standard error of the perplexity, from that of the mean loss.
    pub fn standard_error(&self) -> f64 {
        let (mean, count) = (self.mean_loss(), self.losses.len() as f64);
        let squares: f64 = self.losses.iter().map(|&loss| (f64::from(loss) - mean).powi(2)).sum();
        self.value() * (squares / (count - 1.0).max(1.0) / count).sqrt()
    }
}

/// Computes the perplexity of a text of token ids: `exp(-1/n · Σ ln p(tᵢ | tokens before tᵢ in its window))`, over the
/// `n` predicted tokens `tᵢ` ([Jelinek et al. 1977](https://doi.org/10.1121/1.2016299)).
///
/// Windows slide over the text as in [Hugging Face's guide](https://huggingface.co/docs/transformers/perplexity). Each
/// token is predicted once, by the first window that contains it. The first token of a window that overlaps no other is
/// not predicted. llama.cpp predicts only the second half of each window, so its values are usually lower.
///
/// # Errors
/// When there are fewer than two tokens, the window has fewer than two or more than the context, the stride is 0 or
/// longer than the window, an id is beyond the logits of the model, or the computation fails.
pub fn perplexity<B: Backend, M: LanguageModel<B>>(
    model: &M,
    ids: &[u32],
    options: &PerplexityOptions,
) -> Result<Perplexity> {
    perplexity_with_progress(model, ids, options, |_| ())
}

/// Computes the perplexity of a text like [`perplexity`]. After each window, `progress` receives the number of tokens
/// that the windows have covered.
///
/// # Errors
/// As [`perplexity`].
pub fn perplexity_with_progress<B: Backend, M: LanguageModel<B>>(
    model: &M,
    ids: &[u32],
    options: &PerplexityOptions,
    mut progress: impl FnMut(usize),
) -> Result<Perplexity> {
    let PerplexityOptions { window, stride } = *options;
    check(ids.len() >= 2, || format!("{} tokens, but two are needed to predict one", ids.len()))?;
    let context = model.max_length();
    check((2..=context).contains(&window), || {
        format!("the window is {window}; it must be 2 to {context} tokens")
    })?;
    check((1..=window).contains(&stride), || {
        format!("the stride is {stride}; it must be 1 to {window}, the window")
    })?;
    if let Some(&id) = ids.iter().find(|&&id| id as usize >= model.vocabulary_size()) {
        return Err(TextError::UnknownId { id, size: model.vocabulary_size() });
    }
    let mut cache = model.new_cache(1, window.min(ids.len()));
    let mut losses = Vec::with_capacity(ids.len());
    let mut predicted = 0;
    for begin in (0..ids.len()).step_by(stride) {
        let end = ids.len().min(begin + window);
        // The first token of a window has no context.
        let first = predicted.max(begin + 1);
        if first < end {
            cache.reset();
            losses.extend(window_losses(model, &ids[begin..end], first - begin, &mut cache)?);
        }
        predicted = end;
        progress(end);
        if end == ids.len() {
            break;
        }
    }
    Ok(Perplexity { losses })
}

/// The losses of the tokens from `first`.
fn window_losses<B: Backend, M: LanguageModel<B>>(
    model: &M,
    ids: &[u32],
    first: usize,
    cache: &mut M::Cache,
) -> Result<Vec<f32>> {
    let device = model.device();
    let tensor = |ids: &[u32]| {
        let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        let shape = [1, ids.len()];
        TensorData::new(ids, shape).map(|data| Tensor::<B, 2, Int>::from_data(data, &device))
    };
    let targets = &ids[first..];
    let input = TokenInput::new(tensor(&ids[..ids.len() - 1])?).with_logits(LogitsOf::All);
    let logits = model.forward(input, cache).narrow(1, first - 1, targets.len());
    let chosen = tensor(targets)?.reshape([1, targets.len(), 1]);
    let likelihoods = activation::log_softmax(logits, 2).gather(2, chosen);
    Ok(likelihoods.neg().try_into_vec_as()?)
}

fn check(is_valid: bool, problem: impl FnOnce() -> String) -> Result<()> {
    if is_valid {
        return Ok(());
    }
    Err(TextError::InvalidArgument { function: "perplexity", problem: problem() })
}
