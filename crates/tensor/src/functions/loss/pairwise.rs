//! Losses of two tensors of equal shape.

use super::{Reduction, flat};
use crate::{Backend, Tensor};

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

    /// Computes a power of the absolute error, `|prediction - target|^p`: not a norm, no root is taken. With `p` 1 it is
    /// [`l1`], with 2 [`mse`]. The gradient is 0 where both are equal.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([1.0f32, -2.0], &Default::default());
    /// let loss = loss::lp(x.clone(), x.zeros_like(), 3.0, Reduction::None);
    /// assert_eq!(loss.into_data().to_vec::<f32>(), [1.0, 8.0]);
    /// ```
    ///
    /// # Panics
    /// When `p` is not positive and finite.
    #[doc(alias = "lp_loss")]
    lp lp_loss(p: f64);

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
