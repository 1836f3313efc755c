//! Adaptive pooling: the number of windows is given instead of their size.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::{Backend, Int, Tensor, module};

/// Defines a layer and its settings.
macro_rules! adaptive_pool {
    ($name:ident $config:ident $function:ident $axes:literal $rank:literal $title:literal $space:literal) => {
        plain_module! {
            #[doc = concat!($title, " over ", $space, ".")]
            ///
            /// Window `i` of `n` over `length` elements contains the elements
            /// `floor(i length / n) .. ceil((i + 1) length / n)`.
            $name $config {
                /// Output size: the number of windows along each dimension.
                output_size: [usize; $axes],
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, output_size..]`.
            ///
            /// # Panics
            /// When a spatial dimension of the input or output is empty.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                module::$function(x, self.output_size)
            }
        }

        forward_modules! { $name: $rank => $rank; }
    };
}

macro_rules! adaptive_pools {
    ($($average:ident $average_config:ident $average_function:ident $max:ident $max_config:ident $max_function:ident
       $with_indices:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        adaptive_pool! {
            $average $average_config $average_function $axes $rank "Adaptive average pooling" $space
        }
        adaptive_pool! { $max $max_config $max_function $axes $rank "Adaptive max pooling" $space }

        impl $max {
            /// Like [`forward`](Self::forward), and returns the position of each maximum: a row-major index into the
            /// spatial dimensions.
            ///
            /// # Panics
            /// As [`forward`](Self::forward).
            #[doc(alias = "return_indices")]
            #[track_caller]
            pub fn forward_with_indices<B: Backend>(
                &self,
                x: Tensor<B, $rank>,
            ) -> (Tensor<B, $rank>, Tensor<B, $rank, Int>) {
                module::$with_indices(x, self.output_size)
            }
        }
    )*};
}

adaptive_pools! {
    AdaptiveAvgPool1d AdaptiveAvgPool1dConfig adaptive_avg_pool1d
    AdaptiveMaxPool1d AdaptiveMaxPool1dConfig adaptive_max_pool1d adaptive_max_pool1d_with_indices
    1 3 "one spatial dimension";
    AdaptiveAvgPool2d AdaptiveAvgPool2dConfig adaptive_avg_pool2d
    AdaptiveMaxPool2d AdaptiveMaxPool2dConfig adaptive_max_pool2d adaptive_max_pool2d_with_indices
    2 4 "two spatial dimensions";
    AdaptiveAvgPool3d AdaptiveAvgPool3dConfig adaptive_avg_pool3d
    AdaptiveMaxPool3d AdaptiveMaxPool3dConfig adaptive_max_pool3d adaptive_max_pool3d_with_indices
    3 5 "three spatial dimensions";
}
