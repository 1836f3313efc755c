//! Explained variance and coefficients of correlation.

use super::moments::{self, Moments};
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValue, MetricValues};
use crate::observation::Observation;

/// The average over the outputs of `[batch, outputs]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputAverage {
    /// The mean.
    #[default]
    Uniform,
    /// The mean, weighted by the variances of the targets.
    VarianceWeighted,
    /// No average: a value for each output, except of a single one.
    None,
}

impl OutputAverage {
    fn of(self, scores: Vec<f64>, moments: &[Moments]) -> MetricValue {
        let count = scores.len() as f64;
        match self {
            OutputAverage::None if scores.len() > 1 => MetricValue::PerClass(scores),
            OutputAverage::Uniform | OutputAverage::None => MetricValue::Scalar(if scores.is_empty() {
                f64::NAN
            } else {
                scores.iter().sum::<f64>() / count
            }),
            OutputAverage::VarianceWeighted => {
                let total: f64 = moments.iter().map(|m| m.target_squares).sum();
                let weighted = scores.iter().zip(moments).map(|(score, m)| score * m.target_squares);
                MetricValue::Scalar(weighted.sum::<f64>() / total)
            }
        }
    }
}

macro_rules! moment_metrics {
    ($($(#[$meta:meta])* $metric:ident, $name:literal, $score:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $metric {
            name: String,
            average: OutputAverage,
            accumulator: Accumulator,
        }

        impl $metric {
            #[doc = concat!("Returns the metric, named `", $name, "`.")]
            pub fn new() -> $metric {
                $metric { name: $name.to_owned(), average: OutputAverage::Uniform, accumulator: Accumulator::new() }
            }

            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.name = name.into();
                self
            }

            /// Sets the average over outputs. Default: uniform.
            #[must_use]
            pub fn average(mut self, average: OutputAverage) -> $metric {
                self.average = average;
                self
            }
        }

        impl Default for $metric {
            fn default() -> $metric {
                $metric::new()
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                moments::add(&mut self.accumulator, observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                let moments = moments::combined(&mut self.accumulator)?;
                let score: fn(&Moments) -> f64 = $score;
                let value = self.average.of(moments.iter().map(score).collect(), &moments);
                Ok(MetricValues::new().with(self.name.clone(), value))
            }
        }
    )*};
}

moment_metrics! {
    /// Explained variance: `1 − Var(t − p) / Var(t)`, at most 1. For constant targets it is 1 if the residuals are
    /// constant too, otherwise 0. Inputs `[batch]` or `[batch, outputs]`: see the [module](super).
    ExplainedVariance, "explained variance", |m| one_minus(m.residual_squares, m.target_squares);

    /// Pearson correlation: `Cov(p, t) / √(Var(p) Var(t))`, from −1 to 1; NaN for constant predictions or targets.
    /// Inputs `[batch]` or `[batch, outputs]`: see the [module](super).
    PearsonCorrelation, "pearson correlation", |m| {
        m.products / (m.prediction_squares.sqrt() * m.target_squares.sqrt())
    };

    /// Concordance correlation: `2 Cov(p, t) / (Var(p) + Var(t) + (E p − E t)²)` with unbiased variances, from −1 to 1
    /// (Lin, 1989). Inputs `[batch]` or `[batch, outputs]`: see the [module](super).
    ConcordanceCorrelation, "concordance correlation", |m| {
        let distance = m.prediction_mean - m.target_mean;
        2.0 * m.products / (m.prediction_squares + m.target_squares + distance * distance * (m.items - 1.0))
    };
}

/// Returns `1 − error / total`; without a total, 1 if there is no error and otherwise 0.
fn one_minus(error: f64, total: f64) -> f64 {
    match (error == 0.0, total == 0.0) {
        (true, true) => 1.0,
        (false, true) => 0.0,
        (true | false, false) => 1.0 - error / total,
    }
}

/// Coefficient of determination R²: `1 − Σ (t − p)² / Σ (t − E t)²`, at most 1. For constant targets it is 1 if all
/// predictions are exact, otherwise 0. NaN for less than 2 items. Inputs `[batch]` or `[batch, outputs]`: see the
/// [module](super).
#[derive(Clone, Debug)]
pub struct R2Score {
    name: String,
    average: OutputAverage,
    regressors: usize,
    accumulator: Accumulator,
}

