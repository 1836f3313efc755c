//! Normalisation.

mod batch;
mod group;
mod last_axis;

pub use batch::{BatchNorm, BatchNormConfig};
pub use group::{GroupNorm, GroupNormConfig};
pub use last_axis::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};

use crate::Param;
use kiln_tensor::{Backend, Tensor};

/// A vector over the channels, shaped to stand beside `[batch, channels, ..]`.
#[track_caller]
fn per_channel<B: Backend, const D: usize>(vector: Tensor<B, 1>) -> Tensor<B, D> {
    let mut shape = [1; D];
    shape[1] = vector.dims()[0];
    vector.reshape(shape)
}

/// `x * weight + bias`, channel by channel.
#[track_caller]
fn scale_channels<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: &Option<Param<Tensor<B, 1>>>,
    bias: &Option<Param<Tensor<B, 1>>>,
) -> Tensor<B, D> {
    let x = match weight {
        Some(weight) => x * per_channel(weight.val()),
        None => x,
    };
    match bias {
        Some(bias) => x + per_channel(bias.val()),
        None => x,
    }
}

/// Panics unless `x` is `[batch, channels, ..]` with so many channels.
#[track_caller]
fn check_channels<B: Backend, const D: usize>(op: &str, x: &Tensor<B, D>, channels: usize) {
    assert!(
        D >= 2 && x.dims()[1] == channels,
        "[{op}] expected [batch, {channels}, ..]: {}\n  hint: axis 1 holds the channels that the layer was made for",
        x.as_any().ty()
    );
}
