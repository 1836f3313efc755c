//! Confusion matrices and the coefficients of agreement that are computed from them.

use std::fmt::Debug;

use super::Task;
use super::count::Counter;
use super::rule::{CounterRule, LabelsRule, TaskRule};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::Observation;

/// The numbers by which the elements of a [`ConfusionMatrix`] are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalization {
    /// None: the elements are counts.
    #[default]
    None,
    /// The number of items with the target of the row.
    Targets,
    /// The number of items with the prediction of the column.
    Predictions,
    /// The number of items.
    All,
}

/// The weights of disagreements in [`CohenKappa`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KappaWeights {
    /// All disagreements weigh the same.
    #[default]
    None,
    /// The distance of the classes.
    Linear,
    /// The squared distance of the classes.
    Quadratic,
}

/// The values of a metric that is computed from confusion matrices.
pub trait MatrixFormula: Clone + Debug + Default + Send + 'static {
    /// The name of the metric.
    const NAME: &'static str;

    /// Computes the values from the matrices: one for classes, one for each label, none without items.
    fn values(&self, task: Task, matrices: Vec<Vec<f64>>, name: &str) -> MetricValues;
}

/// The rule of metrics that are computed from confusion matrices.
#[derive(Clone, Debug)]
pub struct MatrixRule<F> {
    formula: F,
    counter: Counter,
}

impl<F: MatrixFormula> MetricRule for MatrixRule<F> {
    fn name(&self) -> String {
        F::NAME.to_owned()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        self.counter.add_matrix(sums, observation)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        Ok(self.formula.values(self.counter.task, self.counter.matrices(sums)?, name))
    }
}

impl<F: MatrixFormula> TaskRule for MatrixRule<F> {
    fn of_task(task: Task) -> MatrixRule<F> {
        MatrixRule { formula: F::default(), counter: Counter::new(task) }
    }
}

impl<F: MatrixFormula> CounterRule for MatrixRule<F> {
    fn counter(&mut self) -> &mut Counter {
        &mut self.counter
    }
}

/// Confusion matrix, `confusion matrix`: the number of items for each target (row) and prediction (column). Elements
/// whose divisor is 0 are 0. Of several labels, the values are one 2 × 2 matrix for each, named such as
/// `confusion matrix 3`. Inputs and tasks: see the [module](super).
pub type ConfusionMatrix = Accumulated<MatrixRule<Normalization>>;

impl LabelsRule for MatrixRule<Normalization> {}

impl ConfusionMatrix {
    kiln_ir::setters! {
        /// Divides the elements by numbers of items. Default: none.
        normalized(normalization: Normalization) => rule.formula = normalization;
    }
}

impl MatrixFormula for Normalization {
    const NAME: &'static str = "confusion matrix";

    fn values(&self, task: Task, matrices: Vec<Vec<f64>>, name: &str) -> MetricValues {
        let classes = task.label_range();
        let matrix = |elements| MetricValue::Matrix { rows: classes, columns: classes, elements };
        if matrices.is_empty() {
            return MetricValues::new().with(name, matrix(vec![f64::NAN; classes * classes]));
        }
        matrices.into_iter().enumerate().fold(MetricValues::new(), |values, (number, counts)| {
            let name = match task {
                Task::Binary | Task::Multiclass { .. } => name.to_owned(),
                Task::Multilabel { .. } => format!("{name} {number}"),
            };
            values.with(name, matrix(normalized(&counts, classes, *self)))
        })
    }
}

fn normalized(counts: &[f64], classes: usize, normalization: Normalization) -> Vec<f64> {
    let (targets, predictions) = margins(counts, classes);
    let total: f64 = counts.iter().sum();
    let divisor = |place: usize| match normalization {
        Normalization::None => 1.0,
        Normalization::Targets => targets[place / classes],
        Normalization::Predictions => predictions[place % classes],
        Normalization::All => total,
    };
    let element = |(place, &count): (usize, &f64)| if count == 0.0 { 0.0 } else { count / divisor(place) };
    counts.iter().enumerate().map(element).collect()
}

