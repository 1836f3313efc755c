//! Perplexity.

use kiln_tensor::DType;

use super::super::classification::input::{ClassInput, refuse_invalid};
use super::super::shape::wrong_shape;
use super::super::{Accumulated, Accumulator, MetricRule, MetricValues, Task};
use crate::error::MetricError;
use crate::observation::{LOGITS, Observation, TARGETS};

/// Perplexity, `perplexity`: `exp(−mean ln p(target))` over all tokens, from 1; the size of the vocabulary for uniform
/// predictions. Reads [`LOGITS`] `[.., vocabulary]`, such as `[batch, time, vocabulary]`, and the tokens [`TARGETS`]
/// `[..]`.
pub type Perplexity = Accumulated<PerplexityRule>;

/// The rule of [`Perplexity`].
#[derive(Clone, Debug, Default)]
pub struct PerplexityRule {
    ignore_index: Option<i64>,
}

/// [`Perplexity`] under the name that Burn uses.
pub type PerplexityMetric = Perplexity;

impl Perplexity {
    kiln_ir::setters! {
        /// Leaves out targets of this value, such as the padding. Default: none.
        ignore_index(index: i64) => rule.ignore_index = Some(index);
    }

    /// Sets [`ignore_index`](Perplexity::ignore_index) under the name that Burn uses.
    #[must_use]
    pub fn with_pad_token(self, index: usize) -> Perplexity {
        self.ignore_index(index as i64)
    }
}

impl MetricRule for PerplexityRule {
    crate::metric::facts!("perplexity", higher is better: false);

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
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
        input.count_invalid(sums)?;
        sums.sum("tokens", input.valid.clone().cast(DType::I32)?.sum()?)?;
        sums.sum("log-likelihood", input.log_likelihood()?)?;
        sums.append_all("vocabulary", &[vocabulary as f64])
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let vocabulary = sums.numbers("vocabulary")?.last().copied().unwrap_or(1.0);
        let task = Task::Multiclass { classes: vocabulary as usize };
        refuse_invalid(sums, task, self.ignore_index)?;
        let mean = sums.ratio("log-likelihood", "tokens")?;
        Ok(MetricValues::scalar(name, (-mean).exp()))
    }
}
