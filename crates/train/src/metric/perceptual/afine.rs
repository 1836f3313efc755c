//! Adaptive fidelity-naturalness evaluation.

use std::path::Path;

use kiln_nn::{Gelu, Linear, Module, ModuleDict, Param};
use kiln_store::{DTypePolicy, LoadOptions, StoreError, load_module_into};
use kiln_tensor::{Backend, Tensor, activation};

use super::clip::{resized, zero_linear};
use super::{ClipVision, ClipVisionConfig, by_channel, typed_images};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::Observation;

/// Adaptive fidelity-naturalness evaluation, A-FINE (Chen et al., "Toward generalized image quality assessment:
/// relaxing the perfect reference quality assumption", CVPR 2025): a metric for references that may look worse than the
/// predictions, such as those of super-resolution. The score is the sum of the fidelity of a prediction to its
/// reference and of the weighted naturalness of the prediction, both computed from the features of a CLIP. The weight
/// is greater for predictions that are more natural than their references.
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS) and the references, [`TARGETS`](crate::TARGETS), of one shape
/// `[batch, 3, height, width]` with values from 0 to 1, on the backend `B`. In training, that is the backend without
/// automatic differentiation. The main value, `afine`, is the mean over images of a score from 0 to 100, and
/// `afine_unscaled` the mean of the score before it is scaled; less is better. The metric is not symmetric, and equal
/// images do not have 0.
///
/// ```no_run
/// use kiln_backends::Flex;
/// use kiln_train::metric::Afine;
///
/// let metric = Afine::<Flex>::load("afine.safetensors", "afine.safetensors", &Default::default())?;
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
pub type Afine<B> = Accumulated<AfineRule<B>>;

/// The rule of [`Afine`].
#[derive(Clone, Debug)]
pub struct AfineRule<B: Backend> {
    net: AfineNet<B>,
}

/// [`Afine`] under a name like those of Burn's metrics.
pub type AfineMetric<B> = Afine<B>;

/// The network of [`Afine`], which is also a loss.
#[derive(Clone, Debug, Module)]
pub struct AfineNet<B: Backend> {
    /// The encoder whose features are compared.
    pub visual: ClipVision<B>,
    /// The parts that compare the features.
    pub heads: AfineHeads<B>,
}

/// The parts of an [`AfineNet`] behind the encoder.
#[derive(Clone, Debug, Module)]
pub struct AfineHeads<B: Backend> {
    /// The naturalness of an image.
    pub natural: AfineNaturalness<B>,
    /// The distance of an image to its reference.
    pub fidelity: AfineFidelity<B>,
    /// The scale of the naturalness. Initially 4.9592 and 21.5968.
    pub natural_scale: AfineScale<B>,
    /// The scale of the fidelity, limited to `yita3` from 0.05 to 0.95 and `yita4` from 0.01 to 0.70. Initially 0.5 and
    /// 0.15.
    pub fidelity_scale: AfineScale<B>,
    /// The weight of the naturalness.
    pub adapter: AfineAdapter<B>,
}

/// The naturalness of an image, less for more natural images: a multilayer perceptron of the means and variances of its
/// features.
#[derive(Clone, Debug, Module)]
pub struct AfineNaturalness<B: Backend> {
    /// The projection of the means and variances of each layer of the encoder, from `2 width` to 128 features.
    pub proj_feat: Linear<B>,
    /// The perceptron of those of the image and of all projections.
    pub proj_head: (Linear<B>, Gelu, Linear<B>),
}

/// The distance of an image to its reference: that of [`Dists`](crate::metric::Dists), of the image and of the
/// features of all layers of the encoder.
#[derive(Clone, Debug, Module)]
pub struct AfineFidelity<B: Backend> {
    /// The weights of texture before softplus: `[1, 1, 3 + layers width]`.
    pub alpha: Param<Tensor<B, 3>>,
    /// The weights of structure before softplus: `[1, 1, 3 + layers width]`.
    pub beta: Param<Tensor<B, 3>>,
}

/// The logistic function `4 / (1 + exp((yita3 - x) / |yita4|)) - 2`, from -2 to 2.
#[derive(Clone, Debug, Module)]
pub struct AfineScale<B: Backend> {
    /// The centre: `[1]`.
    pub yita3: Param<Tensor<B, 1>>,
    /// The width: `[1]`.
    pub yita4: Param<Tensor<B, 1>>,
}

