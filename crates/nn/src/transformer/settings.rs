//! Settings that encoders and decoders share.

use crate::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use crate::{Dropout, DropoutConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use kiln_tensor::Backend;

/// Defines the configuration of an encoder or decoder.
macro_rules! transformer_config {
    ($name:ident $config:ident $(#[$features:meta])*) => {
        #[doc = concat!("Settings of a [`", stringify!($name), "`].")]
        #[derive($crate::Config, Clone, Debug, PartialEq)]
        pub struct $config {
            $(#[$features])*
            pub d_model: usize,
            /// Number of features of the feed-forward networks.
            pub d_ff: usize,
            /// Number of attention heads, a divisor of `d_model`.
            pub n_heads: usize,
            /// Number of layers.
            pub n_layers: usize,
            /// The probability of dropout: of attention weights, in the feed-forward networks and of the residual
            /// branches. Default: 0.1.
            #[config(default = 0.1)]
            pub dropout: f64,
            /// Whether to normalise the input of each branch (pre-norm) instead of the sum after it (post-norm).
            /// Default: false.
            #[config(default = false)]
            pub norm_first: bool,
            /// Whether to normalise the output of the last layer. Default: false.
            #[config(default = false)]
            pub final_norm: bool,
            /// The activation function of the feed-forward networks. Default: ReLU.
            #[config(default = $crate::transformer::FeedForwardActivation::Relu)]
            pub activation: $crate::transformer::FeedForwardActivation,
            /// The ε of the layer normalisations. Default: 1e-5.
            #[config(default = 1e-5)]
            pub layer_norm_eps: f64,
            /// Whether linear layers and layer normalisations have biases. Default: true.
            #[config(default = true)]
            pub bias: bool,
            /// Whether the softmax of attention has 1 added to its denominator. Default: false.
            #[config(default = false)]
            pub quiet_softmax: bool,
            /// The initializer of the weights. Default: those of
            /// [`MultiHeadAttentionConfig`](crate::attention::MultiHeadAttentionConfig) and
            /// [`LinearConfig`](crate::LinearConfig).
            pub initializer: Option<$crate::Initializer>,
        }

        impl $config {
            /// The configuration of the encoder or decoder of a transformer with this number of layers.
            pub(super) fn part_of(config: &$crate::transformer::TransformerConfig, n_layers: usize) -> $config {
                $config {
                    dropout: config.dropout,
                    norm_first: config.norm_first,
                    final_norm: true,
                    activation: config.activation,
                    layer_norm_eps: config.layer_norm_eps,
                    bias: config.bias,
                    initializer: Some(config.initializer),
                    ..$config::new(config.d_model, config.d_ff, config.n_heads, n_layers)
                }
            }

            pub(super) fn layer(&self) -> $crate::transformer::settings::LayerSettings {
                $crate::transformer::settings::LayerSettings {
                    d_model: self.d_model,
                    d_ff: self.d_ff,
                    n_heads: self.n_heads,
                    dropout: self.dropout,
                    layer_norm_eps: self.layer_norm_eps,
                    bias: self.bias,
                    quiet_softmax: self.quiet_softmax,
                    initializer: self.initializer,
                }
            }
        }
    };
}

pub(super) use transformer_config;

/// The settings that layers of encoders and decoders share.
pub(super) struct LayerSettings {
    pub(super) d_model: usize,
    pub(super) d_ff: usize,
    pub(super) n_heads: usize,
    pub(super) dropout: f64,
    pub(super) layer_norm_eps: f64,
    pub(super) bias: bool,
    pub(super) quiet_softmax: bool,
    pub(super) initializer: Option<Initializer>,
}

impl LayerSettings {
    #[track_caller]
    pub(super) fn attention<B: Backend>(&self, device: &B::Device) -> MultiHeadAttention<B> {
        let config = MultiHeadAttentionConfig::new(self.d_model, self.n_heads).with_dropout(self.dropout);
        let config = config.with_bias(self.bias).with_quiet_softmax(self.quiet_softmax);
        config.with_initializer(self.initializer).init(device)
    }

    pub(super) fn norm<B: Backend>(&self, device: &B::Device) -> LayerNorm<B> {
        let config = LayerNormConfig::new(self.d_model).with_epsilon(self.layer_norm_eps);
        config.with_bias(self.bias).init(device)
    }

    /// The two layers of the feed-forward network.
    pub(super) fn linears<B: Backend>(&self, device: &B::Device) -> [Linear<B>; 2] {
        [(self.d_model, self.d_ff), (self.d_ff, self.d_model)].map(|(input, output)| {
            let config = LinearConfig::new(input, output).with_bias(self.bias);
            config.with_initializer(self.initializer.unwrap_or(Initializer::LINEAR)).init(device)
        })
    }

    #[track_caller]
    pub(super) fn dropout(&self) -> Dropout {
        DropoutConfig::new(self.dropout).init()
    }
}
