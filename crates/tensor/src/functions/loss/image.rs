//! Losses of feature maps.

use super::{Reduction, flat};
use crate::functions::table::{functions, typed};
use crate::{Backend, Tensor};

functions! {
    typed;

    /// Computes the Gram matrices of feature maps: the products of all pairs of channels, summed over the spatial
    /// dimensions. Features are `[batch, channels, height, width]`, the output is `[batch, channels, channels]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, loss};
    ///
    /// let features = Tensor::<Flex, 4>::from_data([[[[1.0f32, 2.0]], [[3.0, 4.0]]]], &Default::default());
    /// assert_eq!(loss::gram_matrix(features).into_data().to_vec::<f32>(), [5.0, 11.0, 11.0, 25.0]);
    /// ```
    pub fn gram_matrix[B: Backend](features: Tensor<B, 4>) -> Tensor<B, 3>;
}

functions! {
    flat;

    /// Computes the style loss ([Gatys et al. 2015](https://arxiv.org/abs/1508.06576)): the squared difference of the
    /// [`gram_matrix`] of two feature maps, `Σ (G - G')² / (4 channels² (height width)²)` for each example. It is the mean
    /// squared difference of Gram matrices that are divided by `2 height width`.
    ///
    /// Features are `[batch, channels, height, width]`. Without reduction the output is `[batch]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_tensor::loss::{self, Reduction};
    ///
    /// let x = Tensor::<Flex, 4>::full([1, 2, 1, 3], 2.0, &Default::default());
    /// // Each entry of the Gram matrix is 12, divided by 6.
    /// let loss = loss::gram_matrix_loss(x.clone(), x.zeros_like(), Reduction::Mean);
    /// assert!((loss.into_scalar::<f32>() - 4.0).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// When the features differ in shape.
    #[doc(alias = "style_loss")]
    pub fn gram_matrix_loss[B: Backend](
        features: Tensor<B, 4>,
        targets: Tensor<B, 4> as any,
        reduction: Reduction,
    ) -> Tensor<B, 1>;
}
