//! Metrics of training and validation.

use std::fmt::Debug;

use kiln_ir::{Comparison, Reduction};
use kiln_tensor::{AnyTensor, DType};

use crate::error::MetricError;
use crate::output::{LOGITS, Observation, TARGETS};

/// A metric over all batches of an epoch, for training and validation.
///
/// `update` should accumulate on the device; only `value` reads the result.
pub trait Metric: Debug + Send {
    /// Returns the name, such as `accuracy`.
    fn name(&self) -> &str;

    /// Resets the metric to no batches.
    fn reset(&mut self);

    /// Adds a batch.
    ///
    /// # Errors
    /// When the step's output does not contain a tensor that the metric needs, or an op fails.
    fn update(&mut self, observation: &Observation) -> Result<(), MetricError>;

    /// Returns the value over all batches since the last reset; NaN without batches. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    fn value(&mut self) -> Result<f64, MetricError>;

    /// Returns whether a greater value is better. Default: yes.
    fn higher_is_better(&self) -> bool {
        true
    }

    /// Formats the value. Default: four decimal places.
    fn format(&self, value: f64) -> String {
        format!("{value:.4}")
    }
}

/// Accuracy: the fraction of items whose class is predicted, from 0 to 1. Requires
/// [`StepOutput::classification`](crate::StepOutput::classification).
#[derive(Clone, Debug)]
pub struct Accuracy {
    name: String,
    k: usize,
    num_items: u64,
    /// Number of correct predictions, `i32[1]` on the device.
    correct: Option<AnyTensor>,
    /// Number of correct predictions that were already read from the device.
    counted: u64,
    /// Number of items that `correct` covers.
    pending: u64,
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
        Accuracy { name, k, num_items: 0, correct: None, counted: 0, pending: 0 }
    }

    /// Reads the sum from the device.
    fn read(&mut self) -> Result<(), MetricError> {
        if let Some(correct) = self.correct.take() {
            let count = correct.into_data()?.to_vec::<i64>().first().copied().unwrap_or(0);
            self.counted += count.unsigned_abs();
        }
        self.pending = 0;
        Ok(())
    }
}

/// With more items than this, the sum in `i32` is read before it could overflow.
const MAX_PENDING: u64 = 1 << 30;

impl Default for Accuracy {
    fn default() -> Accuracy {
        Accuracy::new()
    }
}

impl Metric for Accuracy {
    fn name(&self) -> &str {
        &self.name
    }

    fn reset(&mut self) {
        *self = Accuracy::named(std::mem::take(&mut self.name), self.k);
    }

    fn update(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let tensor = |name| observation.tensors.get(name).cloned().ok_or(MetricError::Missing { name });
        let (logits, targets) = (tensor(LOGITS)?, tensor(TARGETS)?);
        let num_items = targets.shape().num_elements();
        let hits = hits(logits, targets.reshape([num_items, 1])?, self.k)?.cast(DType::I32)?.sum()?;
        if self.pending + num_items as u64 > MAX_PENDING {
            self.read()?;
        }
        self.correct = Some(match self.correct.take() {
            Some(correct) => correct.add(hits)?,
            None => hits,
        });
        self.pending += num_items as u64;
        self.num_items += num_items as u64;
        Ok(())
    }

    fn value(&mut self) -> Result<f64, MetricError> {
        self.read()?;
        Ok(self.counted as f64 / self.num_items as f64)
    }

    fn format(&self, value: f64) -> String {
        format!("{:.2} %", value * 100.0)
    }
}

/// Whether the class `[batch, 1]` of each row of scores `[batch, classes]` is among the `k` highest: `bool[batch, 1]`.
fn hits(logits: AnyTensor, targets: AnyTensor, k: usize) -> Result<AnyTensor, kiln_tensor::Error> {
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
