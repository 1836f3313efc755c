//! Determinants.

use crate::any;
use kiln_tensor::{Backend, Tensor};

functions! {
    /// Computes the determinants of matrices `[.., n, n]`: `[..]`. `D2` is `D - 2`; for a single matrix it may also be 1,
    /// with shape `[1]`.
    ///
    /// Equivalent to [`torch.linalg.det`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.det.html). The
    /// gradient is the cofactor matrix, so singular matrices have one. The second gradient requires nonsingular matrices.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::det;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
    /// let d: Tensor<Flex, 1> = det(a);
    /// assert!((d.into_scalar::<f32>() + 2.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, or `D2` does not match.
    pub fn det[B: Backend, const D: usize, const D2: usize](a: Tensor<B, D> as any) -> Tensor<B, D2>;

    /// Computes the signs of the determinants of matrices `[.., n, n]` and the logarithms of their magnitudes, each `[..]`.
    ///
    /// Unlike [`det`], they neither overflow nor underflow. For a singular matrix they are 0 and -∞. `D2` is `D - 2`, or 1
    /// for a single matrix.
    ///
    /// Equivalent to [`torch.linalg.slogdet`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.slogdet.html).
    /// The sign has no gradient. The gradient of the logarithm requires nonsingular matrices; otherwise reading it returns
    /// the error.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::slogdet;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [3.0, 0.0]], &Default::default());
    /// let (sign, log): (Tensor<Flex, 1>, _) = slogdet(a);
    /// assert_eq!(sign.into_scalar::<f32>(), -1.0);
    /// assert!((log.into_scalar::<f32>() - 6f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, or `D2` does not match.
    pub fn slogdet[B: Backend, const D: usize, const D2: usize](
        a: Tensor<B, D> as any,
    ) -> (Tensor<B, D2>, Tensor<B, D2>);

    /// Computes the logarithms of the determinants of matrices `[.., n, n]`: `[..]`. They are NaN for negative determinants
    /// and -∞ for 0. `D2` is `D - 2`, or 1 for a single matrix.
    ///
    /// Equivalent to [`torch.logdet`](https://docs.pytorch.org/docs/stable/generated/torch.logdet.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::logdet;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [7.0, 3.0]], &Default::default());
    /// let log: Tensor<Flex, 1> = logdet(a);
    /// assert!((log.into_scalar::<f32>() - 6f32.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, or `D2` does not match.
    pub fn logdet[B: Backend, const D: usize, const D2: usize](a: Tensor<B, D> as any) -> Tensor<B, D2>;
}
