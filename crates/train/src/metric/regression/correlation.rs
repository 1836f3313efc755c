//! Explained variance and coefficients of correlation.

use std::fmt::Debug;

use super::moments::{self, Moments};
use crate::error::MetricError;
use crate::metric::accumulated::plain_metrics;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
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

/// The score of the moments of an output.
pub trait MomentScore: Clone + Debug + Send + 'static {
    /// The name of the metric.
    const NAME: &'static str;

    /// Returns the score.
    fn of(&self, moments: &Moments) -> f64;
}

/// The rule of metrics that average a score over outputs.
#[derive(Clone, Debug, Default)]
pub struct MomentRule<S> {
    score: S,
    average: OutputAverage,
}

impl<S: MomentScore> Accumulated<MomentRule<S>> {
    kiln_ir::setters! {
        /// Sets the average over outputs. Default: uniform.
        average(average: OutputAverage) => rule.average = average;
    }
}

impl<S: MomentScore> MetricRule for MomentRule<S> {
    fn name(&self) -> String {
        S::NAME.to_owned()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        moments::add(sums, observation)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let moments = moments::combined(sums)?;
        let value = self.average.of(moments.iter().map(|moments| self.score.of(moments)).collect(), &moments);
        Ok(MetricValues::new().with(name, value))
    }
}

macro_rules! moment_metrics {
    ($($(#[$meta:meta])* $metric:ident, $name:literal, $score:expr;)*) => {
        mod score {$(
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $metric;
        )*}

        $(
            $(#[$meta])*
            pub type $metric = Accumulated<MomentRule<score::$metric>>;

            impl MomentScore for score::$metric {
                const NAME: &'static str = $name;

                fn of(&self, moments: &Moments) -> f64 {
                    let score: fn(&Moments) -> f64 = $score;
                    score(moments)
                }
            }
        )*
    };
}

moment_metrics! {
    /// Explained variance, `explained variance`: `1 − Var(t − p) / Var(t)`, at most 1. For constant targets it is 1 if
    /// the residuals are constant too, otherwise 0. Inputs `[batch]` or `[batch, outputs]`: see the [module](super).
    ExplainedVariance, "explained variance", |m| one_minus(m.residual_squares, m.target_squares);

    /// Pearson correlation, `pearson correlation`: `Cov(p, t) / √(Var(p) Var(t))`, from −1 to 1; NaN for constant
    /// predictions or targets. Inputs `[batch]` or `[batch, outputs]`: see the [module](super).
    PearsonCorrelation, "pearson correlation", |m| {
        m.products / (m.prediction_squares.sqrt() * m.target_squares.sqrt())
    };

    /// Concordance correlation, `concordance correlation`: `2 Cov(p, t) / (Var(p) + Var(t) + (E p − E t)²)` with
    /// unbiased variances, from −1 to 1 (Lin, 1989). Inputs `[batch]` or `[batch, outputs]`: see the [module](super).
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

/// Coefficient of determination R², `r2`: `1 − Σ (t − p)² / Σ (t − E t)²`, at most 1. For constant targets it is 1 if
/// all predictions are exact, otherwise 0. NaN for less than 2 items. Inputs `[batch]` or `[batch, outputs]`: see the
/// [module](super).
pub type R2Score = Accumulated<MomentRule<R2>>;

/// The score of [`R2Score`].
#[derive(Clone, Copy, Debug, Default)]
pub struct R2 {
    regressors: usize,
}

impl R2Score {
    kiln_ir::setters! {
        /// Adjusts the score for a number of independent regressors: `1 − (1 − R²) (n − 1) / (n − regressors − 1)`. No
        /// effect unless there are more items than `regressors + 1`. Default: 0.
        adjusted(regressors: usize) => rule.score.regressors = regressors;
    }
}

impl MomentScore for R2 {
    const NAME: &'static str = "r2";

    fn of(&self, moments: &Moments) -> f64 {
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

plain_metrics! {
    /// Spearman correlation, `spearman correlation`: the Pearson correlation of ranks, from −1 to 1; equal numbers
    /// share the mean of their ranks. NaN for constant predictions or targets. All numbers are kept until the metric is
    /// reset. Inputs `[batch]` or `[batch, outputs]`: see the [module](super); of several outputs the value is the
    /// mean.
    SpearmanCorrelation, "spearman correlation", higher is better: true, add_numbers, rank_correlation;
}

fn add_numbers(sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
    let (predictions, targets) = moments::outputs(observation)?;
    sums.count("items", predictions.shape()[0] as f64);
    sums.append("predictions", predictions)?;
    sums.append("targets", targets)
}

fn rank_correlation(sums: &mut Accumulator) -> Result<f64, MetricError> {
    let items = sums.total("items")?;
    let predictions = sums.numbers("predictions")?.to_vec();
    let targets = sums.numbers("targets")?;
    let outputs = if items > 0.0 { targets.len() / items as usize } else { 0 };
    let column = |numbers: &[f64], output: usize| ranks(numbers.iter().skip(output).step_by(outputs));
    let of_output = |output| correlation(&column(&predictions, output), &column(targets, output));
    let sum: f64 = (0..outputs).map(of_output).sum();
    Ok(sum / outputs as f64)
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
