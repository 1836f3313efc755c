//! ResNet ([He et al. 2015](https://arxiv.org/abs/1512.03385)) and Wide ResNet
//! ([Zagoruyko and Komodakis 2016](https://arxiv.org/abs/1605.07146)), as in torchvision.

use std::path::Path;

use kiln_backends::Dyn;
use kiln_nn::{
    BatchNorm, BatchNormConfig, Config, Conv2d, Initializer, Linear, LinearConfig, Module, plain_data,
};
use kiln_tensor::module::{PoolOptions, max_pool2d};
use kiln_tensor::{Backend, Tensor, activation};

use crate::error::Result;
use crate::image::{ImagePreprocessor, Interpolation};
use crate::layers::convolution;
use crate::loading::load_file;

/// The kind of residual block.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNetBlockKind {
    /// Two 3 × 3 convolutions: ResNet-18 and 34.
    Basic,
    /// A 1 × 1, a 3 × 3 and a 1 × 1 convolution to four times the channels: ResNet-50 and deeper.
    Bottleneck,
}

plain_data!(ResNetBlockKind);

/// Settings of a [`ResNet`] model.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::ResNetConfig;
/// use kiln_tensor::Tensor;
///
/// let model = ResNetConfig::resnet18().with_num_classes(10).init::<Flex>(&Default::default());
/// let images = Tensor::zeros([1, 3, 32, 32], &Default::default());
/// assert_eq!(model.forward(images).dims(), [1, 10]);
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct ResNetConfig {
    /// The kind of block.
    pub block: ResNetBlockKind,
    /// Number of blocks of each of the four stages.
    pub layers: [usize; 4],
    /// Number of channels of the first convolution and the first stage. Default: 64.
    #[config(default = 64)]
    pub width: usize,
    /// Factor of the channels of the 3 × 3 convolutions of bottleneck blocks: 2 in wide models. Default: 1.
    #[config(default = 1)]
    pub widen: usize,
    /// Number of classes. Default: 1,000.
    #[config(default = 1000)]
    pub num_classes: usize,
}

impl ResNetConfig {
    /// ResNet-18: 11.7 million parameters.
    pub fn resnet18() -> Self {
        ResNetConfig::new(ResNetBlockKind::Basic, [2, 2, 2, 2])
    }

    /// ResNet-34: 21.8 million parameters.
    pub fn resnet34() -> Self {
        ResNetConfig::new(ResNetBlockKind::Basic, [3, 4, 6, 3])
    }

    /// ResNet-50: 25.6 million parameters.
    pub fn resnet50() -> Self {
        ResNetConfig::new(ResNetBlockKind::Bottleneck, [3, 4, 6, 3])
    }

    /// ResNet-101: 44.5 million parameters.
    pub fn resnet101() -> Self {
        ResNetConfig::new(ResNetBlockKind::Bottleneck, [3, 4, 23, 3])
    }

    /// ResNet-152: 60.2 million parameters.
    pub fn resnet152() -> Self {
        ResNetConfig::new(ResNetBlockKind::Bottleneck, [3, 8, 36, 3])
    }

    /// Wide ResNet-50-2: 68.9 million parameters.
    pub fn wide_resnet50_2() -> Self {
        ResNetConfig::resnet50().with_widen(2)
    }

    /// Wide ResNet-101-2: 126.9 million parameters.
    pub fn wide_resnet101_2() -> Self {
        ResNetConfig::resnet101().with_widen(2)
    }

    /// Returns the preprocessing of torchvision's weights `IMAGENET1K_V1`: the shorter side to 256 by bilinear
    /// interpolation, the central 224 × 224, and mean and standard deviation of ImageNet.
    pub fn preprocessor(&self) -> ImagePreprocessor {
        ImagePreprocessor {
            resize: 256,
            crop: 224,
            interpolation: Interpolation::Bilinear,
            mean: [0.485, 0.456, 0.406].map(|mean| 255.0 * mean),
            std: [0.229, 0.224, 0.225].map(|std| 255.0 * std),
        }
    }

