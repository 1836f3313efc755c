//! Means, variances and covariances of predictions and targets over batches.

use kiln_tensor::AnyTensor;

use super::pair;
use crate::error::MetricError;
use crate::metric::Accumulator;
use crate::metric::shape::wrong_shape;
use crate::observation::{Observation, PREDICTIONS};

/// The moments of one output over all items. Sums of squares and products are of differences to the means.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    pub items: f64,
    pub prediction_mean: f64,
    pub target_mean: f64,
    /// The mean of target minus prediction.
    pub residual_mean: f64,
    pub prediction_squares: f64,
    pub target_squares: f64,
    pub residual_squares: f64,
    /// The sum of products of prediction and target.
    pub products: f64,
}

const ITEMS: &str = "items";
const MOMENTS: &str = "moments";

/// Numbers of an output in a batch.
const NUMBERS: usize = 7;

/// Returns predictions and targets as `[batch, outputs]`.
pub(super) fn outputs(observation: &Observation) -> Result<(AnyTensor, AnyTensor), MetricError> {
    let (predictions, targets) = pair(observation)?;
    match predictions.rank() {
        1 => Ok((predictions.unsqueeze_dim(1)?, targets.unsqueeze_dim(1)?)),
        2 => Ok((predictions, targets)),
        _ => Err(wrong_shape(PREDICTIONS, &predictions, "[batch] or [batch, outputs]")),
    }
}

/// Appends the moments of a batch. Each batch is centred at its own mean, so that `f32` on the device is accurate
/// enough for numbers far from 0.
pub(super) fn add(sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
    let (predictions, targets) = outputs(observation)?;
    let items = predictions.shape()[0];
    if items == 0 {
        return Ok(());
    }
    let residuals = targets.clone().sub(predictions.clone())?;
    let (prediction_mean, predictions) = centred(predictions)?;
    let (target_mean, targets) = centred(targets)?;
    let (residual_mean, residuals) = centred(residuals)?;
    let numbers = [
        prediction_mean,
        target_mean,
        residual_mean,
        predictions.clone().square()?.sum_dim(0)?,
        targets.clone().square()?.sum_dim(0)?,
        residuals.square()?.sum_dim(0)?,
        predictions.mul(targets)?.sum_dim(0)?,
    ];
    sums.append_all(ITEMS, &[items as f64])?;
    sums.append(MOMENTS, AnyTensor::cat(numbers.into(), 0)?)
}

/// Returns the mean over the items, `[1, outputs]`, and the differences to it.
fn centred(x: AnyTensor) -> Result<(AnyTensor, AnyTensor), MetricError> {
    let mean = x.clone().mean_dim(0)?;
    let centred = x.sub(mean.clone())?;
    Ok((mean, centred))
}

/// Combines the batches, for each output (Chan, Golub and LeVeque, 1983).
pub(super) fn combined(sums: &mut Accumulator) -> Result<Vec<Moments>, MetricError> {
    let items = sums.numbers(ITEMS)?.to_vec();
    let numbers = sums.numbers(MOMENTS)?;
    let outputs = numbers.len().checked_div(NUMBERS * items.len()).unwrap_or(0);
    if outputs * NUMBERS * items.len() != numbers.len() {
        return Err(MetricError::State { problem: "batches differ in their number of outputs".to_owned() });
    }
    let batch = |number: usize, output: usize| {
        let at = |row: usize| numbers[(number * NUMBERS + row) * outputs + output];
        Moments {
            items: items[number],
            prediction_mean: at(0),
            target_mean: at(1),
            residual_mean: at(2),
            prediction_squares: at(3),
            target_squares: at(4),
            residual_squares: at(5),
            products: at(6),
        }
    };
    let of_output =
        |output| (0..items.len()).map(|number| batch(number, output)).fold(Moments::default(), Moments::with);
    Ok((0..outputs).map(of_output).collect())
}

impl Moments {
    fn with(self, other: Moments) -> Moments {
        let items = self.items + other.items;
        let share = other.items / items;
        let weight = self.items * share;
        let prediction = other.prediction_mean - self.prediction_mean;
        let target = other.target_mean - self.target_mean;
        let residual = other.residual_mean - self.residual_mean;
        Moments {
            items,
            prediction_mean: self.prediction_mean + prediction * share,
            target_mean: self.target_mean + target * share,
            residual_mean: self.residual_mean + residual * share,
            prediction_squares: self.prediction_squares
                + other.prediction_squares
                + prediction * prediction * weight,
            target_squares: self.target_squares + other.target_squares + target * target * weight,
            residual_squares: self.residual_squares + other.residual_squares + residual * residual * weight,
            products: self.products + other.products + prediction * target * weight,
        }
    }
}