/// The weight of the naturalness: `exp(softplus(k) (reference - prediction))`.
#[derive(Clone, Debug, Module)]
pub struct AfineAdapter<B: Backend> {
    /// The factor before softplus, `[1]`. Initially 5.
    pub k: Param<Tensor<B, 1>>,
}

/// The mean of images that the encoder was trained on, for values from 0 to 1.
const MEAN: [f64; 3] = [0.48145466, 0.4578275, 0.40821073];
/// The standard deviation of images that the encoder was trained on.
const DEVIATION: [f64; 3] = [0.26862954, 0.26130258, 0.27577711];
/// Added to both sides of the ratios of similarity, and to divisors.
const EPSILON: f64 = 1e-10;
/// Number of features of a projected layer.
const PROJECTED: usize = 128;
/// Number of hidden features of the perceptron of naturalness.
const HIDDEN: usize = 768;
/// The centre and the width of the scores from 0 to 100.
const SCORE: [f64; 2] = [-1.9710, 2.3734];

impl<B: Backend> AfineNet<B> {
    /// Returns a network whose weights are zeros. Its scales and adapter have their initial values.
    ///
    /// # Panics
    /// When the encoder's width is not a positive multiple of 64.
    pub fn zeros(encoder: &ClipVisionConfig, device: &B::Device) -> AfineNet<B> {
        let number = |x: f32| Param::from_tensor(Tensor::from_floats([x], device));
        let scale = |yita3, yita4| AfineScale { yita3: number(yita3), yita4: number(yita4) };
        let channels = 3 + encoder.layers * encoder.width;
        let zeros = || Param::from_tensor(Tensor::zeros([1, 1, channels], device));
        let statistics = 2 * 3 + encoder.layers * PROJECTED;
        let heads = AfineHeads {
            natural: AfineNaturalness {
                proj_feat: zero_linear(2 * encoder.width, PROJECTED, device),
                proj_head: (
                    zero_linear(statistics, HIDDEN, device),
                    Gelu::new(),
                    zero_linear(HIDDEN, 1, device),
                ),
            },
            fidelity: AfineFidelity { alpha: zeros(), beta: zeros() },
            natural_scale: scale(4.9592, 21.5968),
            fidelity_scale: scale(0.5, 0.15),
            adapter: AfineAdapter { k: number(5.0) },
        };
        AfineNet { visual: encoder.zeros(device), heads }
    }

