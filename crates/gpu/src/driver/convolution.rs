//! The descriptor of a convolution call to a vendor's library.

use super::DevicePtr;
use kiln_ir::{DType, Shape};
use std::sync::Arc;

/// A convolution with its memory.
pub struct Convolve<M> {
    /// What is computed.
    pub convolution: Arc<Convolution>,
    /// The first elements of `x`, `w` and `y`.
    pub tensors: [DevicePtr<M>; 3],
    /// Memory besides.
    pub workspace: DevicePtr<M>,
}

/// A convolution, or one of its gradients, without its memory: what libraries choose algorithms by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Which of its three tensors is computed.
    pub pass: Pass,
    /// Of all three tensors. 16-bit floats are added up in `f32`.
    pub dtype: DType,
    /// `[batch, channels_in, space..]`, two or three spatial dimensions.
    pub x: Shape,
    /// `[channels_out, channels_in / groups, kernel..]`.
    pub w: Shape,
    /// `[batch, channels_out, space..]`.
    pub y: Shape,
    /// Whether channels lie innermost in all three, `[batch, space.., channels]`, instead of before the spatial dimensions.
    pub channels_last: bool,
    /// Distance between neighbouring positions of the kernel along each axis.
    pub stride: Vec<usize>,
    /// Zeros on each side of each axis.
    pub padding: Vec<usize>,
    /// Distance between neighbouring elements of the kernel along each axis.
    pub dilation: Vec<usize>,
    /// Into how many independent groups the channels are split.
    pub groups: usize,
}

/// Which tensor of a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// `y`, of `x` and `w`.
    Forward,
    /// The gradient for `x`, of `w` and the one for `y`.
    Input,
    /// The gradient for `w`, of `x` and the one for `y`.
    Weight,
}
