//! Normalisation.

mod batch;
mod group;
mod last_axis;

pub use batch::{BatchNorm, BatchNormConfig};
pub use group::{GroupNorm, GroupNormConfig};
pub use last_axis::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};

use kiln_tensor::{Backend, Tensor};

/// Panics unless `x` is `[batch, channels, ..]` with the given number of channels.
#[track_caller]
fn check_channels<B: Backend, const D: usize>(op: &str, x: &Tensor<B, D>, channels: usize) {
    assert!(
        D >= 2 && x.dims()[1] == channels,
        "[{op}] expected [batch, {channels}, ..]: {}\n  hint: dimension 1 must have the layer's number of channels",
        x.as_any().ty()
    );
}
