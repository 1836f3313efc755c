//! Average pooling.

use crate::layer::padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use crate::module::forward::forward_modules;
use crate::{Config, Module};
use kiln_tensor::module::{self, PoolOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! average_pools {
    ($($name:ident $config:ident $function:ident $with_divisor:ident $padding:ident $axes:literal $rank:literal
       $space:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Window size.
            pub kernel_size: [usize; $axes],
            /// Stride. Default (`None`): the window size.
            pub stride: Option<[usize; $axes]>,
            /// Zero padding, smaller than a window. Default: none.
            #[config(default = $padding::Valid)]
            #[config(into = $padding)]
            pub padding: $padding,
            /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
            /// false.
            #[config(default = false)]
            pub ceil_mode: bool,
            /// Whether the divisor includes padding. Default: true.
            #[config(default = true)]
            pub count_include_pad: bool,
            /// The divisor of every window's sum. Default (`None`): the number of elements.
            pub divisor_override: Option<usize>,
        }

        #[doc = concat!("Average pooling over ", $space, ".")]
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// Window size.
            #[module(attribute)]
            pub kernel_size: [usize; $axes],
            /// Stride.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Zero padding.
            #[module(attribute)]
            pub padding: $padding,
            /// Whether to round the number of windows up, so that the last window may extend past the end.
            pub ceil_mode: bool,
            /// Whether the divisor includes padding.
            pub count_include_pad: bool,
            /// The divisor of every window's sum; by default the number of elements.
            #[module(attribute)]
            pub divisor_override: Option<usize>,
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
                    kernel_size: self.kernel_size,
                    stride: self.stride.unwrap_or(self.kernel_size),
                    padding: self.padding,
                    ceil_mode: self.ceil_mode,
                    count_include_pad: self.count_include_pad,
                    divisor_override: self.divisor_override,
                }
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, windows..]`.
            ///
            /// # Panics
            /// When a window is longer than the padded input, a window contains padding only, or a stride or
            /// `divisor_override` is 0.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let dims = x.dims();
                let (lengths, dilation) = (core::array::from_fn(|axis| dims[axis + 2]), [1; $axes]);
                let options = PoolOptions {
                    window: self.kernel_size,
                    stride: self.stride,
                    padding: self.padding.sides(lengths, self.kernel_size, self.stride, dilation),
                    dilation,
                    ceil_mode: self.ceil_mode,
                };
                match self.divisor_override {
                    Some(divisor) => module::$with_divisor(x, &options, divisor),
                    None => module::$function(x, &options, self.count_include_pad),
                }
            }
        }

        forward_modules! { $name: $rank => $rank; }
    )*};
}

average_pools! {
    AvgPool1d AvgPool1dConfig avg_pool1d avg_pool1d_with_divisor PaddingConfig1d 1 3 "one spatial dimension";
    AvgPool2d AvgPool2dConfig avg_pool2d avg_pool2d_with_divisor PaddingConfig2d 2 4 "two spatial dimensions";
    AvgPool3d AvgPool3dConfig avg_pool3d avg_pool3d_with_divisor PaddingConfig3d 3 5 "three spatial dimensions";
}
