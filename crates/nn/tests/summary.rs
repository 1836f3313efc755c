//! Summaries of forward passes: shapes and operations of layers.

use kiln_backends::{Device, Flex};
use kiln_nn::conv::Conv2dConfig;
use kiln_nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use kiln_nn::*;
use kiln_tensor::activation::relu;
use kiln_tensor::{Autodiff, Backend, Int, Tensor};

fn shape(summary: &Summary, path: &str) -> Vec<usize> {
    summary.layer(path).unwrap().output.unwrap().shape.to_vec()
}

#[test]
fn an_mlp_is_counted() {
    let device = Default::default();
    let mlp = (
        LinearConfig::new(5, 7).init::<Autodiff<Flex>>(&device),
        Relu::new(),
        LinearConfig::new(7, 3).with_bias(false).init::<Autodiff<Flex>>(&device),
    );
    let summary = mlp.summary([4, 5]);
    let first = summary.layer("0").unwrap();
    assert_eq!((first.parameters, first.flops, first.calls), (5 * 7 + 7, 4 * 7 * (2 * 5 + 1), 1));
    assert_eq!(shape(&summary, "0"), [4, 7]);
    let relu = first.then.as_ref().unwrap();
    assert_eq!((relu.ops.len(), relu.flops, relu.output.shape.to_vec()), (1, 4 * 7, vec![4, 7]));
    let last = summary.layer("2").unwrap();
    assert_eq!((last.flops, last.then.as_ref()), (4 * 3 * 2 * 7, None));
    assert_eq!(summary.flops(), first.flops + relu.flops + last.flops);
    assert_eq!(summary.num_parameters(), 5 * 7 + 7 + 7 * 3);
    assert_eq!(summary.outputs()[0].shape.to_vec(), [4, 3]);
    assert_eq!(summary.before(), None);
}

/// LeNet-like: two convolutions with pooling, two linear layers.
#[derive(Module, Debug)]
struct Cnn<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    pool: MaxPool2d,
    fc1: Linear<B>,
    fc2: Linear<B>,
}

