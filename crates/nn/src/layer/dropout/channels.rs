//! Dropout of whole channels.

use super::check_probability;
use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module};
use kiln_tensor::{Backend, Tensor, module};

macro_rules! channel_dropouts {
    ($($name:ident $config:ident $function:ident $rank:literal $shape:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// The probability of setting a channel to zero, from 0 to 1. PyTorch's default is 0.5.
            pub prob: f64,
        }

        #[doc = concat!("Dropout of whole channels of `", $shape, "`: sets each channel to zero with")]
        /// probability `prob` and multiplies the others by `1 / (1 - prob)`
        /// ([Tompson et al. 2014](https://arxiv.org/abs/1411.4280)). Neighbouring elements of a channel are correlated,
        /// which dropout of single elements does not regularise.
        ///
        /// It is active in training [mode](Mode), and the identity in evaluation mode. Random values come from the
        /// device's random stream ([`Backend::seed`]).
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// The probability of setting a channel to zero.
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
                check_probability(stringify!($function), self.prob);
                $name { prob: self.prob, mode: Mode::Auto }
            }
        }

        impl $name {
            #[doc = concat!("Applies dropout to the channels of `", $shape, "`; the output has the same shape.")]
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let training = self.mode.is_training(x.engine_stack());
                module::$function(x, self.prob, training)
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

channel_dropouts! {
    Dropout1d Dropout1dConfig dropout1d 3 "[batch, channels, length]";
    Dropout2d Dropout2dConfig dropout2d 4 "[batch, channels, height, width]";
    Dropout3d Dropout3dConfig dropout3d 5 "[batch, channels, depth, height, width]";
}
