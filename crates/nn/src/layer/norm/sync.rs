//! Batch normalisation over the batches of several threads or processes.

use super::{check_channels, normalized_by, value};
use crate::module::forward::forward_modules;
use crate::{BatchNorm, BatchNormConfig, Config, Mode, Module, Param, RunningState, plain_data};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_ir::{Collective, CollectiveKind, Op, Reduction};
use kiln_tensor::{Backend, DType, Tensor};

/// The threads with a device each, or processes, whose batches are normalised together.
#[derive(Config, Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncGroup {
    /// Identifies the group among those of the process: the id of a `ThreadGroup`.
    pub id: u64,
    /// This member's rank, from 0.
    pub rank: usize,
    /// The number of members.
    pub size: usize,
}

plain_data!(SyncGroup);

impl SyncGroup {
    /// The group of this process alone: statistics are those of its own batch.
    pub const ALONE: SyncGroup = SyncGroup { id: 0, rank: 0, size: 1 };
}

/// Settings of a [`SyncBatchNorm`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct SyncBatchNormConfig {
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
    /// The members that normalise together. Default: this process alone.
    #[config(default = SyncGroup::ALONE)]
    pub group: SyncGroup,
}

/// [`BatchNorm`] whose training statistics are those of the batches of all members of a group, for data-parallel
/// training with small batches per device.
///
/// In training [mode](Mode) it reduces the sums over the group, with gradients through the reduction: two
/// [all-reduces](CollectiveKind::AllReduce) of `channels + 1` and `channels` numbers. Members may have batches of
/// different sizes. In evaluation mode, and in a group of one member, it is [`BatchNorm`].
///
/// The members of a group are threads of this process, each with a layer of its own. The group is a
/// [`ThreadGroup`](kiln_ir::ThreadGroup), which runs on every engine, as `kiln_train::DataParallel` makes one. For
/// other groups of several members, such as processes, the engine must run collectives. Otherwise, reading a result
/// returns the error.
#[derive(Module, Clone, Debug)]
pub struct SyncBatchNorm<B: Backend = Dyn> {
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
    /// Whether the statistics of the batches are used, and the running statistics updated.
    pub mode: Mode,
    /// The members that normalise together.
    pub group: SyncGroup,
}

impl SyncBatchNormConfig {
    /// Returns the layer on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> SyncBatchNorm<B> {
        let SyncBatchNormConfig { num_features, epsilon, momentum, affine, group } = *self;
        let layer = BatchNormConfig { num_features, epsilon, momentum, affine }.init(device);
        SyncBatchNorm::from_batch_norm(layer, group)
    }
}

impl<B: Backend> SyncBatchNorm<B> {
    /// Returns the layer with the parameters of a batch normalisation layer.
    #[doc(alias = "convert_sync_batchnorm")]
    pub fn from_batch_norm(layer: BatchNorm<B>, group: SyncGroup) -> SyncBatchNorm<B> {
        let BatchNorm { weight, bias, running_mean, running_var, num_features, momentum, epsilon, mode } =
            layer;
        SyncBatchNorm {
            weight,
            bias,
            running_mean,
            running_var,
            num_features,
            momentum,
            epsilon,
            mode,
            group,
        }
    }

    /// Normalises `[batch, channels, space..]`; the output has the same shape. In training mode every member of the
    /// group must call it.
    ///
    /// # Panics
    /// When the number of channels differs from `num_features`, or in training mode with a single value per channel in
    /// the group, which has no variance.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        check_channels("sync_batch_norm", &x, self.num_features);
        if self.mode.is_training(x.engine_stack()) {
            return self.normalized_together(x);
        }
        let parameters = [value(&self.weight), value(&self.bias)];
        normalized_by(x, [&self.running_mean, &self.running_var], parameters, self.epsilon)
    }

    /// Normalises with the statistics of the group, and updates the running statistics. Sums are computed in at least
    /// 32 bits, since they exceed the range of 16-bit floats.
    #[track_caller]
    fn normalized_together<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let (dtype, channels) = (x.dtype(), self.num_features);
        let count: usize = (0..D).filter(|&axis| axis != 1).map(|axis| x.dims()[axis]).product();
        assert!(
            count * self.group.size > 1,
            "[sync_batch_norm] training needs more than one value per channel: {}",
            x.as_any().ty()
        );
        let x = if dtype == DType::F64 { x } else { x.cast(DType::F32) };
        let sums = by_channel(x.clone());
        let counts = Tensor::<B, 1>::full([1], count as f64, &x.device()).cast(x.dtype());
        let both = self.all_sum(Tensor::cat([sums, counts].to_vec(), 0));
        let (sums, count) = (both.clone().narrow(0, 0, channels), both.narrow(0, channels, 1));
        let mean = sums / count.clone();
        let centred = x - along_channels(mean.clone());
        let variance = self.all_sum(by_channel(centred.clone().square())) / count.clone();
        self.move_to(mean.detach(), variance.clone().detach() * count.clone() / (count - 1.0));
        let mut y = centred / along_channels((variance + self.epsilon).sqrt());
        if let Some(weight) = &self.weight {
            y = y.clone() * along_channels(weight.val().cast(y.dtype()));
        }
        if let Some(bias) = &self.bias {
            y = y.clone() + along_channels(bias.val().cast(y.dtype()));
        }
        y.cast(dtype)
    }

    /// Sums a tensor over the members of the group.
    #[track_caller]
    fn all_sum(&self, x: Tensor<B, 1>) -> Tensor<B, 1> {
        let SyncGroup { id, rank, size } = self.group;
        let kind = CollectiveKind::AllReduce(Reduction::Sum);
        x.map(|any| any.apply(&Op::Collective(Collective { kind, group: id, rank, size })))
    }

    /// Updates the running statistics with the mean and the unbiased variance of the batches.
    #[track_caller]
    fn move_to(&self, mean: Tensor<B, 1>, variance: Tensor<B, 1>) {
        let moved = |old: Tensor<B, 1>, new: Tensor<B, 1>| {
            let new = new.detach().cast(old.dtype());
            old * (1.0 - self.momentum) + new * self.momentum
        };
        let update = |old_mean, old_variance| (moved(old_mean, mean), moved(old_variance, variance));
        self.running_mean.update_both(&self.running_var, update);
    }
}

/// Sums over all dimensions but the channels: `[batch, channels, ..]` to `[channels]`.
#[track_caller]
fn by_channel<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let axes: Vec<usize> = (0..D).filter(|&axis| axis != 1).collect();
    let channels = x.dims()[1];
    x.sum_dims(&axes).reshape([channels])
}

/// Reshapes `[channels]` to `[1, channels, 1, ..]`.
#[track_caller]
fn along_channels<B: Backend, const D: usize>(x: Tensor<B, 1>) -> Tensor<B, D> {
    let mut shape = [1; D];
    shape[1] = x.dims()[0];
    x.reshape(shape)
}

forward_modules! {
    SyncBatchNorm<B>;
}
