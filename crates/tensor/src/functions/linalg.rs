//! Linear algebra without decompositions: vector and matrix products, norms, diagonals.
//!
//! For matmuls see [`Tensor::matmul`], for other contractions [`einsum`](crate::einsum()).

pub use crate::any::{Norm, TensordotAxes};

use crate::functions::table::{functions, typed};
use crate::{Axis, AxisList, Backend, Kind, Number, Numeric, Tensor};

functions! {
    typed;

    /// Computes the outer product of two vectors, `[m] x [n] -> [m, n]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 2.0], &Default::default());
    /// assert_eq!(linalg::outer(x.clone(), x).into_data().to_vec::<f32>(), [1.0, 2.0, 2.0, 4.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.outer.html>
    pub fn outer[B: Backend, K: Numeric](x: Tensor<B, 1, K>, y: Tensor<B, 1, K> as any) -> Tensor<B, 2, K>;

    /// Computes outer products along an axis: `[.., m, ..] x [.., n, ..] -> [.., m, n, ..]`; the other axes broadcast. `D2`
    /// is `D + 1`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// let each_row: Tensor<Flex, 3> = linalg::outer_dim(x.clone(), x, 1);
    /// assert_eq!(each_row.into_data().to_vec::<f32>(), [1.0, 2.0, 2.0, 4.0, 9.0, 12.0, 12.0, 16.0]);
    /// ```
    ///
    /// # Panics
    /// When `D2` is not `D + 1`.
    pub fn outer_dim[B: Backend, const D: usize, const D2: usize, K: Numeric](
        x: Tensor<B, D, K>,
        y: Tensor<B, D, K> as any,
        axis: impl Into<Axis>,
    ) -> Tensor<B, D2, K>;

    /// Computes dot products along an axis, which is kept with length 1; the other axes broadcast.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// assert_eq!(linalg::vecdot(x.clone(), x, -1).into_data().to_vec::<f32>(), [5.0, 25.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.linalg.vecdot.html>
    ///
    /// # Panics
    /// When the operands do not broadcast.
    pub fn vecdot[B: Backend, const D: usize, K: Numeric](
        x: Tensor<B, D, K>,
        y: Tensor<B, D, K> as any,
        axis: impl Into<Axis>,
    ) -> Tensor<B, D, K>;

    /// Computes matrix-vector products, `[.., m, n] x [.., n] -> [.., m]`; the batch axes broadcast. `DV` is the rank of
    /// the vectors and of the result.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 10.0], &Default::default());
    /// assert_eq!(linalg::matvec(a, x).into_data().to_vec::<f32>(), [21.0, 43.0]);
    /// ```
    ///
    /// # Panics
    /// When the result does not have as many axes as the vectors: expand the vectors by the batch axes of the matrices.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.mv.html>
    #[doc(alias = "mv")]
    pub fn matvec[B: Backend, const DM: usize, const DV: usize, K: Numeric](
        matrix: Tensor<B, DM, K>,
        vector: Tensor<B, DV, K> as any,
    ) -> Tensor<B, DV, K>;

    /// Computes the inner products of the last axes of all pairs of vectors, `[a.., k] x [b.., k] -> [a.., b..]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// let products: Tensor<Flex, 2> = linalg::inner(x.clone(), x);
    /// assert_eq!(products.into_data().to_vec::<f32>(), [5.0, 11.0, 11.0, 25.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.inner.html>
    ///
    /// # Panics
    /// When the lengths of the last axes differ, or `D2` does not match.
    pub fn inner[B: Backend, const D: usize, const E: usize, const D2: usize, K: Numeric](
        x: Tensor<B, D, K>,
        y: Tensor<B, E, K> as any,
    ) -> Tensor<B, D2, K> = inner_product;

    /// Contracts pairs of axes; the result has the other axes of the left operand, then those of the right operand.
    ///
    /// `axes` is a count `n`, for the last `n` axes of the left and the first `n` of the right operand, or two lists.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let a = Tensor::<Flex, 3>::ones([2, 3, 4], &Default::default());
    /// let b = Tensor::<Flex, 3>::ones([3, 4, 5], &Default::default());
    /// let c: Tensor<Flex, 2> = linalg::tensordot(a.clone(), b.clone(), 2);
    /// assert_eq!(c.dims(), [2, 5]);
    /// let d: Tensor<Flex, 4> = linalg::tensordot(a, b, ([-1], [1]));
    /// assert_eq!(d.dims(), [2, 3, 3, 5]);
    /// ```
    ///
    /// # Panics
    /// When the numbers or lengths of the axes differ.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.tensordot.html>
    pub fn tensordot[B: Backend, const D: usize, const E: usize, const D2: usize, K: Numeric](
        x: Tensor<B, D, K>,
        y: Tensor<B, E, K> as any,
        axes: impl Into<TensordotAxes>,
    ) -> Tensor<B, D2, K>;

    /// Computes the Kronecker product: each element of the left operand is multiplied by the whole right operand. The
    /// lengths of each axis multiply.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([1.0f32, 10.0], &Default::default());
    /// let y = Tensor::<Flex, 1>::from_floats([2.0f32, 3.0], &Default::default());
    /// assert_eq!(linalg::kron(x, y).into_data().to_vec::<f32>(), [2.0, 3.0, 20.0, 30.0]);
    /// ```
    ///
    /// # Panics
    /// When the result exceeds the maximum number of elements or axes.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.kron.html>
    pub fn kron[B: Backend, const D: usize, K: Numeric](
        x: Tensor<B, D, K>,
        y: Tensor<B, D, K> as any,
    ) -> Tensor<B, D, K>;
}

