//! Metrics of the calibration of probabilities. Inputs and tasks are those of the metrics of
//! [classification](super::classification).
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::{Int, Tensor};
//! use kiln_train::metric::CalibrationError;
//! use kiln_train::{Metric, Observation, PREDICTIONS, TARGETS};
//!
//! let device = Default::default();
//! let probabilities = Tensor::<Flex, 1>::from_floats([0.75, 0.75, 0.75, 0.75], &device);
//! let targets = Tensor::<Flex, 1, Int>::from_ints([1, 1, 1, 0], &device);
//! let batch = Observation::new(4).with(PREDICTIONS, probabilities.into_any()).with(TARGETS, targets.into_any());
//!
//! let mut error = CalibrationError::binary();
//! error.update(&batch)?;
//! assert_eq!(error.values()?.main(), Some(0.0));
//! # Ok::<(), kiln_train::MetricError>(())
//! ```

use kiln_tensor::{AnyTensor, DType, TensorData};

use super::classification::count::{dropped_unless, occurrences, sums_at};
use super::classification::input::{ClassInput, refuse_invalid};
use super::classification::rule::{LabelsRule, TaskRule};
use super::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues, Task};
use crate::error::MetricError;
use crate::observation::Observation;

/// The norm over the bins of a [`CalibrationError`], weighted by the fraction of items in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CalibrationNorm {
    /// The expected calibration error (ECE): `Σ weight |accuracy − confidence|`.
    #[default]
    L1,
    /// The root mean square calibration error: `√(Σ weight (accuracy − confidence)²)`.
    L2,
    /// The maximum calibration error (MCE): the greatest `|accuracy − confidence|` of a bin.
    Max,
}

/// Calibration error, `calibration error`: the distance of confidence and accuracy over bins of equal width, from 0 to
/// 1 (Guo et al., 2017). The confidence of an item is the probability of the predicted class, and of the positive label
/// of a binary task.
///
/// Further values: `NAME confidence`, a histogram of the confidences; and `NAME reliability`, the matrix of the
/// reliability diagram, with a row for each bin and the columns mean confidence, accuracy and fraction of the items. A
/// bin contains its lower edge, the last both; torchmetrics has a bin of its own for a confidence of exactly 1.
pub type CalibrationError = Accumulated<CalibrationRule>;

/// The rule of [`CalibrationError`].
#[derive(Clone, Debug)]
pub struct CalibrationRule {
    task: Task,
    norm: CalibrationNorm,
    bins: usize,
    ignore_index: Option<i64>,
}

impl TaskRule for CalibrationRule {
    fn of_task(task: Task) -> CalibrationRule {
        CalibrationRule { task, norm: CalibrationNorm::L1, bins: 15, ignore_index: None }
    }
}

impl CalibrationError {
    kiln_ir::setters! {
        /// Sets the norm over the bins. Default: L1.
        norm(norm: CalibrationNorm) => rule.norm = norm;

        /// Sets the number of bins. A number of 0 is 1. Default: 15.
        bins(bins: usize) => rule.bins = bins.max(1);

        /// Leaves out targets of this value. Default: none.
        ignore_index(index: i64) => rule.ignore_index = Some(index);
    }
}

impl CalibrationRule {
    /// Returns the bin of each confidence.
    fn places(&self, confidences: &AnyTensor) -> Result<AnyTensor, MetricError> {
        if self.bins == 1 {
            return Ok(AnyTensor::zeros(confidences.ty().with_dtype(DType::I32), confidences.stack())?);
        }
        let edges: Vec<f64> = (1..self.bins).map(|edge| edge as f64 / self.bins as f64).collect();
        let edges = TensorData::from(edges).convert(confidences.dtype());
        let edges = AnyTensor::from_data(edges, confidences.stack());
        Ok(edges.searchsorted(confidences.clone(), true)?.cast(DType::I32)?)
    }

    fn reliability(&self, sums: &mut Accumulator) -> Result<Vec<Bin>, MetricError> {
        refuse_invalid(sums, self.task, self.ignore_index)?;
        let items = sums.totals("items")?.to_vec();
        let hits = sums.totals("hits")?.to_vec();
        let confidences = sums.totals("confidences")?;
        let bin =
            |((items, hits), confidences): ((f64, f64), &f64)| Bin { items, hits, confidences: *confidences };
        Ok(items.into_iter().zip(hits).zip(confidences).map(bin).collect())
    }
}

/// The sums of the items whose confidence is in a bin.
#[derive(Clone, Copy)]
struct Bin {
    items: f64,
    hits: f64,
    confidences: f64,
}

impl Bin {
    fn error(&self) -> f64 {
        (self.hits / self.items - self.confidences / self.items).abs()
    }
}

