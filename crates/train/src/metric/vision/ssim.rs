//! Structural similarity.

use kiln_ir::{ConvSpec, Pooling};
use kiln_tensor::{AnyTensor, PadMode};

use super::images;
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::{Observation, PREDICTIONS};

/// Structural similarity of images (Wang et al., "Image quality assessment: from error visibility to structural
/// similarity", 2004):
/// `(2 μx μy + c1) (2 σxy + c2) / ((μx² + μy² + c1) (σx² + σy² + c2))`,
/// with means, variances and covariance in Gaussian windows, `c1 = (k1 · range)²` and `c2 = (k2 · range)²`. It is
/// averaged over windows around all pixels, where borders are reflected, over channels, and over images. Images have at
/// least the height and width of a window.
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS) and [`TARGETS`](crate::TARGETS) of one shape
/// `[batch, channels, height, width]`. Values are from -1 to 1, the similarity of equal images. Equivalent to
/// `torchmetrics.image.StructuralSimilarityIndexMeasure`.
///
/// ```
/// use kiln_train::metric::Ssim;
///
/// let metric = Ssim::new(1.0).window(7, 1.0);
/// ```
pub type Ssim = Accumulated<SsimRule>;

/// The rule of [`Ssim`].
#[derive(Clone, Debug)]
pub struct SsimRule {
    similarity: Similarity,
}

/// Multi-scale structural similarity (Wang et al., "Multi-scale structural similarity for image quality assessment",
/// 2003): the product over scales of contrast and structure `(2 σxy + c2) / (σx² + σy² + c2)` to the power of the
/// scale's weight, with [`Ssim`] at the last scale. Each scale halves the image by 2 × 2 averages. Contrast is averaged
/// over windows within the image. Negative factors are 0.
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS) and [`TARGETS`](crate::TARGETS) of one shape
/// `[batch, channels, height, width]`. With the default window of 11 and five scales, height and width are at least
/// 176. Values are from 0 to 1. Equivalent to `torchmetrics.image.MultiScaleStructuralSimilarityIndexMeasure`.
pub type MsSsim = Accumulated<MsSsimRule>;

/// The rule of [`MsSsim`].
#[derive(Clone, Debug)]
pub struct MsSsimRule {
    similarity: Similarity,
    weights: Vec<f64>,
}

/// [`Ssim`] under the name that Burn uses.
pub type SsimMetric = Ssim;

/// [`MsSsim`] under the name that Burn uses.
pub type MsSsimMetric = MsSsim;

/// The weights of the scales in the paper, from the finest.
const WEIGHTS: [f64; 5] = [0.0448, 0.2856, 0.3001, 0.2363, 0.1333];

/// A rule with the options of structural similarity.
pub trait WindowRule: MetricRule {
    /// Returns the options.
    fn similarity(&mut self) -> &mut Similarity;
}

impl WindowRule for SsimRule {
    fn similarity(&mut self) -> &mut Similarity {
        &mut self.similarity
    }
}

impl WindowRule for MsSsimRule {
    fn similarity(&mut self) -> &mut Similarity {
        &mut self.similarity
    }
}

impl<R: WindowRule> Accumulated<R> {
    /// Sets the length and the standard deviation of the Gaussian window, in pixels. Default: 11 and 1.5.
    ///
    /// # Panics
    /// When the length is 0 or the standard deviation is not positive.
    #[must_use]
    #[track_caller]
    pub fn window(self, length: usize, sigma: f64) -> Accumulated<R> {
        assert!(
            length > 0 && sigma > 0.0,
            "[ssim] the window has length {length} and standard deviation {sigma}\n  \
             hint: both must be positive"
        );
        self.set(|rule| {
            let similarity = rule.similarity();
            (similarity.length, similarity.sigma) = (length, sigma);
        })
    }

    /// Sets the factors of the constants `c1` and `c2`. Default: 0.01 and 0.03.
    #[must_use]
    pub fn constants(self, k1: f64, k2: f64) -> Accumulated<R> {
        self.set(|rule| {
            let similarity = rule.similarity();
            (similarity.k1, similarity.k2) = (k1, k2);
        })
    }
}

impl Ssim {
    /// Returns the metric `ssim` of values that span `range`: 1 for values from 0 to 1, 255 for bytes.
    ///
    /// # Panics
    /// When the range is not positive.
    #[track_caller]
    pub fn new(range: f64) -> Ssim {
        Ssim::of(SsimRule { similarity: Similarity::new(range) })
    }
}

impl MsSsim {
    /// Returns the metric `ms-ssim` of values that span `range`: 1 for values from 0 to 1, 255 for bytes.
    ///
    /// # Panics
    /// When the range is not positive.
    #[track_caller]
    pub fn new(range: f64) -> MsSsim {
        MsSsim::of(MsSsimRule { similarity: Similarity::new(range), weights: WEIGHTS.to_vec() })
    }

    /// Sets the weights of the scales, from the finest. Default: the five of the paper.
    ///
    /// # Panics
    /// When there are none.
    #[must_use]
    #[track_caller]
    pub fn scale_weights(self, weights: &[f64]) -> MsSsim {
        assert!(!weights.is_empty(), "[ms-ssim] there are no weights\n  hint: there is one for each scale");
        self.set(|rule| rule.weights = weights.to_vec())
    }
}