    /// Returns a model with random weights on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> ResNet<B> {
        let weights = Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: true };
        self.init_with(weights, Initializer::LINEAR, device)
    }

    fn init_with<B: Backend>(
        &self,
        weights: Initializer,
        classifier: Initializer,
        device: &B::Device,
    ) -> ResNet<B> {
        let mut input = self.width;
        let mut stage = |index: usize| {
            let width = self.width << index;
            let block = |position: usize| {
                // The 3 × 3 convolution has the stride ("V1.5"), as in torchvision.
                let stride = if index > 0 && position == 0 { 2 } else { 1 };
                let shape = BlockShape { input, width, stride, widen: self.widen };
                let block = ResNetBlock::new(self.block, &shape, weights, device);
                input = self.block.channels(width);
                block
            };
            (0..self.layers[index]).map(block).collect()
        };
        let (layer1, layer2, layer3, layer4) = (stage(0), stage(1), stage(2), stage(3));
        ResNet {
            conv1: convolution([3, self.width], [7, 2], [3, 3], 1, weights, device),
            bn1: BatchNormConfig::new(self.width).init(device),
            layer1,
            layer2,
            layer3,
            layer4,
            fc: LinearConfig::new(input, self.num_classes).with_initializer(classifier).init(device),
        }
    }
}

impl ResNetBlockKind {
    /// Returns the number of output channels of a block of this width.
    fn channels(self, width: usize) -> usize {
        match self {
            ResNetBlockKind::Basic => width,
            ResNetBlockKind::Bottleneck => 4 * width,
        }
    }
}

/// The image classifier ResNet. The names of the parameters are those of torchvision.
///
/// | parameter | shape |
/// |---|---|
/// | `conv1.weight` | `[width, 3, 7, 7]` |
/// | `layerS.N.conv1.weight`, basic | `[w, input, 3, 3]` |
/// | `layerS.N.conv2.weight`, basic | `[w, w, 3, 3]` |
/// | `layerS.N.conv1.weight`, bottleneck | `[widen w, input, 1, 1]` |
/// | `layerS.N.conv2.weight`, bottleneck | `[widen w, widen w, 3, 3]` |
/// | `layerS.N.conv3.weight`, bottleneck | `[4 w, widen w, 1, 1]` |
/// | `layerS.0.downsample.0.weight`, where the shape changes | `[output, input, 1, 1]` |
/// | `fc.weight` | `[num_classes, output]` |
///
/// The width `w` of stage `S` is `width 2^(S - 1)`. Batch normalisation follows each convolution: `bn1`, `bn2`, `bn3`,
/// `downsample.1`.
#[derive(Module, Clone, Debug)]
pub struct ResNet<B: Backend = Dyn> {
    /// The first convolution, with stride 2.
    pub conv1: Conv2d<B>,
    /// The normalisation of the first convolution.
    pub bn1: BatchNorm<B>,
    /// The first stage.
    pub layer1: Vec<ResNetBlock<B>>,
    /// The second stage.
    pub layer2: Vec<ResNetBlock<B>>,
    /// The third stage.
    pub layer3: Vec<ResNetBlock<B>>,
    /// The last stage.
    pub layer4: Vec<ResNetBlock<B>>,
    /// The classifier.
    pub fc: Linear<B>,
}

/// A residual block: convolutions whose result is added to the input.
#[derive(Module, Clone, Debug)]
pub struct ResNetBlock<B: Backend = Dyn> {
    /// The first convolution.
    pub conv1: Conv2d<B>,
    /// The normalisation of the first convolution.
    pub bn1: BatchNorm<B>,
    /// The second convolution.
    pub conv2: Conv2d<B>,
    /// The normalisation of the second convolution.
    pub bn2: BatchNorm<B>,
    /// The third convolution of a bottleneck block.
    pub conv3: Option<Conv2d<B>>,
    /// The normalisation of the third convolution.
    pub bn3: Option<BatchNorm<B>>,
    /// The projection of the input where the block changes its shape.
    pub downsample: Option<(Conv2d<B>, BatchNorm<B>)>,
}

