//! The numbers of records, as curves and tables show them.

use crate::metric::MetricValue;
use crate::record::{Record, StepRecord, ValuesRecord};

/// The split of numbers of single training steps. [`Split::Train`](crate::Split::Train) has the metrics over epochs.
pub const STEP: &str = "step";

/// A number of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Optimizer steps since training began. A number of training step `i`, counted from 0, is at `i + 1`, so that it
    /// has the same position as metrics that are computed after this step.
    pub step: u64,
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// [`STEP`] for numbers of one training step, `train`, or the name of the validation set.
    pub split: String,
    /// The name, such as `loss`, `learning_rate` or `f1/2` for the class 2.
    pub name: String,
    /// The number.
    pub value: f64,
}

/// Returns the numbers of a record: the numbers and learning rates of a step, and the scalars and numbers per class of
/// complete metrics.
///
/// A learning rate is named `learning_rate/OPTIMIZER`, or `learning_rate` where the optimizer has no name. Values of an
/// incomplete pass are left out, because curves would contain a pass several times.
pub fn points(record: &Record) -> Vec<Point> {
    if let Record::Step(step) = record {
        return step_points(step);
    }
    if let Record::Values(values) = record
        && values.complete
    {
        return values_points(values);
    }
    Vec::new()
}

fn step_points(record: &StepRecord) -> Vec<Point> {
    let point = |step: u64, name: String, value: f64| Point {
        step: step + 1,
        epoch: record.epoch,
        split: STEP.to_owned(),
        name,
        value,
    };
    let rates =
        record.learning_rates.iter().map(|(name, rate)| point(record.step, learning_rate(name), *rate));
    let values = record.values.iter().map(|(name, value)| point(record.step, name.clone(), *value));
    values.chain(rates).collect()
}

fn learning_rate(optimizer: &str) -> String {
    match optimizer {
        "" => "learning_rate".to_owned(),
        name => format!("learning_rate/{name}"),
    }
}

fn values_points(record: &ValuesRecord) -> Vec<Point> {
    let point = |name: String, value: f64| Point {
        step: record.step,
        epoch: record.epoch,
        split: record.split.name().to_owned(),
        name,
        value,
    };
    let mut points = Vec::new();
    for (name, value) in &record.values {
        if let MetricValue::Scalar(value) = value {
            points.push(point(name.clone(), *value));
        } else if let MetricValue::PerClass(values) = value {
            let classes = values.iter().enumerate();
            points.extend(classes.map(|(class, value)| point(format!("{name}/{class}"), *value)));
        }
    }
    points
}
