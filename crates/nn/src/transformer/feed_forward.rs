//! Feed-forward networks of transformer layers.

use crate::module::forward::forward_modules;
use crate::{
    Config, Dropout, DropoutConfig, Initializer, Linear, LinearConfig, Module, Projection, plain_data,
};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, BlockFormat, Result, Tensor, activation};

/// The activation function of a feed-forward network.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForwardActivation {
    /// `max(x, 0)`.
    Relu,
    /// Exact GELU, `x Φ(x)`.
    Gelu,
    /// The tanh approximation of GELU, as in GPT-2.
    GeluApproximate,
    /// SiLU, `x σ(x)`; gated, it is SwiGLU.
    Silu,
    /// `max(x, 0)²` ([So et al. 2021](https://arxiv.org/abs/2109.08668)).
    ReluSquared,
    /// Logistic sigmoid; gated, it is the GLU of [Dauphin et al. 2016](https://arxiv.org/abs/1612.08083).
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

plain_data!(FeedForwardActivation);

impl FeedForwardActivation {
    /// Applies the function to each element.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            FeedForwardActivation::Relu => activation::relu(x),
            FeedForwardActivation::Gelu => activation::gelu(x),
            FeedForwardActivation::GeluApproximate => activation::gelu_approximate(x),
            FeedForwardActivation::Silu => activation::silu(x),
            FeedForwardActivation::ReluSquared => activation::relu(x).square(),
            FeedForwardActivation::Sigmoid => activation::sigmoid(x),
            FeedForwardActivation::Tanh => activation::tanh(x),
        }
    }
}

/// Settings of a [`PositionWiseFeedForward`] network.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct PositionWiseFeedForwardConfig {
    /// Number of features of inputs and outputs.
    pub d_model: usize,
    /// Number of features between the layers.
    pub d_ff: usize,
    /// The probability of dropout between the layers. Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// The activation function. Default: ReLU.
    #[config(default = FeedForwardActivation::Relu)]
    pub activation: FeedForwardActivation,
    /// The initializer of weights and biases. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Position-wise feed-forward network ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)): two linear layers with
/// an activation function and dropout between them, applied to each position.
///
/// The layers have Burn's names. In [`TransformerEncoderLayer`](super::TransformerEncoderLayer) and
/// [`TransformerDecoderLayer`](super::TransformerDecoderLayer), the same layers are `linear1` and `linear2`, as in
/// PyTorch.
#[derive(Module, Clone, Debug)]
pub struct PositionWiseFeedForward<B: Backend = Dyn> {
    /// The first layer, weight `[d_ff, d_model]`.
    pub linear_inner: Linear<B>,
    /// The second layer, weight `[d_model, d_ff]`.
    pub linear_outer: Linear<B>,
    /// Dropout between the layers.
    pub dropout: Dropout,
    /// The activation function.
    pub activation: FeedForwardActivation,
}

impl PositionWiseFeedForwardConfig {
    /// Returns a network with initialized parameters on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionWiseFeedForward<B> {
        let linear =
            |input, output| LinearConfig::new(input, output).with_initializer(self.initializer).init(device);
        PositionWiseFeedForward {
            linear_inner: linear(self.d_model, self.d_ff),
            linear_outer: linear(self.d_ff, self.d_model),
            dropout: DropoutConfig::new(self.dropout).init(),
            activation: self.activation,
        }
    }
}

impl<B: Backend> PositionWiseFeedForward<B> {
    /// Applies the network to `[.., d_model]`. The output has the same shape.
    ///
    /// # Panics
    /// When the number of features differs.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        feed_forward(x, [&self.linear_inner, &self.linear_outer], self.activation, &self.dropout)
    }
}

#[track_caller]
pub(super) fn feed_forward<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    [first, second]: [&Linear<B>; 2],
    activation: FeedForwardActivation,
    dropout: &Dropout,
) -> Tensor<B, D> {
    second.forward(dropout.forward(activation.forward(first.forward(x))))
}

/// Settings of a [`GatedFeedForward`] network.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GatedFeedForwardConfig {
    /// Number of features of inputs and outputs.
    pub d_model: usize,
    /// Number of features of the gate.
    pub d_ff: usize,
    /// Whether the layers add biases. Default: false.
    #[config(default = false)]
    pub bias: bool,
    /// The activation function of the gate. Default: SiLU (SwiGLU).
    #[config(default = FeedForwardActivation::Silu)]
    pub activation: FeedForwardActivation,
    /// The initializer of weights and biases. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Gated feed-forward network ([Shazeer 2020](https://arxiv.org/abs/2002.05202)): `down(activation(gate(x)) * up(x))`;
/// with SiLU, SwiGLU. The names of the parameters are those of Llama in Hugging Face's files.
#[derive(Module, Clone, Debug)]
pub struct GatedFeedForward<B: Backend = Dyn> {
    /// The gate, weight `[d_ff, d_model]`.
    pub gate_proj: Projection<B>,
    /// The values that are gated, weight `[d_ff, d_model]`.
    pub up_proj: Projection<B>,
    /// The output, weight `[d_model, d_ff]`.
    pub down_proj: Projection<B>,
    /// The activation function of the gate.
    pub activation: FeedForwardActivation,
}

impl GatedFeedForwardConfig {
    /// Returns a network with initialized parameters on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> GatedFeedForward<B> {
        let linear = |input, output| {
            let config = LinearConfig::new(input, output).with_bias(self.bias);
            Projection::Float(config.with_initializer(self.initializer).init(device))
        };
        GatedFeedForward {
            gate_proj: linear(self.d_model, self.d_ff),
            up_proj: linear(self.d_model, self.d_ff),
            down_proj: linear(self.d_ff, self.d_model),
            activation: self.activation,
        }
    }
}

impl<B: Backend> GatedFeedForward<B> {
    /// Returns the network with its weights in quantized blocks; see [`Projection::quantize`].
    ///
    /// # Errors
    /// When the rows of a weight are not whole blocks; [`BlockFormat::fitting`] has a format that fits.
    pub fn quantize(self, format: BlockFormat) -> Result<Self> {
        Ok(GatedFeedForward {
            gate_proj: self.gate_proj.quantize(format)?,
            up_proj: self.up_proj.quantize(format)?,
            down_proj: self.down_proj.quantize(format)?,
            ..self
        })
    }

    /// Applies the network to `[.., d_model]`. The output has the same shape.
    ///
    /// # Panics
    /// When the number of features differs.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let gate = self.activation.forward(self.gate_proj.forward(x.clone()));
        self.down_proj.forward(gate * self.up_proj.forward(x))
    }
}

forward_modules! {
    PositionWiseFeedForward<B>;
    GatedFeedForward<B>;
}
