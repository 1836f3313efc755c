//! Losses of binary and multi-label classification: each output is a class that is present or absent.

use super::{Reduction, weight_buffer, weights_as};
use crate::module::plain::unit_modules;
use crate::{Config, Module, Param};
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Float, Numeric, Tensor, loss};

/// Settings of a [`BinaryCrossEntropyLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BinaryCrossEntropyLossConfig {
    /// Weight of each class: `[classes]` along the last dim, or for predictions `[batch]` the weights of target 0 and
    /// target 1. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
    /// Label smoothing, from 0 to 1: targets become `target (1 - smoothing) + smoothing / classes`, with 2 classes for
    /// predictions `[batch]`. Default (`None`): no smoothing.
    pub smoothing: Option<f32>,
    /// Whether predictions are logits instead of probabilities. Default: no.
    #[config(default = false)]
    pub logits: bool,
    /// The reduction over elements. Default: the mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// Binary cross-entropy of probabilities, `-(t ln(x) + (1 - t) ln(1 - x))`, or of logits. Logarithms are clamped to
/// -100.
///
/// This is PyTorch's `BCELoss` with Burn's settings. [`BceWithLogitsLoss`] has the settings of PyTorch. A weight of
/// each element, PyTorch's `weight`, is an argument of the function [`loss::binary_cross_entropy`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::BinaryCrossEntropyLossConfig;
/// use kiln_tensor::{Int, Tensor};
///
/// let loss = BinaryCrossEntropyLossConfig::new().init(&Default::default());
/// let predictions = Tensor::<Flex, 1>::from([0.5, 0.25]);
/// let targets = Tensor::<Flex, 1, Int>::from([1, 0]);
/// let expected = (2f32.ln() + (4f32 / 3.0).ln()) / 2.0;
/// assert!((loss.forward(predictions, targets).item::<f32>() - expected).abs() < 1e-6);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.BCELoss.html)
#[doc(alias = "BCELoss")]
#[derive(Module, Clone, Debug)]
pub struct BinaryCrossEntropyLoss<B: Backend = Dyn> {
    /// Weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
    /// Label smoothing.
    pub smoothing: Option<f32>,
    /// Whether predictions are logits.
    pub logits: bool,
    /// The reduction over elements.
    pub reduction: Reduction,
}

impl BinaryCrossEntropyLossConfig {
    /// Returns the loss on a device.
    ///
    /// # Panics
    /// When the smoothing is not between 0 and 1.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> BinaryCrossEntropyLoss<B> {
        if let Some(smoothing) = self.smoothing {
            assert!(
                (0.0..=1.0).contains(&smoothing),
                "[binary_cross_entropy] the label smoothing {smoothing} is not between 0 and 1"
            );
        }
        BinaryCrossEntropyLoss {
            weights: weight_buffer(self.weights.as_ref(), device),
            smoothing: self.smoothing,
            logits: self.logits,
            reduction: self.reduction,
        }
    }
}

impl<B: Backend> BinaryCrossEntropyLoss<B> {
    /// Computes the loss of predictions `[batch]` or `[.., classes]` and targets of the same shape: integers 0 and 1,
    /// or probabilities. The output has shape `[1]`, or with [`Reduction::None`] `[elements]`.
    ///
    /// # Panics
    /// When predictions and targets differ in shape, or the number of weights is not that of the classes.
    #[track_caller]
    pub fn forward<const D: usize, K: Numeric>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D, K>,
    ) -> Tensor<B, 1> {
        let targets = targets.convert::<D, Float>(|any| any.cast(predictions.dtype()));
        let weight = self.weight_of(&targets);
        let targets = self.smoothed(targets);
        if self.logits {
            loss::binary_cross_entropy_with_logits(predictions, targets, weight, None, self.reduction)
        } else {
            loss::binary_cross_entropy(predictions, targets, weight, self.reduction)
        }
    }

    /// Returns a weight that broadcasts to the targets.
    #[track_caller]
    fn weight_of<const D: usize>(&self, targets: &Tensor<B, D>) -> Option<Tensor<B, D>> {
        let weights = weights_as(self.weights.as_ref(), targets.dtype())?;
        let count = weights.dims()[0];
        if D > 1 {
            return Some(along_last(weights));
        }
        assert!(
            count == 2,
            "[binary_cross_entropy] {count} weights for targets of shape [{}]: give the weights of target 0 and of \
             target 1",
            targets.shape()[0]
        );
        let of = |target| weights.clone().narrow(0, target, 1).reshape([1; D]);
        Some(of(0) + (of(1) - of(0)) * targets.clone())
    }

    fn smoothed<const D: usize>(&self, targets: Tensor<B, D>) -> Tensor<B, D> {
        let Some(smoothing) = self.smoothing else { return targets };
        let classes = if D > 1 { targets.shape()[D - 1].max(1) } else { 2 };
        let smoothing = f64::from(smoothing);
        targets * (1.0 - smoothing) + smoothing / classes as f64
    }
}

