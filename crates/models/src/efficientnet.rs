//! EfficientNet-Lite: EfficientNet ([Tan and Le 2019](https://arxiv.org/abs/1905.11946)) without squeeze-and-excitation
//! and with ReLU6, for quantisation
//! ([Liu 2020](https://blog.tensorflow.org/2020/03/higher-accuracy-on-vision-models-with-efficientnet-lite.html)).

use std::path::Path;

use kiln_backends::Dyn;
use kiln_nn::{
    BatchNorm, BatchNormConfig, Config, Conv2d, Dropout, DropoutConfig, Initializer, Linear, LinearConfig,
    Module, PaddingConfig2d,
};
use kiln_tensor::{Backend, Tensor, activation};

use crate::error::Result;
use crate::image::{ImagePreprocessor, Interpolation};
use crate::layers::convolution;
use crate::loading::load_file;

/// The padding of convolutions.
const SAME: PaddingConfig2d = PaddingConfig2d::Same;

/// Settings of an [`EfficientNetLite`] model.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::EfficientNetLiteConfig;
/// use kiln_tensor::Tensor;
///
/// let model = EfficientNetLiteConfig::lite0().with_num_classes(10).init::<Flex>(&Default::default());
/// let images = Tensor::zeros([1, 3, 32, 32], &Default::default());
/// assert_eq!(model.forward(images).dims(), [1, 10]);
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct EfficientNetLiteConfig {
    /// Factor of the numbers of channels, which are rounded to multiples of 8.
    pub width_coefficient: f64,
    /// Factor of the numbers of blocks, which are rounded up.
    pub depth_coefficient: f64,
    /// Height and width of the images of training.
    pub image_size: usize,
    /// Dropout of the pooled features in training.
    pub dropout_rate: f64,
    /// Number of classes. Default: 1,000.
    #[config(default = 1000)]
    pub num_classes: usize,
}

/// A stage of blocks: `repeats` blocks, of which the first has the stride and changes the number of channels.
struct Stage {
    repeats: usize,
    kernel: usize,
    stride: usize,
    expand: usize,
    output: usize,
}

const fn stage(repeats: usize, kernel: usize, stride: usize, expand: usize, output: usize) -> Stage {
    Stage { repeats, kernel, stride, expand, output }
}

/// The stages of all models, before scaling.
const STAGES: [Stage; 7] = [
    stage(1, 3, 1, 1, 16),
    stage(2, 3, 2, 6, 24),
    stage(2, 5, 2, 6, 40),
    stage(3, 3, 2, 6, 80),
    stage(3, 5, 1, 6, 112),
    stage(4, 5, 2, 6, 192),
    stage(1, 3, 1, 6, 320),
];

/// Channels of the first and the last convolution. Lite models do not scale them.
const STEM: usize = 32;
const HEAD: usize = 1280;

impl EfficientNetLiteConfig {
    /// EfficientNet-Lite0: 224 × 224, 4.7 million parameters.
    pub fn lite0() -> Self {
        EfficientNetLiteConfig::new(1.0, 1.0, 224, 0.2)
    }

    /// EfficientNet-Lite1: 240 × 240, 5.4 million parameters.
    pub fn lite1() -> Self {
        EfficientNetLiteConfig::new(1.0, 1.1, 240, 0.2)
    }

    /// EfficientNet-Lite2: 260 × 260, 6.1 million parameters.
    pub fn lite2() -> Self {
        EfficientNetLiteConfig::new(1.1, 1.2, 260, 0.3)
    }

    /// EfficientNet-Lite3: 280 × 280, 8.2 million parameters.
    pub fn lite3() -> Self {
        EfficientNetLiteConfig::new(1.2, 1.4, 280, 0.3)
    }

    /// EfficientNet-Lite4: 300 × 300, 13 million parameters.
    pub fn lite4() -> Self {
        EfficientNetLiteConfig::new(1.4, 1.8, 300, 0.3)
    }

    /// Returns the preprocessing of the model: the central square with a margin of 32 pixels, resized by bicubic
    /// interpolation and scaled to `(x - 127) / 128`.
    pub fn preprocessor(&self) -> ImagePreprocessor {
        let size = self.image_size;
        ImagePreprocessor {
            resize: size + 32,
            crop: size,
            interpolation: Interpolation::Bicubic,
            mean: [127.0; 3],
            std: [128.0; 3],
        }
    }

