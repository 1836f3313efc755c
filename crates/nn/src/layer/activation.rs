//! Activation functions as layers. The functions are [`kiln_tensor::activation`].

use crate::{Config, Module};
use kiln_tensor::{Backend, Tensor, activation};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $name;

        impl $name {
            /// The layer.
            pub fn new() -> $name {
                $name
            }

            /// Input of any shape; the output has the same shape.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(x)
            }
        }
    )*};
}

activations! {
    /// `max(x, 0)`.
    Relu relu;
    /// `x σ(x)`, also called swish ([Ramachandran et al. 2017](https://arxiv.org/abs/1710.05941)).
    Silu silu;
    /// The hyperbolic tangent.
    Tanh tanh;
    /// `1 / (1 + exp(-x))`.
    Sigmoid sigmoid;
}

/// `x Φ(x)`, where Φ is the distribution function of the normal distribution
/// ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct Gelu {
    /// Whether Φ is approximated by a hyperbolic tangent.
    pub approximate: bool,
}

impl Gelu {
    /// The exact function.
    pub fn new() -> Gelu {
        Gelu { approximate: false }
    }

    /// The approximation by a hyperbolic tangent.
    pub fn approximate() -> Gelu {
        Gelu { approximate: true }
    }

    /// Input of any shape; the output has the same shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.approximate { activation::gelu_approximate(x) } else { activation::gelu(x) }
    }
}

macro_rules! along_an_axis {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        pub struct $name {
            /// The axis that sums to one.
            pub axis: usize,
        }

        impl $name {
            /// The layer over this axis.
            pub fn new(axis: usize) -> $name {
                $name { axis }
            }

            /// Input of any shape with that axis; the output has the same shape.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(x, self.axis)
            }
        }
    )*};
}

along_an_axis! {
    /// `exp(x) / Σ exp(x)` along an axis.
    Softmax softmax;
    /// The logarithm of [`Softmax`], computed without overflow.
    LogSoftmax log_softmax;
}

macro_rules! with_a_number {
    ($($(#[$doc:meta])* $name:ident $config:ident $function:ident, $(#[$field_doc:meta])* $field:ident = $default:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            $(#[$field_doc])*
            #[doc = concat!(" Default: ", stringify!($default), ".")]
            #[config(default = $default)]
            pub $field: f64,
        }

        $(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            $(#[$field_doc])*
            pub $field: f64,
        }

        impl $config {
            /// The layer.
            pub fn init(&self) -> $name {
                $name { $field: self.$field }
            }
        }

        impl $name {
            /// Input of any shape; the output has the same shape.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(x, self.$field)
            }
        }
    )*};
}

with_a_number! {
    /// `x` for positive numbers, `negative_slope x` for negative ones.
    LeakyRelu LeakyReluConfig leaky_relu,
    /// The slope for negative numbers.
    negative_slope = 0.01;

    /// `x` for positive numbers, `alpha (exp(x) - 1)` for negative ones
    /// ([Clevert et al. 2015](https://arxiv.org/abs/1511.07289)).
    Elu EluConfig elu,
    /// The negative of the limit for negative inputs.
    alpha = 1.0;

    /// `ln(1 + exp(beta x)) / beta`, a smooth ReLU.
    Softplus SoftplusConfig softplus,
    /// How sharp the bend is.
    beta = 1.0;
}
