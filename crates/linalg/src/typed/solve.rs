//! Linear systems and least squares.

use super::{done, typed};
use crate::{Side, Triangle, any};
use kiln_tensor::{AnyTensor, Backend, Int, Tensor};

functions! {
    /// Solves the linear system `A X = B` (or `X A = B` with [`Side::Right`]) for square matrices `A` `[.., n, n]`.
    ///
    /// `B` is `[.., n, k]` (`[.., k, n]` on the right). It is a batch of vectors `[.., n]` if it has rank 1, or one
    /// dimension less than `A` and the same batch dimensions. Batch dimensions broadcast; the result has the rank of `B`.
    ///
    /// Equivalent to [`torch.linalg.solve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve.html). The
    /// gradient is that of M. Giles, [2008](https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf), section 2.3.1.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Side, solve};
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 1.0], [1.0, 3.0]], &device);
    /// let b = Tensor::<Flex, 1>::from_floats([3.0, 5.0], &device);
    /// let x = solve(a, b, Side::Left);
    /// assert!(x.all_close(Tensor::from_floats([0.8, 1.4], &device), None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, sizes differ, or batch dimensions do not broadcast to the rank of `B`. A singular
    /// matrix poisons the result: reading it returns the error.
    pub fn solve[B: Backend, const D: usize, const D2: usize](
        a: Tensor<B, D> as any,
        b: Tensor<B, D2> as any,
        side: Side,
    ) -> Tensor<B, D2>;

    /// Solves the triangular linear system `A X = B` (or `X A = B` with [`Side::Right`]) for matrices `A` `[.., n, n]`.
    ///
    /// Only the given triangle of `A` is read; with `unit_diagonal` its diagonal is taken to be ones. `B` is `[.., n, k]`
    /// (`[.., k, n]` on the right). Batch dimensions broadcast. A zero on the diagonal results in infinities or NaNs.
    ///
    /// Equivalent to `torch.linalg`'s
    /// [`solve_triangular`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve_triangular.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Side, Triangle, solve_triangular};
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [1.0, 4.0]], &device);
    /// let b = Tensor::<Flex, 2>::from_floats([[2.0], [9.0]], &device);
    /// let x = solve_triangular(a, b, Triangle::Lower, Side::Left, false);
    /// assert_eq!(x.into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, sizes differ, or batch dimensions do not broadcast to the rank of `B`.
    #[doc(alias = "triangular_solve")]
    pub fn solve_triangular[B: Backend, const D: usize, const D2: usize](
        a: Tensor<B, D> as any,
        b: Tensor<B, D2> as any,
        triangle: Triangle,
        side: Side,
        unit_diagonal: bool,
    ) -> Tensor<B, D2>;

    /// Solves `A X = B` from the [Cholesky factor](crate::cholesky) of `A`: `B` is `[.., n, k]`, the factor `[.., n, n]`.
    /// Batch dimensions broadcast.
    ///
    /// Equivalent to [`torch.cholesky_solve`](https://docs.pytorch.org/docs/stable/generated/torch.cholesky_solve.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Triangle, cholesky, cholesky_solve};
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 2>::from_floats([[4.0, 2.0], [2.0, 10.0]], &device);
    /// let b = Tensor::<Flex, 2>::from_floats([[8.0], [22.0]], &device);
    /// let x = cholesky_solve(b, cholesky(a, Triangle::Lower), Triangle::Lower);
    /// assert!(x.all_close(Tensor::from_floats([[1.0], [2.0]], &device), None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// When the factors are not square, sizes differ, or batch dimensions do not broadcast to the rank of `B`.
    #[doc(alias = "cho_solve")]
    pub fn cholesky_solve[B: Backend, const D: usize, const D2: usize](
        b: Tensor<B, D2> as any,
        factor: Tensor<B, D> as any,
        triangle: Triangle,
    ) -> Tensor<B, D2>;

    /// Computes the inverse of `A` `[.., n, n]` from its [Cholesky factor](crate::cholesky).
    ///
    /// Equivalent to
    /// [`torch.cholesky_inverse`](https://docs.pytorch.org/docs/stable/generated/torch.cholesky_inverse.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Triangle, cholesky_inverse};
    /// use kiln_tensor::Tensor;
    ///
    /// let factor = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [0.0, 4.0]], &Default::default());
    /// let inverse = cholesky_inverse(factor, Triangle::Lower);
    /// assert_eq!(inverse.into_data().to_vec::<f32>(), [0.25, 0.0, 0.0, 0.0625]);
    /// ```
    ///
    /// # Panics
    /// When the factors are not square.
    pub fn cholesky_inverse[B: Backend, const D: usize](
        factor: Tensor<B, D> as any,
        triangle: Triangle,
    ) -> Tensor<B, D>;

    /// Solves `A X = B` (or `X A = B` with [`Side::Right`]) from the result of [`lu_factor`](crate::lu_factor) for `A`. `B`
    /// is `[.., n, k]` (`[.., k, n]` on the right). Batch dimensions broadcast. A singular matrix results in infinities or
    /// NaNs.
    ///
    /// Equivalent to [`torch.linalg.lu_solve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.lu_solve.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Side, lu_factor, lu_solve};
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [4.0, 6.0]], &device);
    /// let (factors, pivots): (_, Tensor<Flex, 1, Int>) = lu_factor(a);
    /// let b = Tensor::<Flex, 2>::from_floats([[5.0], [16.0]], &device);
    /// let x = lu_solve(factors, pivots, b, Side::Left);
    /// assert_eq!(x.into_data().to_vec::<f32>(), [1.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// When the factors are not square, the pivots have the wrong dtype or shape, sizes differ, or batch dimensions do not
    /// broadcast to the rank of `B`.
    pub fn lu_solve[B: Backend, const D: usize, const D1: usize, const D2: usize](
        factors: Tensor<B, D> as any,
        pivots: Tensor<B, D1, Int> as any,
        b: Tensor<B, D2> as any,
        side: Side,
    ) -> Tensor<B, D2>;

    /// Solves `A X = B` for symmetric `A` from the factors and pivots of [`ldl_factor`](crate::ldl_factor). `B` is
    /// `[.., n, k]`. Batch dimensions broadcast. A singular matrix results in infinities or NaNs.
    ///
    /// Equivalent to
    /// [`torch.linalg.ldl_solve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.ldl_solve.html). The gradient
    /// with respect to `B` uses the same factors. The gradient of the factors is not implemented: requesting it is an error
    /// of [`ldl_factor`](crate::ldl_factor), or NaN for factors from another source.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{ldl_factor, ldl_solve};
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [2.0, 0.0]], &device);
    /// let (factors, pivots): (_, Tensor<Flex, 1, Int>) = ldl_factor(a);
    /// let b = Tensor::<Flex, 2>::from_floats([[2.0], [6.0]], &device);
    /// assert_eq!(ldl_solve(factors, pivots, b).into_data().to_vec::<f32>(), [3.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// When the factors are not square, the pivots have the wrong dtype or shape, sizes differ, or batch dimensions do not
    /// broadcast to the rank of `B`. Invalid pivots poison the result: reading it returns the error.
    pub fn ldl_solve[B: Backend, const D: usize, const D1: usize, const D2: usize](
        factors: Tensor<B, D> as any,
        pivots: Tensor<B, D1, Int> as any,
        b: Tensor<B, D2> as any,
    ) -> Tensor<B, D2>;
}

