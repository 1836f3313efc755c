//! Fréchet distance.

use kiln_tensor::DType;

use super::matrix::Matrix;
use super::{Features, sides};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::Observation;

/// Fréchet inception distance (Heusel et al., "GANs trained by a two time-scale update rule converge to a local Nash
/// equilibrium", 2017): `|μ₁ - μ₂|² + tr(Σ₁ + Σ₂ - 2 (Σ₁ Σ₂)^½)` with means and covariances of the features of real and
/// generated images.
///
/// Inputs: [`TARGETS`](crate::TARGETS), the real images, and [`PREDICTIONS`](crate::PREDICTIONS), the generated images;
/// a batch may have one of them. [`Features`] computes the features from them. The value, `fid`, is at least 0, and
/// less is better; NaN with fewer than two images of each. Equivalent to
/// `torchmetrics.image.fid.FrechetInceptionDistance`.
///
/// Sums are in `f64` on the device of the features: 32 MiB for a batch with 2048 features. They are read from the
/// device when they take more than 32 MiB.
pub type FrechetInceptionDistance = Accumulated<FrechetRule>;

/// The rule of [`FrechetInceptionDistance`].
#[derive(Clone, Debug)]
pub struct FrechetRule {
    features: Features,
}

/// [`FrechetInceptionDistance`] under a name like those of Burn's metrics.
pub type FrechetInceptionDistanceMetric = FrechetInceptionDistance;

/// The names of sums of a side: images, features, and products of pairs of features.
const NAMES: [[&str; 3]; 2] =
    [["real_images", "real", "real_products"], ["generated_images", "generated", "generated_products"]];

impl FrechetInceptionDistance {
    /// Returns the metric `fid` of features.
    pub fn new(features: Features) -> FrechetInceptionDistance {
        FrechetInceptionDistance::of(FrechetRule { features })
    }
}

/// Mean and covariance of a side; `None` with fewer than two images.
fn moments(
    sums: &mut Accumulator,
    [images, sum, products]: [&'static str; 3],
) -> Result<Option<Moments>, MetricError> {
    let count = sums.total(images)?;
    let mean: Vec<f64> = sums.totals(sum)?.iter().map(|sum| sum / count).collect();
    let products = sums.totals(products)?;
    if count.is_nan() || count < 2.0 || products.len() != mean.len() * mean.len() {
        return Ok(None);
    }
    let size = mean.len();
    let element =
        |place: usize| (products[place] - count * mean[place / size] * mean[place % size]) / (count - 1.0);
    let covariance = Matrix::new(size, size, (0..size * size).map(element).collect());
    Ok(Some(Moments { mean, covariance }))
}

struct Moments {
    mean: Vec<f64>,
    covariance: Matrix,
}

impl Moments {
    fn distance(&self, other: &Moments) -> f64 {
        let means: f64 = self.mean.iter().zip(&other.mean).map(|(a, b)| (a - b) * (a - b)).sum();
        // With Σ₁ = l lᵀ, the eigenvalues of Σ₁ Σ₂ are those of the symmetric lᵀ Σ₂ l, and zeros.
        let factors = self.covariance.factors();
        let inner = factors.products(&factors.products(&other.covariance));
        let roots: f64 = inner.symmetric_eigenvalues().iter().map(|value| value.max(0.0).sqrt()).sum();
        let distance = means + self.covariance.trace() + other.covariance.trace() - 2.0 * roots;
        // Below 0 by rounding only. NaN stays.
        if distance < 0.0 { 0.0 } else { distance }
    }
}

impl MetricRule for FrechetRule {
    crate::metric::facts!("fid", higher is better: false);

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        for (side, [images, sum, products]) in sides(observation)?.into_iter().zip(NAMES) {
            let Some(side) = side else { continue };
            let features = self.features.of(side)?.cast(DType::F64)?;
            sums.count(images, features.shape()[0] as f64);
            sums.sum(sum, features.clone().sum_dim(0)?)?;
            let outer = features.clone().transpose()?.matmul(features)?;
            sums.sum(products, outer)?;
        }
        Ok(())
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let [real, generated] = [moments(sums, NAMES[0])?, moments(sums, NAMES[1])?];
        let distance = match (real, generated) {
            (Some(real), Some(generated)) if real.mean.len() == generated.mean.len() => {
                real.distance(&generated)
            }
            (Some(_) | None, Some(_) | None) => f64::NAN,
        };
        Ok(MetricValues::scalar(name, distance))
    }
}