/// Returns weights of classes with the shape `[1, .., classes]`.
#[track_caller]
fn along_last<B: Backend, const D: usize>(weights: Tensor<B, 1>) -> Tensor<B, D> {
    let mut shape = [1; D];
    if let Some(last) = shape.last_mut() {
        *last = weights.dims()[0];
    }
    weights.reshape(shape)
}

/// Settings of a [`BceWithLogitsLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BceWithLogitsLossConfig {
    /// Weight of each class, `[classes]`, along the last dim. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
    /// Weight of the loss of targets of 1 for each class, `[classes]`, along the last dim: above 1 for more recall,
    /// below for more precision. Default (`None`): 1.
    pub pos_weights: Option<Vec<f32>>,
    /// The reduction over elements. Default: the mean.
    #[config(default = Reduction::Mean)]
    pub reduction: Reduction,
}

/// Binary cross-entropy of logits: `(1 - t) x + ln(1 + exp(-x))`, without forming the sigmoid, which would lose small
/// probabilities. The loss of targets of 1 is multiplied by `pos_weights`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::BceWithLogitsLossConfig;
/// use kiln_tensor::Tensor;
///
/// let config = BceWithLogitsLossConfig::new().with_pos_weights(Some(vec![3.0, 1.0]));
/// let loss = config.init(&Default::default());
/// let logits = Tensor::<Flex, 2>::zeros([1, 2], &Default::default());
/// let targets = logits.ones_like();
/// assert!((loss.forward(logits, targets).item::<f32>() - 2.0 * 2f32.ln()).abs() < 1e-6);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html)
#[doc(alias = "BCEWithLogitsLoss")]
#[derive(Module, Clone, Debug)]
pub struct BceWithLogitsLoss<B: Backend = Dyn> {
    /// Weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
    /// Weight of the loss of targets of 1 for each class, `[classes]`.
    pub pos_weights: Option<Param<Tensor<B, 1>>>,
    /// The reduction over elements.
    pub reduction: Reduction,
}

impl BceWithLogitsLossConfig {
    /// Returns the loss on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BceWithLogitsLoss<B> {
        BceWithLogitsLoss {
            weights: weight_buffer(self.weights.as_ref(), device),
            pos_weights: weight_buffer(self.pos_weights.as_ref(), device),
            reduction: self.reduction,
        }
    }
}

impl<B: Backend> BceWithLogitsLoss<B> {
    /// Computes the loss of logits `[.., classes]` and targets of the same shape: probabilities, or integers 0 and 1.
    /// The output has shape `[1]`, or with [`Reduction::None`] `[elements]`.
    ///
    /// # Panics
    /// When logits and targets differ in shape, or the number of weights is not that of the classes.
    #[track_caller]
    pub fn forward<const D: usize, K: Numeric>(
        &self,
        logits: Tensor<B, D>,
        targets: Tensor<B, D, K>,
    ) -> Tensor<B, 1> {
        let dtype = logits.dtype();
        let targets = targets.convert::<D, Float>(|any| any.cast(dtype));
        let [weight, pos_weight] = [&self.weights, &self.pos_weights]
            .map(|weights| weights_as(weights.as_ref(), dtype).map(along_last));
        loss::binary_cross_entropy_with_logits(logits, targets, weight, pos_weight, self.reduction)
    }
}

/// Settings of a [`FocalLoss`].
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub struct FocalLossConfig {
    /// The weight of target 1; that of target 0 is `1 - alpha`. `None`: both are 1. Default: 0.25.
    #[config(default = Some(0.25))]
    pub alpha: Option<f64>,
    /// The power of the probability of the wrong class; at least 0. Default: 2.
    #[config(default = 2.0)]
    pub gamma: f64,
}