/// The shape of a block.
struct BlockShape {
    input: usize,
    width: usize,
    stride: usize,
    widen: usize,
}

impl<B: Backend> ResNet<B> {
    /// Loads a model of these settings from a file of weights in any format of [`Weights`](kiln_store::Weights).
    ///
    /// # Errors
    /// When the file cannot be read, or its weights do not match the settings.
    pub fn from_pretrained(
        config: &ResNetConfig,
        path: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<Self> {
        load_file(config.init_with(Initializer::Zeros, Initializer::Zeros, device), path.as_ref())
    }

    /// Computes the logits `[batch, num_classes]` of images `[batch, 3, height, width]`, which
    /// [`ResNetConfig::preprocessor`] prepares.
    ///
    /// # Panics
    /// When the number of channels is not 3.
    #[track_caller]
    pub fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let features = self.features(images);
        let [batch, channels, _, _] = features.dims();
        self.fc.forward(features.mean_dims([2, 3]).reshape([batch, channels]))
    }

    /// Computes the features before pooling, `[batch, channels, height / 32, width / 32]`.
    ///
    /// # Panics
    /// When the number of channels is not 3.
    #[track_caller]
    pub fn features(&self, images: Tensor<B, 4>) -> Tensor<B, 4> {
        let x = activation::relu(self.bn1.forward(self.conv1.forward(images)));
        let window = PoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([(1, 1); 2]);
        let x = max_pool2d(x, &window);
        let stages = [&self.layer1, &self.layer2, &self.layer3, &self.layer4];
        stages.into_iter().flatten().fold(x, |x, block| block.forward(x))
    }
}

impl<B: Backend> ResNetBlock<B> {
    fn new(kind: ResNetBlockKind, shape: &BlockShape, weights: Initializer, device: &B::Device) -> Self {
        let &BlockShape { input, width, stride, widen } = shape;
        let output = kind.channels(width);
        let conv = |channels, kernel, stride| {
            convolution(channels, [kernel, stride], [kernel / 2; 2], 1, weights, device)
        };
        let norm = |channels: usize| BatchNormConfig::new(channels).init(device);
        let changes = stride != 1 || input != output;
        let downsample = changes.then(|| (conv([input, output], 1, stride), norm(output)));
        match kind {
            ResNetBlockKind::Basic => ResNetBlock {
                conv1: conv([input, width], 3, stride),
                bn1: norm(width),
                conv2: conv([width, width], 3, 1),
                bn2: norm(width),
                conv3: None,
                bn3: None,
                downsample,
            },
            ResNetBlockKind::Bottleneck => {
                let inner = width * widen;
                ResNetBlock {
                    conv1: conv([input, inner], 1, 1),
                    bn1: norm(inner),
                    conv2: conv([inner, inner], 3, stride),
                    bn2: norm(inner),
                    conv3: Some(conv([inner, output], 1, 1)),
                    bn3: Some(norm(output)),
                    downsample,
                }
            }
        }
    }

    #[track_caller]
    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let residual = match &self.downsample {
            Some((conv, norm)) => norm.forward(conv.forward(x.clone())),
            None => x.clone(),
        };
        let x = activation::relu(self.bn1.forward(self.conv1.forward(x)));
        let x = self.bn2.forward(self.conv2.forward(x));
        let x = match (&self.conv3, &self.bn3) {
            (Some(conv), Some(norm)) => norm.forward(conv.forward(activation::relu(x))),
            (None, _) | (_, None) => x,
        };
        activation::relu(x + residual)
    }
}
