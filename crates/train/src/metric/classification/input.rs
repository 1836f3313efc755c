//! The inputs of metrics of classification: scores, targets, and the items that count.

use kiln_tensor::{AnyTensor, DType};

use super::Task;
use crate::error::MetricError;
use crate::metric::Accumulator;
use crate::metric::accuracy::hits;
use crate::metric::shape::{columns_last, require_shape_of, wide, wrong_shape};
use crate::observation::{LOGITS, Observation, PREDICTIONS, TARGETS};

/// The checked inputs of a batch. The columns of binary classification are one label.
pub(in crate::metric) struct ClassInput {
    /// Scores `[items, classes]` or `[items, labels]`, or predicted classes of the shape of the targets.
    scores: Scores,
    /// `i32[items]` classes or `i32[items, labels]` of 0 and 1; 0 where an item does not count.
    pub targets: AnyTensor,
    /// Whether each target counts: it is in range and not ignored.
    pub valid: AnyTensor,
    /// Whether each target is out of range.
    invalid_targets: AnyTensor,
    task: Task,
}

enum Scores {
    Logits(AnyTensor),
    Probabilities(AnyTensor),
    Labels(AnyTensor),
}

/// The names of sums of labels out of range, which [`refuse_invalid`] reports.
const INVALID_TARGETS: &str = "invalid targets";
const INVALID_PREDICTIONS: &str = "invalid predictions";

impl ClassInput {
    pub(crate) fn read(
        observation: &Observation,
        task: Task,
        ignore_index: Option<i64>,
    ) -> Result<ClassInput, MetricError> {
        let (name, scores) = named_scores(observation)?;
        let targets = observation.tensor(TARGETS)?;
        let (scores, targets) = match task {
            Task::Binary => binary(name, scores, targets)?,
            Task::Multiclass { classes } => multiclass(name, scores, targets, classes)?,
            Task::Multilabel { labels } => multilabel(name, scores, targets, labels)?,
        };
        let range = Range::new(&targets, task, ignore_index)?;
        let targets =
            range.valid.clone().if_else(targets.clone().cast(DType::I32)?, zeros_like(&targets)?)?;
        let scores = match name {
            LOGITS => Scores::Logits(wide(scores)?),
            _ if scores.dtype().is_float() => Scores::Probabilities(wide(scores)?),
            _ => Scores::Labels(scores),
        };
        Ok(ClassInput { scores, targets, valid: range.valid, invalid_targets: range.invalid, task })
    }

    /// Returns the probabilities `[items, classes]` or `[items, labels]`, those of logits by softmax or sigmoid.
    ///
    /// # Errors
    /// When the predictions are labels.
    pub(crate) fn probabilities(&self) -> Result<AnyTensor, MetricError> {
        match &self.scores {
            Scores::Probabilities(probabilities) => Ok(probabilities.clone()),
            Scores::Logits(logits) => match self.task {
                Task::Binary | Task::Multilabel { .. } => Ok(logits.clone().sigmoid()?),
                Task::Multiclass { .. } => Ok(logits.clone().softmax(1)?),
            },
            Scores::Labels(labels) => Err(MetricError::Input {
                name: PREDICTIONS,
                problem: format!("has dtype {}, expected probabilities in floating point", labels.dtype()),
            }),
        }
    }

    /// Returns predicted classes `i32[items]`, or whether each label is predicted, `bool[items, labels]`. With a
    /// `top_k` above 1, an item whose class is among the `k` highest scores is predicted correctly.
    pub(crate) fn decisions(&self, threshold: f64, top_k: usize) -> Result<AnyTensor, MetricError> {
        match self.task {
            Task::Binary | Task::Multilabel { .. } => match &self.scores {
                Scores::Labels(labels) => Ok(labels.clone().cast(DType::Bool)?),
                Scores::Logits(_) | Scores::Probabilities(_) => {
                    Ok(self.probabilities()?.greater_elem(threshold)?)
                }
            },
            Task::Multiclass { classes } => match &self.scores {
                Scores::Labels(labels) => {
                    let labels = labels.clone();
                    let inside = inside(&labels, classes)?;
                    Ok(inside.if_else(labels.clone().cast(DType::I32)?, zeros_like(&labels)?)?)
                }
                Scores::Logits(scores) | Scores::Probabilities(scores) => self.highest(scores.clone(), top_k),
            },
        }
    }

