//! Loss functions.
//!
//! Definitions and gradients are PyTorch's. [`Reduction`] selects how the losses of a batch are reduced to one of shape
//! `[1]`; with [`Reduction::None`] the result is flat, `[losses]`, in row-major order. The methods of
//! [`AnyTensor`](crate::AnyTensor) (`mse_loss` for [`mse`] and so on) keep the shape in that case, and return errors
//! instead of panicking. Functions panic when predictions and targets differ in shape, because a target that broadcasts
//! is nearly always a mistake.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::loss::{self, Reduction};
//! use kiln_tensor::{Int, Tensor};
//!
//! let device = Default::default();
//! let logits = Tensor::<Flex, 2>::from_data([[2.0f32, 0.0], [0.0, 2.0]], &device);
//! let targets = Tensor::<Flex, 1, Int>::from_data([0, 1], &device);
//! let loss = loss::cross_entropy(logits, targets, &Default::default());
//! assert!((loss.into_scalar::<f32>() - 0.126_928).abs() < 1e-5);
//! ```

pub use crate::any::{ClassOptions, CtcOptions, Reduction, TripletOptions};
use crate::tensor::ok;
use crate::{AnyTensor, Backend, Int, Result, Tensor};

/// Returns one loss unchanged, several flattened.
#[track_caller]
fn flat<B: Backend>(losses: Result<AnyTensor>) -> Tensor<B, 1> {
    Tensor::from_any(ok(losses.and_then(|losses| {
        let count = losses.shape().num_elements();
        losses.reshape([count])
    })))
}

macro_rules! pairwise {
    ($($(#[$doc:meta])* $name:ident $method:ident($($argument:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<B: Backend, const D: usize>(
            predictions: Tensor<B, D>,
            targets: Tensor<B, D>,
            $($argument: $ty,)*
            reduction: Reduction,
        ) -> Tensor<B, 1> {
            flat(predictions.into_any().$method(targets.into_any(), $($argument,)* reduction))
        }
    )*};
}

