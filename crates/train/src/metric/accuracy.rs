//! Accuracy.

use kiln_ir::{Comparison, Reduction};
use kiln_tensor::{AnyTensor, DType};

use super::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::error::MetricError;
use crate::observation::{LOGITS, Observation, TARGETS};

/// Accuracy, `accuracy`: the fraction of items whose class is predicted, from 0 to 1. The class with the highest score
/// is the prediction. Requires [`StepOutput::classification`](crate::StepOutput::classification).
pub type Accuracy = Accumulated<AccuracyRule>;

/// The rule of [`Accuracy`].
#[derive(Clone, Debug)]
pub struct AccuracyRule {
    k: usize,
    ignore_index: Option<i64>,
}

impl Default for AccuracyRule {
    fn default() -> AccuracyRule {
        AccuracyRule { k: 1, ignore_index: None }
    }
}

/// [`Accuracy`] under the name that Burn uses.
pub type AccuracyMetric = Accuracy;

impl Accuracy {
    /// Returns top-k accuracy, named such as `top-5 accuracy`. A `k` of 0 is 1. An item is correct if fewer than `k`
    /// scores are greater than that of its class. NaN scores count as greater; a class with a NaN score is never
    /// correct.
    pub fn top(k: usize) -> Accuracy {
        let rule = AccuracyRule { k: k.max(1), ignore_index: None };
        Accuracy::of(rule).named(format!("top-{k} accuracy"))
    }

    kiln_ir::setters! {
        /// Leaves out targets of this value, such as the padding. Default: none.
        ignore_index(index: i64) => rule.ignore_index = Some(index);
    }

    /// Sets [`ignore_index`](Accuracy::ignore_index) under the name that Burn uses.
    #[must_use]
    pub fn with_pad_token(self, index: usize) -> Accuracy {
        self.ignore_index(index as i64)
    }
}

impl MetricRule for AccuracyRule {
    crate::metric::facts!("accuracy", "correct" / "items");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (logits, targets) = (observation.tensor(LOGITS)?, observation.tensor(TARGETS)?);
        let num_items = targets.shape().num_elements();
        let targets = targets.reshape([num_items, 1])?;
        let hits = match self.ignore_index {
            None => {
                sums.count("items", num_items as f64);
                hits(logits, targets, self.k)?
            }
            Some(index) => {
                let ignored = targets.clone().compare_scalar(Comparison::Eq, index)?;
                let counted = targets.clone().compare_scalar(Comparison::Ne, index)?;
                sums.sum("items", counted.cast(DType::I32)?.sum()?)?;
                // Ignored targets need not be classes.
                let targets = targets.mask_fill(ignored.clone(), 0)?;
                hits(logits, targets, self.k)?.mask_fill(ignored, false)?
            }
        };
        sums.sum("correct", hits.cast(DType::I32)?.sum()?)
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