/// The result of [`lstsq`]. `D1` is `D - 1`.
#[derive(Clone, Debug)]
pub struct LeastSquares<B: Backend, const D: usize, const D1: usize> {
    /// The solution `X`, `[.., n, k]`.
    pub solution: Tensor<B, D>,
    /// The squared 2-norm of each column of `A X - B`, `[.., k]`; `[.., 0]` unless `m > n`.
    pub residuals: Tensor<B, D1>,
    /// The singular values of the matrices in descending order, `[.., min(m, n)]`.
    pub singular_values: Tensor<B, D1>,
    rank: AnyTensor,
}

impl<B: Backend, const D: usize, const D1: usize> LeastSquares<B, D, D1> {
    /// Returns the ranks of the matrices, `[..]`. `D2` is `D - 2`, or 1 for a single matrix.
    ///
    /// # Panics
    /// When `D2` does not match.
    #[track_caller]
    pub fn rank<const D2: usize>(&self) -> Tensor<B, D2, Int> {
        typed(Ok(self.rank.clone()))
    }
}

/// Solves the least-squares problem `min ‖A X - B‖` for matrices `A` `[.., m, n]` of any shape and rank and `B`
/// `[.., m, k]`. Returns the solution of minimum norm.
///
/// Singular values of `A` up to `rcond` times the largest are treated as zero. Default (`None`): `max(m, n)` times the
/// machine epsilon of the dtype. Batch dimensions broadcast. `D1` is `D - 1`.
///
/// Equivalent to [`torch.linalg.lstsq`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.lstsq.html) with
/// the driver `gelsd`, except that residuals are returned for matrices of any rank, since a shape cannot depend on
/// data. The gradient is that of `pinv(A) B` ([`pinv`](crate::pinv)).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::lstsq;
/// use kiln_tensor::Tensor;
///
/// // The line through (0, 1), (1, 3) and (2, 5).
/// let device = Default::default();
/// let a = Tensor::<Flex, 2>::from_floats([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], &device);
/// let b = Tensor::<Flex, 2>::from_floats([[1.0], [3.0], [5.0]], &device);
/// let found = lstsq::<_, 2, 1>(a, b, None);
/// assert!(found.solution.clone().all_close(Tensor::from_floats([[2.0], [1.0]], &device), None, Some(1e-5)));
/// assert_eq!(found.rank::<1>().into_scalar::<i32>(), 2);
/// ```
///
/// # Panics
/// When a tensor has fewer than two dimensions, the numbers of rows differ, or batch dimensions do not broadcast. A
/// matrix with NaN or infinity poisons the results: reading them returns the error.
#[track_caller]
pub fn lstsq<B: Backend, const D: usize, const D1: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    rcond: Option<f64>,
) -> LeastSquares<B, D, D1> {
    let found = done(any::lstsq(a.into_any(), b.into_any(), rcond));
    LeastSquares {
        solution: typed(Ok(found.solution)),
        residuals: typed(Ok(found.residuals)),
        singular_values: typed(Ok(found.singular_values)),
        rank: found.rank,
    }
}
