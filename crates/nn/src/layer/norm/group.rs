//! Group normalisation.

use super::{affine, check_channels};
use crate::module::forward::forward_modules;
use crate::{Config, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, module};

/// Settings of a [`GroupNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GroupNormConfig {
    /// Number of groups; `num_channels` must be a multiple.
    pub num_groups: usize,
    /// Number of channels.
    pub num_channels: usize,
    /// Added to the variance for numerical stability. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether to learn a scale and a shift of each channel. Default: true.
    #[config(default = true)]
    pub affine: bool,
}

/// Group normalisation: normalises each example over groups of channels and all spatial dimensions
/// ([Wu and He 2018](https://arxiv.org/abs/1803.08494)). With one channel per group it is instance normalisation.
#[derive(Module, Clone, Debug)]
pub struct GroupNorm<B: Backend = Dyn> {
    /// `[channels]`; initialized to ones.
    pub weight: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; initialized to zeros.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// Number of groups.
    pub num_groups: usize,
    /// Number of channels.
    pub num_channels: usize,
    /// Added to the variance for numerical stability.
    pub epsilon: f64,
}

impl GroupNormConfig {
    /// Returns the layer on a device.
    ///
    /// # Panics
    /// When `num_channels` is not a multiple of `num_groups`, or `num_groups` is 0.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> GroupNorm<B> {
        let (groups, channels) = (self.num_groups, self.num_channels);
        assert!(
            groups > 0 && channels.is_multiple_of(groups),
            "[group_norm] {groups} groups do not divide {channels} channels"
        );
        let [weight, bias] = affine(self.affine, channels, device);
        GroupNorm { weight, bias, num_groups: groups, num_channels: channels, epsilon: self.epsilon }
    }
}

impl<B: Backend> GroupNorm<B> {
    /// Normalises `[batch, channels, space..]`; the output has the same shape.
    ///
    /// # Panics
    /// When the number of channels differs from `num_channels`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        check_channels("group_norm", &x, self.num_channels);
        let [weight, bias] = [&self.weight, &self.bias].map(|parameter| parameter.as_ref().map(Param::val));
        module::group_norm(x, self.num_groups, weight, bias, self.epsilon)
    }
}

forward_modules! {
    GroupNorm<B>;
}
