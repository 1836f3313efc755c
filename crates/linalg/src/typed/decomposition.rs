//! Matrix decompositions.

use crate::{QrMode, Triangle, any};
use kiln_tensor::{Backend, Int, Tensor};

functions! {
    /// Computes the Cholesky decomposition of symmetric positive definite matrices `[.., n, n]`: the lower triangular `L`
    /// of `A = L Lᵀ`, or the upper triangular `U` of `A = Uᵀ U`. Only the given triangle of `A` is read.
    ///
    /// Equivalent to [`torch.linalg.cholesky`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html).
    /// The gradient (I. Murray, [2016](https://arxiv.org/abs/1602.07527)) is symmetric.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Triangle, cholesky};
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[4.0, 2.0], [2.0, 10.0]], &Default::default());
    /// let l = cholesky(a, Triangle::Lower);
    /// assert_eq!(l.into_data().to_vec::<f32>(), [2.0, 0.0, 1.0, 3.0]);
    ///
    /// let indefinite = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [2.0, 1.0]], &Default::default());
    /// let error = cholesky(indefinite, Triangle::Lower).try_into_data().unwrap_err();
    /// assert!(error.to_string().starts_with("[cholesky] the matrix is not positive definite"));
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square. A matrix that is not positive definite poisons the result: reading it returns the
    /// error.
    #[doc(alias = "cho_factor")]
    pub fn cholesky[B: Backend, const D: usize](a: Tensor<B, D> as any, triangle: Triangle) -> Tensor<B, D>;

    /// Computes the QR decomposition of matrices `[.., m, n]`: `A = Q R` with orthonormal columns of `Q` and upper
    /// triangular `R`. [`QrMode`] selects their shapes. The signs of the rows of `R` are not unique.
    ///
    /// Equivalent to [`torch.linalg.qr`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.qr.html). The gradient
    /// (S. Walter and L. Lehmann, [2010](https://arxiv.org/abs/1001.1654); D. Roberts and L. Roberts,
    /// [2020](https://arxiv.org/abs/2009.10071)) requires the first `min(m, n)` columns to be linearly independent.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{QrMode, qr};
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[3.0, 1.0], [4.0, 2.0], [0.0, 5.0]], &Default::default());
    /// let (q, r) = qr(a.clone(), QrMode::Reduced);
    /// assert_eq!((q.dims(), r.dims()), ([3, 2], [2, 2]));
    /// assert!(q.matmul(r).all_close(a, Some(1e-5), Some(1e-5)));
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions.
    pub fn qr[B: Backend, const D: usize](
        a: Tensor<B, D> as any,
        mode: QrMode,
    ) -> (Tensor<B, D>, Tensor<B, D>);

    /// Computes only `R` of the reduced [QR decomposition](qr), `[.., min(m, n), n]`. Unlike PyTorch's mode `"r"` it has a
    /// gradient.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::qr_r;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[3.0, 1.0], [4.0, 2.0]], &Default::default());
    /// assert!((qr_r(a).abs().into_data().to_vec::<f32>()[0] - 5.0).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions.
    #[doc(alias = "qr")]
    pub fn qr_r[B: Backend, const D: usize](a: Tensor<B, D> as any) -> Tensor<B, D>;

    /// Computes the LU decomposition with partial pivoting of matrices `[.., m, n]`: `(P, L, U)` with `A = P L U`.
    ///
    /// `P` `[.., m, m]` is a permutation matrix, `L` `[.., m, k]` is lower triangular with unit diagonal, and `U`
    /// `[.., k, n]` is upper triangular, with `k = min(m, n)`. Singular matrices have factors too.
    ///
    /// Equivalent to [`torch.linalg.lu`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu.html). The
    /// gradients of `L` and `U` require the leading `k` columns to be linearly independent.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::lu;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [4.0, 6.0]], &Default::default());
    /// let (p, l, u) = lu(a.clone());
    /// assert_eq!(u.clone().into_data().to_vec::<f32>(), [4.0, 6.0, 0.0, 0.5]);
    /// assert!(p.matmul(l).matmul(u).all_close(a, None, None));
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions.
    pub fn lu[B: Backend, const D: usize](
        a: Tensor<B, D> as any,
    ) -> (Tensor<B, D>, Tensor<B, D>, Tensor<B, D>);

    /// Computes the [LU decomposition](lu) of matrices `[.., m, n]` in compact form, for [`lu_solve`](crate::lu_solve).
    ///
    /// The first result contains `L` and `U` in one matrix, without the unit diagonal. The second contains LAPACK's pivots
    /// `[.., min(m, n)]`, counted from 1: row `i` was exchanged with row `pivots[i] - 1`. `D1` is `D - 1`.
    ///
    /// Equivalent to
    /// [`torch.linalg.lu_factor`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu_factor.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::lu_factor;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [4.0, 6.0]], &Default::default());
    /// let (factors, pivots): (_, Tensor<Flex, 1, Int>) = lu_factor(a);
    /// assert_eq!(factors.into_data().to_vec::<f32>(), [4.0, 6.0, 0.25, 0.5]);
    /// assert_eq!(pivots.into_data().to_vec::<i32>(), [2, 2]);
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions, or `D1` is not `D - 1`.
    pub fn lu_factor[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
    ) -> (Tensor<B, D>, Tensor<B, D1, Int>);

    /// Computes the LDL factorisation of symmetric, possibly indefinite matrices `[.., n, n]`: `(L, D)` with `A = L D Lᵀ`.
    ///
    /// `D` `[.., n, n]` is symmetric and block diagonal with blocks of size 1 or 2. `L` `[.., n, n]` is lower triangular
    /// with unit diagonal, up to row exchanges (J. Bunch and L. Kaufman, 1977). The lower triangle of `A` is read.
    ///
    /// Equivalent to [`scipy.linalg.ldl`](https://docs.scipy.org/doc/scipy/reference/generated/scipy.linalg.ldl.html)
    /// without its permutation. The factorisation has no gradient: a backward pass through it is an error.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::ldl;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [2.0, 0.0]], &Default::default());
    /// let (l, d) = ldl(a.clone());
    /// assert_eq!(l.into_data().to_vec::<f32>(), [1.0, 0.0, 0.0, 1.0]);
    /// assert!(d.all_close(a, None, None));
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square.
    pub fn ldl[B: Backend, const D: usize](a: Tensor<B, D> as any) -> (Tensor<B, D>, Tensor<B, D>);

    /// Computes the [LDL factorisation](ldl) of symmetric matrices `[.., n, n]` in compact form, for
    /// [`ldl_solve`](crate::ldl_solve).
    ///
    /// The first result contains `L` and `D` in the lower triangle of one matrix, zeros above. The second contains the
    /// pivots `[.., n]` of LAPACK's `sytrf`, counted from 1. A pivot `p` is a block of size 1 that was exchanged with row
    /// `p`. Two equal pivots `-p` are a block of size 2 whose second row was exchanged with row `p`. The lower triangle of
    /// `A` is read. `D1` is `D - 1`.
    ///
    /// Equivalent to
    /// [`torch.linalg.ldl_factor`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.ldl_factor.html), except
    /// that a singular matrix is not an error. The factorisation has no gradient: a backward pass through it is an error.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::ldl_factor;
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[4.0, 2.0], [2.0, -1.0]], &Default::default());
    /// let (factors, pivots): (_, Tensor<Flex, 1, Int>) = ldl_factor(a);
    /// assert_eq!(factors.into_data().to_vec::<f32>(), [4.0, 0.0, 0.5, -2.0]);
    /// assert_eq!(pivots.into_data().to_vec::<i32>(), [1, 2]);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, or `D1` is not `D - 1`.
    pub fn ldl_factor[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
    ) -> (Tensor<B, D>, Tensor<B, D1, Int>);

    /// Computes the singular value decomposition of matrices `[.., m, n]`: `(U, S, Vᵀ)` with `A = U diag(S) Vᵀ`.
    ///
    /// `U` is `[.., m, k]` and `Vᵀ` is `[.., k, n]` with `k = min(m, n)`; with `full` they are square. Columns of `U` and
    /// `V` are orthonormal, and their signs are not unique. Singular values `S` `[.., k]` are in descending order. `D1` is
    /// `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.svd`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html). The
    /// gradient of the vectors (J. Townsend, [2016](https://j-towns.github.io/papers/svd-derivative.pdf); Z. Wan and S.
    /// Zhang, [2019](https://arxiv.org/abs/1909.02659)) is infinite or NaN where singular values are equal or, for matrices
    /// that are not square, zero. It ignores columns that only `full` adds. For gradients of singular values alone use
    /// [`svdvals`], whose gradient is always finite.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::svd;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[3.0, 0.0, 0.0], [0.0, 0.0, -2.0]], &Default::default());
    /// let (u, s, vt): (_, Tensor<Flex, 1>, _) = svd(a.clone(), false);
    /// assert!(s.clone().all_close(Tensor::from_floats([3.0, 2.0], &Default::default()), None, Some(1e-6)));
    /// assert!((u * s.unsqueeze()).matmul(vt).all_close(a, None, Some(1e-5)));
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the
    /// results: reading them returns the error.
    pub fn svd[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
        full: bool,
    ) -> (Tensor<B, D>, Tensor<B, D1>, Tensor<B, D>);

    /// Computes the singular values of matrices `[.., m, n]` in descending order: `[.., min(m, n)]`. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.svdvals`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svdvals.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::svdvals;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, -2.0], [5.0, 0.0]], &Default::default());
    /// let s: Tensor<Flex, 1> = svdvals(a);
    /// assert!(s.all_close(Tensor::from_floats([5.0, 2.0], &Default::default()), None, None));
    /// ```
    ///
    /// # Panics
    /// When the tensor has fewer than two dimensions, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the
    /// result: reading it returns the error.
    pub fn svdvals[B: Backend, const D: usize, const D1: usize](a: Tensor<B, D> as any) -> Tensor<B, D1>;
}