    /// Returns the sum of the logarithms of the probabilities of the targets, of several classes.
    pub(crate) fn log_likelihood(&self) -> Result<AnyTensor, MetricError> {
        let logarithms = match &self.scores {
            Scores::Logits(logits) => logits.clone().log_softmax(1)?,
            Scores::Probabilities(_) | Scores::Labels(_) => self.probabilities()?.log()?,
        };
        let items = self.targets.shape()[0];
        let of_targets = logarithms.gather(1, self.targets.clone().reshape([items, 1])?)?.reshape([items])?;
        Ok(self.valid.clone().logical_not()?.if_else_number(0.0, of_targets)?.sum()?)
    }

    fn highest(&self, scores: AnyTensor, top_k: usize) -> Result<AnyTensor, MetricError> {
        let items = self.targets.shape()[0];
        let first = scores.clone().argmax(1)?.reshape([items])?.cast(DType::I32)?;
        if top_k <= 1 {
            return Ok(first);
        }
        let hit = hits(scores, self.targets.clone().reshape([items, 1])?, top_k)?.reshape([items])?;
        Ok(hit.if_else(self.targets.clone(), first)?)
    }

    /// Counts the labels out of range. [`refuse_invalid`] returns the error when a value is read, so that adding a
    /// batch does not wait for the device.
    pub(crate) fn count_invalid(&self, accumulator: &mut Accumulator) -> Result<(), MetricError> {
        let count = |invalid: AnyTensor| invalid.cast(DType::I32)?.sum();
        accumulator.sum(INVALID_TARGETS, count(self.invalid_targets.clone())?)?;
        let Scores::Labels(labels) = &self.scores else { return Ok(()) };
        if labels.dtype().is_bool() {
            return Ok(());
        }
        let outside = inside(labels, self.task.label_range())?.logical_not()?;
        accumulator.sum(INVALID_PREDICTIONS, count(outside.logical_and(self.valid.clone())?)?)
    }
}

/// Returns an error when a batch had labels out of range.
pub(in crate::metric) fn refuse_invalid(
    accumulator: &mut Accumulator,
    task: Task,
    ignore_index: Option<i64>,
) -> Result<(), MetricError> {
    for (sum, name) in [(INVALID_TARGETS, TARGETS), (INVALID_PREDICTIONS, PREDICTIONS)] {
        let count = accumulator.total(sum)?;
        if count > 0.0 {
            let greatest = task.label_range() - 1;
            let or = ignore_index.map_or(String::new(), |index| format!(" or the ignored {index}"));
            let problem = format!("has {count} labels out of range, expected 0 to {greatest}{or}");
            return Err(MetricError::Input { name, problem });
        }
    }
    Ok(())
}

fn named_scores(observation: &Observation) -> Result<(&'static str, AnyTensor), MetricError> {
    if observation.tensors.contains_key(LOGITS) || !observation.tensors.contains_key(PREDICTIONS) {
        return Ok((LOGITS, observation.tensor(LOGITS)?));
    }
    Ok((PREDICTIONS, observation.tensor(PREDICTIONS)?))
}

type Pair = (AnyTensor, AnyTensor);

