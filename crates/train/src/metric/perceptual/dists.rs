//! Deep image structure and texture similarity.

use std::path::Path;

use kiln_nn::{Module, Param};
use kiln_store::{DTypePolicy, LoadOptions, StoreError, load_module_into};
use kiln_tensor::module::{ConvOptions, conv2d};
use kiln_tensor::{Backend, Tensor};

use super::{Backbone, Network, by_channel, typed_images};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::Observation;

/// Deep image structure and texture similarity (Ding et al., "Image quality assessment: unifying structure and texture
/// similarity", 2020): `1 - Σ (α l + β s)` over the channels of an image and of the features of a VGG16 with L2
/// pooling, where `l` compares the means of a channel (texture) and `s` the covariance (structure), as in
/// [`Ssim`](crate::metric::Ssim).
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS) and [`TARGETS`](crate::TARGETS) of one shape `[batch, 3, height, width]`
/// with values from 0 to 1, on the backend `B`. In training, that is the backend without automatic differentiation. The
/// value, `dists`, is the mean over images; less is better, and equal images have 0. Equivalent to
/// `torchmetrics.image.dists.DeepImageStructureAndTextureSimilarity`.
pub type Dists<B> = Accumulated<DistsRule<B>>;

/// The rule of [`Dists`].
#[derive(Clone, Debug)]
pub struct DistsRule<B: Backend> {
    net: DistsNet<B>,
}

/// [`Dists`] under a name like those of Burn's metrics.
pub type DistsMetric<B> = Dists<B>;

/// The network of [`Dists`], which is also a loss.
#[derive(Clone, Debug, Module)]
pub struct DistsNet<B: Backend> {
    /// The feature layers of VGG16.
    pub net: Backbone<B>,
    /// The weights of channels.
    pub weights: DistsWeights<B>,
}

/// The weights of the channels of the image and of all features.
#[derive(Clone, Debug, Module)]
pub struct DistsWeights<B: Backend> {
    /// The weights of texture: `[1, 1475, 1, 1]`.
    pub alpha: Param<Tensor<B, 4>>,
    /// The weights of structure: `[1, 1475, 1, 1]`.
    pub beta: Param<Tensor<B, 4>>,
}

/// The mean of images that the features were trained on, for values from 0 to 1.
const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
/// The standard deviation of images that the features were trained on.
const DEVIATION: [f64; 3] = [0.229, 0.224, 0.225];
/// Added to both sides of the ratios of similarity.
const EPSILON: f64 = 1e-6;

