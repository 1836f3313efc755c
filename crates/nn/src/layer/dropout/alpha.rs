//! Dropout that keeps mean and variance after SELU.

use super::{check_probability, mask, scaled};
use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module};
use kiln_tensor::{Backend, Tensor, module};

/// The magnitude of a dropped element before mean and variance are restored: the limit of SELU.
const ALPHA: f64 = 1.758_099_340_847_376_7;

macro_rules! alpha_dropouts {
    ($($(#[$doc:meta])* $name:ident $config:ident $op:literal $unit:literal $function:path;)*) => {$(
        #[doc = concat!("Settings of ", $unit, " layer: [`", stringify!($name), "`].")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// The probability of dropping, from 0 to 1. PyTorch's default is 0.5.
            pub prob: f64,
        }

        $(#[$doc])*
        ///
        /// It is active in training [mode](Mode), and the identity in evaluation mode. Random values come from the
        /// device's random stream ([`Backend::seed`]).
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// The probability of dropping.
            pub prob: f64,
            /// Whether dropout is active.
            pub mode: Mode,
        }

        impl $config {
            /// Returns the layer.
            ///
            /// # Panics
            /// When `prob` is not between 0 and 1.
            #[track_caller]
            pub fn init(&self) -> $name {
                check_probability($op, self.prob);
                $name { prob: self.prob, mode: Mode::Auto }
            }
        }

        impl $name {
            /// Applies dropout. The input has any shape; the output has the same shape.
            #[track_caller]
            pub fn forward<B: Backend, const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                let training = self.mode.is_training(x.engine_stack());
                $function(x, self.prob, training)
            }
        }

        forward_modules! { $name; }
    )*};
}

alpha_dropouts! {
    /// Alpha dropout, for networks with [`Selu`](crate::Selu): elements become the lower limit of SELU with probability
    /// `prob`; then all are scaled and shifted to keep mean 0 and variance 1
    /// ([Klambauer et al. 2017](https://arxiv.org/abs/1706.02515)).
    AlphaDropout AlphaDropoutConfig "alpha_dropout" "an alpha dropout" module::alpha_dropout;
    /// [`AlphaDropout`] of whole channels of `[batch, channels, ..]`.
    FeatureAlphaDropout FeatureAlphaDropoutConfig "feature_alpha_dropout" "a feature alpha dropout" channels_dropped;
}

/// Applies alpha dropout to whole channels of `[batch, channels, ..]`.
#[track_caller]
fn channels_dropped<B: Backend, const D: usize>(x: Tensor<B, D>, prob: f64, training: bool) -> Tensor<B, D> {
    if !training || prob == 0.0 {
        return x;
    }
    let keep = mask(&x, 2, 1.0 - prob);
    if prob == 1.0 {
        return scaled(x, keep);
    }
    let scale = 1.0 / libm::sqrt((ALPHA * ALPHA * prob + 1.0) * (1.0 - prob));
    // Kept channels are shifted by ALPHA prob, dropped ones by ALPHA (prob - 1).
    let shift = (keep.clone() + (prob - 1.0)) * (scale * ALPHA);
    let dtype = x.dtype();
    (x.cast(keep.dtype()) * (keep * scale) + shift).cast(dtype)
}