/// Computes the trace, the sum of the diagonal of the last two axes, `[.., m, n] -> [..]`. `D2` is `D - 2`; for a
/// matrix, `D2` may also be 1, with one element.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, linalg};
///
/// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
/// let trace: Tensor<Flex, 1> = linalg::trace(x);
/// assert_eq!(trace.into_data().to_vec::<f32>(), [5.0]);
/// ```
///
/// # Panics
/// With fewer than two axes.
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.trace.html>
#[track_caller]
pub fn trace<B: Backend, const D: usize, const D2: usize, K: Numeric>(
    x: Tensor<B, D, K>,
) -> Tensor<B, D2, K> {
    x.convert(|any| {
        let trace = any.trace()?;
        if trace.rank() == 0 && D2 == 1 { trace.reshape([1]) } else { Ok(trace) }
    })
}

/// Returns the diagonals of matrices, `[.., m, n] -> [.., k]`; `D2` is `D - 1`. [`Tensor::diag`] converts vectors to
/// matrices, [`Tensor::diagonal`] selects other axes and diagonals.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, linalg};
///
/// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
/// let diagonal: Tensor<Flex, 1> = linalg::diag(x);
/// assert_eq!(diagonal.into_data().to_vec::<f32>(), [1.0, 4.0]);
/// ```
///
/// # Panics
/// With fewer than two axes.
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.linalg.diagonal.html>
#[track_caller]
pub fn diag<B: Backend, const D: usize, const D2: usize, K: Kind>(x: Tensor<B, D, K>) -> Tensor<B, D2, K> {
    x.convert(|any| any.diagonal(0, -2, -1))
}

functions! {
    typed;

    /// Computes the norm of the vectors along an axis, which is kept with length 1.
    ///
    /// The norm is a [`Norm`] or a number `p`: `(Σ |x|^p)^(1/p)`. 0 counts the nonzero elements; `f64::INFINITY` and
    /// `f64::NEG_INFINITY` return the greatest and least absolute value. The gradient is 0 for a vector of zeros and for
    /// zeros in it; equal extremes share it.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[3.0f32, -4.0], [0.0, 0.0]], &Default::default());
    /// assert_eq!(linalg::vector_norm(x.clone(), 2, -1).into_data().to_vec::<f32>(), [5.0, 0.0]);
    /// assert_eq!(linalg::vector_norm(x, f64::INFINITY, -1).into_data().to_vec::<f32>(), [4.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// For the greatest or least absolute value of an empty axis.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.linalg.vector_norm.html>
    pub fn vector_norm[B: Backend, const D: usize](
        x: Tensor<B, D>,
        norm: impl Into<Norm>,
        axis: impl Into<Axis>,
    ) -> Tensor<B, D>;
}

