//! Batch normalisation.

use super::{affine, check_channels, normalized_by, value};
use crate::module::forward::forward_modules;
use crate::{Config, Mode, Module, Param, RunningState};
use kiln_backends::Dyn;
use kiln_tensor::module::BatchStatistics;
use kiln_tensor::{Backend, Tensor};

/// Settings of a [`BatchNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BatchNormConfig {
    /// Number of channels.
    pub num_features: usize,
    /// Added to the variance for numerical stability. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Momentum of the running statistics: the weight of the current batch. Default: 0.1.
    #[config(default = 0.1)]
    pub momentum: f64,
    /// Whether to learn a scale and a shift of each channel. Default: true.
    #[config(default = true)]
    pub affine: bool,
}

/// Batch normalisation: `(x - mean) / √(variance + ε) * weight + bias`, per channel, over the batch and all spatial
/// dimensions ([Ioffe and Szegedy 2015](https://arxiv.org/abs/1502.03167)).
///
/// In training [mode](Mode) it normalises with the mean and biased variance of the batch. It also updates the running
/// statistics, `running = (1 - momentum) running + momentum batch`, with the unbiased variance. In evaluation mode it
/// uses the running statistics and does not update them. By default, backends with automatic differentiation (in any of
/// their layers) are in training mode. Whether the input or the parameters require gradients has no effect.
#[derive(Module, Clone, Debug)]
pub struct BatchNorm<B: Backend = Dyn> {
    /// `[channels]`; initialized to ones.
    pub weight: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; initialized to zeros.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// `[channels]`; initialized to zeros.
    pub running_mean: RunningState<Tensor<B, 1>>,
    /// `[channels]`; initialized to ones.
    pub running_var: RunningState<Tensor<B, 1>>,
    /// Number of channels.
    pub num_features: usize,
    /// Momentum of the running statistics: the weight of the current batch.
    pub momentum: f64,
    /// Added to the variance for numerical stability.
    pub epsilon: f64,
    /// Whether the statistics of the batch are used, and the running statistics updated.
    pub mode: Mode,
}

impl BatchNormConfig {
    /// Returns the layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BatchNorm<B> {
        let channels = [self.num_features];
        let [weight, bias] = affine(self.affine, self.num_features, device);
        BatchNorm {
            weight,
            bias,
            running_mean: RunningState::new(Tensor::zeros(channels, device)),
            running_var: RunningState::new(Tensor::ones(channels, device)),
            num_features: self.num_features,
            momentum: self.momentum,
            epsilon: self.epsilon,
            mode: Mode::Auto,
        }
    }
}

impl<B: Backend> BatchNorm<B> {
    /// Normalises `[batch, channels, space..]`; the output has the same shape.
    ///
    /// # Panics
    /// When the number of channels differs from `num_features`, or in training mode with a single value per channel,
    /// which has no variance.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        check_channels("batch_norm", &x, self.num_features);
        let (weight, bias) = (value(&self.weight), value(&self.bias));
        if self.mode.is_training(x.engine_stack()) {
            let seen = |batch| {
                self.move_to(batch);
                Ok(())
            };
            return x.map(|any| any.batch_norm_by_batch(weight, bias, self.epsilon, seen));
        }
        normalized_by(x, [&self.running_mean, &self.running_var], [weight, bias], self.epsilon)
    }

    /// Updates the running statistics with those of a batch.
    #[track_caller]
    fn move_to(&self, batch: BatchStatistics) {
        let batch = batch.detach();
        self.running_mean.update_both(&self.running_var, |mean, variance| {
            match batch.moved((mean.into_any(), variance.into_any()), self.momentum) {
                Ok((mean, variance)) => (Tensor::from_any(mean), Tensor::from_any(variance)),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

forward_modules! {
    BatchNorm<B>;
}
