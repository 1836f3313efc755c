//! Convolutions.

use super::padding::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use crate::module::forward::forward_modules;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::module::{self, ConvOptions};
use kiln_tensor::{Backend, Tensor};

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $config:ident $padding:ident $function:ident $axes:literal $rank:literal;)*) => {$(
        #[doc = concat!("Settings of a [`", stringify!($name), "`] layer.")]
        #[derive(Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Numbers of input and output channels.
            pub channels: [usize; 2],
            /// Kernel size.
            pub kernel_size: [usize; $axes],
            /// Stride. Default: 1.
            #[config(default = [1; $axes])]
            pub stride: [usize; $axes],
            /// Dilation: distance between kernel elements. Default: 1.
            #[config(default = [1; $axes])]
            pub dilation: [usize; $axes],
            /// Number of groups; both numbers of channels must be multiples. Default: 1.
            #[config(default = 1)]
            pub groups: usize,
            /// Zero padding of the input. Default: none.
            #[config(default = $padding::Valid)]
            #[config(into = $padding)]
            pub padding: $padding,
            /// Whether to add a bias. Default: true.
            #[config(default = true)]
            pub bias: bool,
            /// The initializer of weight and bias; both use the fans of the weight. Default: [`Initializer::LINEAR`].
            #[config(default = Initializer::LINEAR)]
            pub initializer: Initializer,
        }

        $(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name<B: Backend = Dyn> {
            /// `[channels_out, channels_in / groups, kernel..]`.
            pub weight: Param<Tensor<B, $rank>>,
            /// `[channels_out]`.
            pub bias: Option<Param<Tensor<B, 1>>>,
            /// Stride.
            #[module(attribute)]
            pub stride: [usize; $axes],
            /// Dilation: distance between kernel elements.
            #[module(attribute)]
            pub dilation: [usize; $axes],
            /// Number of groups.
            #[module(attribute)]
            pub groups: usize,
            /// Zero padding of the input.
            #[module(attribute)]
            pub padding: $padding,
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
                (shape[0], shape[1]) = (output, input / groups);
                shape[2..].copy_from_slice(&self.kernel_size);
                let size: usize = self.kernel_size.iter().product();
                let bias = || self.initializer.init_with([output], shape[1] * size, output * size, device);
                $name {
                    weight: self.initializer.init(shape, device),
                    bias: self.bias.then(bias),
                    stride: self.stride,
                    dilation: self.dilation,
                    groups,
                    padding: self.padding,
                }
            }
        }

        impl<B: Backend> $name<B> {
            /// Computes the convolution of `[batch, channels_in, space..]`. The output is
            /// `[batch, channels_out, space..]`.
            ///
            /// # Panics
            /// When the number of channels differs from the weight's, the kernel is longer than the padded input, or a
            /// stride or dilation is 0.
            #[track_caller]
            pub fn forward(&self, x: Tensor<B, $rank>) -> Tensor<B, $rank> {
                let space = |dims: [usize; $rank]| core::array::from_fn(|axis| dims[axis + 2]);
                let padding =
                    self.padding.sides(space(x.dims()), space(self.weight.dims()), self.stride, self.dilation);
                let options =
                    ConvOptions { stride: self.stride, padding, dilation: self.dilation, groups: self.groups };
                module::$function(x, self.weight.val(), self.bias.as_ref().map(Param::val), &options)
            }
        }
    )*};
}

convolutions! {
    /// 1-dimensional convolution, such as of signals and sequences.
    Conv1d Conv1dConfig PaddingConfig1d conv1d 1 3;
    /// 2-dimensional convolution, such as of images.
    Conv2d Conv2dConfig PaddingConfig2d conv2d 2 4;
    /// 3-dimensional convolution, such as of volumes and videos.
    Conv3d Conv3dConfig PaddingConfig3d conv3d 3 5;
}

#[track_caller]
pub(super) fn check_groups(op: &str, input: usize, output: usize, groups: usize) {
    assert!(
        groups > 0 && input.is_multiple_of(groups) && output.is_multiple_of(groups),
        "[{op}] {groups} groups do not divide {input} input and {output} output channels\n  \
         hint: both numbers of channels must be multiples of `groups`"
    );
}

forward_modules! {
    Conv1d<B>: 3 => 3;
    Conv2d<B>: 4 => 4;
    Conv3d<B>: 5 => 5;
}