pairwise! {
    /// Computes the squared error, `(prediction - target)²`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([1.0f32, 3.0], &Default::default());
    /// let loss = loss::mse(x.clone(), x.zeros_like(), Reduction::Mean);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [5.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html)
    #[doc(alias = "mse_loss")]
    mse mse_loss();

    /// Computes the absolute error, `|prediction - target|`. The gradient is 0 where both are equal.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.l1_loss.html)
    #[doc(alias = "l1_loss")]
    l1 l1_loss();

    /// Computes the smooth L1 loss. With `d = |prediction - target|` it is `d² / (2 beta)` below `beta` and
    /// `d - beta / 2` above; with `beta` 0 it is [`l1`]. PyTorch's default is 1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([1.0f32, 3.0], &Default::default());
    /// let loss = loss::smooth_l1(x.clone(), x.zeros_like(), 2.0, Reduction::None);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [0.25, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When `beta` is negative.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.smooth_l1_loss.html)
    #[doc(alias = "smooth_l1_loss")]
    smooth_l1 smooth_l1_loss(beta: f64);

    /// Computes the Huber loss ([Huber 1964](https://doi.org/10.1214/aoms/1177703732)). With
    /// `d = |prediction - target|` it is `d² / 2` up to `delta` and `delta (d - delta / 2)` above. PyTorch's default is
    /// 1.
    ///
    /// # Panics
    /// When `delta` is not positive.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.huber_loss.html)
    #[doc(alias = "huber_loss")]
    huber huber_loss(delta: f64);

    /// Computes the Kullback-Leibler divergence of predicted log-probabilities: `target (ln(target) - prediction)`.
    /// Where the target is 0, the loss and both gradients are 0 (PyTorch's gradient of the target is NaN, of `0 / 0`).
    /// With `log_target` the targets are logarithms too. [`Reduction::BatchMean`] returns the divergence per example.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let target = Tensor::<Flex, 2>::from_data([[1.0f32, 0.0]], &Default::default());
    /// let prediction = Tensor::<Flex, 2>::from_data([[-2.0f32, f32::NEG_INFINITY]], &Default::default());
    /// let loss = loss::kl_div(prediction, target, false, Reduction::BatchMean);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [2.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.kl_div.html)
    kl_div kl_div_loss(log_target: bool);

    /// Computes the negative log-likelihood of counts under a Poisson distribution. With `log_input` the prediction is
    /// the logarithm of the rate and the loss is `exp(x) - target x`. Otherwise the prediction is the rate and the loss
    /// is `x - target ln(x + epsilon)`. `full` adds Stirling's approximation of `ln(target!)` for targets above 1.
    /// PyTorch's defaults are true, false and 1e-8.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([0.0f32], &Default::default());
    /// let loss = loss::poisson_nll(x.clone(), x, true, false, 1e-8, Reduction::Sum);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [1.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.poisson_nll_loss.html)
    poisson_nll poisson_nll_loss(log_input: bool, full: bool, epsilon: f64);

    /// Computes the hinge embedding loss: `x` where the target is 1, `max(0, margin - x)` where it is -1. PyTorch's
    /// default margin is 1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([0.25f32, 0.25], &Default::default());
    /// let targets = Tensor::<Flex, 1>::from_data([1.0f32, -1.0], &Default::default());
    /// let loss = loss::hinge_embedding(x, targets, 1.0, Reduction::None);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [0.25, 0.75]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.hinge_embedding_loss.html)
    hinge_embedding hinge_embedding_loss(margin: f64);

    /// Computes the logistic loss `ln(1 + exp(-target x))` for targets 1 and -1, without overflow.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.soft_margin_loss.html)
    soft_margin soft_margin_loss();

    /// Computes the focal loss ([Lin et al. 2017](https://arxiv.org/abs/1708.02002)). It is the binary cross-entropy of
    /// logits, times `(1 - p)^gamma` for the probability `p` of the target, so that easy examples have less weight.
    /// `alpha` multiplies the loss of target 1, and `1 - alpha` that of target 0. The paper's values are 0.25 and 2.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::zeros([1], &Default::default());
    /// let loss = loss::sigmoid_focal(x.clone(), x.ones_like(), Some(0.25), 2.0, Reduction::Mean);
    /// assert!((loss.into_scalar::<f32>() - 0.25 * 0.25 * 2f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When `gamma` is negative.
    ///
    /// [torchvision](https://docs.pytorch.org/vision/stable/generated/torchvision.ops.sigmoid_focal_loss.html)
    sigmoid_focal sigmoid_focal_loss(alpha: Option<f64>, gamma: f64);

    /// Computes the Dice loss: 1 minus the overlap `(2 Σ x t + smooth) / (Σ x + Σ t + smooth)` of predicted
    /// probabilities and targets. The sums are over all axes but the first: one loss per example ([Milletari et al.
    /// 2016](https://arxiv.org/abs/1606.04797)).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 0.0]], &Default::default());
    /// assert_eq!(loss::dice(x.clone(), x, 1.0, Reduction::Mean).into_data().to_vec::<f32>(), [0.0]);
    /// ```
    #[doc(alias = "dice_loss")]
    dice dice_loss(smooth: f64);
}

/// Targets of [`cross_entropy`] for logits of rank `D`, `[batch, classes, space..]`: class indices, integers
/// `[batch, space..]`, or probabilities, floats with the shape of the logits.
pub trait CrossEntropyTargets<B: Backend, const D: usize>: private::Sealed {
    /// Whether the targets are probabilities.
    const ARE_PROBABILITIES: bool;

    /// Converts the targets to an [`AnyTensor`].
    fn into_any(self) -> AnyTensor;

    /// Replaces each of `classes` in the targets by `class`; probabilities do not change.
    #[must_use]
    fn replace_classes(self, classes: &[i64], class: i64) -> Self;
}

macro_rules! classes {
    ($($targets:literal of $logits:literal),*) => {$(
        impl<B: Backend> CrossEntropyTargets<B, $logits> for Tensor<B, $targets, Int> {
            const ARE_PROBABILITIES: bool = false;

            fn into_any(self) -> AnyTensor {
                Tensor::into_any(self)
            }

            fn replace_classes(self, classes: &[i64], class: i64) -> Self {
                let others = classes.iter().filter(|&&other| other != class);
                others.fold(self, |targets, &other| {
                    targets.clone().mask_fill(targets.equal_elem(other), class)
                })
            }
        }
    )*};
}

// One impl for each rank, so that the rank of the targets determines the rank of the logits.
classes!(1 of 2, 2 of 3, 3 of 4, 4 of 5, 5 of 6, 6 of 7, 7 of 8, 8 of 9, 9 of 10, 10 of 11, 11 of 12);

impl<B: Backend, const D: usize> CrossEntropyTargets<B, D> for Tensor<B, D> {
    const ARE_PROBABILITIES: bool = true;

    fn into_any(self) -> AnyTensor {
        Tensor::into_any(self)
    }

    fn replace_classes(self, _classes: &[i64], _class: i64) -> Self {
        self
    }
}

mod private {
    use crate::{Backend, Kind, Tensor};