/// Returns scores and targets `[items, 1]`. Of two columns `[batch, 2]`, the second is the positive class.
fn binary(name: &'static str, scores: AnyTensor, targets: AnyTensor) -> Result<Pair, MetricError> {
    let items = targets.shape().num_elements();
    let two_columns = [items, 2];
    let is_flat = scores.shape().num_elements() == items;
    if !is_flat && scores.shape().to_vec() != two_columns {
        let expected = format!("that of `{TARGETS}`, {:?}, or {two_columns:?}", targets.shape().to_vec());
        return Err(wrong_shape(name, &scores, &expected));
    }
    let scores = if is_flat {
        scores
    } else {
        let positive = scores.clone().narrow(1, 1, 1)?;
        // The softmax of two logits is the sigmoid of their difference.
        if name == LOGITS { wide(positive)?.sub(wide(scores.narrow(1, 0, 1)?)?)? } else { positive }
    };
    Ok((scores.reshape([items, 1])?, targets.reshape([items, 1])?))
}

/// Returns scores `[items, classes]`, or predicted classes `[items]`, and targets `[items]`.
fn multiclass(
    name: &'static str,
    scores: AnyTensor,
    targets: AnyTensor,
    classes: usize,
) -> Result<Pair, MetricError> {
    let items = targets.shape().num_elements();
    if targets.dtype().is_float() {
        let problem = format!("has dtype {}, expected class indices", targets.dtype());
        return Err(MetricError::Input { name: TARGETS, problem });
    }
    if name == PREDICTIONS && !scores.dtype().is_float() {
        require_shape_of(name, &scores, (TARGETS, &targets))?;
        return Ok((scores.reshape([items])?, targets.reshape([items])?));
    }
    let mut expected = targets.shape().to_vec();
    expected.insert(1.min(expected.len()), classes);
    if scores.shape().to_vec() != expected {
        return Err(wrong_shape(name, &scores, &format!("{expected:?} for {classes} classes")));
    }
    Ok((columns_last(scores)?, targets.reshape([items])?))
}

/// Returns scores and targets `[items, labels]`.
fn multilabel(
    name: &'static str,
    scores: AnyTensor,
    targets: AnyTensor,
    labels: usize,
) -> Result<Pair, MetricError> {
    if targets.shape().get(1) != Some(&labels) {
        return Err(wrong_shape(TARGETS, &targets, &format!("[batch, {labels}, ..] for {labels} labels")));
    }
    require_shape_of(name, &scores, (TARGETS, &targets))?;
    Ok((columns_last(scores)?, columns_last(targets)?))
}

struct Range {
    valid: AnyTensor,
    invalid: AnyTensor,
}

impl Range {
    fn new(targets: &AnyTensor, task: Task, ignore_index: Option<i64>) -> Result<Range, MetricError> {
        let inside = inside(targets, task.label_range())?;
        let Some(index) = ignore_index else {
            return Ok(Range { valid: inside.clone(), invalid: inside.logical_not()? });
        };
        let ignored = numbers(targets)?.equal_elem(index)?;
        let valid = inside.clone().logical_and(ignored.clone().logical_not()?)?;
        Ok(Range { valid, invalid: inside.logical_or(ignored)?.logical_not()? })
    }
}

/// Returns whether each label is an integer from 0 to `count - 1`.
fn inside(labels: &AnyTensor, count: usize) -> Result<AnyTensor, MetricError> {
    let labels = numbers(labels)?;
    let above = labels.clone().greater_equal_elem(0)?;
    let inside = above.logical_and(labels.clone().lower_elem(count)?)?;
    if !labels.dtype().is_float() {
        return Ok(inside);
    }
    Ok(inside.logical_and(labels.clone().floor()?.equal(labels)?)?)
}

fn numbers(labels: &AnyTensor) -> Result<AnyTensor, MetricError> {
    let labels = labels.clone();
    Ok(if labels.dtype().is_bool() { labels.cast(DType::I32)? } else { labels })
}

fn zeros_like(tensor: &AnyTensor) -> Result<AnyTensor, MetricError> {
    Ok(AnyTensor::zeros(tensor.ty().with_dtype(DType::I32), tensor.stack())?)
}
