//! Pixel shuffle and channel shuffle.

use crate::{AnyTensor, Result, Shape};
use alloc::format;

impl AnyTensor {
    /// Rearranges channels into spatial dimensions: `[.., channels factor², height, width]` to
    /// `[.., channels, height factor, width factor]`. See [`module::pixel_shuffle`](crate::module::pixel_shuffle).
    ///
    /// # Errors
    /// When there are fewer than three axes, `factor` is 0, or the channels are not a multiple of `factor²`.
    pub fn pixel_shuffle(self, factor: usize) -> Result<AnyTensor> {
        const OP: &str = "pixel_shuffle";
        let (before, [channels, height, width]) = self.image(OP)?;
        let square = factor * factor;
        if square == 0 || !channels.is_multiple_of(square) {
            return Err(self.wrong(OP, format!("{channels} channels do not divide into {factor} x {factor}")));
        }
        let to = before.ending(&[channels / square, height * factor, width * factor]);
        let parts = self.reshape([before.product, channels / square, factor, factor, height, width])?;
        parts.permute([0, 1, 4, 2, 5, 3])?.reshape(to)
    }

    /// Rearranges spatial dimensions into channels, the reverse of [`pixel_shuffle`](AnyTensor::pixel_shuffle). See
    /// [`module::pixel_unshuffle`](crate::module::pixel_unshuffle).
    ///
    /// # Errors
    /// When there are fewer than three axes, `factor` is 0, or height and width are not multiples of it.
    pub fn pixel_unshuffle(self, factor: usize) -> Result<AnyTensor> {
        const OP: &str = "pixel_unshuffle";
        let (before, [channels, height, width]) = self.image(OP)?;
        if factor == 0 || !height.is_multiple_of(factor) || !width.is_multiple_of(factor) {
            return Err(self.wrong(OP, format!("{height} x {width} does not divide by {factor}")));
        }
        let (height, width) = (height / factor, width / factor);
        let to = before.ending(&[channels * factor * factor, height, width]);
        let parts = self.reshape([before.product, channels, height, factor, width, factor])?;
        parts.permute([0, 1, 3, 5, 2, 4])?.reshape(to)
    }

    /// Shuffles channels (axis 1): channel `g n + i` of `groups` groups of `n` moves to index `i groups + g`. See
    /// [`module::channel_shuffle`](crate::module::channel_shuffle).
    ///
    /// # Errors
    /// When there are fewer than two axes, `groups` is 0, or the channels are not a multiple of it.
    pub fn channel_shuffle(self, groups: usize) -> Result<AnyTensor> {
        const OP: &str = "channel_shuffle";
        self.check_rank(OP, 2, "[batch, channels, ..]")?;
        let (shape, channels) = (*self.shape(), self.shape()[1]);
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(self.wrong(OP, format!("{channels} channels do not divide into {groups} groups")));
        }
        let rest: usize = shape[2..].iter().product();
        let parts = self.reshape([shape[0], groups, channels / groups, rest])?;
        parts.swap_dims(1, 2)?.reshape(shape)
    }

    fn image(&self, op: &str) -> Result<(LeadingAxes, [usize; 3])> {
        self.check_rank(op, 3, "[.., channels, height, width]")?;
        let (shape, first) = (*self.shape(), self.rank() - 3);
        let before = LeadingAxes { shape, axes: first, product: shape[..first].iter().product() };
        Ok((before, [shape[first], shape[first + 1], shape[first + 2]]))
    }
}

/// The axes before height and width.
struct LeadingAxes {
    shape: Shape,
    axes: usize,
    product: usize,
}

impl LeadingAxes {
    fn ending(&self, image: &[usize]) -> Shape {
        self.shape[..self.axes].iter().chain(image).copied().collect()
    }
}
