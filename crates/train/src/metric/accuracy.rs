//! Accuracy.

use kiln_ir::{Comparison, Reduction};
use kiln_tensor::{AnyTensor, DType};

use super::{AccumulatedMetric, Accumulator, MetricValues};
use crate::error::MetricError;
use crate::observation::{LOGITS, Observation, TARGETS};

/// Accuracy: the fraction of items whose class is predicted, from 0 to 1. Requires
/// [`StepOutput::classification`](crate::StepOutput::classification).
#[derive(Clone, Debug)]
pub struct Accuracy {
    name: String,
    k: usize,
    ignore_index: Option<i64>,
    accumulator: Accumulator,
}

/// [`Accuracy`] under the name that Burn uses.
pub type AccuracyMetric = Accuracy;

impl Accuracy {
    /// Returns top-1 accuracy, named `accuracy`: the class with the highest score is the prediction.
    pub fn new() -> Accuracy {
        Accuracy::named("accuracy".to_owned(), 1)
    }

    /// Returns top-k accuracy, named such as `top-5 accuracy`. A `k` of 0 is 1. An item is correct if fewer than `k`
    /// scores are greater than that of its class. NaN scores count as greater; a class with a NaN score is never
    /// correct.
    pub fn top(k: usize) -> Accuracy {
        Accuracy::named(format!("top-{k} accuracy"), k.max(1))
    }

    fn named(name: String, k: usize) -> Accuracy {
        Accuracy { name, k, ignore_index: None, accumulator: Accumulator::new() }
    }

    /// Leaves out targets of this value, such as the padding. Default: none.
    #[must_use]
    pub fn ignore_index(mut self, index: i64) -> Accuracy {
        self.ignore_index = Some(index);
        self
    }

    /// [`ignore_index`](Accuracy::ignore_index) under the name that Burn uses.
    #[must_use]
    pub fn with_pad_token(self, index: usize) -> Accuracy {
        self.ignore_index(index as i64)
    }
}

impl Default for Accuracy {
    fn default() -> Accuracy {
        Accuracy::new()
    }
}

impl AccumulatedMetric for Accuracy {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let (logits, targets) = (observation.tensor(LOGITS)?, observation.tensor(TARGETS)?);
        let num_items = targets.shape().num_elements();
        let targets = targets.reshape([num_items, 1])?;
        let hits = match self.ignore_index {
            None => {
                self.accumulator.count("items", num_items as f64);
                hits(logits, targets, self.k)?
            }
            Some(index) => {
                let ignored = targets.clone().compare_scalar(Comparison::Eq, index)?;
                let counted = targets.clone().compare_scalar(Comparison::Ne, index)?;
                self.accumulator.sum("items", counted.cast(DType::I32)?.sum()?)?;
                // Ignored targets need not be classes.
                let targets = targets.mask_fill(ignored.clone(), 0)?;
                hits(logits, targets, self.k)?.mask_fill(ignored, false)?
            }
        };
        self.accumulator.sum("correct", hits.cast(DType::I32)?.sum()?)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let correct = self.accumulator.total("correct")?;
        let items = self.accumulator.total("items")?;
        Ok(MetricValues::scalar(self.name.clone(), correct / items))
    }

    fn format(&self, value: f64) -> String {
        format!("{:.2} %", value * 100.0)
    }
}

/// Whether the class `[batch, 1]` of each row of scores `[batch, classes]` is among the `k` highest: `bool[batch, 1]`.
pub(super) fn hits(logits: AnyTensor, targets: AnyTensor, k: usize) -> Result<AnyTensor, kiln_tensor::Error> {
    if k == 1 {
        let predicted = logits.argmax(1)?;
        let targets = targets.cast(predicted.dtype())?;
        return predicted.compare(Comparison::Eq, targets);
    }
    let classes = logits.shape().last().copied().unwrap_or(0);
    let score = logits.clone().gather(1, targets)?;
    let not_above = logits.compare(Comparison::Le, score)?.cast(DType::I32)?.reduce(Reduction::Sum, &[1])?;
    // Fewer than k scores above the class: at least `classes - k + 1` not above it.
    let enough = (classes + 1).saturating_sub(k);
    not_above.scalar_compare(enough, Comparison::Le)
}
