//! Counts of true and false positives and negatives.

use kiln_ir::UpdateMode;
use kiln_tensor::{AnyTensor, DType};

use super::input::{ClassInput, refuse_invalid};
use super::{Average, Task};
use crate::error::MetricError;
use crate::metric::{Accumulator, MetricValue};
use crate::observation::Observation;

/// The counts of one class or label.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassCounts {
    /// Items of the class that are predicted as it.
    pub true_positives: f64,
    /// Items of other classes that are predicted as it.
    pub false_positives: f64,
    /// Items of other classes that are not predicted as it.
    pub true_negatives: f64,
    /// Items of the class that are not predicted as it.
    pub false_negatives: f64,
}

impl ClassCounts {
    /// Returns the number of items of the class.
    pub(crate) fn support(&self) -> f64 {
        self.true_positives + self.false_negatives
    }

    /// Returns the number of items that are predicted as the class.
    pub(crate) fn predicted(&self) -> f64 {
        self.true_positives + self.false_positives
    }

    /// Returns the number of items.
    pub(crate) fn items(&self) -> f64 {
        self.support() + self.false_positives + self.true_negatives
    }

    fn add(self, other: &ClassCounts) -> ClassCounts {
        ClassCounts {
            true_positives: self.true_positives + other.true_positives,
            false_positives: self.false_positives + other.false_positives,
            true_negatives: self.true_negatives + other.true_negatives,
            false_negatives: self.false_negatives + other.false_negatives,
        }
    }
}

/// The options of the counts of each class, which are accumulated on the device.
#[derive(Clone, Debug)]
pub struct Counter {
    pub task: Task,
    pub threshold: f64,
    pub top_k: usize,
    pub ignore_index: Option<i64>,
}

const COUNTS: &str = "counts";
const MATRIX: &str = "matrix";

impl Counter {
    pub(crate) fn new(task: Task) -> Counter {
        Counter { task, threshold: 0.5, top_k: 1, ignore_index: None }
    }

    /// Adds the counts of each class.
    pub(crate) fn add(&self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let input = ClassInput::read(observation, self.task, self.ignore_index)?;
        let decisions = input.decisions(self.threshold, self.top_k)?;
        input.count_invalid(sums)?;
        let counts = match self.task {
            Task::Multiclass { classes } => class_counts(&input, decisions, classes)?,
            Task::Binary | Task::Multilabel { .. } => label_counts(&input, decisions)?,
        };
        sums.sum(COUNTS, counts)
    }

    /// Adds the confusion matrix; for labels their counts, which hold the matrices.
    pub(crate) fn add_matrix(
        &self,
        sums: &mut Accumulator,
        observation: &Observation,
    ) -> Result<(), MetricError> {
        let Task::Multiclass { classes } = self.task else { return self.add(sums, observation) };
        let input = ClassInput::read(observation, self.task, self.ignore_index)?;
        let decisions = input.decisions(self.threshold, self.top_k)?;
        input.count_invalid(sums)?;
        let row = input.targets.clone().mul_scalar(classes)?;
        let places = dropped_unless(input.valid, row.add(decisions)?, classes * classes)?;
        sums.sum(MATRIX, occurrences(places, classes * classes)?)
    }

    /// Returns the counts of each class; none without items.
    pub(crate) fn counts(&self, sums: &mut Accumulator) -> Result<Vec<ClassCounts>, MetricError> {
        refuse_invalid(sums, self.task, self.ignore_index)?;
        let numbers = sums.totals(COUNTS)?;
        let classes = numbers.len() / 4;
        let count = |class: usize| {
            let row = |row: usize| numbers[row * classes + class];
            let (hits, predicted, support, items) = (row(0), row(1), row(2), row(3));
            ClassCounts {
                true_positives: hits,
                false_positives: predicted - hits,
                true_negatives: items - predicted - support + hits,
                false_negatives: support - hits,
            }
        };
        let counts: Vec<ClassCounts> = (0..classes).map(count).collect();
        Ok(if counts.iter().all(|class| class.items() == 0.0) { Vec::new() } else { counts })
    }

    /// Returns the confusion matrices with a row for each actual class: one for classes, one for each label.
    pub(crate) fn matrices(&self, sums: &mut Accumulator) -> Result<Vec<Vec<f64>>, MetricError> {
        let Task::Multiclass { .. } = self.task else {
            let matrix = |c: ClassCounts| {
                vec![c.true_negatives, c.false_positives, c.false_negatives, c.true_positives]
            };
            return Ok(self.counts(sums)?.into_iter().map(matrix).collect());
        };
        refuse_invalid(sums, self.task, self.ignore_index)?;
        let matrix = sums.totals(MATRIX)?;
        Ok(if matrix.iter().all(|&count| count == 0.0) { Vec::new() } else { vec![matrix.to_vec()] })
    }
}