macro_rules! norms {
    ($($(#[$doc:meta])* $name:ident $norm:expr;)*) => {$(
        $(#[$doc])*
        /// The axis is kept with length 1. See [`vector_norm`].
        #[track_caller]
        pub fn $name<B: Backend, const D: usize>(x: Tensor<B, D>, axis: impl Into<Axis>) -> Tensor<B, D> {
            vector_norm(x, $norm, axis)
        }
    )*};
}

norms! {
    /// Counts the nonzero elements along an axis.
    l0_norm Norm::L0;
    /// Computes the sum of absolute values along an axis.
    l1_norm Norm::L1;
    /// Computes the square root of the sum of squares along an axis.
    l2_norm Norm::L2;
    /// Computes the greatest absolute value along an axis.
    max_abs_norm Norm::MaxAbs;
    /// Computes the least absolute value along an axis.
    min_abs_norm Norm::MinAbs;
}

/// Computes the p-norm `(Σ |x|^p)^(1/p)` along an axis, which is kept with length 1. See [`vector_norm`].
#[track_caller]
pub fn lp_norm<B: Backend, const D: usize>(x: Tensor<B, D>, p: f64, axis: impl Into<Axis>) -> Tensor<B, D> {
    vector_norm(x, p, axis)
}

functions! {
    typed;

    /// Divides vectors along an axis by their norm, or by `epsilon` where that is greater.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 1>::from_floats([3.0f32, -4.0], &Default::default());
    /// assert_eq!(linalg::vector_normalize(x, 1, 0, 1e-12).into_data().to_vec::<f32>(), [3.0 / 7.0, -4.0 / 7.0]);
    /// ```
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html>
    #[doc(alias = "normalize")]
    pub fn vector_normalize[B: Backend, const D: usize](
        x: Tensor<B, D>,
        norm: impl Into<Norm>,
        axis: impl Into<Axis>,
        epsilon: f64,
    ) -> Tensor<B, D>;
}

/// Computes the cosine similarity of vectors along an axis, which is kept with length 1. All axes broadcast: a vector of
/// length 1 stands for one of equal elements. Norms are clamped from below to `epsilon` (default 1e-8).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, linalg};
///
/// let x = Tensor::<Flex, 1>::from_floats([3.0f32, 4.0], &Default::default());
/// let y = Tensor::<Flex, 1>::from_floats([0.0f32, 2.0], &Default::default());
/// let cosine = linalg::cosine_similarity(x, y, 0, None).into_data().to_vec::<f32>()[0];
/// assert!((cosine - 0.8).abs() < 1e-6);
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cosine_similarity.html>
#[track_caller]
pub fn cosine_similarity<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    y: Tensor<B, D>,
    axis: impl Into<Axis>,
    epsilon: Option<f64>,
) -> Tensor<B, D> {
    x.map(|any| any.cosine_similarity(y.into_any(), axis, epsilon.unwrap_or(1e-8)))
}

/// Computes the norm of `x - y + epsilon` along the last axis, which is kept with length 1; broadcasts. `epsilon` is
/// 1e-6 by default.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Tensor, linalg};
///
/// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 1.0]], &Default::default());
/// let y = Tensor::<Flex, 2>::from_floats([[4.0f32, 5.0]], &Default::default());
/// assert_eq!(linalg::pairwise_distance(x, y, 2, Some(0.0)).into_data().to_vec::<f32>(), [5.0]);
/// ```
///
/// <https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pairwise_distance.html>
#[track_caller]
pub fn pairwise_distance<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    y: Tensor<B, D>,
    norm: impl Into<Norm>,
    epsilon: Option<f64>,
) -> Tensor<B, D> {
    x.map(|any| any.pairwise_distance(y.into_any(), norm, epsilon.unwrap_or(1e-6)))
}

