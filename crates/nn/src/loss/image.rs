//! Losses of images: overlap of segmentations, and style.

use super::Reduction;
use crate::module::plain::{default_modules, plain_module, unit_modules};
use kiln_tensor::{Backend, Tensor, loss};

plain_module! {
    /// Dice loss of predicted probabilities `x` and targets `t` ([Milletari et al.
    /// 2016](https://arxiv.org/abs/1606.04797)): `1 - (2 Σ x t + smooth) / (Σ x + Σ t + smooth)`. The sums are over all
    /// dims but the first: one loss per example.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{DiceLoss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let mask = Tensor::<Flex, 3>::from([[[1.0, 0.0], [0.0, 1.0]]]);
    /// assert_eq!(DiceLoss::default().forward(mask.clone(), mask, Reduction::Mean).item::<f32>(), 0.0);
    /// ```
    #[derive(Copy)]
    DiceLoss
    #[derive(Copy)]
    DiceLossConfig {
        /// Added to numerator and denominator, so that two empty sets overlap. Default: 1.
        smooth: f64 = 1.0,
    }
}

per_example!(
    DiceLoss<const D>(predictions, targets: D): loss::dice, (smooth);
    "probabilities and targets of equal shape `[batch, ..]`", "When shapes or dtypes differ."
);

unit_modules! {
    /// Style loss of feature maps ([Gatys et al. 2015](https://arxiv.org/abs/1508.06576)): the squared difference of their
    /// Gram matrices `G = F Fᵀ`, `Σ (G - G')² / (4 channels² (height width)²)` for each example.
    ///
    /// It is the term of one layer. The paper adds those of five layers of a pretrained VGG network, with weights; Burn's
    /// loss holds that network, here the features are arguments.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::loss::{GramMatrixLoss, Reduction};
    /// use kiln_tensor::Tensor;
    ///
    /// let features = Tensor::<Flex, 4>::full([2, 3, 4, 4], 2.0, &Default::default());
    /// let style = features.zeros_like();
    /// // Each entry of the Gram matrix is 64, divided by 2 · 16.
    /// let loss = GramMatrixLoss::new().forward(features, style, Reduction::Mean);
    /// assert!((loss.item::<f32>() - 4.0).abs() < 1e-5);
    /// ```
    GramMatrixLoss;
}

per_example!(
    GramMatrixLoss(features, targets: 4): loss::gram_matrix_loss, ();
    "features `[batch, channels, height, width]`", "When shapes or dtypes differ."
);

default_modules! {
    DiceLoss DiceLossConfig;
}
