//! Cross-entropy.

use super::Reduction;
use crate::{Config, Module, Param};
use alloc::vec;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::loss::{self, ClassOptions};
use kiln_tensor::{Backend, DType, Int, Tensor};

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
    /// Class numbers of padding: such targets do not count. Default (`None`): all count.
    pub pad_tokens: Option<Vec<usize>>,
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
    /// Class numbers of padding: such targets do not count.
    #[module(attribute)]
    pub pad_tokens: Option<Vec<usize>>,
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
            pad_tokens: self.pad_tokens.clone(),
            reduction: self.reduction,
        }
    }
}

impl<B: Backend> CrossEntropyLoss<B> {
    /// The mean loss without weights or smoothing; `pad_index` is the class number of padding.
    pub fn new(pad_index: Option<usize>, device: &B::Device) -> CrossEntropyLoss<B> {
        CrossEntropyLossConfig::new().with_pad_tokens(pad_index.map(|token| vec![token])).init(device)
    }

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
        let mut options = self.options(logits.dtype());
        let mut targets = targets;
        for &token in self.pad_tokens.iter().flatten() {
            match options.ignore_index {
                None => options.ignore_index = Some(token as i64),
                Some(ignored) => {
                    targets = targets.clone().mask_fill(targets.equal_elem(token as i64), ignored)
                }
            }
        }
        loss::cross_entropy(logits, targets, &options)
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
        let options = ClassOptions { ignore_index: None, ..self.options(logits.dtype()) };
        loss::cross_entropy_probabilities(logits, probabilities, &options)
    }

    /// The settings of the function, with weights in the dtype of the logits.
    #[track_caller]
    fn options(&self, dtype: DType) -> ClassOptions {
        ClassOptions {
            weight: self.weights.as_ref().map(|weights| weights.val().cast(dtype).into_any()),
            ignore_index: self.ignore_index,
            label_smoothing: self.label_smoothing,
            reduction: self.reduction,
        }
    }
}
