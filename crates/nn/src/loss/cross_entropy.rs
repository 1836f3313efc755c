//! Cross-entropy.

use super::Reduction;
use crate::{Config, Module, Param};
use alloc::vec;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::loss::{self, ClassOptions, CrossEntropyTargets};
use kiln_tensor::{Backend, DType, Tensor};

/// Settings of a [`CrossEntropyLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct CrossEntropyLossConfig {
    /// The weight of each class. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
    /// The share of the target that is spread over all classes, from 0 to 1. Default: 0.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
    /// Targets with this class number are ignored. Default (`None`): all count.
    pub ignore_index: Option<i64>,
    /// Class numbers of padding: such targets do not count. Default (`None`): all count.
    pub pad_tokens: Option<Vec<usize>>,
    /// How the losses of the targets become one. Default: their mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// The negative log-softmax of logits at the target class; with probabilities as targets, its mean weighted by them.
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
    /// Targets with this class number are ignored.
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

    /// The loss of logits `[batch, classes, space..]` against class numbers `[batch, space..]` or probabilities with the shape
    /// of the logits: `[1]`, or one number per target, in row-major order, without reduction.
    ///
    /// A class number that is neither in `0..classes` nor ignored is an error of the result, met where it is
    /// read. `ignore_index` has no effect on probabilities, whose mean divides by the number of rows.
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