    /// Loads the network from two safetensors files, which may be one: the encoder, CLIP ViT-B/32, with OpenAI's names
    /// behind `finetuned_clip.` (`finetuned_clip.visual.conv1.weight`) or without it, and the heads with those of the
    /// paper's checkpoint (`natural.proj_feat.weight`). Other tensors are skipped, and other float dtypes are
    /// converted.
    ///
    /// The paper's checkpoint has a group of tensors for each part, some of them without axes. To convert it:
    ///
    /// ```python
    /// import safetensors.torch, torch
    /// tensors = {}
    /// for group, parts in torch.load("afine.pth", map_location="cpu").items():
    ///     tensors |= {f"{group}.{name}": torch.atleast_1d(part).clone().contiguous() for name, part in parts.items()}
    /// safetensors.torch.save_file(tensors, "afine.safetensors")
    /// ```
    ///
    /// # Errors
    /// When a file cannot be read, or a parameter is missing or has another shape. The error lists all of them.
    pub fn load(
        encoder: impl AsRef<Path>,
        heads: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<AfineNet<B>, StoreError> {
        AfineNet::load_with(&ClipVisionConfig::new(), encoder, heads, device)
    }

    /// Loads a network with an encoder of another size, like [`load`](AfineNet::load).
    ///
    /// # Errors
    /// See [`load`](AfineNet::load).
    ///
    /// # Panics
    /// When the encoder's width is not a positive multiple of 64.
    pub fn load_with(
        config: &ClipVisionConfig,
        encoder: impl AsRef<Path>,
        heads: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<AfineNet<B>, StoreError> {
        let AfineNet { visual, heads: mut own } = AfineNet::zeros(config, device);
        let options = LoadOptions::new().dtype(DTypePolicy::Cast).allow_unexpected(true);
        load_module_into(&mut own, heads, &options)?;
        // The dictionary adds the file's `visual.` to names, also in errors.
        let mut clip = ModuleDict::from_iter([("visual", visual)]);
        let encoder_names = |name: &str| {
            let name = name.strip_prefix("finetuned_clip.").unwrap_or(name);
            name.starts_with("visual.").then(|| name.to_owned())
        };
        load_module_into(&mut clip, encoder, &options.rename(encoder_names))?;
        let visual = clip.remove("visual").expect("the dictionary has the encoder");
        Ok(AfineNet { visual, heads: own })
    }

    /// Computes the score of each image, `[batch]`, from 0 to 100, less is better, from images and their references,
    /// `[batch, 3, height, width]` with values from 0 to 1. Images whose lengths are not multiples of a patch are
    /// resized bicubically to the next multiples.
    ///
    /// # Panics
    /// When the shapes differ, or the images do not have 3 channels.
    pub fn forward(&self, images: Tensor<B, 4>, references: Tensor<B, 4>) -> Tensor<B, 1> {
        scaled(self.forward_unscaled(images, references))
    }

    /// Computes [`forward`](AfineNet::forward) before the logistic function from 0 to 100.
    ///
    /// # Panics
    /// See [`forward`](AfineNet::forward).
    pub fn forward_unscaled(&self, images: Tensor<B, 4>, references: Tensor<B, 4>) -> Tensor<B, 1> {
        let (x, r) = (self.features(images), self.features(references));
        let heads = &self.heads;
        let naturalness = |z: &[Tensor<B, 3>]| heads.natural_scale.forward(heads.natural.forward(z));
        let distance = heads.fidelity.forward(&x, &r);
        let fidelity = heads.fidelity_scale.forward_within(distance, [0.05, 0.95], [0.01, 0.70]);
        heads.adapter.forward(naturalness(&x), naturalness(&r)) + fidelity
    }

    /// The resized image, `[batch, pixels, 3]`, and its features, `[batch, patches, width]`.
    fn features(&self, images: Tensor<B, 4>) -> Vec<Tensor<B, 3>> {
        let ([batch, _, height, width], device) = (images.dims(), images.device());
        let (mean, deviation) = (by_channel::<B>(MEAN, &device), by_channel::<B>(DEVIATION, &device));
        let size = [height, width].map(|length| length.next_multiple_of(self.visual.patch));
        let standardized = resized((images - mean.clone()) / deviation.clone(), size);
        let pixels = standardized.clone() * deviation + mean;
        let pixels = pixels.reshape([batch, 3, size[0] * size[1]]).swap_dims(1, 2);
        let features = self.visual.forward(standardized).into_iter().map(activation::relu);
        std::iter::once(pixels).chain(features).collect()
    }
}

/// The score from 0 to 100.
fn scaled<B: Backend>(score: Tensor<B, 1>) -> Tensor<B, 1> {
    let [centre, width] = SCORE;
    activation::sigmoid((score - centre) / (width + EPSILON)) * 100.0
}

impl<B: Backend> AfineNaturalness<B> {
    /// Computes the naturalness, `[batch]`, from the image, `[batch, pixels, 3]`, and its features,
    /// `[batch, patches, width]`.
    ///
    /// # Panics
    /// When the number of features, or of their channels, differs from that of the projections.
    pub fn forward(&self, features: &[Tensor<B, 3>]) -> Tensor<B, 1> {
        let statistics = features.iter().enumerate().map(|(layer, x)| match layer {
            0 => moments(x),
            _ => self.proj_feat.forward(moments(x)),
        });
        let (hidden, gelu, output) = &self.proj_head;
        let score = output.forward(gelu.forward(hidden.forward(Tensor::cat(statistics.collect(), 1))));
        let [batch, _] = score.dims();
        score.reshape([batch])
    }
}

/// The means and the biased variances over tokens: `[batch, 2 channels]`.
fn moments<B: Backend>(x: &Tensor<B, 3>) -> Tensor<B, 2> {
    let [batch, _, channels] = x.dims();
    let mean = x.clone().mean_dim(1);
    let variance = (x.clone() - mean.clone()).square().mean_dim(1);
    Tensor::cat(vec![mean, variance], 2).reshape([batch, 2 * channels])
}

impl<B: Backend> AfineFidelity<B> {
    /// Computes the distance, `[batch]`, of two images, `[batch, pixels, 3]`, with features
    /// `[batch, patches, width]`.
    ///
    /// # Panics
    /// When the shapes differ, or the number of channels differs from that of the weights.
    pub fn forward(&self, x: &[Tensor<B, 3>], y: &[Tensor<B, 3>]) -> Tensor<B, 1> {
        let [alpha, beta] = [&self.alpha, &self.beta].map(|weights| activation::softplus(weights.val(), 1.0));
        let total = (alpha.clone().sum() + beta.clone().sum() + EPSILON).reshape([1, 1, 1]);
        let mut start = 0;
        let mut parts = Vec::with_capacity(x.len());
        for (x, y) in x.iter().zip(y) {
            let [_, _, channels] = x.dims();
            let part = |weights: &Tensor<B, 3>| weights.clone().narrow(2, start, channels) / total.clone();
            let (texture, structure) = similarities(x.clone(), y.clone());
            parts.push((texture * part(&alpha) + structure * part(&beta)).sum_dim(2));
            start += channels;
        }
        let similarity = Tensor::cat(parts, 1).sum_dim(1);
        let [batch, _, _] = similarity.dims();
        1.0 - similarity.reshape([batch])
    }
}

/// The similarities of the texture and of the structure of each channel: `[batch, 1, channels]`.
fn similarities<B: Backend>(x: Tensor<B, 3>, y: Tensor<B, 3>) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let mean = |z: Tensor<B, 3>| z.mean_dim(1);
    let (mx, my) = (mean(x.clone()), mean(y.clone()));
    let (x, y) = (x - mx.clone(), y - my.clone());
    let cov = mean(x.clone() * y.clone());
    let texture = (mx.clone() * my.clone() * 2.0 + EPSILON) / (mx.square() + my.square() + EPSILON);
    (texture, (cov * 2.0 + EPSILON) / (mean(x.square()) + mean(y.square()) + EPSILON))
}

impl<B: Backend> AfineScale<B> {
    /// Computes the logistic function; the output has the same shape.
    pub fn forward(&self, x: Tensor<B, 1>) -> Tensor<B, 1> {
        logistic(x, self.yita3.val(), self.yita4.val())
    }

