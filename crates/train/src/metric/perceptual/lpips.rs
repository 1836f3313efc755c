//! Learned perceptual image patch similarity.

use std::path::Path;

use kiln_nn::{Conv2d, Conv2dConfig, Initializer, Module, ModuleDict};
use kiln_store::{StoreError, load_module_into};
use kiln_tensor::{Backend, Tensor};

use super::backbone::only;
use super::{Backbone, Network, by_channel, typed_images};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::Observation;

/// Learned perceptual image patch similarity (Zhang et al., "The unreasonable effectiveness of deep features as a
/// perceptual metric", 2018), version 0.1: the squared distance between the features of two images, each normalised to
/// unit length over channels, weighted by channel, averaged over pixels, and summed over layers.
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS) and [`TARGETS`](crate::TARGETS) of one shape `[batch, 3, height, width]`
/// with values from -1 to 1, on the backend `B`. In training, that is the backend without automatic differentiation.
/// The value, `lpips`, is the mean over images; less is better, and equal images have 0. Equivalent to the Python
/// package `lpips`, and to `torchmetrics.image.lpip.LearnedPerceptualImagePatchSimilarity`.
///
/// ```no_run
/// use kiln_backends::Flex;
/// use kiln_train::metric::{Lpips, Network};
///
/// let device = Default::default();
/// let metric = Lpips::<Flex>::load(Network::Alex, "alexnet.safetensors", "lpips_alex.safetensors", &device)?;
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
pub type Lpips<B> = Accumulated<LpipsRule<B>>;

/// The rule of [`Lpips`].
#[derive(Clone, Debug)]
pub struct LpipsRule<B: Backend> {
    net: LpipsNet<B>,
    unit_range: bool,
}

/// [`Lpips`] under a name like those of Burn's metrics.
pub type LpipsMetric<B> = Lpips<B>;

/// The network of [`Lpips`], which is also a loss.
#[derive(Clone, Debug, Module)]
pub struct LpipsNet<B: Backend> {
    /// The feature layers.
    pub net: Backbone<B>,
    /// The weights of channels for each feature: `lin0`, `lin1`, and so on.
    pub heads: ModuleDict<LpipsHead<B>>,
}

/// The weights of channels of a feature: a 1 × 1 convolution to one channel, without bias.
#[derive(Clone, Debug, Module)]
pub struct LpipsHead<B: Backend> {
    /// The convolution, named `1` after a dropout, as in the Python package.
    pub model: ModuleDict<Conv2d<B>>,
}

/// The mean of images that the features were trained on, for values from -1 to 1.
const SHIFT: [f64; 3] = [-0.030, -0.088, -0.188];
/// The standard deviation of images that the features were trained on.
const SCALE: [f64; 3] = [0.458, 0.448, 0.450];
/// Added to the lengths of features.
const EPSILON: f64 = 1e-10;

impl<B: Backend> LpipsNet<B> {
    /// Loads the network from two safetensors files, which may be one: the classifier with torchvision's names
    /// (`features.0.weight`), and the heads with those of the Python package `lpips` (`lin0.model.1.weight`). Other
    /// tensors are skipped, and other float dtypes are converted.
    ///
    /// # Errors
    /// When a file cannot be read, or a parameter is missing or has another shape. The error lists all of them.
    pub fn load(
        network: Network,
        classifier: impl AsRef<Path>,
        heads: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<LpipsNet<B>, StoreError> {
        let head = |(place, channels): (usize, usize)| {
            let config = Conv2dConfig::new([channels, 1], [1, 1]).with_bias(false);
            let conv = config.with_initializer(Initializer::Zeros).init(device);
            (format!("lin{place}"), LpipsHead { model: ModuleDict::from_iter([("1", conv)]) })
        };
        let mut own: ModuleDict<LpipsHead<B>> =
            network.channels().into_iter().enumerate().map(head).collect();
        let options = only("lin").rename(|name| (!name.starts_with("lins.")).then(|| name.to_owned()));
        load_module_into(&mut own, heads, &options)?;
        Ok(LpipsNet { net: Backbone::load(network, classifier, device)?, heads: own })
    }

    /// Computes the distance of each pair of images, `[batch]`, from `[batch, 3, height, width]` with values from -1 to
    /// 1.
    ///
    /// # Panics
    /// When the shapes differ, or the images are smaller than the network's windows.
    pub fn forward(&self, x: Tensor<B, 4>, y: Tensor<B, 4>) -> Tensor<B, 1> {
        let features = |images| self.net.forward(standardized(images)).into_iter().map(unit_length);
        let heads = self.heads.iter().map(|(_, head)| head);
        let distances = features(x).zip(features(y)).zip(heads).map(|((x, y), head)| head.distance(x, y));
        distances.reduce(|sum, distance| sum + distance).expect("a network has features")
    }
}

impl<B: Backend> LpipsHead<B> {
    /// The weighted squared distance of features, averaged over pixels: `[batch]`.
    fn distance(&self, x: Tensor<B, 4>, y: Tensor<B, 4>) -> Tensor<B, 1> {
        let [batch, _, _, _] = x.dims();
        let squares = (x - y).square();
        let weighted = self.model.iter().fold(squares, |squares, (_, conv)| conv.forward(squares));
        weighted.mean_dims([2, 3]).reshape([batch])
    }
}

/// `(images - mean) / standard deviation`
fn standardized<B: Backend>(images: Tensor<B, 4>) -> Tensor<B, 4> {
    let device = images.device();
    (images - by_channel(SHIFT, &device)) / by_channel(SCALE, &device)
}

/// The feature with unit length over channels.
fn unit_length<B: Backend>(feature: Tensor<B, 4>) -> Tensor<B, 4> {
    let length = feature.clone().square().sum_dim(1).sqrt();
    feature / (length + EPSILON)
}

impl<B: Backend> Lpips<B> {
    /// Returns the metric `lpips` with a network.
    pub fn new(net: LpipsNet<B>) -> Lpips<B> {
        Lpips::of(LpipsRule { net, unit_range: false })
    }

    /// Returns the metric with the network from files: see [`LpipsNet::load`].
    ///
    /// # Errors
    /// See [`LpipsNet::load`].
    pub fn load(
        network: Network,
        classifier: impl AsRef<Path>,
        heads: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<Lpips<B>, StoreError> {
        Ok(Lpips::new(LpipsNet::load(network, classifier, heads, device)?))
    }

    kiln_ir::setters! {
        /// Expects values from 0 to 1 instead of -1 to 1.
        unit_range() => rule.unit_range = true;
    }
}

impl<B: Backend> MetricRule for LpipsRule<B> {
    crate::metric::facts!("lpips", higher is better: false, "distance" / "images");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (x, y) = typed_images::<B>(observation, self.net.net.network().least_size())?;
        let scaled = |images: Tensor<B, 4>| if self.unit_range { images * 2.0 - 1.0 } else { images };
        let distances = self.net.forward(scaled(x), scaled(y));
        sums.count("images", distances.dims()[0] as f64);
        sums.sum("distance", distances.sum().into_any())
    }
}