/// Focal loss of logits ([Lin et al. 2017](https://arxiv.org/abs/1708.02002)): binary cross-entropy times
/// `(1 - p)^gamma` for the probability `p` of the target, so that easy examples have less weight.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::{FocalLoss, Reduction};
/// use kiln_tensor::Tensor;
///
/// let logits = Tensor::<Flex, 1>::zeros([1], &Default::default());
/// let loss = FocalLoss::default().forward(logits.clone(), logits.ones_like(), Reduction::Mean);
/// assert!((loss.item::<f32>() - 0.25 * 0.25 * 2f32.ln()).abs() < 1e-6);
/// ```
///
/// [torchvision](https://docs.pytorch.org/vision/stable/generated/torchvision.ops.sigmoid_focal_loss.html)
#[derive(Module, Clone, Copy, Debug)]
pub struct FocalLoss {
    /// The weight of target 1; that of target 0 is `1 - alpha`.
    pub alpha: Option<f64>,
    /// The power of the probability of the wrong class.
    pub gamma: f64,
}

impl FocalLossConfig {
    /// Returns the loss.
    pub fn init(&self) -> FocalLoss {
        FocalLoss { alpha: self.alpha, gamma: self.gamma }
    }
}

impl Default for FocalLoss {
    fn default() -> FocalLoss {
        FocalLossConfig::new().init()
    }
}

elementwise!(
    FocalLoss: loss::sigmoid_focal, sigmoid_focal_loss(alpha, gamma);
    "When shapes or dtypes differ, or `gamma` is negative."
);

unit_modules! {
    /// Logistic loss of scores, `ln(1 + exp(-target x))`, for targets 1 and -1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{Reduction, SoftMarginLoss};
    /// use kiln_tensor::Tensor;
    ///
    /// let (x, targets) = (Tensor::<Flex, 1>::from([0.0, 100.0]), Tensor::<Flex, 1>::from([1.0, -1.0]));
    /// let loss = SoftMarginLoss::new().forward(x, targets, Reduction::Sum);
    /// assert!((loss.item::<f32>() - (2f32.ln() + 100.0)).abs() < 1e-5);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.SoftMarginLoss.html)
    SoftMarginLoss;
}

elementwise!(SoftMarginLoss: loss::soft_margin, soft_margin_loss(); "When shapes or dtypes differ.");

/// Settings of a [`MultiLabelSoftMarginLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct MultiLabelSoftMarginLossConfig {
    /// Weight of each class, `[classes]`. Default (`None`): 1.
    pub weights: Option<Vec<f32>>,
}

/// Binary cross-entropy of logits, averaged over the classes of each example. Targets are 0 and 1.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::{MultiLabelSoftMarginLossConfig, Reduction};
/// use kiln_tensor::Tensor;
///
/// let loss = MultiLabelSoftMarginLossConfig::new().init(&Default::default());
/// let logits = Tensor::<Flex, 2>::zeros([2, 3], &Default::default());
/// let loss = loss.forward(logits.clone(), logits.ones_like(), Reduction::None);
/// assert_eq!(loss.dims(), [2]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiLabelSoftMarginLoss.html)
#[derive(Module, Clone, Debug)]
pub struct MultiLabelSoftMarginLoss<B: Backend = Dyn> {
    /// Weight of each class, `[classes]`.
    pub weights: Option<Param<Tensor<B, 1>>>,
}

impl MultiLabelSoftMarginLossConfig {
    /// Returns the loss on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> MultiLabelSoftMarginLoss<B> {
        MultiLabelSoftMarginLoss { weights: weight_buffer(self.weights.as_ref(), device) }
    }
}

impl<B: Backend> MultiLabelSoftMarginLoss<B> {
    /// Computes the loss of logits and targets `[.., classes]`. The output has shape `[1]`, or with [`Reduction::None`]
    /// `[examples]`.
    ///
    /// # Panics
    /// When logits and targets differ in shape, or the number of weights is not that of the classes.
    #[track_caller]
    pub fn forward<const D: usize>(
        &self,
        logits: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        let weight = weights_as(self.weights.as_ref(), logits.dtype()).map(along_last);
        loss::multilabel_soft_margin(logits, targets, weight, reduction)
    }

    /// Computes the loss of each example: `[batch]` for logits and targets `[batch, classes]`.
    ///
    /// # Panics
    /// When logits and targets differ in shape, or the number of weights is not that of the classes.
    #[track_caller]
    pub fn forward_no_reduction(&self, logits: Tensor<B, 2>, targets: Tensor<B, 2>) -> Tensor<B, 1> {
        self.forward(logits, targets, Reduction::None)
    }
}
