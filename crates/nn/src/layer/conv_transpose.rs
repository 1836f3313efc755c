//! Transposed convolutions.

use super::conv::check_groups;
use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::module::{self, ConvOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! transposed_convolutions {
    ($($(#[$doc:meta])* $name:ident $config:ident $function:ident $axes:literal $rank:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Numbers of input and output channels.
            pub channels: [usize; 2],
            /// Kernel size.
            pub kernel_size: [usize; $axes],
            /// Stride: distance in the output between kernel positions. Default: 1.
            #[config(default = [1; $axes])]
            pub stride: [usize; $axes],
            /// Dilation: distance between kernel elements. Default: 1.
            #[config(default = [1; $axes])]
            pub dilation: [usize; $axes],
            /// Number of groups; both numbers of channels must be multiples. Default: 1.
            #[config(default = 1)]
            pub groups: usize,
            /// Elements removed from both ends of each spatial dimension of the output. Default: 0.
            #[config(default = [0; $axes])]
            pub padding: [usize; $axes],
            /// Elements added at the end of each spatial dimension of the output. Default: 0.
            #[config(default = [0; $axes])]
            pub output_padding: [usize; $axes],
            /// Whether to add a bias. Default: true.
            #[config(default = true)]
            pub bias: bool,
            /// The initializer of weight and bias; both use the fans of the weight. The weight's dimensions are read as
            /// `[out, in, kernel..]`, so the fan in is `channels_out / groups * product(kernel)`, as in PyTorch.
            /// Default: [`Initializer::LINEAR`].
            #[config(default = Initializer::LINEAR)]
            pub initializer: Initializer,
        }

        $(#[$doc])*
        ///
        /// It is the gradient of a convolution with respect to its input: each input element is scattered over a window
        /// of the output. A spatial dimension of the output has
        /// `(length - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1` elements.
        #[derive(Module, Clone, Debug)]
        pub struct $name<B: Backend = Dyn> {
            /// `[channels_in, channels_out / groups, kernel..]`.
            pub weight: Param<Tensor<B, $rank>>,
            /// `[channels_out]`.
            pub bias: Option<Param<Tensor<B, 1>>>,
            /// Stride: distance in the output between kernel positions.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Dilation: distance between kernel elements.
            #[module(attribute)]
            pub dilation: [usize; $axes],
            /// Number of groups.
            #[module(attribute)]
            pub groups: usize,
            /// Elements removed from both ends of each spatial dimension of the output.
            #[module(attribute)]
            pub padding: [usize; $axes],
            /// Elements added at the end of each spatial dimension of the output.
            #[module(attribute)]
            pub output_padding: [usize; $axes],
        }

        impl $config {
            /// Returns a layer with initialized parameters on a device.
            ///
            /// # Panics
            /// When a number of channels is not a multiple of `groups`, or `groups` is 0.
            #[track_caller]
            pub fn init<B: Backend>(&self, device: &B::Device) -> $name<B> {
                let ([input, output], groups) = (self.channels, self.groups);
                check_groups(stringify!($function), input, output, groups);
                let mut shape = [0; $rank];
                (shape[0], shape[1]) = (input, output / groups);
                shape[2..].copy_from_slice(&self.kernel_size);
                let size: usize = self.kernel_size.iter().product();
                let bias = || self.initializer.init_with([output], shape[1] * size, input * size, device);
                $name {
                    weight: self.initializer.init(shape, device),
                    bias: self.bias.then(bias),
                    stride: self.stride,
                    dilation: self.dilation,
                    groups,
                    padding: self.padding,
                    output_padding: self.output_padding,
                }
            }
        }

        impl<B: Backend> $name<B> {
            /// Computes the transposed convolution of `[batch, channels_in, space..]`. The output is
            /// `[batch, channels_out, space..]`.
            ///
            /// # Panics
            /// When the number of channels differs from the weight's, or the padding removes the whole output.
            #[track_caller]
            pub fn forward(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let options = ConvOptions::new(self.stride, self.padding, self.dilation, self.groups);
                let bias = self.bias.as_ref().map(Param::val);
                module::$function(x, self.weight.val(), bias, &options, self.output_padding)
            }
        }
    )*};
}

transposed_convolutions! {
    /// 1-dimensional transposed convolution.
    ConvTranspose1d ConvTranspose1dConfig conv_transpose1d 1 3;
    /// 2-dimensional transposed convolution.
    ConvTranspose2d ConvTranspose2dConfig conv_transpose2d 2 4;
    /// 3-dimensional transposed convolution.
    ConvTranspose3d ConvTranspose3dConfig conv_transpose3d 3 5;
}

forward_modules! {
    ConvTranspose1d<B>: 3 => 3;
    ConvTranspose2d<B>: 4 => 4;
    ConvTranspose3d<B>: 5 => 5;
}
