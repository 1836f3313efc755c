//! Power-average pooling.

use crate::module::forward::forward_modules;
use crate::{Config, Module};
use kiln_tensor::module::{self, PoolOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! power_pools {
    ($($name:ident $config:ident $function:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        #[doc = concat!("Settings of an [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// The exponent `p`, positive and finite: 1 is sum pooling, and large values approach max pooling.
            pub norm_type: f64,
            /// Window size.
            pub kernel_size: [usize; $axes],
            /// Stride. Default (`None`): the window size.
            pub stride: Option<[usize; $axes]>,
            /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
            /// false.
            #[config(default = false)]
            pub ceil_mode: bool,
        }

        #[doc = concat!("Power-average pooling over ", $space, ": `(Σ x^p)^(1/p)` of each window.")]
        /// Where the sum is 0, its gradient is 0. For an odd or fractional `p` the inputs should not be negative.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// The exponent `p`.
            pub norm_type: f64,
            /// Window size.
            #[module(attribute)]
            pub kernel_size: [usize; $axes],
            /// Stride.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Whether to round the number of windows up, so that the last window may extend past the end.
            pub ceil_mode: bool,
        }

        impl $config {
            /// Sets the stride: `with_stride(Some(strides))` under the name that Burn uses.
            #[must_use]
            pub fn with_strides(self, strides: [usize; $axes]) -> Self {
                self.with_stride(Some(strides))
            }

            /// Returns the layer.
            pub fn init(&self) -> $name {
                $name {
                    norm_type: self.norm_type,
                    kernel_size: self.kernel_size,
                    stride: self.stride.unwrap_or(self.kernel_size),
                    ceil_mode: self.ceil_mode,
                }
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