    /// Returns a model with random weights on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> EfficientNetLite<B> {
        let gain = 2f64.sqrt();
        self.init_with(Initializer::KaimingNormal { gain, fan_out_only: true }, Initializer::LINEAR, device)
    }

    fn init_with<B: Backend>(
        &self,
        weights: Initializer,
        classifier: Initializer,
        device: &B::Device,
    ) -> EfficientNetLite<B> {
        let (mut blocks, mut input) = (Vec::new(), STEM);
        for (index, stage) in STAGES.iter().enumerate() {
            let output = self.channels(stage.output);
            // Lite models scale the depth of neither the first nor the last stage.
            let is_fixed = index == 0 || index == STAGES.len() - 1;
            let repeats = if is_fixed { stage.repeats } else { self.repeats(stage.repeats) };
            for repeat in 0..repeats {
                let stride = if repeat == 0 { stage.stride } else { 1 };
                let shape = BlockShape { input, output, kernel: stage.kernel, stride, expand: stage.expand };
                blocks.push(MbConvBlock::new(&shape, weights, device));
                input = output;
            }
        }
        EfficientNetLite {
            conv_stem: convolution([3, STEM], [3, 2], SAME, 1, weights, device),
            bn0: norm(STEM, device),
            blocks,
            conv_head: convolution([input, HEAD], [1, 1], SAME, 1, weights, device),
            bn1: norm(HEAD, device),
            dropout: DropoutConfig::new(self.dropout_rate).init(),
            fc: LinearConfig::new(HEAD, self.num_classes).with_initializer(classifier).init(device),
        }
    }

    /// Scales a number of channels and rounds it to a multiple of 8, but not below 90 %.
    fn channels(&self, channels: usize) -> usize {
        let scaled = channels as f64 * self.width_coefficient;
        let rounded = ((scaled + 4.0) as usize / 8 * 8).max(8);
        if (rounded as f64) < 0.9 * scaled { rounded + 8 } else { rounded }
    }

    fn repeats(&self, repeats: usize) -> usize {
        (repeats as f64 * self.depth_coefficient).ceil() as usize
    }
}

/// The image classifier EfficientNet-Lite. The names of the parameters are those of `efficientnet_lite_pytorch` (and of
/// `efficientnet_pytorch`, on which it is based).
///
/// | parameter | shape |
/// |---|---|
/// | `_conv_stem.weight` | `[32, 3, 3, 3]` |
/// | `_blocks.N._expand_conv.weight`, unless the block does not expand | `[6 input, input, 1, 1]` |
/// | `_blocks.N._depthwise_conv.weight` | `[6 input, 1, kernel, kernel]` |
/// | `_blocks.N._project_conv.weight` | `[output, 6 input, 1, 1]` |
/// | `_conv_head.weight` | `[1280, input, 1, 1]` |
/// | `_fc.weight` | `[num_classes, 1280]` |
///
/// Batch normalisation follows each convolution: `_bn0`, `_bn1`, `_bn2`. Convolutions have TensorFlow's `SAME` padding.
#[derive(Module, Clone, Debug)]
pub struct EfficientNetLite<B: Backend = Dyn> {
    /// The first convolution, with stride 2.
    #[module(rename = "_conv_stem")]
    pub conv_stem: Conv2d<B>,
    /// The normalisation of the first convolution.
    #[module(rename = "_bn0")]
    pub bn0: BatchNorm<B>,
    /// The blocks.
    #[module(rename = "_blocks")]
    pub blocks: Vec<MbConvBlock<B>>,
    /// The last convolution.
    #[module(rename = "_conv_head")]
    pub conv_head: Conv2d<B>,
    /// The normalisation of the last convolution.
    #[module(rename = "_bn1")]
    pub bn1: BatchNorm<B>,
    /// Dropout of the pooled features.
    pub dropout: Dropout,
    /// The classifier.
    #[module(rename = "_fc")]
    pub fc: Linear<B>,
}

