//! Matrix inverses, powers and the exponential.

use crate::{Tolerance, any};
use kiln_tensor::{Backend, Tensor};

functions! {
    /// Computes the inverses of matrices `[.., n, n]`. To multiply by an inverse use [`solve`](crate::solve), which is
    /// faster and more accurate.
    ///
    /// Equivalent to [`torch.linalg.inv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::inverse;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [4.0, 0.0]], &Default::default());
    /// assert_eq!(inverse(a).into_data().to_vec::<f32>(), [0.0, 0.25, 0.5, 0.0]);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square. A singular matrix poisons the result: reading it returns the error.
    #[doc(alias = "inv")]
    pub fn inverse[B: Backend, const D: usize](a: Tensor<B, D> as any) -> Tensor<B, D>;

    /// Computes the Moore-Penrose pseudo-inverses of matrices `[.., m, n]`: `[.., n, m]`. [`Tolerance`] is the threshold
    /// below which singular values are treated as zero.
    ///
    /// Equivalent to [`torch.linalg.pinv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.pinv.html). The
    /// gradient (G. Golub and V. Pereyra, [1973](https://doi.org/10.1137/0710036)) assumes that the rank is constant.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::pinv;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]], &Default::default());
    /// let expected = Tensor::from_floats([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], &Default::default());
    /// assert!(pinv(a, Default::default()).all_close(expected, None, None));
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions. A matrix with NaN or infinity poisons the result: reading it returns
    /// the error.
    #[doc(alias = "pinverse")]
    pub fn pinv[B: Backend, const D: usize](a: Tensor<B, D> as any, tolerance: Tolerance) -> Tensor<B, D>;

    /// Raises matrices `[.., n, n]` to an integer power by repeated squaring. A negative power is a power of the inverse,
    /// and the power 0 is the identity.
    ///
    /// Equivalent to
    /// [`torch.linalg.matrix_power`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_power.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::matrix_power;
    /// use kiln_tensor::Tensor;
    ///
    /// let fibonacci = Tensor::<Flex, 2>::from_floats([[1.0, 1.0], [1.0, 0.0]], &Default::default());
    /// assert_eq!(matrix_power(fibonacci, 10).into_data().to_vec::<f32>(), [89.0, 55.0, 55.0, 34.0]);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square. A singular matrix with a negative power poisons the result: reading it returns the
    /// error.
    pub fn matrix_power[B: Backend, const D: usize](a: Tensor<B, D> as any, exponent: i32) -> Tensor<B, D>;

    /// Computes the matrix exponentials of matrices `[.., n, n]`, `Σ Aᵏ / k!`, by scaling and squaring with a Padé
    /// approximant
    /// (N. Higham, [2005](https://doi.org/10.1137/04061101X)).
    ///
    /// Equivalent to
    /// [`torch.linalg.matrix_exp`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_exp.html). Gradients
    /// (R. Mathias, [1996](https://doi.org/10.1137/S0895479895283409)) of any order are supported.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::matrix_exp;
    /// use kiln_tensor::Tensor;
    ///
    /// // The exponential of a turning speed is a turn.
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, -1.0], [1.0, 0.0]], &Default::default());
    /// let (c, s) = (1f32.cos(), 1f32.sin());
    /// assert!(matrix_exp(a).all_close(Tensor::from_floats([[c, -s], [s, c]], &Default::default()), None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square.
    #[doc(alias = "expm")]
    pub fn matrix_exp[B: Backend, const D: usize](a: Tensor<B, D> as any) -> Tensor<B, D>;

    /// Computes the inverse of a tensor as a linear map from its last dimensions to its first `first` dimensions. The
    /// products of both must be equal. The result has the last dimensions first.
    ///
    /// Equivalent to
    /// [`torch.linalg.tensorinv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.tensorinv.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::tensorinv;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::eye(6, &Default::default()).reshape([2, 3, 6]);
    /// assert_eq!(tensorinv(a, 2).dims(), [6, 2, 3]);
    /// ```
    ///
    /// # Panics
    /// When the dimensions do not match. A singular tensor poisons the result: reading it returns the error.
    pub fn tensorinv[B: Backend, const D: usize](a: Tensor<B, D> as any, first: usize) -> Tensor<B, D>;

    /// Solves `Σ A[i.., j..] X[j..] = B[i..]` for `X`. The first dimensions of `A` are those of `B`, the others those of
    /// `X`, and their products are equal. `D3` is `D - D2`.
    ///
    /// Equivalent to
    /// [`torch.linalg.tensorsolve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.tensorsolve.html) without
    /// its `dims`; use `permute` first.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::tensorsolve;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::eye(6, &Default::default()).reshape([2, 3, 6]);
    /// let b = Tensor::<Flex, 2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &Default::default());
    /// let x: Tensor<Flex, 1> = tensorsolve(a, b);
    /// assert_eq!(x.into_data().to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// When the dimensions do not match, or `D3` is not `D - D2`. A singular tensor poisons the result: reading it returns
    /// the error.
    pub fn tensorsolve[B: Backend, const D: usize, const D2: usize, const D3: usize](
        a: Tensor<B, D> as any,
        b: Tensor<B, D2> as any,
    ) -> Tensor<B, D3>;
}
