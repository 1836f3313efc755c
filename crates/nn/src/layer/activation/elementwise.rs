//! Activations without settings, and GELU.

use crate::Module;
use crate::module::forward::forward_modules;
use kiln_tensor::{Backend, Tensor, activation};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {
        $(
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
        )*

        forward_modules! { $($name;)* }
    };
}

activations! {
    /// Rectified linear unit: `max(x, 0)`.
    Relu relu;
    /// ReLU6: `min(max(x, 0), 6)` ([Howard et al. 2017](https://arxiv.org/abs/1704.04861)).
    Relu6 relu6;
    /// Sigmoid linear unit (SiLU, swish): `x σ(x)` ([Ramachandran et al. 2017](https://arxiv.org/abs/1710.05941)).
    Silu silu;
    /// Hyperbolic tangent.
    Tanh tanh;
    /// Tanh-shrink: `x - tanh(x)`.
    Tanhshrink tanhshrink;
    /// Logistic sigmoid: `1 / (1 + exp(-x))`.
    Sigmoid sigmoid;
    /// Logarithm of the sigmoid, `-ln(1 + exp(-x))`, without overflow.
    LogSigmoid log_sigmoid;
    /// Hard swish: `x min(max(x + 3, 0), 6) / 6` ([Howard et al. 2019](https://arxiv.org/abs/1905.02244)).
    HardSwish hard_swish;
    /// Mish: `x tanh(ln(1 + exp(x)))` ([Misra 2019](https://arxiv.org/abs/1908.08681)).
    Mish mish;
    /// Scaled ELU (SELU): `scale x` for `x > 0`, `scale alpha (exp(x) - 1)` for `x ≤ 0`, with the constants that keep
    /// mean 0 and variance 1 from layer to layer ([Klambauer et al. 2017](https://arxiv.org/abs/1706.02515)).
    Selu selu;
    /// Softsign: `x / (1 + |x|)`.
    Softsign softsign;
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

    /// Returns the tanh approximation of GELU: [`approximate`](Gelu::approximate) under the name that Burn uses.
    pub fn new_approximate() -> Gelu {
        Gelu::approximate()
    }

    /// Applies the function to each element. The input has any shape; the output has the same shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if self.approximate { activation::gelu_approximate(x) } else { activation::gelu(x) }
    }
}

forward_modules! {
    Gelu;
}