/// Inverted residual block ([Sandler et al. 2018](https://arxiv.org/abs/1801.04381)): a 1 × 1 convolution to more
/// channels, a depthwise convolution and a 1 × 1 convolution to few channels, with a residual connection where input and
/// output have the same shape.
#[derive(Module, Clone, Debug)]
pub struct MbConvBlock<B: Backend = Dyn> {
    /// The expansion; `None` in the first block.
    #[module(rename = "_expand_conv")]
    pub expand_conv: Option<Conv2d<B>>,
    /// The normalisation of the expansion.
    #[module(rename = "_bn0")]
    pub bn0: Option<BatchNorm<B>>,
    /// The depthwise convolution.
    #[module(rename = "_depthwise_conv")]
    pub depthwise_conv: Conv2d<B>,
    /// The normalisation of the depthwise convolution.
    #[module(rename = "_bn1")]
    pub bn1: BatchNorm<B>,
    /// The projection to few channels.
    #[module(rename = "_project_conv")]
    pub project_conv: Conv2d<B>,
    /// The normalisation of the projection.
    #[module(rename = "_bn2")]
    pub bn2: BatchNorm<B>,
    #[module(attribute)]
    is_residual: bool,
}

/// The shape of a block.
struct BlockShape {
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    expand: usize,
}

impl<B: Backend> EfficientNetLite<B> {
    /// Loads a model of these settings from a file of weights in any format of [`Weights`](kiln_store::Weights).
    ///
    /// # Errors
    /// When the file cannot be read, or its weights do not match the settings.
    pub fn from_pretrained(
        config: &EfficientNetLiteConfig,
        path: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<Self> {
        load_file(config.init_with(Initializer::Zeros, Initializer::Zeros, device), path.as_ref())
    }

    /// Computes the logits `[batch, num_classes]` of images `[batch, 3, height, width]`, which
    /// [`EfficientNetLiteConfig::preprocessor`] prepares. Height and width are at least 32 by convention; the weights
    /// were trained with `image_size`.
    ///
    /// # Panics
    /// When the number of channels is not 3.
    #[track_caller]
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let features = self.features(images);
        let [batch, channels, _, _] = features.dims();
        let pooled = features.mean_dims([2, 3]).reshape([batch, channels]);
        self.fc.forward(self.dropout.forward(pooled))
    }

    /// Computes the features before pooling, `[batch, 1280, height / 32, width / 32]`.
    ///
    /// # Panics
    /// When the number of channels is not 3.
    #[track_caller]
    pub fn features(&self, images: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = activation::relu6(self.bn0.forward(self.conv_stem.forward(images)));
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        activation::relu6(self.bn1.forward(self.conv_head.forward(x)))
    }
}

impl<B: Backend> MbConvBlock<B> {
    fn new(shape: &BlockShape, weights: Initializer, device: &B::Device) -> Self {
        let &BlockShape { input, output, kernel, stride, expand } = shape;
        let wide = input * expand;
        let expands = expand != 1;
        MbConvBlock {
            expand_conv: expands.then(|| convolution([input, wide], [1, 1], SAME, 1, weights, device)),
            bn0: expands.then(|| norm(wide, device)),
            depthwise_conv: convolution([wide, wide], [kernel, stride], SAME, wide, weights, device),
            bn1: norm(wide, device),
            project_conv: convolution([wide, output], [1, 1], SAME, 1, weights, device),
            bn2: norm(output, device),
            is_residual: stride == 1 && input == output,
        }
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let residual = self.is_residual.then(|| x.clone());
        let x = match (&self.expand_conv, &self.bn0) {
            (Some(expand), Some(norm)) => activation::relu6(norm.forward(expand.forward(x))),
            (None, _) | (_, None) => x,
        };
        let x = activation::relu6(self.bn1.forward(self.depthwise_conv.forward(x)));
        let x = self.bn2.forward(self.project_conv.forward(x));
        match residual {
            Some(residual) => x + residual,
            None => x,
        }
    }
}

fn norm<B: Backend>(channels: usize, device: &B::Device) -> BatchNorm<B> {
    BatchNormConfig::new(channels).with_epsilon(1e-3).with_momentum(0.01).init(device)
}
