//! Normalisation over the batch.

use super::{check_channels, per_channel, scale_channels};
use crate::module::detached;
use crate::{Config, Initializer, Module, Param, RunningState};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::module::{held_as, variance_about};
use kiln_tensor::{Backend, Tensor};

/// Settings of a [`BatchNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BatchNormConfig {
    /// The number of channels.
    pub num_features: usize,
    /// Added to the variance. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// The weight of a batch in the running statistics. Default: 0.1.
    #[config(default = 0.1)]
    pub momentum: f64,
    /// Whether each channel is scaled and shifted. Default: true.
    #[config(default = true)]
    pub affine: bool,
}

/// Normalises each channel over the batch and all axes of space
/// ([Ioffe and Szegedy 2015](https://arxiv.org/abs/1502.03167)): `(x - mean) / √(variance + ε) * weight + bias`.
///
/// On a backend with automatic differentiation, at whichever of its layers, it trains: mean and (biased) variance are those of the batch, and
/// the running statistics move towards them, `running = (1 - momentum) running + momentum batch`, with the unbiased
/// variance. On other backends mean and variance are the running statistics, and nothing changes. It does not
/// matter whether the input or the weights are tracked.
#[derive(Module, Clone, Debug)]
pub struct BatchNorm<B: Backend = Dyn> {
    /// `[channels]`; starts as ones.
    pub weight: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; starts as zeros.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; starts as zeros.
    pub running_mean: RunningState<Tensor<B, 1>>,
    /// `[channels]`; starts as ones.
    pub running_var: RunningState<Tensor<B, 1>>,
    /// The number of channels.
    pub num_features: usize,
    /// The weight of a batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

impl BatchNormConfig {
    /// The layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BatchNorm<B> {
        let channels = [self.num_features];
        BatchNorm {
            weight: self.affine.then(|| Initializer::Ones.init(channels, device)),
            bias: self.affine.then(|| Initializer::Zeros.init(channels, device)),
            running_mean: RunningState::new(Tensor::zeros(channels, device)),
            running_var: RunningState::new(Tensor::ones(channels, device)),
            num_features: self.num_features,
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }
}

impl<B: Backend> BatchNorm<B> {
    /// `[batch, channels, space..]`, which stays.
    ///
    /// # Panics
    /// When the number of channels is another, or when it trains on a single value per channel, which has no variance.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        check_channels("batch_norm", &x, self.num_features);
        // Held only where it is asked for, since engines overwrite an input that nobody holds.
        let like = x.engine_stack().engine().mixes_precision().then(|| x.clone());
        let (centered, variance) = if x.engine_stack().is_differentiated() {
            self.center_by_batch(x)
        } else {
            (x - per_channel(self.running_mean.value()), per_channel(self.running_var.value()))
        };
        let normal = centered * (variance + self.epsilon).rsqrt();
        let y = scale_channels(normal, &self.weight, &self.bias);
        if let Some(like) = &like { held_as(y, like) } else { y }
    }

    /// The input less the mean of the batch, and the variance of the batch. Updates the running statistics.
    #[track_caller]
    fn center_by_batch<const D: usize>(&self, x: Tensor<B, D>) -> (Tensor<B, D>, Tensor<B, D>) {
        let dims = x.dims();
        let axes: Vec<usize> = (0..D).filter(|&axis| axis != 1).collect();
        let count: usize = axes.iter().map(|&axis| dims[axis]).product();
        assert!(
            count > 1,
            "[batch_norm] training needs more than one value per channel: {}\n  \
             hint: make batches larger, or leave out a last batch of one",
            x.as_any().ty()
        );
        let mean = x.clone().mean_dims(&axes);
        let variance = variance_about(x.clone(), mean.clone());
        let centered = x - mean.clone();
        let correction = count as f64 / (count - 1) as f64;
        let (batch_mean, batch_variance) = (detached(mean), detached(variance.clone()) * correction);
        self.running_mean.update_both(&self.running_var, |mean, variance| {
            (self.moved(mean, batch_mean), self.moved(variance, batch_variance))
        });
        (centered, variance)
    }

    /// A running statistic, moved towards that of a batch.
    #[track_caller]
    fn moved<const D: usize>(&self, running: Tensor<B, 1>, batch: Tensor<B, D>) -> Tensor<B, 1> {
        let batch: Tensor<B, 1> = batch.reshape([self.num_features]);
        let dtype = running.dtype();
        running * (1.0 - self.momentum) + batch.cast(dtype) * self.momentum
    }
}