    pub trait Sealed {}
    impl<B: Backend, const D: usize, K: Kind> Sealed for Tensor<B, D, K> {}
}

/// Computes the cross-entropy of logits `[batch, classes, space..]` and targets: class indices `[batch, space..]` in
/// `0..classes`, or probabilities with the shape of the logits.
///
/// The loss of a class index is `-log softmax(logits)[target]`, that of probabilities `-Σ target log softmax(logits)`.
/// See [`ClassOptions`] for weights, ignored classes, smoothing and reduction; the default is the mean, `[1]`. The mean
/// over probabilities divides by the number of rows. A class index that is neither in range nor ignored is an error of
/// the result, reported when the result is read.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor, loss};
///
/// let logits = Tensor::<Flex, 2>::from([[2.0, 0.0], [0.0, 2.0]]);
/// let classes = Tensor::<Flex, 1, Int>::from([0, 1]);
/// let probabilities = Tensor::<Flex, 2>::from([[1.0, 0.0], [0.0, 1.0]]);
/// let loss = loss::cross_entropy(logits.clone(), classes, &Default::default());
/// assert!((loss.item::<f32>() - 0.126_928).abs() < 1e-5);
/// let same = loss::cross_entropy(logits, probabilities, &Default::default());
/// assert!((loss.item::<f32>() - same.item::<f32>()).abs() < 1e-6);
/// ```
///
/// # Panics
/// When the shapes are incompatible, the smoothing is not between 0 and 1, or probabilities are combined with an
/// ignored class.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html)
#[doc(alias = "cross_entropy_with_logits")]
#[track_caller]
pub fn cross_entropy<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    targets: impl CrossEntropyTargets<B, D>,
    options: &ClassOptions,
) -> Tensor<B, 1> {
    flat(logits.into_any().cross_entropy_loss(targets.into_any(), options))
}

/// Computes the negative log-likelihood `-log_probabilities[target]`: log-probabilities are
/// `[batch, classes, space..]`, targets `[batch, space..]`.
///
/// # Panics
/// When the shapes are incompatible, or with label smoothing.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html)
#[doc(alias = "nll_loss")]
#[track_caller]
pub fn nll<B: Backend, const D: usize, const T: usize>(
    log_probabilities: Tensor<B, D>,
    targets: Tensor<B, T, Int>,
    options: &ClassOptions,
) -> Tensor<B, 1> {
    flat(log_probabilities.into_any().nll_loss(targets.into_any(), options))
}

/// Computes the binary cross-entropy of probabilities, `-(t ln(x) + (1 - t) ln(1 - x))`, times a weight that
/// broadcasts. As in PyTorch logarithms are clamped to -100; the gradient there is 0.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy.html)
///
/// # Panics
/// When predictions and targets differ in shape, or the weight does not broadcast to them.
#[track_caller]
pub fn binary_cross_entropy<B: Backend, const D: usize>(
    predictions: Tensor<B, D>,
    targets: Tensor<B, D>,
    weight: Option<Tensor<B, D>>,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let weight = weight.map(Tensor::into_any);
    flat(predictions.into_any().binary_cross_entropy_loss(targets.into_any(), weight, reduction))
}

/// Computes the binary cross-entropy of logits without forming the sigmoid, `(1 - t) x + ln(1 + exp(-x))`, times a
/// weight that broadcasts. `pos_weight`, which broadcasts too, multiplies the loss of targets of 1.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::loss::{self, Reduction};
///
/// let x = Tensor::<Flex, 1>::from_data([1000.0f32, -1000.0], &Default::default());
/// let t = Tensor::<Flex, 1>::from_data([0.0f32, 0.0], &Default::default());
/// let loss = loss::binary_cross_entropy_with_logits(x, t, None, None, Reduction::None);
/// assert_eq!(loss.into_data().to_vec::<f32>(), [1000.0, 0.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html)
///
/// # Panics
/// When logits and targets differ in shape, or a weight does not broadcast to them.
#[track_caller]
pub fn binary_cross_entropy_with_logits<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    targets: Tensor<B, D>,
    weight: Option<Tensor<B, D>>,
    pos_weight: Option<Tensor<B, D>>,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let (weight, pos_weight) = (weight.map(Tensor::into_any), pos_weight.map(Tensor::into_any));
    flat(logits.into_any().binary_cross_entropy_with_logits_loss(
        targets.into_any(),
        weight,
        pos_weight,
        reduction,
    ))
}

