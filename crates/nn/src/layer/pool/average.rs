//! Average pooling.

use crate::layer::padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use crate::module::forward::forward_modules;
use crate::module::plain::plain_module;
use kiln_tensor::module::{self, PoolOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! average_pools {
    ($($name:ident $config:ident $function:ident $with_divisor:ident $padding:ident $axes:literal $rank:literal
       $space:literal;)*) => {$(
        plain_module! {
            #[doc = concat!("Average pooling over ", $space, ".")]
            $name $config {
                /// Window size.
                kernel_size: [usize; $axes],
            }
            stride $axes {
                /// Zero padding, smaller than a window. Default: none.
                padding: $padding = $padding::Valid => [into = $padding],
                /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
                /// false.
                ceil_mode: bool = false,
                /// Whether the divisor includes padding. Default: true.
                count_include_pad: bool = true,
                /// The divisor of every window's sum. Default (`None`): the number of elements.
                divisor_override: Option<usize> = None,
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
