//! Peak signal-to-noise ratio.

use kiln_tensor::AnyTensor;

use super::pairs;
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::Observation;

/// Peak signal-to-noise ratio in decibels: `10 · log10(range² / mse)`, of images whose values span `range`.
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS) and [`TARGETS`](crate::TARGETS) of one shape `[batch, ..]`. The mean
/// squared error is over all elements of all batches; with [`per_image`](Psnr::per_image) the value is the mean of each
/// image's ratio, as Burn's. Values are from -∞ to ∞, which is the ratio of equal images. Equivalent to
/// `torchmetrics.image.PeakSignalNoiseRatio`.
///
/// ```
/// use kiln_train::metric::Psnr;
///
/// let metric = Psnr::new(1.0).per_image();
/// ```
pub type Psnr = Accumulated<PsnrRule>;

/// The rule of [`Psnr`].
#[derive(Clone, Debug)]
pub struct PsnrRule {
    range: f64,
    per_image: bool,
}

/// [`Psnr`] under the name that Burn uses.
pub type PsnrMetric = Psnr;

impl Psnr {
    /// Returns the metric `psnr` of values that span `range`: 1 for values from 0 to 1, 255 for bytes.
    ///
    /// # Panics
    /// When the range is not positive.
    #[track_caller]
    pub fn new(range: f64) -> Psnr {
        super::ssim::check_range(range);
        Psnr::of(PsnrRule { range, per_image: false })
    }

    kiln_ir::setters! {
        /// Averages the ratios of images, instead of computing the ratio of the mean squared error of all images.
        per_image() => rule.per_image = true;
    }
}

impl PsnrRule {
    fn ratio(&self, mean_squared_error: f64) -> f64 {
        10.0 * (self.range * self.range / mean_squared_error).log10()
    }

    /// The sum of the ratios of images with these mean squared errors.
    fn ratios(&self, mean_squared_errors: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
        let decibels = mean_squared_errors.log10()?.mul_scalar(-10.0)?;
        decibels.add_scalar(20.0 * self.range.log10())?.sum()
    }
}

impl MetricRule for PsnrRule {
    crate::metric::facts!("psnr");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (predictions, targets) = pairs(observation)?;
        let elements = predictions.shape().num_elements();
        let images = predictions.shape().first().copied().unwrap_or(1);
        let errors = predictions.sub(targets)?.square()?;
        if self.per_image {
            let each = errors.reshape([images, elements / images.max(1)])?.mean_dim(1)?;
            sums.count("images", images as f64);
            return sums.sum("ratios", self.ratios(each)?);
        }
        sums.count("elements", elements as f64);
        sums.sum("squared_error", errors.sum()?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let value = match self.per_image {
            true => sums.ratio("ratios", "images")?,
            false => self.ratio(sums.ratio("squared_error", "elements")?),
        };
        Ok(MetricValues::scalar(name, value))
    }

    fn format(&self, value: f64) -> String {
        format!("{value:.2} dB")
    }
}
