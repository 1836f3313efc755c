//! Cross-entropy.

use super::Reduction;
use crate::{Config, Module, Param};
use alloc::vec::Vec;
use kiln_tensor::{Backend, Bool, Dyn, Int, Tensor, activation};

/// Settings of a [`CrossEntropyLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct CrossEntropyLossConfig {
    /// The weight of each class. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
    /// The share of the target that is spread over all classes, from 0 to 1. Default: 0.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
    /// Targets with this number do not count. Default (`None`): all count.
    pub ignore_index: Option<i64>,
    /// How the losses of the targets become one. Default: their mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// The negative logarithm of the probability that a softmax of logits gives to the target class.
///
/// With smoothing `s` over `c` classes, the target is `1 - s` of its class and `s / c` of every class. A class's weight
/// multiplies its share, and the mean divides by the sum of the weights of the targets that count, so that without
/// any it is NaN.
#[derive(Module, Clone, Debug)]
pub struct CrossEntropyLoss<B: Backend = Dyn> {
    /// The weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
    /// The share of the target that is spread over all classes.
    pub label_smoothing: f64,
    /// Targets with this number do not count.
    pub ignore_index: Option<i64>,
    /// How the losses of the targets become one.
    pub reduction: Reduction,
}

impl CrossEntropyLossConfig {
    /// The loss on a device.
    ///
    /// # Panics
    /// When the smoothing is not between 0 and 1.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> CrossEntropyLoss<B> {
        let smoothing = self.label_smoothing;
        assert!(
            (0.0..=1.0).contains(&smoothing),
            "[cross_entropy] the label smoothing {smoothing} is not between 0 and 1"
        );
        let weights = self.weights.clone();
        CrossEntropyLoss {
            weights: weights.map(|weights| Param::buffer(Tensor::from_data(weights, device))),
            label_smoothing: smoothing,
            ignore_index: self.ignore_index,
            reduction: self.reduction,
        }
    }
}

impl<B: Backend> CrossEntropyLoss<B> {
    /// The loss of logits `[batch, classes]` against class numbers `[batch]`: `[1]`, or `[batch]` without reduction.
    ///
    /// A class number that is neither in `0..classes` nor ignored is an error of the result, met where it is
    /// read.
    ///
    /// # Panics
    /// When the shapes do not suit.
    #[track_caller]
    pub fn forward(&self, logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        self.forward_spatial(logits, targets)
    }

    /// The loss of logits `[batch, classes, space..]` against class numbers `[batch, space..]`: `[1]`, or one number per
    /// target, in row-major order, without reduction. Class numbers are as in [`forward`](CrossEntropyLoss::forward).
    ///
    /// # Panics
    /// When the shapes do not suit.
    #[track_caller]
    pub fn forward_spatial<const D: usize, const T: usize>(
        &self,
        logits: Tensor<B, D>,
        targets: Tensor<B, T, Int>,
    ) -> Tensor<B, 1> {
        check_targets(&logits, &targets);
        let log_probs = activation::log_softmax(rows(logits), 1);
        let count = targets.num_elements();
        let targets: Tensor<B, 2, Int> = targets.reshape([count, 1]);
        let ignored = self.ignore_index.map(|index| targets.clone().equal_elem(index));
        let targets = match &ignored {
            Some(ignored) => targets.mask_fill(ignored.clone(), 0),
            None => targets,
        };
        let weights =
            self.class_weights(&log_probs).map(|weights| weights.select(0, targets.clone().reshape([count])));
        let weights = weights.map(|weights| weights.reshape([count, 1]));
        let losses = self.losses(log_probs, targets, weights.clone());
        match ignored {
            Some(ignored) => self.reduce_counted(losses, weights, ignored),
            None => self.reduce(losses, weights),
        }
    }

