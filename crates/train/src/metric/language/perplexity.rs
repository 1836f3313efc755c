//! Perplexity.

use kiln_tensor::DType;

use super::super::classification::input::{ClassInput, refuse_invalid};
use super::super::shape::wrong_shape;
use super::super::{AccumulatedMetric, Accumulator, MetricValues, Task};
use crate::error::MetricError;
use crate::observation::{LOGITS, Observation, TARGETS};

/// Perplexity: `exp(−mean ln p(target))` over all tokens, from 1; the size of the vocabulary for uniform predictions.
/// Reads [`LOGITS`] `[.., vocabulary]`, such as `[batch, time, vocabulary]`, and the tokens [`TARGETS`] `[..]`.
#[derive(Clone, Debug)]
pub struct Perplexity {
    name: String,
    ignore_index: Option<i64>,
    accumulator: Accumulator,
}

/// [`Perplexity`] under the name that Burn uses.
pub type PerplexityMetric = Perplexity;

impl Perplexity {
    /// Returns the metric, named `perplexity`.
    pub fn new() -> Perplexity {
        Perplexity { name: "perplexity".to_owned(), ignore_index: None, accumulator: Accumulator::new() }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Perplexity {
        self.name = name.into();
        self
    }

    /// Leaves out targets of this value, such as the padding. Default: none.
    #[must_use]
    pub fn ignore_index(mut self, index: i64) -> Perplexity {
        self.ignore_index = Some(index);
        self
    }

    /// [`ignore_index`](Perplexity::ignore_index) under the name that Burn uses.
    #[must_use]
    pub fn with_pad_token(self, index: usize) -> Perplexity {
        self.ignore_index(index as i64)
    }
}

impl Default for Perplexity {
    fn default() -> Perplexity {
        Perplexity::new()
    }
}

impl AccumulatedMetric for Perplexity {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let (logits, targets) = (observation.tensor(LOGITS)?, observation.tensor(TARGETS)?);
        let tokens = targets.shape().num_elements();
        let vocabulary = match logits.shape().to_vec().split_last() {
            Some((&vocabulary, tokens)) if tokens == targets.shape().to_vec() => vocabulary,
            Some(_) | None => {
                let expected = format!("{:?} and the vocabulary last", targets.shape().to_vec());
                return Err(wrong_shape(LOGITS, &logits, &expected));
            }
        };
        let flat = Observation::new(tokens)
            .with(LOGITS, logits.reshape([tokens, vocabulary])?)
            .with(TARGETS, targets.reshape([tokens])?);
        let input = ClassInput::read(&flat, Task::Multiclass { classes: vocabulary }, self.ignore_index)?;
        input.count_invalid(&mut self.accumulator)?;
        self.accumulator.sum("tokens", input.valid.clone().cast(DType::I32)?.sum()?)?;
        self.accumulator.sum("log-likelihood", input.log_likelihood()?)?;
        self.accumulator.append_all("vocabulary", &[vocabulary as f64])
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let vocabulary = self.accumulator.numbers("vocabulary")?.last().copied().unwrap_or(1.0);
        let task = Task::Multiclass { classes: vocabulary as usize };
        refuse_invalid(&mut self.accumulator, task, self.ignore_index)?;
        let mean = self.accumulator.total("log-likelihood")? / self.accumulator.total("tokens")?;
        Ok(MetricValues::scalar(self.name.clone(), (-mean).exp()))
    }

    fn higher_is_better(&self) -> bool {
        false
    }
}