impl<B: Backend> Cnn<B> {
    fn new(device: &B::Device) -> Cnn<B> {
        Cnn {
            conv1: Conv2dConfig::new([1, 6], [5, 5]).init(device),
            conv2: Conv2dConfig::new([6, 16], [5, 5]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            fc1: LinearConfig::new(16 * 4 * 4, 120).init(device),
            fc2: LinearConfig::new(120, 10).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(relu(self.conv1.forward(x)));
        let x = self.pool.forward(relu(self.conv2.forward(x)));
        self.fc2.forward(relu(self.fc1.forward(x.flatten(1, 3))))
    }
}

#[test]
fn a_cnn_is_counted() {
    let net = Cnn::<Flex>::new(&Default::default());
    let summary = net.summary_of(|net, device| net.forward(Tensor::zeros([1, 1, 28, 28], device)));
    assert_eq!(shape(&summary, "conv1"), [1, 6, 24, 24]);
    assert_eq!(shape(&summary, "conv2"), [1, 16, 8, 8]);
    assert_eq!(shape(&summary, "fc1"), [1, 120]);
    assert_eq!(shape(&summary, ""), [1, 10]);
    let (conv1, conv2) = (summary.layer("conv1").unwrap(), summary.layer("conv2").unwrap());
    assert_eq!(conv1.flops, 6 * 24 * 24 * (2 * 25 + 1));
    assert_eq!(conv2.flops, 16 * 8 * 8 * (2 * 6 * 25 + 1));
    let then = conv1.then.as_ref().unwrap();
    assert_eq!(then.output.shape.to_vec(), [1, 6, 12, 12]);
    assert_eq!(then.flops, 6 * 24 * 24 + 6 * 12 * 12 * 4);
    let then = conv2.then.as_ref().unwrap();
    assert_eq!(then.output.shape.to_vec(), [1, 16, 4, 4]);
    let linear = 120 * (2 * 256 + 1) + 120 + 10 * (2 * 120 + 1);
    let conv = conv1.flops + conv2.flops;
    let functions = 6 * 24 * 24 + 6 * 12 * 12 * 4 + 16 * 8 * 8 + 16 * 4 * 4 * 4;
    assert_eq!(summary.flops(), conv + linear + functions);
    assert_eq!(summary.layer("").unwrap().flops, summary.flops());
    // Pooling has no parameters, so no row.
    assert!(summary.layer("pool").is_none());
    let text = summary.to_string();
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap().to_string();
    assert!(line("conv1: Conv2d").contains("[1, 6, 24, 24]"), "{text}");
    assert!(line("conv1: Conv2d").ends_with("176,256"), "{text}");
    assert!(line("6, 12, 12").contains("+ relu, max_pool"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("34,622 parameters, "), "{text}");
}

#[test]
fn layers_with_other_inputs_and_leading_dimensions() {
    #[derive(Module, Debug)]
    struct Text<B: Backend> {
        embedding: Embedding<B>,
        norm: LayerNorm<B>,
        first: Linear<B>,
        second: Linear<B>,
    }
    let device = Default::default();
    let text = Text::<Flex> {
        embedding: EmbeddingConfig::new(50, 8).init(&device),
        norm: LayerNormConfig::new(8).init(&device),
        first: LinearConfig::new(8, 16).init(&device),
        second: LinearConfig::new(16, 8).init(&device),
    };
    let summary = text.summary_of(|text, device: &Device| {
        let x = text.embedding.forward(Tensor::<_, 2, Int>::zeros([2, 5], device));
        let x = text.norm.forward(x);
        let y = text.second.forward(text.first.forward(x.clone()));
        // A layer that is called twice.
        let y = text.first.forward(y.tanh());
        (y, x)
    });
    assert_eq!(summary.before(), None);
    assert_eq!(shape(&summary, "embedding"), [2, 5, 8]);
    assert_eq!(shape(&summary, "norm"), [2, 5, 8]);
    assert_eq!(shape(&summary, "first"), [2, 5, 16]);
    assert_eq!(shape(&summary, "second"), [2, 5, 8]);
    let first = summary.layer("first").unwrap();
    assert_eq!((first.calls, first.flops), (2, 2 * 10 * 16 * (2 * 8 + 1)));
    assert_eq!(summary.outputs().len(), 2);
    assert!(summary.to_string().contains("first: Linear (2 calls)"));
}

#[test]
fn modules_without_parameters_have_summaries() {
    let summary = Relu::new().summary([2, 3]);
    assert_eq!((summary.flops(), summary.num_parameters()), (6, 0));
    assert_eq!(summary.before().unwrap().output.shape.to_vec(), [2, 3]);
    assert!(summary.to_string().ends_with("0 parameters, 6 FLOPs"));
}

#[test]
fn summaries_of_adapters_count_their_parameters() {
    let device = Default::default();
    let layer: Linear<Flex> = LinearConfig::new(8, 4).init(&device);
    let model = reparametrize::LoraConfig::new(2).init(layer).unwrap();
    let summary = model.summary([3, 8]);
    assert_eq!(summary.num_parameters(), 8 * 4 + 4 + 2 * 8 + 4 * 2);
    // B A, its scale and its sum with W are computed from parameters.
    let computed = 2 * 4 * 2 * 8 + 2 * 4 * 8;
    assert_eq!(summary.flops(), 3 * 4 * (2 * 8 + 1) + computed);
    assert_eq!(summary.layer("").unwrap().flops, summary.flops());
}

/// A block of ResNet-18: two convolutions and a shortcut.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    downsample: Option<(Conv2d<B>, BatchNorm<B>)>,
}

/// ResNet-18 ([He et al. 2015](https://arxiv.org/abs/1512.03385)).
#[derive(Module, Debug)]
struct ResNet18<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    maxpool: MaxPool2d,
    layers: Vec<Block<B>>,
    avgpool: AdaptiveAvgPool2d,
    fc: Linear<B>,
}

fn conv<B: Backend>(channels: [usize; 2], kernel: usize, stride: usize, device: &B::Device) -> Conv2d<B> {
    let padding = [kernel / 2; 2];
    let config = Conv2dConfig::new(channels, [kernel; 2]).with_stride([stride; 2]).with_padding(padding);
    config.with_bias(false).init(device)
}

impl<B: Backend> Block<B> {
    fn new([input, output]: [usize; 2], stride: usize, device: &B::Device) -> Block<B> {
        let norm = || BatchNormConfig::new(output).init(device);
        Block {
            conv1: conv([input, output], 3, stride, device),
            bn1: norm(),
            conv2: conv([output, output], 3, 1, device),
            bn2: norm(),
            downsample: (stride > 1).then(|| (conv([input, output], 1, stride, device), norm())),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = relu(self.bn1.forward(self.conv1.forward(x.clone())));
        let y = self.bn2.forward(self.conv2.forward(y));
        let x = match &self.downsample {
            Some((conv, norm)) => norm.forward(conv.forward(x)),
            None => x,
        };
        relu(x + y)
    }
}

impl<B: Backend> ResNet18<B> {
    fn new(device: &B::Device) -> ResNet18<B> {
        let mut layers = Vec::new();
        for (input, output) in [(64, 64), (64, 128), (128, 256), (256, 512)] {
            layers.push(Block::new([input, output], output / input, device));
            layers.push(Block::new([output, output], 1, device));
        }
        let maxpool = MaxPool2dConfig::new([3, 3]).with_stride([2, 2]);
        ResNet18 {
            conv1: conv([3, 64], 7, 2, device),
            bn1: BatchNormConfig::new(64).init(device),
            maxpool: maxpool.with_padding([1, 1]).init(),
            layers,
            avgpool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            fc: LinearConfig::new(512, 1000).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.maxpool.forward(relu(self.bn1.forward(self.conv1.forward(x))));
        let x = self.layers.iter().fold(x, |x, block| block.forward(x));
        self.fc.forward(self.avgpool.forward(x).flatten(1, 3))
    }
}

/// torchvision publishes 11,689,512 parameters and 1.814 billion multiply-adds for images of 224 by 224 pixels.
#[test]
fn resnet_18_has_the_published_counts() {
    let net = ResNet18::<Flex>::new(&Default::default());
    let summary = net.summary_of(|net, device| net.forward(Tensor::zeros([1, 3, 224, 224], device)));
    assert_eq!(summary.num_parameters(), 11_689_512);
    let is_counted = |row: &&LayerRow| row.name == "Conv2d" || row.name == "Linear";
    let flops: u64 = summary.layers().iter().filter(is_counted).map(|row| row.flops).sum();
    // Each of the 1,000 outputs of `fc` has one addition of a bias.
    let multiply_adds = (flops - 1000) / 2;
    assert_eq!(multiply_adds, 1_814_073_344);
    assert_eq!(shape(&summary, "layers.2"), [1, 128, 28, 28]);
    assert_eq!(shape(&summary, "layers.7.bn2"), [1, 512, 7, 7]);
}

type LayerRow = module::LayerSummary;
