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

use super::shape::{require_shape_of, wide, wrong_shape};
use super::{AccumulatedMetric, Accumulator, MetricValues};
use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// Returns predictions and targets of equal shapes, in at least 32 bits.
fn pair(observation: &Observation) -> Result<(AnyTensor, AnyTensor), MetricError> {
    let (predictions, targets) = (observation.tensor(PREDICTIONS)?, observation.tensor(TARGETS)?);
    require_shape_of(PREDICTIONS, &predictions, (TARGETS, &targets))?;
    Ok((wide(predictions)?, wide(targets)?))
}

/// Absolute targets below this number are raised to it in percentages, as in torchmetrics.
const LEAST_TARGET: f64 = 1.17e-6;

/// The sum of an error over all elements, divided by another sum.
#[derive(Clone, Copy, Debug)]
enum Error {
    Squared,
    RootSquared,
    Absolute,
    Percentage,
    SymmetricPercentage,
    WeightedPercentage,
    SquaredLog,
    LogCosh,
}

impl Error {
    /// Returns the error of each element.
    fn of(self, predictions: AnyTensor, targets: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
        match self {
            Error::Squared | Error::RootSquared => predictions.sub(targets)?.square(),
            Error::Absolute | Error::WeightedPercentage => predictions.sub(targets)?.abs(),
            Error::Percentage => {
                let scale = targets.clone().abs()?.clamp_min(LEAST_TARGET)?;
                predictions.sub(targets)?.abs()?.div(scale)
            }
            Error::SymmetricPercentage => {
                let scale =
                    targets.clone().abs()?.add(predictions.clone().abs()?)?.clamp_min(LEAST_TARGET)?;
                predictions.sub(targets)?.abs()?.mul_scalar(2.0)?.div(scale)
            }
            Error::SquaredLog => predictions.log1p()?.sub(targets.log1p()?)?.square(),
            Error::LogCosh => {
                let distance = predictions.sub(targets)?.abs()?;
                let rest = distance.clone().mul_scalar(-2.0)?.exp()?.log1p()?;
                distance.add(rest)?.sub_scalar(std::f64::consts::LN_2)
            }
        }
    }
}

macro_rules! errors {
    ($($(#[$meta:meta])* $metric:ident, $name:literal, $error:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $metric {
            name: String,
            accumulator: Accumulator,
        }

        impl $metric {
            #[doc = concat!("Returns the metric, named `", $name, "`.")]
            pub fn new() -> $metric {
                $metric { name: $name.to_owned(), accumulator: Accumulator::new() }
            }

            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.name = name.into();
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
                add_error(&mut self.accumulator, Error::$error, observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                Ok(MetricValues::scalar(self.name.clone(), mean_error(&mut self.accumulator, Error::$error)?))
            }

            fn higher_is_better(&self) -> bool {
                false
            }
        }
    )*};
}

fn add_error(
    accumulator: &mut Accumulator,
    error: Error,
    observation: &Observation,
) -> Result<(), MetricError> {
    let (predictions, targets) = pair(observation)?;
    match error {
        Error::WeightedPercentage => accumulator.sum("scale", targets.clone().abs()?.sum()?)?,
        Error::Squared
        | Error::RootSquared
        | Error::Absolute
        | Error::Percentage
        | Error::SymmetricPercentage
        | Error::SquaredLog
        | Error::LogCosh => accumulator.count("scale", targets.shape().num_elements() as f64),
    }
    accumulator.sum("error", error.of(predictions, targets)?.sum()?)
}

fn mean_error(accumulator: &mut Accumulator, error: Error) -> Result<f64, MetricError> {
    let (sum, scale) = (accumulator.total("error")?, accumulator.total("scale")?);
    Ok(match error {
        Error::RootSquared => (sum / scale).sqrt(),
        Error::WeightedPercentage => sum / scale.max(LEAST_TARGET),
        Error::Squared
        | Error::Absolute
        | Error::Percentage
        | Error::SymmetricPercentage
        | Error::SquaredLog
        | Error::LogCosh => sum / scale,
    })
}

errors! {
    /// Mean squared error: the mean of `(p − t)²` over all elements. Inputs of any shape: see the [module](self).
    MeanSquaredError, "mse", Squared;

    /// Root mean squared error: the square root of the mean of `(p − t)²` over all elements of all batches. Inputs of
    /// any shape: see the [module](self).
    RootMeanSquaredError, "rmse", RootSquared;

    /// Mean absolute error: the mean of `|p − t|` over all elements. Inputs of any shape: see the [module](self).
    MeanAbsoluteError, "mae", Absolute;

    /// Mean absolute percentage error: the mean of `|p − t| / max(|t|, 1.17e-6)` over all elements, 1 for 100 %. Inputs
    /// of any shape: see the [module](self).
    MeanAbsolutePercentageError, "mape", Percentage;

    /// Symmetric mean absolute percentage error: the mean of `2 |p − t| / max(|p| + |t|, 1.17e-6)` over all elements,
    /// from 0 to 2. Inputs of any shape: see the [module](self).
    SymmetricMeanAbsolutePercentageError, "smape", SymmetricPercentage;

    /// Weighted mean absolute percentage error: `Σ |p − t| / Σ |t|` over all elements, 1 for 100 %. Inputs of any
    /// shape: see the [module](self).
    WeightedMeanAbsolutePercentageError, "wmape", WeightedPercentage;

    /// Mean squared logarithmic error: the mean of `(ln(1 + p) − ln(1 + t))²` over all elements. NaN for numbers below
    /// −1. Inputs of any shape: see the [module](self).
    MeanSquaredLogError, "msle", SquaredLog;

    /// Log-cosh error: the mean of `ln cosh(p − t)` over all elements. Inputs of any shape: see the [module](self).
    LogCoshError, "log-cosh", LogCosh;
}

/// Cosine similarity: the mean of `p · t / (|p| |t|)` over the rows of `[batch, features]`, from −1 to 1. A product of
/// norms below 1e-8 is raised to it. Inputs: see the [module](self).
#[derive(Clone, Debug)]
pub struct CosineSimilarity {
    name: String,
    accumulator: Accumulator,
}

impl CosineSimilarity {
    /// Returns the metric, named `cosine similarity`.
    pub fn new() -> CosineSimilarity {
        CosineSimilarity { name: "cosine similarity".to_owned(), accumulator: Accumulator::new() }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> CosineSimilarity {
        self.name = name.into();
        self
    }
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity::new()
    }
}

impl AccumulatedMetric for CosineSimilarity {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let (predictions, targets) = pair(observation)?;
        if predictions.rank() != 2 {
            return Err(wrong_shape(PREDICTIONS, &predictions, "[batch, features]"));
        }
        let norm = |x: &AnyTensor| x.clone().square()?.sum_dim(1)?.sqrt();
        let norms = norm(&predictions)?.mul(norm(&targets)?)?.clamp_min(1e-8)?;
        self.accumulator.count("items", predictions.shape()[0] as f64);
        let cosines = predictions.mul(targets)?.sum_dim(1)?.div(norms)?;
        self.accumulator.sum("cosines", cosines.sum()?)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let mean = self.accumulator.total("cosines")? / self.accumulator.total("items")?;
        Ok(MetricValues::scalar(self.name.clone(), mean))
    }
}
