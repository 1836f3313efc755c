//! The descriptor of a convolution call to a vendor's library.

use super::DevicePtr;
use kiln_ir::{DType, Shape};
use std::sync::Arc;

/// A convolution with its memory.
pub struct Convolve<M> {
    /// The convolution problem.
    pub convolution: Arc<Convolution>,
    /// The first elements of `x`, `w` and `y`.
    pub tensors: [DevicePtr<M>; 3],
    /// The workspace.
    pub workspace: DevicePtr<M>,
}

/// A convolution, or one of its gradients, without its memory: the key by which libraries choose algorithms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// The pass, which selects the computed tensor.
    pub pass: Pass,
    /// The dtype of all three tensors. 16-bit floats accumulate in `f32`.
    pub dtype: DType,
    /// `[batch, channels_in, space..]`, two or three spatial dimensions.
    pub x: Shape,
    /// `[channels_out, channels_in / groups, kernel..]`.
    pub w: Shape,
    /// `[batch, channels_out, space..]`.
    pub y: Shape,
    /// Whether all three tensors are channels-last, `[batch, space.., channels]`.
    pub channels_last: bool,
    /// The stride of each spatial dimension.
    pub stride: Vec<usize>,
    /// The zero padding on each side of each spatial dimension.
    pub padding: Vec<usize>,
    /// The dilation of each spatial dimension.
    pub dilation: Vec<usize>,
    /// The number of groups.
    pub groups: usize,
}

/// The pass of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Forward: `y` from `x` and `w`.
    Forward,
    /// Backward data: the gradient of `x` from `w` and the gradient of `y`.
    Input,
    /// Backward weights: the gradient of `w` from `x` and the gradient of `y`.
    Weight,
}