    /// The loss of logits `[batch, classes, space..]` against probabilities of the same shape: `[1]`, or
    /// one number per row, in row-major order, without reduction. The mean divides by the number of rows.
    ///
    /// # Panics
    /// When the shapes differ.
    #[track_caller]
    pub fn forward_probabilities<const D: usize>(
        &self,
        logits: Tensor<B, D>,
        probabilities: Tensor<B, D>,
    ) -> Tensor<B, 1> {
        assert!(
            D >= 2 && logits.dims() == probabilities.dims(),
            "[cross_entropy] logits and probabilities are not both [batch, classes, ..]: {} x {}",
            logits.as_any().ty(),
            probabilities.as_any().ty()
        );
        let log_probs = activation::log_softmax(rows(logits), 1);
        let smoothing = self.label_smoothing;
        let spread = smoothing / log_probs.dims()[1].max(1) as f64;
        let shares = match rows(probabilities) {
            shares if smoothing > 0.0 => shares * (1.0 - smoothing) + spread,
            shares => shares,
        };
        let shares = match self.class_weights(&log_probs) {
            Some(weights) => shares * weights.unsqueeze::<2>(),
            None => shares,
        };
        self.reduction.apply(-(log_probs * shares).sum_dim(1))
    }

    /// The losses of all targets, `[targets, 1]`. `weights` are those of the target classes.
    #[track_caller]
    fn losses(
        &self,
        log_probs: Tensor<B, 2>,
        targets: Tensor<B, 2, Int>,
        weights: Option<Tensor<B, 2>>,
    ) -> Tensor<B, 2> {
        let smoothing = self.label_smoothing;
        let picked = -log_probs.clone().gather(1, targets);
        let picked = match weights {
            Some(weights) => picked * weights,
            None => picked,
        };
        if smoothing == 0.0 {
            return picked;
        }
        let classes = log_probs.dims()[1] as f64;
        let all = match self.class_weights(&log_probs) {
            Some(weights) => log_probs * weights.unsqueeze::<2>(),
            None => log_probs,
        };
        picked * (1.0 - smoothing) - all.sum_dim(1) * (smoothing / classes)
    }

    #[track_caller]
    fn reduce(&self, losses: Tensor<B, 2>, weights: Option<Tensor<B, 2>>) -> Tensor<B, 1> {
        match (self.reduction, weights) {
            (Reduction::Mean, Some(weights)) => losses.sum() / weights.sum(),
            (Reduction::Mean, None) | (Reduction::Sum, _) | (Reduction::None, _) => {
                self.reduction.apply(losses)
            }
        }
    }

    /// The reduction over the targets that are not ignored.
    #[track_caller]
    fn reduce_counted(
        &self,
        losses: Tensor<B, 2>,
        weights: Option<Tensor<B, 2>>,
        ignored: Tensor<B, 2, Bool>,
    ) -> Tensor<B, 1> {
        let weights = weights.unwrap_or_else(|| losses.ones_like());
        let losses = losses.mask_fill(ignored.clone(), 0.0);
        match self.reduction {
            Reduction::Mean => losses.sum() / weights.mask_fill(ignored, 0.0).sum(),
            Reduction::Sum | Reduction::None => self.reduction.apply(losses),
        }
    }

    /// The weight of each class, in the dtype of the logits.
    #[track_caller]
    fn class_weights(&self, log_probs: &Tensor<B, 2>) -> Option<Tensor<B, 1>> {
        let weights = self.weights.as_ref()?.val();
        let classes = log_probs.dims()[1];
        assert!(
            weights.dims()[0] == classes,
            "[cross_entropy] {} class weights for {classes} classes",
            weights.dims()[0]
        );
        Some(weights.cast(log_probs.dtype()))
    }
}

/// `[batch, classes, space..]` as `[batch * space, classes]`.
#[track_caller]
fn rows<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 2> {
    let classes = x.dims()[1];
    let count = x.num_elements() / classes.max(1);
    x.movedim(1, D - 1).reshape([count, classes])
}

#[track_caller]
fn check_targets<B: Backend, const D: usize, const T: usize>(
    logits: &Tensor<B, D>,
    targets: &Tensor<B, T, Int>,
) {
    let suits = D >= 2 && T == D - 1 && logits.shape().without(1) == targets.shape();
    assert!(
        suits,
        "[cross_entropy] logits [batch, classes, ..] and targets [batch, ..] do not suit: {} x {}",
        logits.as_any().ty(),
        targets.as_any().ty()
    );
}
