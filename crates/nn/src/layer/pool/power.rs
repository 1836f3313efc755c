//! Power-average pooling.

use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::module::{self, PoolOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! power_pools {
    ($($name:ident $config:ident $function:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        plain_module! {
            #[doc = concat!("Power-average pooling over ", $space, ": `(Σ x^p)^(1/p)` of each window.")]
            /// Where the sum is 0, its gradient is 0. For an odd or fractional `p` the inputs should not be negative.
            $name $config {
                /// The exponent `p`, positive and finite: 1 is sum pooling, and large values approach max pooling.
                norm_type: f64,
                /// Window size.
                kernel_size: [usize; $axes],
            }
            stride $axes {
                /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
                /// false.
                ceil_mode: bool = false,
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, windows..]`.
            ///
            /// # Panics
            /// When a window is longer than the input, a stride is 0, or `norm_type` is not positive and finite.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let options = PoolOptions {
                    window: self.kernel_size,
                    stride: self.stride,
                    padding: [(0, 0); $axes],
                    dilation: [1; $axes],
                    ceil_mode: self.ceil_mode,
                };
                module::$function(x, self.norm_type, &options)
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

power_pools! {
    LpPool1d LpPool1dConfig lp_pool1d 1 3 "one spatial dimension";
    LpPool2d LpPool2dConfig lp_pool2d 2 4 "two spatial dimensions";
    LpPool3d LpPool3dConfig lp_pool3d 3 5 "three spatial dimensions";
}
