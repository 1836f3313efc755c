//! Layers of the activation functions in [`kiln_tensor::activation`].

use crate::module::forward::forward_modules;
use crate::{Config, Module};
use kiln_tensor::{Backend, Tensor, activation};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $name;

        impl $name {
            /// Returns the layer.
            pub fn new() -> $name {
                $name
            }

            /// Applies the function to each element. The input has any shape; the output has the same shape.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(x)
            }
        }
    )*};
}

activations! {
    /// Rectified linear unit: `max(x, 0)`.
    Relu relu;
    /// Sigmoid linear unit (SiLU, swish): `x σ(x)` ([Ramachandran et al. 2017](https://arxiv.org/abs/1710.05941)).
    Silu silu;
    /// Hyperbolic tangent.
    Tanh tanh;
    /// Logistic sigmoid: `1 / (1 + exp(-x))`.
    Sigmoid sigmoid;
}

/// Gaussian error linear unit (GELU): `x Φ(x)`, where Φ is the cumulative distribution function of the standard normal
/// distribution ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct Gelu {
    /// Whether to use the tanh approximation.
    pub approximate: bool,
}

impl Gelu {
    /// Returns the exact GELU.
    pub fn new() -> Gelu {
        Gelu { approximate: false }
    }

    /// Returns the tanh approximation of GELU.
    pub fn approximate() -> Gelu {
        Gelu { approximate: true }
    }

    /// Applies the function to each element. The input has any shape; the output has the same shape.
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
            /// The dimension along which the function normalises, counted from 0.
            pub axis: usize,
        }

        impl $name {
            /// Returns the layer over dimension `axis`.
            pub fn new(axis: usize) -> $name {
                $name { axis }
            }

            /// Applies the function along the dimension. The input has any shape; the output has the same shape.
            ///
            /// # Panics
            /// When `axis` is out of range.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(x, self.axis)
            }
        }
    )*};
}

along_an_axis! {
    /// Softmax along one dimension: `exp(x) / Σ exp(x)`.
    Softmax softmax;
    /// Logarithm of [`Softmax`], computed without overflow.
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
            /// Returns the layer.
            pub fn init(&self) -> $name {
                $name { $field: self.$field }
            }
        }

        impl $name {
            /// Applies the function to each element. The input has any shape; the output has the same shape.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                activation::$function(x, self.$field)
            }
        }
    )*};
}

with_a_number! {
    /// Leaky ReLU: `x` for `x ≥ 0`, `negative_slope x` for `x < 0`.
    LeakyRelu LeakyReluConfig leaky_relu,
    /// The slope for `x < 0`.
    negative_slope = 0.01;

    /// Exponential linear unit (ELU): `x` for `x ≥ 0`, `alpha (exp(x) - 1)` for `x < 0`
    /// ([Clevert et al. 2015](https://arxiv.org/abs/1511.07289)).
    Elu EluConfig elu,
    /// The scale for `x < 0`: the output approaches `-alpha`.
    alpha = 1.0;

    /// Softplus, a smooth approximation of ReLU: `ln(1 + exp(beta x)) / beta`.
    Softplus SoftplusConfig softplus,
    /// The sharpness: larger values are closer to ReLU.
    beta = 1.0;
}

forward_modules! {
    Relu;
    Silu;
    Tanh;
    Sigmoid;
    Gelu;
    Softmax;
    LogSoftmax;
    LeakyRelu;
    Elu;
    Softplus;
}