impl<B: Backend> DistsNet<B> {
    /// Loads the network from two safetensors files, which may be one: VGG16 with torchvision's names
    /// (`features.0.weight`), and the weights of channels with the paper's (`alpha`, `beta`). Other tensors are
    /// skipped, and other float dtypes are converted.
    ///
    /// # Errors
    /// When a file cannot be read, or a parameter is missing or has another shape. The error lists all of them.
    pub fn load(
        classifier: impl AsRef<Path>,
        weights: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<DistsNet<B>, StoreError> {
        let channels = 3 + Network::Vgg16.channels().iter().sum::<usize>();
        let zeros = || Param::from_tensor(Tensor::zeros([1, channels, 1, 1], device));
        let mut own = DistsWeights { alpha: zeros(), beta: zeros() };
        let options = LoadOptions::new()
            .rename(|name| matches!(name, "alpha" | "beta").then(|| name.to_owned()))
            .dtype(DTypePolicy::Cast);
        load_module_into(&mut own, weights, &options)?;
        Ok(DistsNet { net: Backbone::load(Network::Vgg16, classifier, device)?, weights: own })
    }

    /// Computes the distance of each pair of images, `[batch]`, from `[batch, 3, height, width]` with values from 0 to
    /// 1.
    ///
    /// # Panics
    /// When the shapes differ, or the images have fewer than 16 pixels in height or width.
    pub fn forward(&self, x: Tensor<B, 4>, y: Tensor<B, 4>) -> Tensor<B, 1> {
        let [batch, _, _, _] = x.dims();
        let (alpha, beta) = (self.weights.alpha.val(), self.weights.beta.val());
        let total = (alpha.clone().sum() + beta.clone().sum()).reshape([1, 1, 1, 1]);
        let mut start = 0;
        let mut similarity = Tensor::<B, 1>::zeros([batch], &x.device());
        for (x, y) in self.features(x).into_iter().zip(self.features(y)) {
            let [_, channels, _, _] = x.dims();
            let part = |weights: &Tensor<B, 4>| weights.clone().narrow(1, start, channels) / total.clone();
            let (texture, structure) = similarities(x, y);
            let weighted = texture * part(&alpha) + structure * part(&beta);
            similarity += weighted.sum_dim(1).reshape([batch]);
            start += channels;
        }
        1.0 - similarity
    }

    /// The image and its features.
    fn features(&self, images: Tensor<B, 4>) -> Vec<Tensor<B, 4>> {
        let device = images.device();
        let standardized = (images.clone() - by_channel(MEAN, &device)) / by_channel(DEVIATION, &device);
        let features = self.net.forward_with(standardized, |x, _| l2_pool(x));
        std::iter::once(images).chain(features).collect()
    }
}

/// The root of the mean of squares, weighted by a Hann window of 3 × 3 pixels, with stride 2.
fn l2_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    let [batch, channels, height, width] = x.dims();
    let taps = [0.25, 0.5, 0.25];
    let window = taps.map(|row: f32| taps.map(|column: f32| row * column));
    let window = Tensor::<B, 2>::from_floats(window, &x.device()).reshape([1, 1, 3, 3]);
    let planes = x.square().reshape([batch * channels, 1, height, width]);
    let options = ConvOptions::new([2, 2], [1, 1], [1, 1], 1);
    let means = conv2d(planes, window, None, &options);
    let [_, _, height, width] = means.dims();
    (means + 1e-12).sqrt().reshape([batch, channels, height, width])
}

/// The similarities of the texture and of the structure of each channel: `[batch, channels, 1, 1]`.
fn similarities<B: Backend>(x: Tensor<B, 4>, y: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>) {
    let mean = |z: Tensor<B, 4>| z.mean_dims([2, 3]);
    let (mx, my) = (mean(x.clone()), mean(y.clone()));
    let variance = |z: Tensor<B, 4>, m: Tensor<B, 4>| mean((z - m).square());
    let (vx, vy) = (variance(x.clone(), mx.clone()), variance(y.clone(), my.clone()));
    let cov = mean(x * y) - mx.clone() * my.clone();
    let texture = (mx.clone() * my.clone() * 2.0 + EPSILON) / (mx.square() + my.square() + EPSILON);
    (texture, (cov * 2.0 + EPSILON) / (vx + vy + EPSILON))
}

impl<B: Backend> Dists<B> {
    /// Returns the metric `dists` with a network.
    pub fn new(net: DistsNet<B>) -> Dists<B> {
        Dists::of(DistsRule { net })
    }

    /// Returns the metric with the network from files: see [`DistsNet::load`].
    ///
    /// # Errors
    /// See [`DistsNet::load`].
    pub fn load(
        classifier: impl AsRef<Path>,
        weights: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<Dists<B>, StoreError> {
        Ok(Dists::new(DistsNet::load(classifier, weights, device)?))
    }
}

impl<B: Backend> MetricRule for DistsRule<B> {
    crate::metric::facts!("dists", higher is better: false, "distance" / "images");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (x, y) = typed_images::<B>(observation, self.net.net.network().least_size())?;
        let distances = self.net.forward(x, y);
        sums.count("images", distances.dims()[0] as f64);
        sums.sum("distance", distances.sum().into_any())
    }
}