/// Computes the binary cross-entropy of logits, averaged over the last axis (the labels), with a weight that
/// broadcasts: one loss per example.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_soft_margin_loss.html)
///
/// # Panics
/// When logits and targets differ in shape, or the weight does not broadcast to them.
#[track_caller]
pub fn multilabel_soft_margin<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    targets: Tensor<B, D>,
    weight: Option<Tensor<B, D>>,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let weight = weight.map(Tensor::into_any);
    flat(logits.into_any().multilabel_soft_margin_loss(targets.into_any(), weight, reduction))
}

/// Computes the negative log-likelihood of targets under normal distributions with predicted means and variances:
/// `(ln(v) + (x - t)² / v) / 2`, plus `ln(2π) / 2` if `full`. Variances broadcast. Variances below `epsilon` (PyTorch's
/// default is 1e-6) are replaced by `epsilon`, and their gradient passes unchanged.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::loss::{self, Reduction};
///
/// let x = Tensor::<Flex, 1>::from_data([3.0f32], &Default::default());
/// let loss = loss::gaussian_nll(x.clone(), x.zeros_like(), x.ones_like(), false, 1e-6, Reduction::Mean);
/// assert_eq!(loss.into_data().to_vec::<f32>(), [4.5]);
/// ```
///
/// # Panics
/// When the shapes are incompatible, or `epsilon` is not positive.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gaussian_nll_loss.html)
#[track_caller]
pub fn gaussian_nll<B: Backend, const D: usize>(
    predictions: Tensor<B, D>,
    targets: Tensor<B, D>,
    variances: Tensor<B, D>,
    full: bool,
    epsilon: f64,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let (targets, variances) = (targets.into_any(), variances.into_any());
    flat(predictions.into_any().gaussian_nll_loss(targets, variances, full, epsilon, reduction))
}

/// Computes the margin ranking loss, `max(0, margin - target (first - second))`: target 1 ranks the first higher, -1
/// the second. PyTorch's default margin is 0.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.margin_ranking_loss.html)
///
/// # Panics
/// When the shapes differ.
#[track_caller]
pub fn margin_ranking<B: Backend, const D: usize>(
    first: Tensor<B, D>,
    second: Tensor<B, D>,
    targets: Tensor<B, D>,
    margin: f64,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let (second, targets) = (second.into_any(), targets.into_any());
    flat(first.into_any().margin_ranking_loss(second, targets, margin, reduction))
}

/// Computes the cosine embedding loss: `1 - cos(a, b)` where the target is 1, `max(0, cos(a, b) - margin)` where it is
/// -1. Vectors are `[batch, dim]`, targets `[batch]`. PyTorch's default margin is 0.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_embedding_loss.html)
///
/// # Panics
/// When the vectors differ in shape, or the targets are not `[batch]`.
#[track_caller]
pub fn cosine_embedding<B: Backend>(
    a: Tensor<B, 2>,
    b: Tensor<B, 2>,
    targets: Tensor<B, 1>,
    margin: f64,
    reduction: Reduction,
) -> Tensor<B, 1> {
    flat(a.into_any().cosine_embedding_loss(b.into_any(), targets.into_any(), margin, reduction))
}

/// Computes the triplet margin loss, `max(0, d(anchor, positive) - d(anchor, negative) + margin)`, for vectors along
/// the last axis; see [`TripletOptions`] for the distance.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, loss};
///
/// let x = Tensor::<Flex, 2>::zeros([1, 4], &Default::default());
/// let loss = loss::triplet_margin(x.clone(), x.clone(), x, Default::default());
/// assert_eq!(loss.into_data().to_vec::<f32>(), [1.0]);
/// ```
///
/// # Panics
/// When the shapes differ, or `p` is not positive.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_loss.html)
#[track_caller]
pub fn triplet_margin<B: Backend, const D: usize>(
    anchor: Tensor<B, D>,
    positive: Tensor<B, D>,
    negative: Tensor<B, D>,
    options: TripletOptions,
) -> Tensor<B, 1> {
    flat(anchor.into_any().triplet_margin_loss(positive.into_any(), negative.into_any(), options))
}