/// Computes `i32[4 * classes]`: true positives, predictions, targets and items of each class.
fn class_counts(input: &ClassInput, decisions: AnyTensor, classes: usize) -> Result<AnyTensor, MetricError> {
    let bins = 3 * classes;
    let targets = input.targets.clone();
    let hits = decisions.clone().equal(targets.clone())?.logical_and(input.valid.clone())?;
    let places = [
        dropped_unless(hits, targets.clone(), bins)?,
        dropped_unless(input.valid.clone(), decisions.add_scalar(classes)?, bins)?,
        dropped_unless(input.valid.clone(), targets.add_scalar(2 * classes)?, bins)?,
    ];
    let counts = occurrences(AnyTensor::cat(places.into(), 0)?, bins)?;
    let items = input.valid.clone().cast(DType::I32)?.sum()?.reshape([1])?.expand([classes])?;
    Ok(AnyTensor::cat([counts, items].into(), 0)?)
}

/// Computes `i32[4 * labels]`: true positives, predictions, targets and items of each label.
fn label_counts(input: &ClassInput, decisions: AnyTensor) -> Result<AnyTensor, MetricError> {
    let labels = input.targets.shape()[1];
    let valid = input.valid.clone();
    let targets = input.targets.clone().cast(DType::Bool)?;
    let predicted = decisions.logical_and(valid.clone())?;
    let rows = [predicted.clone().logical_and(targets.clone())?, predicted, targets, valid];
    let sums = rows.into_iter().map(|row| row.cast(DType::I32)?.sum_dim(0)?.reshape([labels]));
    Ok(AnyTensor::cat(sums.collect::<Result<Vec<_>, _>>()?, 0)?)
}

/// Replaces the places that do not count by `bins`, which [`occurrences`] drops.
pub(in crate::metric) fn dropped_unless(
    valid: AnyTensor,
    places: AnyTensor,
    bins: usize,
) -> Result<AnyTensor, MetricError> {
    Ok(valid.logical_not()?.if_else_number(bins, places)?)
}

/// Counts how often each place `0..bins` occurs: `i32[bins]`. The place `bins` is not counted.
pub(in crate::metric) fn occurrences(places: AnyTensor, bins: usize) -> Result<AnyTensor, MetricError> {
    let ones = AnyTensor::ones(places.ty().with_dtype(DType::I32), places.stack())?;
    sums_at(places, ones, bins)
}

/// Sums the values at each place `0..bins`. Values at the place `bins` are dropped.
pub(in crate::metric) fn sums_at(
    places: AnyTensor,
    values: AnyTensor,
    bins: usize,
) -> Result<AnyTensor, MetricError> {
    let none = AnyTensor::zeros(values.ty().with_shape([bins + 1]), values.stack())?;
    Ok(none.put(0, places, values, UpdateMode::Add)?.narrow(0, 0, bins)?)
}

/// Averages the scores of classes. Without classes the value is NaN.
pub(super) fn averaged(
    counts: &[ClassCounts],
    average: Average,
    counter: &Counter,
    score: impl Fn(&ClassCounts) -> f64,
) -> MetricValue {
    if counts.is_empty() {
        return MetricValue::Scalar(f64::NAN);
    }
    if counter.task == Task::Binary {
        return MetricValue::Scalar(score(&counts[0]));
    }
    let is_absent = |c: &ClassCounts| match counter.task {
        Task::Binary | Task::Multilabel { .. } => false,
        Task::Multiclass { .. } if counter.top_k > 1 => c.support() == 0.0,
        Task::Multiclass { .. } => c.support() + c.false_positives == 0.0,
    };
    let mean = |weight: &dyn Fn(&ClassCounts) -> f64| {
        let total: f64 = counts.iter().map(weight).sum();
        let sum: f64 = counts.iter().filter(|c| weight(c) != 0.0).map(|c| weight(c) * score(c)).sum();
        MetricValue::Scalar(if total == 0.0 { 0.0 } else { sum / total })
    };
    match average {
        Average::Micro => {
            MetricValue::Scalar(score(&counts.iter().fold(ClassCounts::default(), ClassCounts::add)))
        }
        Average::Macro => mean(&|c| if is_absent(c) { 0.0 } else { 1.0 }),
        Average::Weighted => mean(&ClassCounts::support),
        Average::None => MetricValue::PerClass(counts.iter().map(score).collect()),
    }
}
