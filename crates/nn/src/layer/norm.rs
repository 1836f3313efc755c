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

use crate::{Initializer, Param, RunningState};
use kiln_tensor::module::BatchNormOptions;
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

/// Scale and shift of each channel: ones and zeros, if present.
fn affine<B: Backend>(
    present: bool,
    channels: usize,
    device: &B::Device,
) -> [Option<Param<Tensor<B, 1>>>; 2] {
    [Initializer::Ones, Initializer::Zeros]
        .map(|initializer| present.then(|| initializer.init([channels], device)))
}

/// Normalises with running statistics.
#[track_caller]
fn normalized_by<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    [mean, variance]: [&RunningState<Tensor<B, 1>>; 2],
    [weight, bias]: [Option<AnyTensor>; 2],
    epsilon: f64,
) -> Tensor<B, D> {
    let running = (mean.value().into_any(), variance.value().into_any());
    let options = BatchNormOptions { epsilon, ..BatchNormOptions::default() };
    x.map(|any| Ok(any.batch_norm(Some(running), weight, bias, options)?.0))
}