fn calibration_error(bins: &[Bin], norm: CalibrationNorm) -> f64 {
    let total: f64 = bins.iter().map(|bin| bin.items).sum();
    if total == 0.0 {
        return f64::NAN;
    }
    let filled = bins.iter().filter(|bin| bin.items > 0.0);
    match norm {
        CalibrationNorm::L1 => filled.map(|bin| bin.error() * bin.items).sum::<f64>() / total,
        CalibrationNorm::L2 => {
            (filled.map(|bin| bin.error().powi(2) * bin.items).sum::<f64>() / total).sqrt()
        }
        CalibrationNorm::Max => filled.map(Bin::error).fold(0.0, f64::max),
    }
}

impl MetricRule for CalibrationRule {
    crate::metric::facts!("calibration error", higher is better: false);

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let input = ClassInput::read(observation, self.task, self.ignore_index)?;
        let probabilities = input.probabilities()?;
        let decisions = input.decisions(0.5, 1)?;
        input.count_invalid(sums)?;
        let items = input.targets.shape().num_elements();
        let (confidences, hits) = match self.task {
            Task::Multiclass { .. } => (probabilities.max_dim(1)?, decisions.equal(input.targets)?),
            Task::Binary | Task::Multilabel { .. } => (probabilities, input.targets.cast(DType::Bool)?),
        };
        let confidences = confidences.reshape([items])?;
        let places = dropped_unless(input.valid.reshape([items])?, self.places(&confidences)?, self.bins)?;
        sums.sum("items", occurrences(places.clone(), self.bins)?)?;
        let hits = hits.reshape([items])?.cast(DType::I32)?;
        sums.sum("hits", sums_at(places.clone(), hits, self.bins)?)?;
        sums.sum("confidences", sums_at(places, confidences, self.bins)?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let mut bins = self.reliability(sums)?;
        let error = calibration_error(&bins, self.norm);
        bins.resize(self.bins, Bin { items: 0.0, hits: 0.0, confidences: 0.0 });
        let total: f64 = bins.iter().map(|bin| bin.items).sum();
        let edges = (0..=self.bins).map(|edge| edge as f64 / self.bins as f64).collect();
        let counts = bins.iter().map(|bin| bin.items).collect();
        let row = |bin: &Bin| [bin.confidences / bin.items, bin.hits / bin.items, bin.items / total];
        let elements = bins.iter().flat_map(row).collect();
        Ok(MetricValues::scalar(name, error)
            .with(format!("{name} confidence"), MetricValue::Histogram { edges, counts })
            .with(
                format!("{name} reliability"),
                MetricValue::Matrix { rows: self.bins, columns: 3, elements },
            ))
    }
}

/// Brier score, `brier score`: the mean squared difference of probabilities and targets. Of labels, the mean of
/// `(p − t)²`, from 0 to 1; of several classes, the mean over the items of `Σ (p − t)²` with one-hot targets `t`, from
/// 0 to 2 (Brier, 1950).
pub type BrierScore = Accumulated<BrierRule>;

/// The rule of [`BrierScore`].
#[derive(Clone, Debug)]
pub struct BrierRule {
    task: Task,
    ignore_index: Option<i64>,
}

impl TaskRule for BrierRule {
    fn of_task(task: Task) -> BrierRule {
        BrierRule { task, ignore_index: None }
    }
}

impl LabelsRule for BrierRule {}

impl BrierScore {
    kiln_ir::setters! {
        /// Leaves out targets of this value. Default: none.
        ignore_index(index: i64) => rule.ignore_index = Some(index);
    }
}

impl MetricRule for BrierRule {
    crate::metric::facts!("brier score", higher is better: false);

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let input = ClassInput::read(observation, self.task, self.ignore_index)?;
        let probabilities = input.probabilities()?;
        input.count_invalid(sums)?;
        let dtype = probabilities.dtype();
        let squares = match self.task {
            Task::Multiclass { classes } => {
                let targets = input.targets.one_hot_fill(classes, 1, 0, -1)?.cast(dtype)?;
                probabilities.sub(targets)?.square()?.sum_dim(1)?.reshape(*input.valid.shape())?
            }
            Task::Binary | Task::Multilabel { .. } => {
                probabilities.sub(input.targets.cast(dtype)?)?.square()?
            }
        };
        let dropped = input.valid.clone().logical_not()?;
        sums.sum("items", input.valid.cast(DType::I32)?.sum()?)?;
        sums.sum("squares", dropped.if_else_number(0.0, squares)?.sum()?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        refuse_invalid(sums, self.task, self.ignore_index)?;
        Ok(MetricValues::scalar(name, sums.ratio("squares", "items")?))
    }
}