impl R2Score {
    /// Returns the metric, named `r2`.
    pub fn new() -> R2Score {
        let accumulator = Accumulator::new();
        R2Score { name: "r2".to_owned(), average: OutputAverage::Uniform, regressors: 0, accumulator }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> R2Score {
        self.name = name.into();
        self
    }

    /// Sets the average over outputs. Default: uniform.
    #[must_use]
    pub fn average(mut self, average: OutputAverage) -> R2Score {
        self.average = average;
        self
    }

    /// Adjusts the score for a number of independent regressors: `1 − (1 − R²) (n − 1) / (n − regressors − 1)`. No
    /// effect unless there are more items than `regressors + 1`. Default: 0.
    #[must_use]
    pub fn adjusted(mut self, regressors: usize) -> R2Score {
        self.regressors = regressors;
        self
    }

    fn score(&self, moments: &Moments) -> f64 {
        let (items, regressors) = (moments.items, self.regressors as f64);
        if items < 2.0 {
            return f64::NAN;
        }
        let bias = moments.residual_mean;
        let score = one_minus(moments.residual_squares + items * bias * bias, moments.target_squares);
        if regressors == 0.0 || items <= regressors + 1.0 {
            return score;
        }
        1.0 - (1.0 - score) * (items - 1.0) / (items - regressors - 1.0)
    }
}

impl Default for R2Score {
    fn default() -> R2Score {
        R2Score::new()
    }
}

impl AccumulatedMetric for R2Score {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        moments::add(&mut self.accumulator, observation)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let moments = moments::combined(&mut self.accumulator)?;
        let value = self.average.of(moments.iter().map(|moments| self.score(moments)).collect(), &moments);
        Ok(MetricValues::new().with(self.name.clone(), value))
    }
}

/// Spearman correlation: the Pearson correlation of ranks, from −1 to 1; equal numbers share the mean of their ranks.
/// NaN for constant predictions or targets. All numbers are kept until the metric is reset. Inputs `[batch]` or
/// `[batch, outputs]`: see the [module](super); of several outputs the value is the mean.
#[derive(Clone, Debug)]
pub struct SpearmanCorrelation {
    name: String,
    accumulator: Accumulator,
}

impl SpearmanCorrelation {
    /// Returns the metric, named `spearman correlation`.
    pub fn new() -> SpearmanCorrelation {
        SpearmanCorrelation { name: "spearman correlation".to_owned(), accumulator: Accumulator::new() }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> SpearmanCorrelation {
        self.name = name.into();
        self
    }
}

impl Default for SpearmanCorrelation {
    fn default() -> SpearmanCorrelation {
        SpearmanCorrelation::new()
    }
}

impl AccumulatedMetric for SpearmanCorrelation {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let (predictions, targets) = moments::outputs(observation)?;
        self.accumulator.count("items", predictions.shape()[0] as f64);
        self.accumulator.append("predictions", predictions)?;
        self.accumulator.append("targets", targets)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let items = self.accumulator.total("items")?;
        let predictions = self.accumulator.numbers("predictions")?.to_vec();
        let targets = self.accumulator.numbers("targets")?;
        let outputs = if items > 0.0 { targets.len() / items as usize } else { 0 };
        let column = |numbers: &[f64], output: usize| ranks(numbers.iter().skip(output).step_by(outputs));
        let of_output = |output| correlation(&column(&predictions, output), &column(targets, output));
        let sum: f64 = (0..outputs).map(of_output).sum();
        Ok(MetricValues::scalar(self.name.clone(), sum / outputs as f64))
    }
}

/// Returns the ranks of numbers from 1 on, the mean rank for equal numbers. NaN numbers have the rank NaN.
fn ranks<'a>(numbers: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let numbers: Vec<f64> = numbers.copied().collect();
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut ranks = vec![f64::NAN; numbers.len()];
    let mut before = 0.0;
    for group in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        let count = group.len() as f64;
        for &item in group.iter().filter(|&&item| !numbers[item].is_nan()) {
            ranks[item] = before + (count + 1.0) / 2.0;
        }
        before += count;
    }
    ranks
}

fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let count = x.len() as f64;
    let (x_mean, y_mean) = (x.iter().sum::<f64>() / count, y.iter().sum::<f64>() / count);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x - x_mean, y - y_mean);
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    xy / (xx.sqrt() * yy.sqrt())
}
