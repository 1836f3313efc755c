//! The feature layers of classifiers, with the parameter names of torchvision.

use std::path::Path;

use kiln_nn::{Conv2d, Conv2dConfig, Initializer, Module, ModuleDict};
use kiln_store::{DTypePolicy, LoadOptions, StoreError, load_module_into};
use kiln_tensor::module::{PoolOptions, max_pool2d};
use kiln_tensor::{Backend, Tensor, activation};

/// A network whose features measure perceived similarity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// AlexNet (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014).
    Alex,
    /// VGG with 16 layers (Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
    /// recognition", 2015).
    Vgg16,
    /// SqueezeNet 1.1 (Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model
    /// size", 2016).
    Squeeze,
}

/// The feature layers of a classifier. Parameters have the names of torchvision, such as `features.0.weight`.
#[derive(Clone, Debug, Module)]
pub struct Backbone<B: Backend> {
    /// The layers with parameters, by their places in torchvision's `features`.
    pub features: ModuleDict<BackboneBlock<B>>,
    #[module(skip)]
    network: Network,
}

/// A layer of a [`Backbone`] with parameters.
#[derive(Clone, Debug, Module)]
pub enum BackboneBlock<B: Backend> {
    /// A convolution, followed by a ReLU.
    Conv(Conv2d<B>),
    /// A block of SqueezeNet.
    Fire(Box<Fire<B>>),
}

/// A block of SqueezeNet: a 1 × 1 convolution to few channels, then 1 × 1 and 3 × 3 convolutions side by side, each
/// followed by a ReLU.
#[derive(Clone, Debug, Module)]
pub struct Fire<B: Backend> {
    /// The convolution to few channels.
    pub squeeze: Conv2d<B>,
    /// The convolution to the first channels of the output.
    pub expand1x1: Conv2d<B>,
    /// The convolution to the other channels of the output.
    pub expand3x3: Conv2d<B>,
}

/// A step through torchvision's `features`. A ReLU follows each convolution.
#[derive(Clone, Copy)]
enum Step {
    Conv {
        place: usize,
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
        padding: usize,
    },
    Fire {
        place: usize,
        channels: [usize; 2],
        squeezed: usize,
    },
    Pool(Pool),
    /// The value is one of the features.
    Tap,
}

/// A max pooling with stride 2.
#[derive(Clone, Copy)]
pub(super) struct Pool {
    window: usize,
    ceil: bool,
}

const fn conv(place: usize, input: usize, output: usize, [kernel, stride, padding]: [usize; 3]) -> Step {
    Step::Conv { place, channels: [input, output], kernel, stride, padding }
}

const fn fire(place: usize, input: usize, squeezed: usize, output: usize) -> Step {
    Step::Fire { place, channels: [input, output], squeezed }
}

/// The window 3 with stride 1 that keeps lengths.
const SAME: [usize; 3] = [3, 1, 1];

const ALEX: &[Step] = &[
    conv(0, 3, 64, [11, 4, 2]),
    Step::Tap,
    Step::Pool(Pool { window: 3, ceil: false }),
    conv(3, 64, 192, [5, 1, 2]),
    Step::Tap,
    Step::Pool(Pool { window: 3, ceil: false }),
    conv(6, 192, 384, SAME),
    Step::Tap,
    conv(8, 384, 256, SAME),
    Step::Tap,
    conv(10, 256, 256, SAME),
    Step::Tap,
];

const VGG16: &[Step] = &[
    conv(0, 3, 64, SAME),
    conv(2, 64, 64, SAME),
    Step::Tap,
    Step::Pool(Pool { window: 2, ceil: false }),
    conv(5, 64, 128, SAME),
    conv(7, 128, 128, SAME),
    Step::Tap,
    Step::Pool(Pool { window: 2, ceil: false }),
    conv(10, 128, 256, SAME),
    conv(12, 256, 256, SAME),
    conv(14, 256, 256, SAME),
    Step::Tap,
    Step::Pool(Pool { window: 2, ceil: false }),
    conv(17, 256, 512, SAME),
    conv(19, 512, 512, SAME),
    conv(21, 512, 512, SAME),
    Step::Tap,
    Step::Pool(Pool { window: 2, ceil: false }),
    conv(24, 512, 512, SAME),
    conv(26, 512, 512, SAME),
    conv(28, 512, 512, SAME),
    Step::Tap,
];

const SQUEEZE: &[Step] = &[
    conv(0, 3, 64, [3, 2, 0]),
    Step::Tap,
    Step::Pool(Pool { window: 3, ceil: true }),
    fire(3, 64, 16, 128),
    fire(4, 128, 16, 128),
    Step::Tap,
    Step::Pool(Pool { window: 3, ceil: true }),
    fire(6, 128, 32, 256),
    fire(7, 256, 32, 256),
    Step::Tap,
    Step::Pool(Pool { window: 3, ceil: true }),
    fire(9, 256, 48, 384),
    Step::Tap,
    fire(10, 384, 48, 384),
    Step::Tap,
    fire(11, 384, 64, 512),
    Step::Tap,
    fire(12, 512, 64, 512),
    Step::Tap,
];

