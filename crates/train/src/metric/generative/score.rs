//! Inception score.

use super::Features;
use super::kernel::mean_and_deviation;
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::{Observation, PREDICTIONS};

/// Inception score (Salimans et al., "Improved techniques for training GANs", 2016): `exp(E[KL(p(y|x) ‖ p(y))])` of the
/// classes `y` of generated images `x`, averaged over parts of the images.
///
/// Input: [`PREDICTIONS`](crate::PREDICTIONS), the generated images, from which [`Features`] computes the logits
/// `[batch, classes]` of a classifier. Values: `inception_score`, from 1 to the number of classes, and
/// `inception_score_std`, the standard deviation over parts. Parts are consecutive, as in the paper's program;
/// `torchmetrics.image.inception.InceptionScore` shuffles the images first.
pub type InceptionScore = Accumulated<InceptionRule>;

/// The rule of [`InceptionScore`].
#[derive(Clone, Debug)]
pub struct InceptionRule {
    features: Features,
    splits: usize,
}

/// [`InceptionScore`] under a name like those of Burn's metrics.
pub type InceptionScoreMetric = InceptionScore;

impl InceptionScore {
    /// Returns the metric `inception_score` of logits.
    pub fn new(features: Features) -> InceptionScore {
        InceptionScore::of(InceptionRule { features, splits: 10 })
    }

    kiln_ir::setters! {
        /// Sets the number of parts. Default: 10. There are not more than images.
        splits(splits: usize) => rule.splits = splits.max(1);
    }
}

impl MetricRule for InceptionRule {
    crate::metric::facts!("inception_score");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let logits = self.features.of(observation.tensor(PREDICTIONS)?)?;
        sums.count("images", logits.shape()[0] as f64);
        sums.append("logits", logits)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let count = sums.total("images")?;
        let images = if count.is_nan() { 0 } else { count as usize };
        let logits = sums.numbers("logits")?;
        let classes = logits.len().checked_div(images).unwrap_or(0);
        let splits = self.splits.min(images);
        let part = |split: usize| {
            let place = |split: usize| split * images / splits * classes;
            score(&logits[place(split)..place(split + 1)], classes)
        };
        let scores: Vec<f64> = (0..splits).map(part).collect();
        let (mean, deviation) = mean_and_deviation(&scores);
        Ok(MetricValues::scalar(name, mean).with(format!("{name}_std"), MetricValue::Scalar(deviation)))
    }
}

/// The score of rows of logits.
fn score(logits: &[f64], classes: usize) -> f64 {
    let logs: Vec<Vec<f64>> = logits.chunks(classes.max(1)).map(log_softmax).collect();
    let mut marginal = vec![0.0; classes];
    for log in &logs {
        marginal.iter_mut().zip(log).for_each(|(total, log)| *total += log.exp() / logs.len() as f64);
    }
    let divergence = |log: &Vec<f64>| -> f64 {
        log.iter()
            .zip(&marginal)
            .filter(|(log, _)| log.exp() > 0.0)
            .map(|(log, p)| log.exp() * (log - p.ln()))
            .sum()
    };
    (logs.iter().map(divergence).sum::<f64>() / logs.len() as f64).exp()
}

fn log_softmax(row: &[f64]) -> Vec<f64> {
    let greatest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_total = row.iter().map(|logit| (logit - greatest).exp()).sum::<f64>().ln();
    row.iter().map(|logit| logit - greatest - log_total).collect()
}