/// Computes the [`triplet_margin`] loss with any distance: a function of two batches that returns one value per pair.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.triplet_margin_with_distance_loss.html)
#[track_caller]
pub fn triplet_margin_with<B: Backend, const D: usize, const E: usize>(
    anchor: Tensor<B, D>,
    positive: Tensor<B, D>,
    negative: Tensor<B, D>,
    distance: impl Fn(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, E>,
    margin: f64,
    swap: bool,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let distance = |a, b| Ok(distance(Tensor::from_any(a), Tensor::from_any(b)).into_any());
    let (positive, negative) = (positive.into_any(), negative.into_any());
    flat(anchor.into_any().triplet_margin_loss_with(positive, negative, distance, margin, swap, reduction))
}

/// Computes the multi-class margin loss, `Σ max(0, margin - x[target] + x[i])^power / classes` over the wrong classes
/// `i`, times the weight of the target's class. Scores are `[batch, classes]`, targets `[batch]`, weights `[classes]`.
/// The power is 1 or 2; PyTorch's defaults are 1 and margin 1.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multi_margin_loss.html)
///
/// # Panics
/// When the shapes are incompatible, or the power is neither 1 nor 2.
#[track_caller]
pub fn multi_margin<B: Backend>(
    scores: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    power: i32,
    margin: f64,
    weight: Option<Tensor<B, 1>>,
    reduction: Reduction,
) -> Tensor<B, 1> {
    let weight = weight.map(Tensor::into_any);
    flat(scores.into_any().multi_margin_loss(targets.into_any(), power, margin, weight, reduction))
}

/// Computes the multi-label margin loss, `Σ max(0, 1 - x[present] + x[absent]) / classes` over all pairs of a listed
/// and an unlisted class. Scores and targets are `[batch, classes]`; a row of targets lists class indices and ends at
/// the first -1.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.multilabel_margin_loss.html)
///
/// # Panics
/// When scores and targets differ in shape.
#[track_caller]
pub fn multilabel_margin<B: Backend>(
    scores: Tensor<B, 2>,
    targets: Tensor<B, 2, Int>,
    reduction: Reduction,
) -> Tensor<B, 1> {
    flat(scores.into_any().multilabel_margin_loss(targets.into_any(), reduction))
}

/// Computes the InfoNCE contrastive loss ([van den Oord et al. 2018](https://arxiv.org/abs/1807.03748)): the
/// cross-entropy of classifying, for each query, the key of the same row among all keys, by cosine similarity over a
/// temperature. Queries and keys are `[batch, dim]`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::loss::{self, Reduction};
///
/// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 0.0], [0.0, 1.0]], &Default::default());
/// assert!(loss::info_nce(x.clone(), x, 0.01, Reduction::Mean).into_scalar::<f32>() < 1e-6);
/// ```
///
/// # Panics
/// When the shapes differ, or the temperature is not positive and finite.
#[track_caller]
pub fn info_nce<B: Backend>(
    queries: Tensor<B, 2>,
    keys: Tensor<B, 2>,
    temperature: f64,
    reduction: Reduction,
) -> Tensor<B, 1> {
    flat(queries.into_any().info_nce_loss(keys.into_any(), temperature, reduction))
}

/// Computes the CTC loss: the negative logarithm of the probability of label sequences, summed over all alignments with
/// time ([Graves et al. 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)).
///
/// Log-probabilities are `[time, batch, classes]`, lengths `[batch]`. Targets are `[batch, length]`, where elements
/// beyond an example's length are ignored. With `T = 1` the targets of all examples are concatenated, which waits for
/// the device. See [`CtcOptions`]. If a target is longer than its input allows, the loss is infinite, or 0 with
/// `zero_infinity`.
///
/// The gradient is with respect to the log-probabilities; PyTorch's function returns the gradient of the logits before
/// a `log_softmax`. Through a `log_softmax` both are equal.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor, loss};
///
/// let device = Default::default();
/// let log = Tensor::<Flex, 3>::from_data([[[0.5f32, 0.5]], [[0.5, 0.5]]], &device).log();
/// let one = Tensor::<Flex, 1, Int>::from_data([1], &device);
/// let targets = Tensor::<Flex, 2, Int>::from_data([[1]], &device);
/// // Of four equally likely paths, three spell the label: `1 1`, `1 -` and `- 1`.
/// let loss = loss::ctc(log, targets, one.clone() + 1, one, Default::default());
/// assert!((loss.into_scalar::<f32>() + 0.75f32.ln()).abs() < 1e-6);
/// ```
///
/// # Panics
/// When the shapes are incompatible, or the blank is not a class.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ctc_loss.html)
#[doc(alias = "ctc_loss")]
#[track_caller]
pub fn ctc<B: Backend, const T: usize>(
    log_probabilities: Tensor<B, 3>,
    targets: Tensor<B, T, Int>,
    input_lengths: Tensor<B, 1, Int>,
    target_lengths: Tensor<B, 1, Int>,
    options: CtcOptions,
) -> Tensor<B, 1> {
    let (inputs, lengths) = (input_lengths.into_any(), target_lengths.into_any());
    flat(log_probabilities.into_any().ctc_loss(targets.into_any(), inputs, lengths, options))
}
