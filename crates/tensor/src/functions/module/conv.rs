//! Convolutions.

use crate::any::DeformConvSpec;
use crate::functions::table::{functions, typed};
use crate::{Backend, Tensor};
use kiln_ir::ConvOptions;

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $transposed:ident $input:ident $weight:ident $axes:literal $rank:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: Backend>(
            x: Tensor<B, $rank>,
            weight: Tensor<B, $rank>,
            bias: Option<Tensor<B, 1>>,
            options: &ConvOptions<$axes>,
        ) -> Tensor<B, $rank> {
            x.map(|any| any.conv(weight.into_any(), bias.map(Tensor::into_any), &options.spec()))
        }

        #[doc = concat!("The gradient of [`", stringify!($name), "`] for its input, as a layer (transposed convolution): `x` is")]
        /// `[batch, channels_in, space..]`, weight `[channels_in, channels_out / groups, kernel..]`, bias
        /// `[channels_out]`. `output_padding` adds to the end of each axis of the result
        /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv_transpose2d.html)).
        #[track_caller]
        pub fn $transposed<B: Backend>(
            x: Tensor<B, $rank>,
            weight: Tensor<B, $rank>,
            bias: Option<Tensor<B, 1>>,
            options: &ConvOptions<$axes>,
            output_padding: [usize; $axes],
        ) -> Tensor<B, $rank> {
            let (weight, bias) = (weight.into_any(), bias.map(Tensor::into_any));
            x.map(|any| any.conv_transpose(weight, bias, &options.spec(), &output_padding))
        }

        #[doc = concat!("The gradient of [`", stringify!($name), "`] for its input, given the gradient of its result. `size` is the")]
        /// spatial shape of the input.
        #[track_caller]
        pub fn $input<B: Backend>(
            gradient: Tensor<B, $rank>,
            weight: Tensor<B, $rank>,
            size: [usize; $axes],
            options: &ConvOptions<$axes>,
        ) -> Tensor<B, $rank> {
            gradient.map(|any| any.conv_input_gradient(weight.into_any(), &size, &options.spec()))
        }

        #[doc = concat!("The gradient of [`", stringify!($name), "`] for its weight, given its input and the gradient of its")]
        /// result. `kernel` is the spatial shape of the weight.
        #[track_caller]
        pub fn $weight<B: Backend>(
            x: Tensor<B, $rank>,
            gradient: Tensor<B, $rank>,
            kernel: [usize; $axes],
            options: &ConvOptions<$axes>,
        ) -> Tensor<B, $rank> {
            x.map(|any| any.conv_weight_gradient(gradient.into_any(), &kernel, &options.spec()))
        }
    )*};
}

convolutions! {
    /// Computes a 1D convolution: `x` is `[batch, channels_in, length]`, weight
    /// `[channels_out, channels_in / groups, kernel]`, bias `[channels_out]`
    /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv1d.html)).
    conv1d conv_transpose1d conv1d_input_gradient conv1d_weight_gradient 1 3;
    /// Computes a 2D convolution: `x` is `[batch, channels_in, height, width]`, weight
    /// `[channels_out, channels_in / groups, kernel_height, kernel_width]`, bias `[channels_out]`
    /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html)).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let x = Tensor::<Flex, 4>::from_data([[[[1.0f32, 2.0, 3.0]]]], &Default::default());
    /// let weight = Tensor::<Flex, 4>::from_data([[[[1.0f32, -1.0]]]], &Default::default());
    /// let y = module::conv2d(x, weight, None, &Default::default());
    /// assert_eq!(y.into_data().to_vec::<f32>(), [-1.0, -1.0]);
    /// ```
    conv2d conv_transpose2d conv2d_input_gradient conv2d_weight_gradient 2 4;
    /// Computes a 3D convolution: `x` is `[batch, channels_in, depth, height, width]`, weight
    /// `[channels_out, channels_in / groups, kernel_depth, kernel_height, kernel_width]`, bias `[channels_out]`
    /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv3d.html)).
    conv3d conv_transpose3d conv3d_input_gradient conv3d_weight_gradient 3 5;
}

