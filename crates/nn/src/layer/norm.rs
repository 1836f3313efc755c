//! Normalisation.

mod batch;
mod choice;
mod group;
mod instance;
mod last_axis;
mod local_response;
mod sync;

pub use batch::{BatchNorm, BatchNormConfig};
pub use choice::{Normalization, NormalizationConfig};
pub use group::{GroupNorm, GroupNormConfig};
pub use instance::{InstanceNorm, InstanceNormConfig};
pub use last_axis::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};
pub use local_response::{CrossMapLRN2d, LocalResponseNorm, LocalResponseNormConfig};
pub use sync::{SyncBatchNorm, SyncBatchNormConfig, SyncGroup};

use crate::Param;
use kiln_tensor::{AnyTensor, Backend, Tensor};

/// Panics unless `x` is `[batch, channels, ..]` with the given number of channels.
#[track_caller]
fn check_channels<B: Backend, const D: usize>(op: &str, x: &Tensor<B, D>, channels: usize) {
    assert!(
        D >= 2 && x.dims()[1] == channels,
        "[{op}] expected [batch, {channels}, ..]: {}\n  hint: dimension 1 must have the layer's number of channels",
        x.as_any().ty()
    );
}

/// The value of an optional parameter.
fn value<B: Backend>(parameter: &Option<Param<Tensor<B, 1>>>) -> Option<AnyTensor> {
    parameter.as_ref().map(|parameter| parameter.val().into_any())
}
