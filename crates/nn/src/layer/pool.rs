//! Pooling.

use crate::module::forward::forward_modules;
use crate::{Config, Module};
use kiln_tensor::module::{self, PoolOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! max_pools {
    ($($name:ident $config:ident $function:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Window size.
            pub kernel_size: [usize; $axes],
            /// Stride. Default (`None`): the window size.
            pub stride: Option<[usize; $axes]>,
            /// Padding at both ends of each dimension, at most half a window. Padding is never the maximum. Default: 0.
            #[config(default = [0; $axes])]
            pub padding: [usize; $axes],
            /// Dilation: distance between window elements. Default: 1.
            #[config(default = [1; $axes])]
            pub dilation: [usize; $axes],
            /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
            /// false.
            #[config(default = false)]
            pub ceil_mode: bool,
        }

        #[doc = concat!("Max pooling over ", $space, ".")]
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// Window size.
            #[module(attribute)]
            pub kernel_size: [usize; $axes],
            /// Stride.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Padding at both ends of each dimension. Padding is never the maximum.
            #[module(attribute)]
            pub padding: [usize; $axes],
            /// Dilation: distance between window elements.
            #[module(attribute)]
            pub dilation: [usize; $axes],
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
                    kernel_size: self.kernel_size,
                    stride: self.stride.unwrap_or(self.kernel_size),
                    padding: self.padding,
                    dilation: self.dilation,
                    ceil_mode: self.ceil_mode,
                }
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, windows..]`.
            ///
            /// # Panics
            /// When a window is longer than the padded input, the padding exceeds half a window, or a stride or
            /// dilation is 0.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let options = PoolOptions {
                    window: self.kernel_size,
                    stride: self.stride,
                    padding: self.padding,
                    dilation: self.dilation,
                    ceil_mode: self.ceil_mode,
                };
                module::$function(x, &options)
            }
        }
    )*};
}

max_pools! {
    MaxPool1d MaxPool1dConfig max_pool1d 1 3 "one spatial dimension";
    MaxPool2d MaxPool2dConfig max_pool2d 2 4 "two spatial dimensions";
}

macro_rules! average_pools {
    ($($name:ident $config:ident $function:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Window size.
            pub kernel_size: [usize; $axes],
            /// Stride. Default (`None`): the window size.
            pub stride: Option<[usize; $axes]>,
            /// Zero padding at both ends of each dimension, at most half a window. Default: 0.
            #[config(default = [0; $axes])]
            pub padding: [usize; $axes],
            /// Whether to round the number of windows up, so that the last window may extend past the end. Default:
            /// false.
            #[config(default = false)]
            pub ceil_mode: bool,
            /// Whether the divisor includes padding. Default: true.
            #[config(default = true)]
            pub count_include_pad: bool,
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
            /// Zero padding at both ends of each dimension.
            #[module(attribute)]
            pub padding: [usize; $axes],
            /// Whether to round the number of windows up, so that the last window may extend past the end.
            pub ceil_mode: bool,
            /// Whether the divisor includes padding.
            pub count_include_pad: bool,
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
                }
            }
        }

        impl $name {
            /// Pools `[batch, channels, space..]`. The output is `[batch, channels, windows..]`.
            ///
            /// # Panics
            /// When a window is longer than the padded input, the padding exceeds half a window, or a stride is 0.
            #[track_caller]
            pub fn forward<B: Backend>(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let options = PoolOptions {
                    window: self.kernel_size,
                    stride: self.stride,
                    padding: self.padding,
                    dilation: [1; $axes],
                    ceil_mode: self.ceil_mode,
                };
                module::$function(x, &options, self.count_include_pad)
            }
        }
    )*};
}

average_pools! {
    AvgPool1d AvgPool1dConfig avg_pool1d 1 3 "one spatial dimension";
    AvgPool2d AvgPool2dConfig avg_pool2d 2 4 "two spatial dimensions";
}

macro_rules! adaptive_pools {
    ($($name:ident $config:ident $function:ident $axes:literal $rank:literal $space:literal;)*) => {$(
        #[doc = concat!("Settings of an [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Output size: the number of windows along each dimension.
            pub output_size: [usize; $axes],
        }

        #[doc = concat!("Adaptive average pooling over ", $space, ".")]
        ///
        /// Window `i` of `n` over `length` elements contains the elements
        /// `floor(i length / n) .. ceil((i + 1) length / n)`.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            /// Output size: the number of windows along each dimension.
            #[module(attribute)]
            pub output_size: [usize; $axes],
        }

        impl $config {
            /// Returns the layer.
            pub fn init(&self) -> $name {
                $name { output_size: self.output_size }
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
    )*};
}

adaptive_pools! {
    AdaptiveAvgPool1d AdaptiveAvgPool1dConfig adaptive_avg_pool1d 1 3 "one spatial dimension";
    AdaptiveAvgPool2d AdaptiveAvgPool2dConfig adaptive_avg_pool2d 2 4 "two spatial dimensions";
}

forward_modules! {
    MaxPool1d: 3 => 3;
    MaxPool2d: 4 => 4;
    AvgPool1d: 3 => 3;
    AvgPool2d: 4 => 4;
    AdaptiveAvgPool1d: 3 => 3;
    AdaptiveAvgPool2d: 4 => 4;
}
