//! The vision transformer of CLIP, with the parameter names of OpenAI.

use kiln_nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use kiln_nn::{
    Config, Conv2d, Conv2dConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig, Module,
    Param,
};
use kiln_tensor::module::{InterpolateMode, InterpolateOptions, interpolate};
use kiln_tensor::{Backend, Tensor, activation};

/// Settings of a [`ClipVision`]. The defaults are those of ViT-B/32 for images of 224 × 224 pixels.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct ClipVisionConfig {
    /// Number of features of a token, a multiple of 64: a head has 64 features. Default: 768.
    #[config(default = 768)]
    pub width: usize,
    /// Number of blocks. Default: 12.
    #[config(default = 12)]
    pub layers: usize,
    /// Height and width of a patch in pixels. Default: 32.
    #[config(default = 32)]
    pub patch: usize,
    /// Number of rows of the positional embedding: one for the class token and one for each patch. Default: 50.
    #[config(default = 50)]
    pub positions: usize,
}

/// The vision transformer of CLIP (Radford et al., "Learning transferable visual models from natural language
/// supervision", 2021), without the final normalisation and projection. Parameters have OpenAI's names, such as
/// `transformer.resblocks.0.attn.in_proj_weight`.
#[derive(Clone, Debug, Module)]
pub struct ClipVision<B: Backend> {
    /// The embedding of patches, `[width, 3, patch, patch]`, without bias.
    pub conv1: Conv2d<B>,
    /// The embedding of the class token: `[width]`.
    pub class_embedding: Param<Tensor<B, 1>>,
    /// The embedding of the positions of the class token and of the patches: `[positions, width]`.
    pub positional_embedding: Param<Tensor<B, 2>>,
    /// The normalisation before the first block.
    pub ln_pre: LayerNorm<B>,
    /// The blocks.
    pub transformer: ClipTransformer<B>,
    /// Height and width of a patch in pixels.
    pub patch: usize,
}

/// The blocks of a [`ClipVision`].
#[derive(Clone, Debug, Module)]
pub struct ClipTransformer<B: Backend> {
    /// The blocks, from the first.
    pub resblocks: Vec<ClipBlock<B>>,
}

/// A block of a [`ClipVision`]: self-attention and a multilayer perceptron, each after a normalisation and with a
/// residual connection.
#[derive(Clone, Debug, Module)]
pub struct ClipBlock<B: Backend> {
    /// The self-attention.
    pub attn: MultiHeadAttention<B>,
    /// The normalisation before the self-attention.
    pub ln_1: LayerNorm<B>,
    /// The multilayer perceptron.
    pub mlp: ClipMlp<B>,
    /// The normalisation before the multilayer perceptron.
    pub ln_2: LayerNorm<B>,
}

/// The multilayer perceptron of a [`ClipBlock`], with the sigmoid approximation of GELU: `x sigmoid(1.702 x)`.
#[derive(Clone, Debug, Module)]
pub struct ClipMlp<B: Backend> {
    /// The layer from `width` to `4 width` features.
    pub c_fc: Linear<B>,
    /// The layer from `4 width` to `width` features.
    pub c_proj: Linear<B>,
}

/// Number of features of a head.
const HEAD_WIDTH: usize = 64;

impl ClipVisionConfig {
    /// Returns a network whose weights are zeros.
    ///
    /// # Panics
    /// When `width` is not a positive multiple of 64.
    pub fn zeros<B: Backend>(&self, device: &B::Device) -> ClipVision<B> {
        let conv = Conv2dConfig::new([3, self.width], [self.patch; 2]).with_stride([self.patch; 2]);
        let blocks = (0..self.layers).map(|_| self.block(device));
        ClipVision {
            conv1: conv.with_bias(false).with_initializer(Initializer::Zeros).init(device),
            class_embedding: Initializer::Zeros.init([self.width], device),
            positional_embedding: Initializer::Zeros.init([self.positions, self.width], device),
            ln_pre: self.norm(device),
            transformer: ClipTransformer { resblocks: blocks.collect() },
            patch: self.patch,
        }
    }