functions! {
    typed;

    /// Computes a deformable 2D convolution ([Dai et al. 2017](https://arxiv.org/abs/1703.06211)): each kernel element
    /// reads the input at an offset, by bilinear interpolation and with zeros outside. A mask multiplies the elements read
    /// ([Zhu et al. 2018](https://arxiv.org/abs/1811.11168)).
    ///
    /// `x` is `[batch, channels_in, height, width]`, weight `[channels_out, channels_in / groups, kernel..]`, bias
    /// `[channels_out]`. Offsets are `[batch, 2 offset_groups kernel.., out_height, out_width]`, the vertical offset of
    /// each kernel element before the horizontal one. The mask is `[batch, offset_groups kernel.., out_height, out_width]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 4>::from_data([[[[1.0f32, 2.0, 3.0]]]], &device);
    /// // One element, half a step to the right.
    /// let offset = Tensor::<Flex, 4>::from_data([[[[0.0f32; 3]], [[0.5; 3]]]], &device);
    /// let weight = Tensor::<Flex, 4>::ones([1, 1, 1, 1], &device);
    /// let y = module::deform_conv2d(x, offset, weight, None, None, &Default::default());
    /// assert_eq!(y.into_data().to_vec::<f32>(), [1.5, 2.5, 1.5]);
    /// ```
    ///
    /// [torchvision](https://docs.pytorch.org/vision/stable/generated/torchvision.ops.deform_conv2d.html)
    ///
    /// # Panics
    /// When the shapes are incompatible, or the channels do not divide into the groups.
    pub fn deform_conv2d[B: Backend](
        x: Tensor<B, 4>,
        offset: Tensor<B, 4> as any,
        weight: Tensor<B, 4> as any,
        mask: Option<Tensor<B, 4>> as anys,
        bias: Option<Tensor<B, 1>> as anys,
        spec: &DeformConvSpec,
    ) -> Tensor<B, 4>;
}

/// Extracts the windows of `[batch, channels, height, width]` as columns (im2col):
/// `[batch, channels kernel.., windows]`. The groups of the options are ignored.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, module};
///
/// let x = Tensor::<Flex, 4>::from_data([[[[1.0f32, 2.0, 3.0]]]], &Default::default());
/// let columns = module::unfold4d(x, [1, 2], &Default::default());
/// assert_eq!(columns.into_data().to_vec::<f32>(), [1.0, 2.0, 2.0, 3.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.unfold.html)
///
/// # Panics
/// When no window fits, or a stride, a dilation or a length of the kernel is 0.
#[doc(alias = "unfold")]
#[doc(alias = "im2col")]
#[track_caller]
pub fn unfold4d<B: Backend>(x: Tensor<B, 4>, kernel: [usize; 2], options: &ConvOptions<2>) -> Tensor<B, 3> {
    x.convert(|any| any.unfold4d(kernel, &options.spec()))
}

/// Sums columns `[batch, channels kernel.., windows]` at the positions of their windows in `[batch, channels, size..]`
/// (col2im): the transpose of [`unfold4d`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, module};
///
/// let columns = Tensor::<Flex, 3>::ones([1, 2, 2], &Default::default());
/// let x = module::fold4d(columns, [1, 3], [1, 2], &Default::default());
/// assert_eq!(x.into_data().to_vec::<f32>(), [1.0, 2.0, 1.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.fold.html)
///
/// # Panics
/// When the columns do not match size, kernel, stride and padding.
#[doc(alias = "fold")]
#[track_caller]
pub fn fold4d<B: Backend>(
    x: Tensor<B, 3>,
    size: [usize; 2],
    kernel: [usize; 2],
    options: &ConvOptions<2>,
) -> Tensor<B, 4> {
    x.convert(|any| any.fold4d(size, kernel, &options.spec()))
}
