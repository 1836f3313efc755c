//! Cross-entropy loss.

use super::{Reduction, weight_buffer, weights_as};
use crate::{Config, Module, Param};
use alloc::vec;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::loss::{self, ClassOptions, CrossEntropyTargets};
use kiln_tensor::{Backend, DType, Tensor};

/// Settings of a [`CrossEntropyLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct CrossEntropyLossConfig {
    /// Weight of each class, `[classes]`. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
    /// Label smoothing: the fraction of the target that is spread over all classes, from 0 to 1. Default: 0.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
    /// Class index of targets that are ignored. Default (`None`): no target is ignored.
    pub ignore_index: Option<i64>,
    /// Class indices of padding tokens; such targets are ignored. Default (`None`): no target is ignored.
    pub pad_tokens: Option<Vec<usize>>,
    /// The reduction over targets. Default: the mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// Cross-entropy loss of logits: the negative log-softmax at the target class. With probabilities as targets, it is the
/// mean over classes weighted by them.
///
/// With label smoothing `s` over `c` classes, the target distribution is `1 - s` on the target class plus `s / c` on
/// every class. The weight of a class multiplies its term. The mean divides by the sum of the weights of the targets
/// that are not ignored; if all are ignored, it is NaN.
#[derive(Module, Clone, Debug)]
pub struct CrossEntropyLoss<B: Backend = Dyn> {
    /// Weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
    /// Label smoothing: the fraction of the target that is spread over all classes.
    pub label_smoothing: f64,
    /// Class index of targets that are ignored.
    pub ignore_index: Option<i64>,
    /// Class indices of padding tokens; such targets are ignored.
    #[module(attribute)]
    pub pad_tokens: Option<Vec<usize>>,
    /// The reduction over targets.
    pub reduction: Reduction,
}

impl CrossEntropyLossConfig {
    /// Returns the loss on a device.
    ///
    /// # Panics
    /// When the label smoothing is not between 0 and 1.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> CrossEntropyLoss<B> {
        let smoothing = self.label_smoothing;
        assert!(
            (0.0..=1.0).contains(&smoothing),
            "[cross_entropy] the label smoothing {smoothing} is not between 0 and 1"
        );
        CrossEntropyLoss {
            weights: weight_buffer(self.weights.as_ref(), device),
            label_smoothing: smoothing,
            ignore_index: self.ignore_index,
            pad_tokens: self.pad_tokens.clone(),
            reduction: self.reduction,
        }
    }
}

impl<B: Backend> CrossEntropyLoss<B> {
    /// Returns the mean loss without class weights or label smoothing. `pad_index` is the class index of padding.
    pub fn new(pad_index: Option<usize>, device: &B::Device) -> CrossEntropyLoss<B> {
        CrossEntropyLossConfig::new().with_pad_tokens(pad_index.map(|token| vec![token])).init(device)
    }

    /// Computes the loss of logits `[batch, classes, space..]`.
    ///
    /// Targets are class indices `[batch, space..]`, or probabilities of the shape of the logits. The output has shape
    /// `[1]`, or without reduction one element per target in row-major order.
    ///
    /// A class index that is neither in `0..classes` nor ignored poisons the result: reading it returns the error.
    /// `ignore_index` has no effect on probabilities, whose mean divides by the number of rows.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_nn::loss::CrossEntropyLossConfig;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let loss = CrossEntropyLossConfig::new().init(&Default::default());
    /// let logits = Tensor::<Cpu, 2>::from([[2.0, 0.0], [0.0, 2.0]]);
    /// let classes = Tensor::<Cpu, 1, Int>::from([0, 1]);
    /// let probabilities = Tensor::<Cpu, 2>::from([[1.0, 0.0], [0.0, 1.0]]);
    /// let of_classes = loss.forward(logits.clone(), classes).item::<f32>();
    /// let of_probabilities = loss.forward(logits, probabilities).item::<f32>();
    /// assert!((of_classes - of_probabilities).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the shapes are incompatible.
    #[track_caller]
    pub fn forward<const D: usize, T: CrossEntropyTargets<B, D>>(
        &self,
        logits: Tensor<B, D>,
        targets: T,
    ) -> Tensor<B, 1> {
        let mut options = self.options(logits.dtype());
        let mut targets = targets;
        if T::ARE_PROBABILITIES {
            options.ignore_index = None;
        } else if let Some(tokens) = &self.pad_tokens {
            let tokens: Vec<i64> = tokens.iter().map(|&token| token as i64).collect();
            if let Some(ignored) = options.ignore_index.or(tokens.first().copied()) {
                options.ignore_index = Some(ignored);
                targets = targets.replace_classes(&tokens, ignored);
            }
        }
        loss::cross_entropy(logits, targets, &options)
    }

    /// The options of the loss function, with class weights in the dtype of the logits.
    #[track_caller]
    fn options(&self, dtype: DType) -> ClassOptions {
        ClassOptions {
            weight: weights_as(self.weights.as_ref(), dtype).map(Tensor::into_any),
            ignore_index: self.ignore_index,
            label_smoothing: self.label_smoothing,
            reduction: self.reduction,
        }
    }
}