impl MsSsimRule {
    fn of(&self, mut x: AnyTensor, mut y: AnyTensor) -> Result<AnyTensor, MetricError> {
        let mut product: Option<AnyTensor> = None;
        for (scale, &weight) in self.weights.iter().enumerate() {
            if scale > 0 {
                (x, y) =
                    (x.avg_pool(&Pooling::new(&[2, 2]), true)?, y.avg_pool(&Pooling::new(&[2, 2]), true)?);
            }
            let parts = self.similarity.of(x.clone(), y.clone())?;
            let last = scale + 1 == self.weights.len();
            let factor = if last { parts.similarity } else { parts.contrast }.relu()?.powf_scalar(weight)?;
            product = Some(match product {
                Some(product) => product.mul(factor)?,
                None => factor,
            });
        }
        product.ok_or(MetricError::Input { name: PREDICTIONS, problem: "has no scales".to_owned() })
    }
}

impl MetricRule for SsimRule {
    crate::metric::facts!("ssim", "similarity" / "images");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (x, y) = images(observation)?;
        sums.count("images", x.shape()[0] as f64);
        sums.sum("similarity", self.similarity.of(x, y)?.similarity.sum()?)
    }
}

impl MetricRule for MsSsimRule {
    crate::metric::facts!("ms-ssim", "similarity" / "images");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (x, y) = images(observation)?;
        let similarity = self.of(x.clone(), y)?.sum()?;
        sums.count("images", x.shape()[0] as f64);
        sums.sum("similarity", similarity)
    }
}

/// The options of structural similarity.
#[derive(Clone, Debug)]
pub struct Similarity {
    range: f64,
    length: usize,
    sigma: f64,
    k1: f64,
    k2: f64,
}

/// The means over an image, `[batch, 1]`: of similarity around all pixels, and of contrast in windows within the image.
struct Parts {
    similarity: AnyTensor,
    contrast: AnyTensor,
}

impl Similarity {
    #[track_caller]
    fn new(range: f64) -> Similarity {
        check_range(range);
        Similarity { range, length: 11, sigma: 1.5, k1: 0.01, k2: 0.03 }
    }

    /// The similarity of images `[batch, channels, height, width]`.
    fn of(&self, x: AnyTensor, y: AnyTensor) -> Result<Parts, MetricError> {
        let (batch, channels) = (x.shape()[0], x.shape()[1]);
        if x.shape()[2..].iter().any(|&length| length < self.length) {
            let problem = format!(
                "has images of {} × {} pixels, less than the window of {length} × {length}",
                x.shape()[2],
                x.shape()[3],
                length = self.length
            );
            return Err(MetricError::Input { name: PREDICTIONS, problem });
        }
        let (height, width) = (x.shape()[2], x.shape()[3]);
        let border = ((self.length - 1) / 2, self.length / 2);
        let padded = |z: AnyTensor| {
            let planes = z.reshape([batch * channels, 1, height, width])?;
            planes.pad(&[border, border], PadMode::Reflect)
        };
        let (x, y) = (padded(x)?, padded(y)?);
        let (c1, c2) = ((self.k1 * self.range).powi(2), (self.k2 * self.range).powi(2));
        let mean = |z: AnyTensor| self.blur(z);
        let (mx, my) = (mean(x.clone())?, mean(y.clone())?);
        let (mxx, myy, mxy) = (mx.clone().square()?, my.clone().square()?, mx.mul(my)?);
        let vx = mean(x.clone().square()?)?.sub(mxx.clone())?.relu()?;
        let vy = mean(y.clone().square()?)?.sub(myy.clone())?.relu()?;
        let cov = mean(x.mul(y)?)?.sub(mxy.clone())?;
        let contrast = ratio(cov, vx.add(vy)?, c2)?;
        let luminance = ratio(mxy, mxx.add(myy)?, c1)?;
        let per_image = |z: AnyTensor| {
            let elements = z.shape().num_elements() / batch.max(1);
            z.reshape([batch, elements])?.mean_dim(1)
        };
        let similarity = per_image(luminance.mul(contrast.clone())?)?;
        let inner = |length: usize| length + 1 - self.length;
        let contrast = contrast.narrow(2, border.0, inner(height))?.narrow(3, border.0, inner(width))?;
        Ok(Parts { similarity, contrast: per_image(contrast)? })
    }

    /// The Gaussian means of all windows in `[planes, 1, height, width]`.
    fn blur(&self, planes: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
        let taps = AnyTensor::from_data(self.taps(), planes.stack());
        let (rows, columns) =
            (taps.clone().reshape([1, 1, self.length, 1])?, taps.reshape([1, 1, 1, self.length])?);
        planes.conv(rows, None, &ConvSpec::new(2))?.conv(columns, None, &ConvSpec::new(2))
    }

    fn taps(&self) -> Vec<f32> {
        let center = (self.length - 1) as f64 / 2.0;
        let weights = (0..self.length).map(|place| {
            let distance = (place as f64 - center) / self.sigma;
            (-distance * distance / 2.0).exp()
        });
        let total: f64 = weights.clone().sum();
        weights.map(|weight| (weight / total) as f32).collect()
    }
}

/// `(2 product + c) / (squares + c)`
fn ratio(product: AnyTensor, squares: AnyTensor, c: f64) -> Result<AnyTensor, kiln_tensor::Error> {
    product.mul_scalar(2.0)?.add_scalar(c)?.div(squares.add_scalar(c)?)
}

#[track_caller]
pub(super) fn check_range(range: f64) {
    assert!(range > 0.0, "[psnr, ssim] the range of values is {range}\n  hint: it must be positive");
}
