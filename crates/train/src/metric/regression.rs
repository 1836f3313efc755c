//! Metrics of regression. They read [`PREDICTIONS`] and [`TARGETS`] of equal shapes.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::Tensor;
//! use kiln_train::metric::R2Score;
//! use kiln_train::{Metric, Observation, PREDICTIONS, TARGETS};
//!
//! let device = Default::default();
//! let predictions = Tensor::<Flex, 1>::from_floats([2.5, 0.0, 2.0, 8.0], &device);
//! let targets = Tensor::<Flex, 1>::from_floats([3.0, -0.5, 2.0, 7.0], &device);
//! let batch = Observation::new(4).with(PREDICTIONS, predictions.into_any()).with(TARGETS, targets.into_any());
//!
//! let mut r2 = R2Score::new();
//! r2.update(&batch)?;
//! assert!((r2.values()?.main().unwrap() - 0.9486).abs() < 1e-4);
//! # Ok::<(), kiln_train::MetricError>(())
//! ```

mod correlation;
mod moments;

use kiln_tensor::AnyTensor;

pub use correlation::{
    ConcordanceCorrelation, ExplainedVariance, OutputAverage, PearsonCorrelation, R2Score,
    SpearmanCorrelation,
};

use super::accumulated::plain_metrics;
use super::shape::{require_shape_of, wide, wrong_shape};
use super::{Accumulator, MetricValues};
use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// Returns predictions and targets of equal shapes, in at least 32 bits.
fn pair(observation: &Observation) -> Result<(AnyTensor, AnyTensor), MetricError> {
    let (predictions, targets) = (observation.tensor(PREDICTIONS)?, observation.tensor(TARGETS)?);
    require_shape_of(PREDICTIONS, &predictions, (TARGETS, &targets))?;
    Ok((wide(predictions)?, wide(targets)?))
}

/// Absolute targets below this number are raised to it in percentages, as in torchmetrics.
const MIN_TARGET: f64 = 1.17e-6;

type Elementwise = fn(AnyTensor, AnyTensor) -> Result<AnyTensor, kiln_tensor::Error>;

/// Adds the error of each element of predictions and targets to a mean.
fn add_error(
    sums: &mut Accumulator,
    observation: &Observation,
    error: Elementwise,
) -> Result<(), MetricError> {
    let (predictions, targets) = pair(observation)?;
    sums.count("scale", targets.shape().num_elements() as f64);
    sums.sum("error", error(predictions, targets)?.sum()?)
}

fn mean_error(sums: &mut Accumulator) -> Result<f64, MetricError> {
    sums.ratio("error", "scale")
}

fn squared(predictions: AnyTensor, targets: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
    predictions.sub(targets)?.square()
}

fn absolute(predictions: AnyTensor, targets: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
    predictions.sub(targets)?.abs()
}

plain_metrics! {
    /// Mean squared error, `mse`: the mean of `(p − t)²` over all elements. Inputs of any shape: see the
    /// [module](self).
    MeanSquaredError, "mse", higher is better: false, |sums, batch| add_error(sums, batch, squared), mean_error;

    /// Root mean squared error, `rmse`: the square root of the mean of `(p − t)²` over all elements of all batches.
    /// Inputs of any shape: see the [module](self).
    RootMeanSquaredError, "rmse", higher is better: false,
        |sums, batch| add_error(sums, batch, squared),
        |sums| Ok(mean_error(sums)?.sqrt());

    /// Mean absolute error, `mae`: the mean of `|p − t|` over all elements. Inputs of any shape: see the
    /// [module](self).
    MeanAbsoluteError, "mae", higher is better: false, |sums, batch| add_error(sums, batch, absolute), mean_error;

    /// Mean absolute percentage error, `mape`: the mean of `|p − t| / max(|t|, 1.17e-6)` over all elements, 1 for 100
    /// %. Inputs of any shape: see the [module](self).
    MeanAbsolutePercentageError, "mape", higher is better: false,
        |sums, batch| add_error(sums, batch, |predictions, targets| {
            let scale = targets.clone().abs()?.clamp_min(MIN_TARGET)?;
            absolute(predictions, targets)?.div(scale)
        }),
        mean_error;

    /// Symmetric mean absolute percentage error, `smape`: the mean of `2 |p − t| / max(|p| + |t|, 1.17e-6)` over all
    /// elements, from 0 to 2. Inputs of any shape: see the [module](self).
    SymmetricMeanAbsolutePercentageError, "smape", higher is better: false,
        |sums, batch| add_error(sums, batch, |predictions, targets| {
            let scale = targets.clone().abs()?.add(predictions.clone().abs()?)?.clamp_min(MIN_TARGET)?;
            absolute(predictions, targets)?.mul_scalar(2.0)?.div(scale)
        }),
        mean_error;

    /// Weighted mean absolute percentage error, `wmape`: `Σ |p − t| / Σ |t|` over all elements, 1 for 100 %. Inputs of
    /// any shape: see the [module](self).
    WeightedMeanAbsolutePercentageError, "wmape", higher is better: false,
        |sums, batch| {
            let (predictions, targets) = pair(batch)?;
            sums.sum("scale", targets.clone().abs()?.sum()?)?;
            sums.sum("error", absolute(predictions, targets)?.sum()?)
        },
        |sums| Ok(sums.total("error")? / sums.total("scale")?.max(MIN_TARGET));

    /// Mean squared logarithmic error, `msle`: the mean of `(ln(1 + p) − ln(1 + t))²` over all elements. NaN for
    /// numbers below −1. Inputs of any shape: see the [module](self).
    MeanSquaredLogError, "msle", higher is better: false,
        |sums, batch| add_error(sums, batch, |predictions, targets| squared(predictions.log1p()?, targets.log1p()?)),
        mean_error;

    /// Log-cosh error, `log-cosh`: the mean of `ln cosh(p − t)` over all elements. Inputs of any shape: see the
    /// [module](self).
    LogCoshError, "log-cosh", higher is better: false,
        |sums, batch| add_error(sums, batch, |predictions, targets| {
            let distance = absolute(predictions, targets)?;
            let rest = distance.clone().mul_scalar(-2.0)?.exp()?.log1p()?;
            distance.add(rest)?.sub_scalar(std::f64::consts::LN_2)
        }),
        mean_error;

    /// Cosine similarity, `cosine similarity`: the mean of `p · t / (|p| |t|)` over the rows of `[batch, features]`,
    /// from −1 to 1. A product of norms below 1e-8 is raised to it. Inputs: see the [module](self).
    CosineSimilarity, "cosine similarity", higher is better: true,
        add_cosines, |sums| sums.ratio("cosines", "items");
}

fn add_cosines(sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
    let (predictions, targets) = pair(observation)?;
    if predictions.rank() != 2 {
        return Err(wrong_shape(PREDICTIONS, &predictions, "[batch, features]"));
    }
    let norm = |x: &AnyTensor| x.clone().square()?.sum_dim(1)?.sqrt();
    let norms = norm(&predictions)?.mul(norm(&targets)?)?.clamp_min(1e-8)?;
    sums.count("items", predictions.shape()[0] as f64);
    let cosines = predictions.mul(targets)?.sum_dim(1)?.div(norms)?;
    sums.sum("cosines", cosines.sum()?)
}