functions! {
    typed;

    /// Computes `beta * x + alpha * a b` for matrices `[m, k]` and `[k, n]`; `x` broadcasts to `[m, n]`. PyTorch's defaults
    /// for both factors are 1. With a `beta` of 0, `x` is ignored, even if it is NaN.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0]], &device);
    /// let a = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [3.0, 4.0]], &device);
    /// let y = linalg::addmm(x, a.clone(), a, 0.5, 2);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [14.5, 21.0, 30.5, 45.0]);
    /// ```
    ///
    /// # Panics
    /// When the inner sizes differ, or `x` does not broadcast to the matmul's result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.addmm.html>
    pub fn addmm[B: Backend, K: Numeric](
        x: Tensor<B, 2, K>,
        a: Tensor<B, 2, K> as any,
        b: Tensor<B, 2, K> as any,
        beta: impl Number,
        alpha: impl Number,
    ) -> Tensor<B, 2, K>;

    /// Computes `beta * x + alpha * Σ aᵢ bᵢ` over batches of matrices `[batch, m, k]` and `[batch, k, n]`; `x` broadcasts
    /// to `[m, n]`. See [`addmm`].
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 3>::ones([2, 1, 3], &device);
    /// let b = Tensor::<Flex, 3>::ones([2, 3, 1], &device);
    /// let y = linalg::addbmm(Tensor::ones([1, 1], &device), a, b, 1, 1);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [7.0]);
    /// ```
    ///
    /// # Panics
    /// When the batches or the inner sizes differ, or `x` does not broadcast to the sum.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.addbmm.html>
    pub fn addbmm[B: Backend, K: Numeric](
        x: Tensor<B, 2, K>,
        a: Tensor<B, 3, K> as any,
        b: Tensor<B, 3, K> as any,
        beta: impl Number,
        alpha: impl Number,
    ) -> Tensor<B, 2, K>;

    /// Computes `beta * x + alpha * a b` for each matrix of batches `[batch, m, k]` and `[batch, k, n]`; `x` broadcasts to
    /// `[batch, m, n]`. See [`addmm`].
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let device = Default::default();
    /// let a = Tensor::<Flex, 3>::ones([2, 1, 3], &device);
    /// let b = Tensor::<Flex, 3>::ones([2, 3, 1], &device);
    /// let y = linalg::baddbmm(Tensor::ones([1, 1, 1], &device), a, b, 1, 2);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [7.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// When the batches or the inner sizes differ, or `x` does not broadcast to the matmul's result.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.baddbmm.html>
    pub fn baddbmm[B: Backend, K: Numeric](
        x: Tensor<B, 3, K>,
        a: Tensor<B, 3, K> as any,
        b: Tensor<B, 3, K> as any,
        beta: impl Number,
        alpha: impl Number,
    ) -> Tensor<B, 3, K>;

    /// Computes a vector norm over several axes, which are kept with length 1. No axes mean all axes. See [`vector_norm`].
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 2.0], [2.0, 4.0]], &Default::default());
    /// assert_eq!(linalg::vector_norm_dims(x, 2, [0, 1]).into_data().to_vec::<f32>(), [5.0]);
    /// ```
    ///
    /// # Panics
    /// When an axis is repeated, and for the greatest or least absolute value of no elements.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.linalg.vector_norm.html>
    pub fn vector_norm_dims[B: Backend, const D: usize](
        x: Tensor<B, D>,
        norm: impl Into<Norm>,
        axes: impl Into<AxisList>,
    ) -> Tensor<B, D>;

    /// Scales down the slices of an axis whose norm `(Σ |x|^p)^(1/p)` is greater than `max_norm` to that norm; the others
    /// do not change. As in PyTorch, 1e-7 is added to the norm before the division.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, linalg};
    ///
    /// let x = Tensor::<Flex, 2>::from_floats([[1.0f32, 1.0], [3.0, 4.0]], &Default::default());
    /// let y = Tensor::from_floats([[1.0f32, 1.0], [1.2, 1.6]], &Default::default());
    /// assert!(linalg::renorm(x, 2.0, 0, 2.0).all_close(y, None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// When `p` is not above 0, or `max_norm` is negative.
    ///
    /// <https://docs.pytorch.org/docs/stable/generated/torch.renorm.html>
    pub fn renorm[B: Backend, const D: usize](
        x: Tensor<B, D>,
        p: f64,
        axis: impl Into<Axis>,
        max_norm: f64,
    ) -> Tensor<B, D>;
}
