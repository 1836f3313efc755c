//! Matrix norms, condition numbers and ranks.

use crate::{MatrixNorm, Tolerance, any};
use kiln_tensor::{Backend, Int, Tensor};

functions! {
    /// Computes a norm of matrices `[.., m, n]`: `[..]`. `D2` is `D - 2`, or 1 for a single matrix.
    ///
    /// Equivalent to
    /// [`torch.linalg.matrix_norm`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_norm.html) over the
    /// last two dimensions.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{MatrixNorm, matrix_norm};
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, -2.0], [2.0, 4.0]], &Default::default());
    /// let norm: Tensor<Flex, 1> = matrix_norm(a.clone(), MatrixNorm::Frobenius);
    /// assert_eq!(norm.into_scalar::<f32>(), 5.0);
    /// let norm: Tensor<Flex, 1> = matrix_norm(a, MatrixNorm::GreatestColumnSum);
    /// assert_eq!(norm.into_scalar::<f32>(), 6.0);
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions, `D2` does not match, or a maximum or minimum is taken over matrices
    /// without elements. For norms of singular values, a matrix with NaN or infinity poisons the result: reading it returns
    /// the error.
    #[doc(alias = "norm")]
    pub fn matrix_norm[B: Backend, const D: usize, const D2: usize](
        a: Tensor<B, D> as any,
        norm: MatrixNorm,
    ) -> Tensor<B, D2>;

    /// Computes the condition numbers of matrices, `[..]`: the norm of the matrix times that of its inverse.
    ///
    /// For [`MatrixNorm::Spectral`] and [`MatrixNorm::LeastSingularValue`] matrices `[.., m, n]` may have any shape. The
    /// result is the ratio of the largest to the smallest singular value, or its reciprocal. For other norms matrices must
    /// be square. The result is infinite for singular matrices, and 0 for matrices without elements. `D2` is `D - 2`,
    /// or 1 for a single matrix.
    ///
    /// Equivalent to [`torch.linalg.cond`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.cond.html), whose
    /// default is [`MatrixNorm::Spectral`].
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{MatrixNorm, cond};
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[4.0, 0.0], [0.0, 0.5]], &Default::default());
    /// let condition: Tensor<Flex, 1> = cond(a, MatrixNorm::Spectral);
    /// assert_eq!(condition.into_scalar::<f32>(), 8.0);
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions, matrices are not square where they must be, or `D2` does not match.
    pub fn cond[B: Backend, const D: usize, const D2: usize](
        a: Tensor<B, D> as any,
        norm: MatrixNorm,
    ) -> Tensor<B, D2>;

    /// Computes the ranks of matrices `[.., m, n]`, `[..]`: the numbers of singular values above the [`Tolerance`]. `D2` is
    /// `D - 2`, or 1 for a single matrix.
    ///
    /// Equivalent to
    /// [`torch.linalg.matrix_rank`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_rank.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::matrix_rank;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [2.0, 4.0]], &Default::default());
    /// let rank: Tensor<Flex, 1, Int> = matrix_rank(a, Default::default());
    /// assert_eq!(rank.into_scalar::<i32>(), 1);
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions, or `D2` does not match. A matrix with NaN or infinity poisons the
    /// result: reading it returns the error.
    pub fn matrix_rank[B: Backend, const D: usize, const D2: usize](
        a: Tensor<B, D> as any,
        tolerance: Tolerance,
    ) -> Tensor<B, D2, Int>;
}
