//! Gated linear units.

use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Linear, LinearConfig, Module};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, activation};

/// Gated linear unit (GLU) without parameters: `a σ(b)`, where `a` is the first half of a dimension and `b` the second
/// ([Dauphin et al. 2016](https://arxiv.org/abs/1612.08083)).
#[derive(Module, Clone, Copy, Debug)]
pub struct Glu {
    /// The dimension that is halved, counted from 0.
    pub axis: usize,
}

impl Glu {
    /// Returns the layer over dimension `axis`.
    pub fn new(axis: usize) -> Glu {
        Glu { axis }
    }

    /// Multiplies the first half by the sigmoid of the second: with `axis` 1, `[2, 6]` becomes `[2, 3]`.
    ///
    /// # Panics
    /// When `axis` is out of range, or its length is odd.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        activation::glu(x, self.axis)
    }
}

macro_rules! gated {
    ($($name:ident $config:ident $function:ident $formula:literal;)*) => {
        $(
            #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
            #[derive(Config, Clone, Copy, Debug, PartialEq)]
            pub struct $config {
                /// Number of input features.
                pub d_input: usize,
                /// Number of output features.
                pub d_output: usize,
                /// Whether both linear layers have a bias. Default: false.
                #[config(default = false)]
                pub bias: bool,
                /// The initializer of both linear layers. Default: [`Initializer::LINEAR`].
                #[config(default = Initializer::LINEAR)]
                pub initializer: Initializer,
            }

            #[doc = concat!("Gated linear layer: `", $formula, "`")]
            /// ([Shazeer 2020](https://arxiv.org/abs/2002.05202)).
            #[derive(Module, Clone, Debug)]
            pub struct $name<B: Backend = Dyn> {
                /// The gate: the activation function is applied to its output.
                pub linear_inner: Linear<B>,
                /// The layer whose output is multiplied by the gate.
                pub linear_outer: Linear<B>,
            }

            impl $config {
                /// Returns a layer with initialized parameters on a device.
                pub fn init<B: Backend>(&self, device: &B::Device) -> $name<B> {
                    let linear = || {
                        LinearConfig::new(self.d_input, self.d_output)
                            .with_bias(self.bias)
                            .with_initializer(self.initializer)
                            .init(device)
                    };
                    $name { linear_inner: linear(), linear_outer: linear() }
                }
            }

            impl<B: Backend> $name<B> {
                /// Computes the gated output: the input is `[.., d_input]`, the output `[.., d_output]`.
                ///
                /// # Panics
                /// When the last dimension differs from `d_input`.
                #[track_caller]
                pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                    let gate = activation::$function(self.linear_inner.forward(x.clone()));
                    gate * self.linear_outer.forward(x)
                }
            }
        )*

        forward_modules! { $($name<B>;)* }
    };
}

gated! {
    SwiGlu SwiGluConfig silu "silu(W_inner x + b_inner) (W_outer x + b_outer)";
    GeGlu GeGluConfig gelu "gelu(W_inner x + b_inner) (W_outer x + b_outer)";
    ReGlu ReGluConfig relu "relu(W_inner x + b_inner) (W_outer x + b_outer)";
}

forward_modules! {
    Glu;
}
