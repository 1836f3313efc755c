//! Deformable convolution.

use super::conv::check_groups;
use super::padding::PaddingConfig2d;
use crate::{Config, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::module::{self, DeformConvSpec};
use kiln_tensor::{Backend, Tensor};

/// Settings of a [`DeformConv2d`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct DeformConv2dConfig {
    /// Numbers of input and output channels.
    pub channels: [usize; 2],
    /// Kernel size.
    pub kernel_size: [usize; 2],
    /// Stride. Default: 1.
    #[config(default = [1; 2])]
    pub stride: [usize; 2],
    /// Dilation: distance between kernel elements. Default: 1.
    #[config(default = [1; 2])]
    pub dilation: [usize; 2],
    /// Number of groups of channels that are convolved separately; both numbers of channels must be multiples.
    /// Default: 1.
    #[config(default = 1)]
    pub weight_groups: usize,
    /// Number of groups of input channels with offsets of their own; the number of input channels must be a multiple.
    /// Default: 1.
    #[config(default = 1)]
    pub offset_groups: usize,
    /// Zero padding of the input. Default: none.
    #[config(default = PaddingConfig2d::Valid)]
    #[config(into = PaddingConfig2d)]
    pub padding: PaddingConfig2d,
    /// Whether to add a bias. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// The initializer of weight and bias; both use the fans of the weight. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Deformable 2-dimensional convolution ([Dai et al. 2017](https://arxiv.org/abs/1703.06211)): each kernel element
/// reads the input at an offset, by bilinear interpolation and with zeros outside. Offsets come from another layer, often
/// a [`Conv2d`](crate::Conv2d) of the same input. A mask multiplies the elements that are read
/// ([Zhu et al. 2018](https://arxiv.org/abs/1811.11168)).
#[derive(Module, Clone, Debug)]
pub struct DeformConv2d<B: Backend = Dyn> {
    /// `[channels_out, channels_in / weight_groups, kernel..]`.
    pub weight: Param<Tensor<B, 4>>,
    /// `[channels_out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Stride.
    #[module(attribute)]
    pub stride: [usize; 2],
    /// Dilation: distance between kernel elements.
    #[module(attribute)]
    pub dilation: [usize; 2],
    /// Number of groups of channels that are convolved separately.
    #[module(attribute)]
    pub weight_groups: usize,
    /// Number of groups of input channels with offsets of their own.
    #[module(attribute)]
    pub offset_groups: usize,
    /// Zero padding of the input.
    #[module(attribute)]
    pub padding: PaddingConfig2d,
}

impl DeformConv2dConfig {
    /// Returns a layer with initialized parameters on a device.
    ///
    /// # Panics
    /// When a number of channels is not a multiple of `weight_groups`, or that of input channels not a multiple of
    /// `offset_groups`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> DeformConv2d<B> {
        let ([input, output], [height, width]) = (self.channels, self.kernel_size);
        check_groups("deform_conv2d", input, output, self.weight_groups);
        assert!(
            self.offset_groups > 0 && input.is_multiple_of(self.offset_groups),
            "[deform_conv2d] {} offset groups do not divide {input} input channels",
            self.offset_groups
        );
        let (inputs, size) = (input / self.weight_groups, height * width);
        let bias = || self.initializer.init_with([output], inputs * size, output * size, device);
        DeformConv2d {
            weight: self.initializer.init([output, inputs, height, width], device),
            bias: self.bias.then(bias),
            stride: self.stride,
            dilation: self.dilation,
            weight_groups: self.weight_groups,
            offset_groups: self.offset_groups,
            padding: self.padding,
        }
    }
}

impl<B: Backend> DeformConv2d<B> {
    /// Computes the convolution of `[batch, channels_in, height, width]`; the output is
    /// `[batch, channels_out, height_out, width_out]`.
    ///
    /// Offsets are `[batch, 2 offset_groups kernel.., height_out, width_out]`, the vertical offset of each kernel
    /// element before the horizontal one. The mask is `[batch, offset_groups kernel.., height_out, width_out]`.
    ///
    /// # Panics
    /// When the shapes do not suit.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 4>, offset: Tensor<B, 4>, mask: Option<Tensor<B, 4>>) -> Tensor<B, 4> {
        let ([_, _, height, width], [_, _, rows, columns]) = (x.dims(), self.weight.dims());
        let sides = self.padding.sides([height, width], [rows, columns], self.stride, self.dilation);
        // The op pads both ends equally. Zeros that are part of the input are read like those outside.
        let is_symmetric = sides.iter().all(|(before, after)| before == after);
        let (x, padding) = if is_symmetric {
            (x, sides.map(|(before, _)| before))
        } else {
            (x.pad([(0, 0), (0, 0), sides[0], sides[1]], 0), [0, 0])
        };
        let spec = DeformConvSpec {
            stride: self.stride,
            padding,
            dilation: self.dilation,
            groups: self.weight_groups,
            offset_groups: self.offset_groups,
        };
        module::deform_conv2d(x, offset, self.weight.val(), mask, self.bias.as_ref().map(Param::val), &spec)
    }
}
