//! Losses of classification, with class indices as targets.

use super::{Reduction, weight_buffer, weights_as};
use crate::module::plain::unit_modules;
use crate::{Config, Module, Param};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::loss::{self, ClassOptions};
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of an [`NllLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct NllLossConfig {
    /// Weight of each class, `[classes]`. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
    /// Class index of targets that are ignored. Default (`None`): no target is ignored; PyTorch's default is -100.
    pub ignore_index: Option<i64>,
    /// The reduction over targets. Default: the mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// Negative log-likelihood of classes, given log-probabilities: `-weight[target] x[target]`. With a log-softmax before
/// it, it is [`CrossEntropyLoss`](super::CrossEntropyLoss).
///
/// The mean divides by the sum of the weights of the targets that are not ignored; if all are ignored, it is NaN.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::NllLossConfig;
/// use kiln_tensor::{Int, Tensor};
///
/// let loss = NllLossConfig::new().init(&Default::default());
/// let log = Tensor::<Flex, 2>::from([[0.25, 0.75], [0.5, 0.5]]).log();
/// let targets = Tensor::<Flex, 1, Int>::from([0, 1]);
/// assert!((loss.forward(log, targets).item::<f32>() - 8f32.ln() / 2.0).abs() < 1e-6);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.NLLLoss.html)
#[doc(alias = "NLLLoss")]
#[derive(Module, Clone, Debug)]
pub struct NllLoss<B: Backend = Dyn> {
    /// Weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
    /// Class index of targets that are ignored.
    pub ignore_index: Option<i64>,
    /// The reduction over targets.
    pub reduction: Reduction,
}

impl NllLossConfig {
    /// Returns the loss on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> NllLoss<B> {
        NllLoss {
            weights: weight_buffer(self.weights.as_ref(), device),
            ignore_index: self.ignore_index,
            reduction: self.reduction,
        }
    }
}

impl<B: Backend> NllLoss<B> {
    /// Computes the loss of log-probabilities `[batch, classes, space..]` and class indices `[batch, space..]`. The
    /// output has shape `[1]`, or with [`Reduction::None`] one element per target in row-major order.
    ///
    /// A class index that is neither in `0..classes` nor ignored poisons the result: reading it returns the error.
    ///
    /// # Panics
    /// When the shapes are incompatible.
    #[track_caller]
    pub fn forward<const D: usize, const T: usize>(
        &self,
        log_probabilities: Tensor<B, D>,
        targets: Tensor<B, T, Int>,
    ) -> Tensor<B, 1> {
        let weight = weights_as(self.weights.as_ref(), log_probabilities.dtype());
        let options = ClassOptions {
            weight: weight.map(Tensor::into_any),
            ignore_index: self.ignore_index,
            label_smoothing: 0.0,
            reduction: self.reduction,
        };
        loss::nll(log_probabilities, targets, &options)
    }
}

/// Settings of a [`MultiMarginLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct MultiMarginLossConfig {
    /// The power of each term, 1 or 2. Default: 1.
    #[config(default = 1)]
    pub p: i32,
    /// The least difference between the score of the target and those of other classes. Default: 1.
    #[config(default = 1.0)]
    pub margin: f64,
    /// Weight of each class, `[classes]`. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
}

/// Multi-class margin (hinge) loss: `Σ max(0, margin - x[target] + x[i])^p / classes` over the classes `i` other than
/// the target, times the weight of the target's class.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::{MultiMarginLossConfig, Reduction};
/// use kiln_tensor::{Int, Tensor};
///
/// let loss = MultiMarginLossConfig::new().init(&Default::default());
/// let scores = Tensor::<Flex, 2>::from([[0.5, 1.0, -2.0, 0.0]]);
/// let targets = Tensor::<Flex, 1, Int>::from([1]);
/// assert_eq!(loss.forward(scores, targets, Reduction::Mean).item::<f32>(), 0.125);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiMarginLoss.html)
#[derive(Module, Clone, Debug)]
pub struct MultiMarginLoss<B: Backend = Dyn> {
    /// The power of each term.
    pub p: i32,
    /// The least difference between the score of the target and those of other classes.
    pub margin: f64,
    /// Weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
}

impl MultiMarginLossConfig {
    /// Returns the loss on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> MultiMarginLoss<B> {
        MultiMarginLoss {
            p: self.p,
            margin: self.margin,
            weights: weight_buffer(self.weights.as_ref(), device),
        }
    }
}

impl<B: Backend> MultiMarginLoss<B> {
    /// Computes the loss of scores `[batch, classes]` and class indices `[batch]`. The output has shape `[1]`, or with
    /// [`Reduction::None`] `[batch]`.
    ///
    /// # Panics
    /// When the shapes are incompatible, or `p` is neither 1 nor 2.
    #[track_caller]
    pub fn forward(
        &self,
        scores: Tensor<B, 2>,
        targets: Tensor<B, 1, Int>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        let weights = weights_as(self.weights.as_ref(), scores.dtype());
        loss::multi_margin(scores, targets, self.p, self.margin, weights, reduction)
    }

    /// Computes the loss of each example, `[batch]`.
    ///
    /// # Panics
    /// When the shapes are incompatible, or `p` is neither 1 nor 2.
    #[track_caller]
    pub fn forward_no_reduction(&self, scores: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        self.forward(scores, targets, Reduction::None)
    }
}

unit_modules! {
    /// Multi-label margin loss: `Σ max(0, 1 - x[present] + x[absent]) / classes` over all pairs of a class that is listed
    /// in the targets and one that is not.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{MultiLabelMarginLoss, Reduction};
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let scores = Tensor::<Flex, 2>::from([[0.0, 2.0, 1.5]]);
    /// // Class 1; the list ends at -1.
    /// let targets = Tensor::<Flex, 2, Int>::from([[1, -1, 0]]);
    /// let loss = MultiLabelMarginLoss::new().forward(scores, targets, Reduction::Mean);
    /// assert!((loss.item::<f32>() - 0.5 / 3.0).abs() < 1e-6);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelMarginLoss.html)
    MultiLabelMarginLoss;
}

impl MultiLabelMarginLoss {
    /// Computes the loss of scores `[batch, classes]` and targets of the same shape: a row of targets lists class
    /// indices and ends at the first -1. The output has shape `[1]`, or with [`Reduction::None`] `[batch]`.
    ///
    /// # Panics
    /// When scores and targets differ in shape.
    #[track_caller]
    pub fn forward<B: Backend>(
        &self,
        scores: Tensor<B, 2>,
        targets: Tensor<B, 2, Int>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::multilabel_margin(scores, targets, reduction)
    }

    /// Computes the loss of each example, `[batch]`.
    ///
    /// # Panics
    /// When scores and targets differ in shape.
    #[track_caller]
    pub fn forward_no_reduction<B: Backend>(
        &self,
        scores: Tensor<B, 2>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 1> {
        self.forward(scores, targets, Reduction::None)
    }
}