    /// Computes the logistic function with a centre and a width within ranges; the output has the same shape.
    pub fn forward_within(&self, x: Tensor<B, 1>, centres: [f64; 2], widths: [f64; 2]) -> Tensor<B, 1> {
        let within =
            |parameter: &Param<Tensor<B, 1>>, [low, high]: [f64; 2]| parameter.val().clamp(low, high);
        logistic(x, within(&self.yita3, centres), within(&self.yita4, widths))
    }
}

/// `4 / (1 + exp((centre - x) / |width|)) - 2`
fn logistic<B: Backend>(x: Tensor<B, 1>, centre: Tensor<B, 1>, width: Tensor<B, 1>) -> Tensor<B, 1> {
    activation::sigmoid((x - centre) / (width.abs() + EPSILON)) * 4.0 - 2.0
}

impl<B: Backend> AfineAdapter<B> {
    /// Computes the weighted naturalness of images, `[batch]`, from theirs and that of their references, `[batch]`.
    pub fn forward(&self, images: Tensor<B, 1>, references: Tensor<B, 1>) -> Tensor<B, 1> {
        let k = activation::softplus(self.k.val(), 1.0);
        (k * (references - images.clone())).exp() * images
    }
}

impl<B: Backend> Afine<B> {
    /// Returns the metric `afine` with a network.
    pub fn new(net: AfineNet<B>) -> Afine<B> {
        Afine::of(AfineRule { net })
    }

    /// Returns the metric with the network from files: see [`AfineNet::load`].
    ///
    /// # Errors
    /// See [`AfineNet::load`].
    pub fn load(
        encoder: impl AsRef<Path>,
        heads: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<Afine<B>, StoreError> {
        Ok(Afine::new(AfineNet::load(encoder, heads, device)?))
    }
}

impl<B: Backend> MetricRule for AfineRule<B> {
    crate::metric::facts!("afine", higher is better: false);

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (images, references) = typed_images::<B>(observation, 1)?;
        let unscaled = self.net.forward_unscaled(images, references);
        sums.count("images", unscaled.dims()[0] as f64);
        sums.sum("unscaled", unscaled.clone().sum().into_any())?;
        sums.sum("score", scaled(unscaled).sum().into_any())
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let (score, unscaled) = (sums.ratio("score", "images")?, sums.ratio("unscaled", "images")?);
        Ok(MetricValues::scalar(name, score).with(format!("{name}_unscaled"), MetricValue::Scalar(unscaled)))
    }
}
