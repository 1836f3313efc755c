//! Activations with numbers as settings.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::{Backend, Tensor, activation};

macro_rules! with_numbers {
    ($(
        $(#[$doc:meta])*
        $name:ident $config:ident $function:ident {
            $($(#[$field_doc:meta])* $field:ident $(= $default:expr)?;)+
        }
    )*) => {
        $(
            plain_module! {
                $(#[$doc])*
                $name
                #[derive(Copy)]
                $config {
                    $(
                        $(#[$field_doc])*
                        $(#[doc = concat!(" Default: ", stringify!($default), ".")])?
                        $field: f64 $(= $default)?,
                    )+
                }
            }

            impl $name {
                /// Applies the function to each element. The input has any shape; the output has the same shape.
                #[track_caller]
                pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                    activation::$function(x, $(self.$field),+)
                }
            }
        )*

        forward_modules! { $($name;)* }
    };
}

with_numbers! {
    /// Leaky ReLU: `x` for `x ≥ 0`, `negative_slope x` for `x < 0`.
    LeakyRelu LeakyReluConfig leaky_relu {
        /// The slope for `x < 0`.
        negative_slope = 0.01;
    }

    /// Exponential linear unit (ELU): `x` for `x ≥ 0`, `alpha (exp(x) - 1)` for `x < 0`
    /// ([Clevert et al. 2015](https://arxiv.org/abs/1511.07289)).
    Elu EluConfig elu {
        /// The scale for `x < 0`: the output approaches `-alpha`.
        alpha = 1.0;
    }

    /// Continuously differentiable ELU (CELU): `x` for `x > 0`, `alpha (exp(x / alpha) - 1)` for `x ≤ 0`
    /// ([Barron 2017](https://arxiv.org/abs/1704.07483)). [`forward`](Celu::forward) panics when `alpha` is 0.
    Celu CeluConfig celu {
        /// The scale for `x ≤ 0`: the output approaches `-alpha`.
        alpha = 1.0;
    }

    /// Softplus, a smooth approximation of ReLU: `ln(1 + exp(beta x)) / beta`.
    Softplus SoftplusConfig softplus {
        /// The sharpness: larger values are closer to ReLU.
        beta = 1.0;
    }

    /// Hard sigmoid, a piecewise linear sigmoid: `min(max(alpha x + beta, 0), 1)`. The defaults are PyTorch's; ONNX
    /// has an `alpha` of 0.2.
    HardSigmoid HardSigmoidConfig hard_sigmoid {
        /// The slope.
        alpha = 1.0 / 6.0;
        /// The value at 0.
        beta = 0.5;
    }

    /// Hard tanh: `min(max(x, min_val), max_val)`. [`forward`](Hardtanh::forward) panics when `min_val > max_val`.
    Hardtanh HardtanhConfig hardtanh {
        /// The lower bound.
        min_val = -1.0;
        /// The upper bound.
        max_val = 1.0;
    }

    /// Hard shrinkage: `x` for `|x| > lambda`, 0 elsewhere. [`forward`](HardShrink::forward) panics when `lambda` is
    /// negative.
    HardShrink HardShrinkConfig hard_shrink {
        /// The half-width of the interval that becomes 0.
        lambda = 0.5;
    }

    /// Soft shrinkage: moves `x` towards 0 by `lambda`, to 0 for `|x| ≤ lambda`. [`forward`](SoftShrink::forward)
    /// panics when `lambda` is negative.
    SoftShrink SoftShrinkConfig soft_shrink {
        /// The distance.
        lambda = 0.5;
    }

    /// Shrinkage with a bias: `x - bias` for `x > lambda`, `x + bias` for `x < -lambda`, 0 between
    /// ([ONNX](https://onnx.ai/onnx/operators/onnx__Shrink.html)). [`forward`](Shrink::forward) panics when `lambda` is
    /// negative.
    Shrink ShrinkConfig shrink {
        /// The half-width of the interval that becomes 0.
        lambda = 0.5;
        /// The distance by which other elements move towards 0.
        bias = 0.5;
    }

    /// Threshold: `x` for `x > threshold`, `value` elsewhere.
    Threshold ThresholdConfig threshold {
        /// The threshold.
        threshold;
        /// The output at and below the threshold.
        value;
    }

    /// Thresholded ReLU: `x` for `x > alpha`, 0 elsewhere ([Konda et al. 2014](https://arxiv.org/abs/1402.3337)).
    ThresholdedRelu ThresholdedReluConfig thresholded_relu {
        /// The threshold.
        alpha = 1.0;
    }
}
