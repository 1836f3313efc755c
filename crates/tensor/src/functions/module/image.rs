//! Resizing, pixel shuffle and channel shuffle.

use crate::any::{InterpolateOptions, InterpolateSize};
use crate::functions::table::{functions, typed};
use crate::{Backend, Tensor};

functions! {
    typed;

    /// Resizes the one to three spatial dimensions of `[batch, channels, space..]` to lengths or by factors.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::module::{self, InterpolateMode, InterpolateOptions};
    ///
    /// let x = Tensor::<Flex, 3>::from_data([[[0.0f32, 4.0]]], &Default::default());
    /// let linear = InterpolateOptions::new(InterpolateMode::Linear);
    /// let y = module::interpolate(x.clone(), [4usize], linear);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [0.0, 1.0, 3.0, 4.0]);
    /// let y = module::interpolate(x, [1.5f64], InterpolateOptions::default());
    /// assert_eq!(y.into_data().to_vec::<f32>(), [0.0, 0.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When an input or output length is 0, in mode `Area` too, where PyTorch returns a tensor without elements. When a
    /// factor is not positive, or an option belongs to another mode.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html): every mode, and
    /// factors with `recompute_scale_factor=False`.
    pub fn interpolate[B: Backend, const D: usize](
        x: Tensor<B, D>,
        size: impl Into<InterpolateSize>,
        options: InterpolateOptions,
    ) -> Tensor<B, D>;

    /// Rearranges channels into spatial dimensions: `[.., channels factor², height, width]` to
    /// `[.., channels, height factor, width factor]` ([Shi et al. 2016](https://arxiv.org/abs/1609.05158)).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let x = Tensor::<Flex, 3>::from_data([[[1.0f32]], [[2.0]], [[3.0]], [[4.0]]], &Default::default());
    /// let y = module::pixel_shuffle(x, 2);
    /// assert_eq!(y.dims(), [1, 2, 2]);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When the number of channels is not a multiple of `factor²`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_shuffle.html)
    pub fn pixel_shuffle[B: Backend, const D: usize](x: Tensor<B, D>, factor: usize) -> Tensor<B, D>;

    /// Rearranges spatial dimensions into channels: the reverse of [`pixel_shuffle`].
    ///
    /// # Panics
    /// When height or width is not a multiple of `factor`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pixel_unshuffle.html)
    pub fn pixel_unshuffle[B: Backend, const D: usize](x: Tensor<B, D>, factor: usize) -> Tensor<B, D>;

    /// Shuffles the channels (axis 1) of `groups` groups: channel `i` of group `g` moves to index `i groups + g` ([Zhang et
    /// al. 2017](https://arxiv.org/abs/1707.01083)).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 2.0, 3.0, 4.0]], &Default::default());
    /// assert_eq!(module::channel_shuffle(x, 2).into_data().to_vec::<f32>(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// When the number of channels is not a multiple of `groups`.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.ChannelShuffle.html)
    pub fn channel_shuffle[B: Backend, const D: usize](x: Tensor<B, D>, groups: usize) -> Tensor<B, D>;
}