    fn block<B: Backend>(&self, device: &B::Device) -> ClipBlock<B> {
        let attention = MultiHeadAttentionConfig::new(self.width, self.width / HEAD_WIDTH);
        let width = self.width;
        ClipBlock {
            attn: attention.with_initializer(Some(Initializer::Zeros)).init(device),
            ln_1: self.norm(device),
            mlp: ClipMlp {
                c_fc: zero_linear(width, 4 * width, device),
                c_proj: zero_linear(4 * width, width, device),
            },
            ln_2: self.norm(device),
        }
    }

    fn norm<B: Backend>(&self, device: &B::Device) -> LayerNorm<B> {
        LayerNormConfig::new(self.width).init(device)
    }
}

impl<B: Backend> ClipVision<B> {
    /// Computes the patches' tokens after each block, `[batch, patches, width]`, from normalised images
    /// `[batch, 3, height, width]`. Another number of patches than that of the positional embedding resizes the
    /// embedding bicubically along its rows.
    ///
    /// # Panics
    /// When the images do not have 3 channels, or are smaller than a patch.
    pub fn forward(&self, images: Tensor<B, 4>) -> Vec<Tensor<B, 3>> {
        let mut x = self.ln_pre.forward(self.tokens(images));
        let [_, tokens, _] = x.dims();
        let mut features = Vec::with_capacity(self.transformer.resblocks.len());
        for block in &self.transformer.resblocks {
            x = block.forward(x);
            features.push(x.clone().narrow(1, 1, tokens - 1));
        }
        features
    }

    /// The class token and the patches, with positions: `[batch, 1 + patches, width]`.
    fn tokens(&self, images: Tensor<B, 4>) -> Tensor<B, 3> {
        let patches = self.conv1.forward(images);
        let [batch, width, rows, columns] = patches.dims();
        let patches = patches.reshape([batch, width, rows * columns]).swap_dims(1, 2);
        let class = self.class_embedding.val().reshape([1, 1, width]).expand([batch, 1, width]);
        Tensor::cat(vec![class, patches], 1) + self.positions(1 + rows * columns)
    }

    /// The positional embedding for a number of tokens: `[1, tokens, width]`.
    fn positions(&self, tokens: usize) -> Tensor<B, 3> {
        let embedding = self.positional_embedding.val();
        let [rows, width] = embedding.dims();
        resized(embedding.reshape([1, 1, rows, width]), [tokens, width]).reshape([1, tokens, width])
    }
}

impl<B: Backend> ClipBlock<B> {
    /// Computes the block of `[batch, tokens, width]`; the output has the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let attended = self.attn.forward(MhaInput::self_attn(self.ln_1.forward(x.clone()))).context;
        let x = x + attended;
        let perceived = self.mlp.forward(self.ln_2.forward(x.clone()));
        x + perceived
    }
}

impl<B: Backend> ClipMlp<B> {
    /// Computes the perceptron of `[batch, tokens, width]`; the output has the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let hidden = self.c_fc.forward(x);
        self.c_proj.forward(hidden.clone() * activation::sigmoid(hidden * 1.702))
    }
}

/// A linear layer whose parameters are zeros.
pub(super) fn zero_linear<B: Backend>(input: usize, output: usize, device: &B::Device) -> Linear<B> {
    LinearConfig::new(input, output).with_initializer(Initializer::Zeros).init(device)
}

/// Resizes `[batch, channels, height, width]` bicubically.
pub(super) fn resized<B: Backend>(x: Tensor<B, 4>, size: [usize; 2]) -> Tensor<B, 4> {
    let [_, _, height, width] = x.dims();
    match [height, width] == size {
        true => x,
        false => interpolate(x, size, InterpolateOptions::new(InterpolateMode::Cubic)),
    }
}