impl Network {
    fn steps(self) -> &'static [Step] {
        match self {
            Network::Alex => ALEX,
            Network::Vgg16 => VGG16,
            Network::Squeeze => SQUEEZE,
        }
    }

    /// The least height and width of images.
    pub(super) fn least_size(self) -> usize {
        match self {
            Network::Alex => 31,
            Network::Vgg16 => 16,
            Network::Squeeze => 25,
        }
    }

    /// The number of channels of each feature.
    pub(super) fn channels(self) -> Vec<usize> {
        let mut channels = 3;
        let mut taps = Vec::new();
        for step in self.steps() {
            match *step {
                Step::Conv { channels: [_, output], .. } | Step::Fire { channels: [_, output], .. } => {
                    channels = output;
                }
                Step::Pool(_) => {}
                Step::Tap => taps.push(channels),
            }
        }
        taps
    }
}

impl<B: Backend> Backbone<B> {
    /// Returns a network whose parameters are zeros.
    pub fn zeros(network: Network, device: &B::Device) -> Backbone<B> {
        let block = |step: &Step| match *step {
            Step::Conv { place, channels, kernel, stride, padding } => {
                let conv = zero_conv(channels, kernel, stride, padding, device);
                Some((place.to_string(), BackboneBlock::Conv(conv)))
            }
            Step::Fire { place, channels: [input, output], squeezed } => {
                let expand = [squeezed, output / 2];
                let fire = Fire {
                    squeeze: zero_conv([input, squeezed], 1, 1, 0, device),
                    expand1x1: zero_conv(expand, 1, 1, 0, device),
                    expand3x3: zero_conv(expand, 3, 1, 1, device),
                };
                Some((place.to_string(), BackboneBlock::Fire(Box::new(fire))))
            }
            Step::Pool(_) | Step::Tap => None,
        };
        Backbone { features: network.steps().iter().filter_map(block).collect(), network }
    }

    /// Loads the parameters from a safetensors file. Tensors outside of `features.`, such as those of torchvision's
    /// classifiers, are skipped, and other float dtypes are converted.
    ///
    /// # Errors
    /// When the file cannot be read, or a parameter is missing or has another shape. The error lists all of them.
    pub fn load(
        network: Network,
        path: impl AsRef<Path>,
        device: &B::Device,
    ) -> Result<Backbone<B>, StoreError> {
        let mut backbone = Backbone::zeros(network, device);
        load_module_into(&mut backbone, path, &only("features."))?;
        Ok(backbone)
    }

    /// Returns the network.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Computes the features of images `[batch, 3, height, width]`, from the first: the activations that LPIPS
    /// compares.
    pub fn forward(&self, images: Tensor<B, 4>) -> Vec<Tensor<B, 4>> {
        self.forward_with(images, |x, pool| {
            let options = PoolOptions::new([pool.window; 2]).with_stride([2; 2]).with_ceil_mode(pool.ceil);
            max_pool2d(x, &options)
        })
    }

    /// [`forward`](Backbone::forward) with another pooling.
    pub(super) fn forward_with(
        &self,
        images: Tensor<B, 4>,
        pooling: impl Fn(Tensor<B, 4>, Pool) -> Tensor<B, 4>,
    ) -> Vec<Tensor<B, 4>> {
        let mut blocks = self.features.iter().map(|(_, block)| block);
        let (mut x, mut features) = (images, Vec::new());
        for step in self.network.steps() {
            x = match *step {
                Step::Conv { .. } | Step::Fire { .. } => match blocks.next() {
                    Some(block) => block.forward(x),
                    None => x,
                },
                Step::Pool(pool) => pooling(x, pool),
                Step::Tap => {
                    features.push(x.clone());
                    x
                }
            };
        }
        features
    }
}

impl<B: Backend> BackboneBlock<B> {
    /// Computes the layer of `[batch, channels, height, width]`, with the ReLU.
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        match self {
            BackboneBlock::Conv(conv) => activation::relu(conv.forward(x)),
            BackboneBlock::Fire(fire) => fire.forward(x),
        }
    }
}

impl<B: Backend> Fire<B> {
    /// Computes the block of `[batch, channels, height, width]`.
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let squeezed = activation::relu(self.squeeze.forward(x));
        let pointwise = self.expand1x1.forward(squeezed.clone());
        activation::relu(Tensor::cat(vec![pointwise, self.expand3x3.forward(squeezed)], 1))
    }
}

fn zero_conv<B: Backend>(
    channels: [usize; 2],
    kernel: usize,
    stride: usize,
    padding: usize,
    device: &B::Device,
) -> Conv2d<B> {
    Conv2dConfig::new(channels, [kernel; 2])
        .with_stride([stride; 2])
        .with_padding([padding; 2])
        .with_initializer(Initializer::Zeros)
        .init(device)
}

/// Options that load only tensors whose names start with a prefix, of any float dtype.
pub(super) fn only(prefix: &'static str) -> LoadOptions {
    LoadOptions::new()
        .rename(move |name| name.starts_with(prefix).then(|| name.to_owned()))
        .dtype(DTypePolicy::Cast)
}
