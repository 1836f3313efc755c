//! Instance normalisation.

use super::{affine, check_channels, normalized_by, value};
use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module, Param, RunningState};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

/// Settings of an [`InstanceNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct InstanceNormConfig {
    /// Number of channels.
    pub num_channels: usize,
    /// Added to the variance for numerical stability. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Momentum of the running statistics: the weight of the current batch. Default: 0.1.
    #[config(default = 0.1)]
    pub momentum: f64,
    /// Whether to learn a scale and a shift of each channel. Default: false, as in PyTorch; Burn's default is true.
    #[config(default = false)]
    pub affine: bool,
    /// Whether to keep running statistics, which replace those of the input in evaluation mode. Default: false.
    #[config(default = false)]
    pub track_running_stats: bool,
}

/// Instance normalisation: `(x - mean) / √(variance + ε) * weight + bias`, per example and channel, over all spatial
/// dimensions ([Ulyanov et al. 2016](https://arxiv.org/abs/1607.08022)).
///
/// With running statistics, training [mode](Mode) also updates them,
/// `running = (1 - momentum) running + momentum batch`, where `batch` is the mean over the examples of the mean and the
/// unbiased variance; evaluation mode normalises with them. Without, both modes are the same.
#[derive(Module, Clone, Debug)]
pub struct InstanceNorm<B: Backend = Dyn> {
    /// `[channels]`; initialized to ones.
    pub weight: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; initialized to zeros.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; initialized to zeros.
    pub running_mean: Option<RunningState<Tensor<B, 1>>>,
    /// `[channels]`; initialized to ones.
    pub running_var: Option<RunningState<Tensor<B, 1>>>,
    /// Number of channels.
    pub num_channels: usize,
    /// Momentum of the running statistics: the weight of the current batch.
    pub momentum: f64,
    /// Added to the variance for numerical stability.
    pub epsilon: f64,
    /// Whether running statistics are updated instead of used.
    pub mode: Mode,
}

impl InstanceNormConfig {
    /// Returns the layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> InstanceNorm<B> {
        let channels = [self.num_channels];
        let running = |value| {
            self.track_running_stats.then(|| RunningState::new(Tensor::full(channels, value, device)))
        };
        let [weight, bias] = affine(self.affine, self.num_channels, device);
        InstanceNorm {
            weight,
            bias,
            running_mean: running(0.0),
            running_var: running(1.0),
            num_channels: self.num_channels,
            momentum: self.momentum,
            epsilon: self.epsilon,
            mode: Mode::Auto,
        }
    }
}

impl<B: Backend> InstanceNorm<B> {
    /// Normalises `[batch, channels, space..]`; the output has the same shape.
    ///
    /// # Panics
    /// When the number of channels differs from `num_channels`, without spatial dimensions, or when running statistics
    /// are updated from one value per channel, which has no variance.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        check_channels("instance_norm", &x, self.num_channels);
        let (weight, bias) = (value(&self.weight), value(&self.bias));
        if let (Some(mean), Some(variance)) = (&self.running_mean, &self.running_var) {
            if !self.mode.is_training(x.engine_stack()) {
                return normalized_by(x, [mean, variance], [weight, bias], self.epsilon);
            }
            self.update(mean, variance, &x);
        }
        x.map(|any| any.instance_norm(weight, bias, self.epsilon))
    }

    /// Updates the running statistics with the means of the examples' statistics.
    #[track_caller]
    fn update<const D: usize>(
        &self,
        mean: &RunningState<Tensor<B, 1>>,
        variance: &RunningState<Tensor<B, 1>>,
        x: &Tensor<B, D>,
    ) {
        let (batch, channels) = (x.dims()[0], self.num_channels);
        let length: usize = x.dims()[2..].iter().product();
        assert!(
            length > 1,
            "[instance_norm] training needs more than one value per channel: {}",
            x.as_any().ty()
        );
        let rows: Tensor<B, 3> = x.clone().detach().reshape([batch, channels, length]);
        let (variances, means) = rows.var_mean(2);
        let moved = |old: Tensor<B, 1>, new: Tensor<B, 3>| {
            let new = new.mean_dims([0, 2]).reshape([channels]).cast(old.dtype());
            old * (1.0 - self.momentum) + new * self.momentum
        };
        mean.update_both(variance, |mean, variance| (moved(mean, means), moved(variance, variances)));
    }
}

forward_modules! {
    InstanceNorm<B>;
}