/// Returns the sums of the rows and of the columns.
fn margins(counts: &[f64], classes: usize) -> (Vec<f64>, Vec<f64>) {
    let row = |row: usize| counts[row * classes..(row + 1) * classes].iter().sum();
    let column = |column: usize| (0..classes).map(|row| counts[row * classes + column]).sum();
    ((0..classes).map(row).collect(), (0..classes).map(column).collect())
}

/// Cohen's kappa, `cohen kappa`: `1 − Σ w o / Σ w e`, with the observed counts `o`, those expected of independent
/// predictions `e` and the weights of disagreements `w`. From −1 to 1; 0 is agreement by chance, NaN where no
/// disagreement is expected. Inputs and tasks: see the [module](super).
pub type CohenKappa = Accumulated<MatrixRule<KappaWeights>>;

impl CohenKappa {
    kiln_ir::setters! {
        /// Sets the weights of disagreements. Default: all weigh the same.
        weights(weights: KappaWeights) => rule.formula = weights;
    }
}

impl MatrixFormula for KappaWeights {
    const NAME: &'static str = "cohen kappa";

    fn values(&self, task: Task, matrices: Vec<Vec<f64>>, name: &str) -> MetricValues {
        let kappa = |counts: &Vec<f64>| kappa(counts, task.label_range(), *self);
        MetricValues::scalar(name, matrices.first().map_or(f64::NAN, kappa))
    }
}

fn kappa(counts: &[f64], classes: usize, weights: KappaWeights) -> f64 {
    let (targets, predictions) = margins(counts, classes);
    let total: f64 = counts.iter().sum();
    let (mut observed, mut expected) = (0.0, 0.0);
    for (place, &count) in counts.iter().enumerate() {
        let (row, column) = (place / classes, place % classes);
        let distance = row.abs_diff(column) as f64;
        let weight = match weights {
            KappaWeights::None => distance.min(1.0),
            KappaWeights::Linear => distance,
            KappaWeights::Quadratic => distance * distance,
        };
        observed += weight * count;
        expected += weight * targets[row] * predictions[column] / total;
    }
    1.0 - observed / expected
}

/// Matthews correlation coefficient (φ), `matthews correlation coefficient`: the correlation of targets and
/// predictions, from −1 to 1. It is 0 if all targets or all predictions are of one class, as in
/// [scikit-learn](https://scikit-learn.org/stable/modules/generated/sklearn.metrics.matthews_corrcoef.html). The labels
/// of a multilabel task are items of one binary task. Inputs and tasks: see the [module](super).
pub type MatthewsCorrelationCoefficient = Accumulated<MatrixRule<Matthews>>;

/// The formula of [`MatthewsCorrelationCoefficient`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Matthews;

impl LabelsRule for MatrixRule<Matthews> {}

impl MatrixFormula for Matthews {
    const NAME: &'static str = "matthews correlation coefficient";

    fn values(&self, task: Task, matrices: Vec<Vec<f64>>, name: &str) -> MetricValues {
        let classes = task.label_range();
        let mut sum = vec![0.0; classes * classes];
        for counts in matrices {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        MetricValues::scalar(name, correlation(&sum, classes))
    }
}

/// The formula of Gorodkin (2004) for any number of classes.
fn correlation(counts: &[f64], classes: usize) -> f64 {
    let (targets, predictions) = margins(counts, classes);
    let total: f64 = counts.iter().sum();
    if total == 0.0 {
        return f64::NAN;
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let correct: f64 = (0..classes).map(|class| counts[class * (classes + 1)]).sum();
    let covariance = correct * total - dot(&targets, &predictions);
    let of_predictions = total * total - dot(&predictions, &predictions);
    let of_targets = total * total - dot(&targets, &targets);
    if of_predictions == 0.0 || of_targets == 0.0 {
        return 0.0;
    }
    covariance / (of_predictions * of_targets).sqrt()
}
