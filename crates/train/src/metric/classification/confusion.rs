//! Confusion matrices and the coefficients of agreement that are computed from them.

use super::Task;
use super::count::Counter;
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValue, MetricValues};
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

/// Confusion matrix: the number of items for each target (row) and prediction (column). Elements whose divisor is 0 are
/// 0. Of several labels, the values are one 2 × 2 matrix for each, named such as `confusion matrix 3`. Inputs and
/// tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct ConfusionMatrix {
    name: String,
    normalization: Normalization,
    counter: Counter,
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

/// Cohen's kappa: `1 − Σ w o / Σ w e`, with the observed counts `o`, those expected of independent predictions `e` and
/// the weights of disagreements `w`. From −1 to 1; 0 is agreement by chance, NaN where no disagreement is expected.
/// Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct CohenKappa {
    name: String,
    weights: KappaWeights,
    counter: Counter,
}

/// Matthews correlation coefficient (φ): the correlation of targets and predictions, from −1 to 1. It is 0 if all
/// targets or all predictions are of one class, as in
/// [scikit-learn](https://scikit-learn.org/stable/modules/generated/sklearn.metrics.matthews_corrcoef.html). The labels
/// of a multilabel task are items of one binary task. Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct MatthewsCorrelationCoefficient {
    name: String,
    counter: Counter,
}

macro_rules! matrix_metric {
    ($metric:ident) => {
        impl $metric {
            /// Returns the metric of one label of 0 or 1.
            pub fn binary() -> $metric {
                $metric::new(Task::Binary)
            }

            /// Returns the metric of a number of classes.
            pub fn multiclass(classes: usize) -> $metric {
                $metric::new(Task::Multiclass { classes })
            }

            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.name = name.into();
                self
            }

            /// Sets the probability above which a label is predicted. Default: 0.5.
            #[must_use]
            pub fn threshold(mut self, threshold: f64) -> $metric {
                self.counter.threshold = threshold;
                self
            }

            /// Leaves out targets of this value. Default: none.
            #[must_use]
            pub fn ignore_index(mut self, index: i64) -> $metric {
                self.counter.ignore_index = Some(index);
                self
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.counter.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                self.counter.add_matrix(observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                self.computed()
            }
        }
    };
}

matrix_metric!(ConfusionMatrix);
matrix_metric!(CohenKappa);
matrix_metric!(MatthewsCorrelationCoefficient);

impl ConfusionMatrix {
    /// Returns the metric of a number of labels of 0 or 1.
    pub fn multilabel(labels: usize) -> ConfusionMatrix {
        ConfusionMatrix::new(Task::Multilabel { labels })
    }

    fn new(task: Task) -> ConfusionMatrix {
        let name = "confusion matrix".to_owned();
        ConfusionMatrix { name, normalization: Normalization::None, counter: Counter::new(task) }
    }

    /// Divides the elements by numbers of items. Default: none.
    #[must_use]
    pub fn normalized(mut self, normalization: Normalization) -> ConfusionMatrix {
        self.normalization = normalization;
        self
    }

    fn computed(&mut self) -> Result<MetricValues, MetricError> {
        let classes = self.counter.task.label_range();
        let matrices = self.counter.matrices()?;
        let named = |number: usize| match self.counter.task {
            Task::Binary | Task::Multiclass { .. } => self.name.clone(),
            Task::Multilabel { .. } => format!("{} {number}", self.name),
        };
        if matrices.is_empty() {
            let elements = vec![f64::NAN; classes * classes];
            let value = MetricValue::Matrix { rows: classes, columns: classes, elements };
            return Ok(MetricValues::new().with(self.name.clone(), value));
        }
        Ok(matrices.into_iter().enumerate().fold(MetricValues::new(), |values, (number, counts)| {
            let elements = normalized(&counts, classes, self.normalization);
            values.with(named(number), MetricValue::Matrix { rows: classes, columns: classes, elements })
        }))
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

impl CohenKappa {
    fn new(task: Task) -> CohenKappa {
        let name = "cohen kappa".to_owned();
        CohenKappa { name, weights: KappaWeights::None, counter: Counter::new(task) }
    }

    /// Sets the weights of disagreements. Default: all weigh the same.
    #[must_use]
    pub fn weights(mut self, weights: KappaWeights) -> CohenKappa {
        self.weights = weights;
        self
    }

    fn computed(&mut self) -> Result<MetricValues, MetricError> {
        let classes = self.counter.task.label_range();
        let matrices = self.counter.matrices()?;
        let kappa = matrices.first().map_or(f64::NAN, |counts| kappa(counts, classes, self.weights));
        Ok(MetricValues::scalar(self.name.clone(), kappa))
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

impl MatthewsCorrelationCoefficient {
    /// Returns the metric of a number of labels of 0 or 1.
    pub fn multilabel(labels: usize) -> MatthewsCorrelationCoefficient {
        MatthewsCorrelationCoefficient::new(Task::Multilabel { labels })
    }

    fn new(task: Task) -> MatthewsCorrelationCoefficient {
        let name = "matthews correlation coefficient".to_owned();
        MatthewsCorrelationCoefficient { name, counter: Counter::new(task) }
    }

    fn computed(&mut self) -> Result<MetricValues, MetricError> {
        let classes = self.counter.task.label_range();
        let mut sum = vec![0.0; classes * classes];
        for counts in self.counter.matrices()? {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(MetricValues::scalar(self.name.clone(), correlation(&sum, classes)))
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
