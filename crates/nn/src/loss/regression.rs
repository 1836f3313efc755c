//! Losses of regression: powers of the difference, and their robust forms.

use super::Reduction;
use crate::module::plain::{default_modules, plain_module, unit_modules};
use kiln_tensor::{Backend, Tensor, loss};

unit_modules! {
    /// Squared error loss: `(prediction - target)²`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{MseLoss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from([1.0, 3.0]);
    /// assert_eq!(MseLoss::new().forward(x.clone(), x.zeros_like(), Reduction::Mean).item::<f32>(), 5.0);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html)
    MseLoss;
}

elementwise!(MseLoss: loss::mse, mse_loss(); "When shapes or dtypes differ: a target that broadcasts is an error.");

unit_modules! {
    /// Absolute error loss: `|prediction - target|`. The gradient is 0 where both are equal.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{L1Loss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from([1.0, -3.0]);
    /// assert_eq!(L1Loss::new().forward(x.clone(), x.zeros_like(), Reduction::Mean).item::<f32>(), 2.0);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.L1Loss.html)
    L1Loss;
}

elementwise!(L1Loss: loss::l1, l1_loss(); "When shapes or dtypes differ.");

plain_module! {
    /// Power loss: `|prediction - target|^p`. No root is taken: with a mean it is the mean absolute error for `p` 1,
    /// and the mean squared error for `p` 2. The gradient is 0 where both are equal.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{LpLossConfig, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from([1.0, -2.0]);
    /// let loss = LpLossConfig::new(3.0).init();
    /// assert_eq!(loss.forward(x.clone(), x.zeros_like(), Reduction::Sum).item::<f32>(), 9.0);
    /// ```
    #[derive(Copy)]
    LpLoss
    #[derive(Copy)]
    LpLossConfig {
        /// The power of the absolute error. Positive and finite.
        p: f64,
    }
}

impl LpLossConfig {
    /// Returns the loss with `p` 1, the absolute error.
    pub fn l1() -> LpLoss {
        LpLoss { p: 1.0 }
    }

    /// Returns the loss with `p` 2, the squared error.
    pub fn l2() -> LpLoss {
        LpLoss { p: 2.0 }
    }
}

elementwise!(LpLoss: loss::lp, lp_loss(p); "When shapes or dtypes differ, or `p` is not positive and finite.");

impl LpLoss {
    /// Computes the mean of the losses over some dims, which are kept with length 1: `[batch, 1, 1, 1]` for images
    /// `[batch, channels, height, width]` and the dims 1, 2 and 3.
    ///
    /// # Panics
    /// When shapes or dtypes differ, `p` is not positive and finite, or a dim is out of range or given twice.
    #[track_caller]
    pub fn forward_reduce_dims<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        dims: &[usize],
    ) -> Tensor<B, D> {
        self.forward_no_reduction(predictions, targets).mean_dims(dims)
    }
}

plain_module! {
    /// Smooth L1 loss: with `d = |prediction - target|`, `d² / (2 beta)` below `beta` and `d - beta / 2` above. With
    /// `beta` 0 it is [`L1Loss`] (Burn requires a positive `beta`). It is [`HuberLoss`] divided by `beta`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{Reduction, SmoothL1LossConfig};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from([0.5, 3.0]);
    /// let loss = SmoothL1LossConfig::new().init();
    /// assert_eq!(loss.forward(x.clone(), x.zeros_like()).to_vec::<f32>(), [0.125, 2.5]);
    /// assert_eq!(loss.forward_with_reduction(x.clone(), x.zeros_like(), Reduction::Sum).item::<f32>(), 2.625);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.SmoothL1Loss.html)
    #[derive(Copy)]
    SmoothL1Loss
    #[derive(Copy)]
    SmoothL1LossConfig {
        /// The difference at which the loss becomes linear; at least 0. Default: 1.
        beta: f64 = 1.0,
    }
}

impl SmoothL1Loss {
    /// Computes the loss of each element of two tensors of equal shape. The output has the same shape.
    ///
    /// # Panics
    /// When shapes or dtypes differ, or `beta` is negative.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
    ) -> Tensor<B, D> {
        predictions.map(|any| any.smooth_l1_loss(targets.into_any(), self.beta, Reduction::None))
    }

    /// Computes the loss of two tensors of equal shape. The output has shape `[1]`, or with [`Reduction::None`]
    /// `[elements]`.
    ///
    /// # Panics
    /// When shapes or dtypes differ, or `beta` is negative.
    #[track_caller]
    pub fn forward_with_reduction<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        reduction: Reduction,
    ) -> Tensor<B, 1> {
        loss::smooth_l1(predictions, targets, self.beta, reduction)
    }

    /// Computes the mean of the losses over some dims, which are kept with length 1.
    ///
    /// # Panics
    /// When shapes or dtypes differ, `beta` is negative, or a dim is out of range or given twice.
    #[track_caller]
    pub fn forward_reduce_dims<B: Backend, const D: usize>(
        &self,
        predictions: Tensor<B, D>,
        targets: Tensor<B, D>,
        dims: &[usize],
    ) -> Tensor<B, D> {
        self.forward(predictions, targets).mean_dims(dims)
    }
}

plain_module! {
    /// Huber loss ([Huber 1964](https://doi.org/10.1214/aoms/1177703732)): with `d = |prediction - target|`, `d² / 2`
    /// up to `delta` and `delta (d - delta / 2)` above. `default()` has PyTorch's `delta` of 1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{HuberLossConfig, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Flex, 1>::from([-2.0, -0.5, 0.0, 1.0]);
    /// let loss = HuberLossConfig::new(0.5).init();
    /// assert_eq!(loss.forward_residuals(x.clone()).to_vec::<f32>(), [0.875, 0.125, 0.0, 0.375]);
    /// assert_eq!(loss.forward(x.clone(), x.zeros_like(), Reduction::Sum).item::<f32>(), 1.375);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.HuberLoss.html)
    #[derive(Copy)]
    HuberLoss
    #[derive(Copy)]
    HuberLossConfig {
        /// The difference at which the loss becomes linear; above 0. PyTorch's default is 1.
        delta: f64,
    }
}

impl Default for HuberLoss {
    fn default() -> HuberLoss {
        HuberLoss { delta: 1.0 }
    }
}

elementwise!(HuberLoss: loss::huber, huber_loss(delta); "When shapes or dtypes differ, or `delta` is not positive.");

impl HuberLoss {
    /// Computes the loss of each residual, the difference of prediction and target. The output has the same shape.
    ///
    /// # Panics
    /// When `delta` is not positive.
    #[track_caller]
    pub fn forward_residuals<B: Backend, const D: usize>(&self, residuals: Tensor<B, D>) -> Tensor<B, D> {
        let zeros = residuals.zeros_like();
        self.forward_no_reduction(residuals, zeros)
    }
}

default_modules! {
    SmoothL1Loss SmoothL1LossConfig;
}
