//! Transposed convolutions.

use super::conv::check_groups;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::module::{self, ConvOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! transposed_convolutions {
    ($($(#[$doc:meta])* $name:ident $config:ident $function:ident $axes:literal $rank:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Channels of the input and of the output.
            pub channels: [usize; 2],
            /// Lengths of the kernel.
            pub kernel_size: [usize; $axes],
            /// Distance between neighbouring positions of the kernel in the output. Default: 1.
            #[config(default = [1; $axes])]
            pub stride: [usize; $axes],
            /// Distance between neighbouring elements of the kernel. Default: 1.
            #[config(default = [1; $axes])]
            pub dilation: [usize; $axes],
            /// The number of independent groups of channels. Default: 1.
            #[config(default = 1)]
            pub groups: usize,
            /// Elements taken off both sides of the output. Default: 0.
            #[config(default = [0; $axes])]
            pub padding: [usize; $axes],
            /// Elements added after the output. Default: 0.
            #[config(default = [0; $axes])]
            pub output_padding: [usize; $axes],
            /// Whether a bias is added. Default: true.
            #[config(default = true)]
            pub bias: bool,
            /// The initializer of weight and bias. Both use the fans of the weight's axes in memory order, so the
            /// fan in is that of the output channels, as in PyTorch. Default: [`Initializer::LINEAR`].
            #[config(default = Initializer::LINEAR)]
            pub initializer: Initializer,
        }

        $(#[$doc])*
        ///
        /// It is the gradient of a convolution by its input: it spreads each element of the input over a window of the
        /// output, which has `(length - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1` elements.
        #[derive(Module, Clone, Debug)]
        pub struct $name<B: Backend = Dyn> {
            /// `[channels_in, channels_out / groups, kernel..]`.
            pub weight: Param<Tensor<B, $rank>>,
            /// `[channels_out]`.
            pub bias: Option<Param<Tensor<B, 1>>>,
            /// Distance between neighbouring positions of the kernel in the output.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Distance between neighbouring elements of the kernel.
            #[module(attribute)]
            pub dilation: [usize; $axes],
            /// The number of independent groups of channels.
            #[module(attribute)]
            pub groups: usize,
            /// Elements taken off both sides of the output.
            #[module(attribute)]
            pub padding: [usize; $axes],
            /// Elements added after the output.
            #[module(attribute)]
            pub output_padding: [usize; $axes],
        }

        impl $config {
            /// A layer with fresh weights on a device.
            ///
            /// # Panics
            /// When the groups do not divide both numbers of channels.
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
            /// `[batch, channels_in, space..]` to `[batch, channels_out, space..]`.
            ///
            /// # Panics
            /// When the channels differ from the weight's, or the padding leaves nothing.
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
    /// A transposed convolution over one axis.
    ConvTranspose1d ConvTranspose1dConfig conv_transpose1d 1 3;
    /// A transposed convolution over two axes.
    ConvTranspose2d ConvTranspose2dConfig conv_transpose2d 2 4;
    /// A transposed convolution over three axes.
    ConvTranspose3d ConvTranspose3dConfig conv_transpose3d 3 5;
}
