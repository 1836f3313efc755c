//! Inverses, powers and the exponential.

use super::typed;
use crate::{Tolerance, any};
use kiln_tensor::{Backend, Tensor};

/// The inverses of matrices `[.., n, n]`. To multiply with one use [`solve`](crate::solve), which is faster and more accurate.
///
/// As [`torch.linalg.inv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv.html).
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
/// When the matrices are not square. A singular matrix is an error of the value, which comes back when the result is
/// read.
#[doc(alias = "inv")]
#[track_caller]
pub fn inverse<B: Backend, const D: usize>(a: Tensor<B, D>) -> Tensor<B, D> {
    typed(any::inverse(a.into_any()))
}

/// The pseudo-inverses (Moore-Penrose) of matrices `[.., m, n]`: `[.., n, m]`. [`Tolerance`] says which singular values count
/// as zero.
///
/// As [`torch.linalg.pinv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.pinv.html). The gradient
/// (G. Golub and V. Pereyra, [1973](https://doi.org/10.1137/0710036)) takes the rank as constant.
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
/// When the tensor has fewer than two axes. A matrix with a NaN or an infinity is an error of the value.
#[doc(alias = "pinverse")]
#[track_caller]
pub fn pinv<B: Backend, const D: usize>(a: Tensor<B, D>, tolerance: Tolerance) -> Tensor<B, D> {
    typed(any::pinv(a.into_any(), tolerance))
}

/// Matrices `[.., n, n]` to an integer power, by repeated squaring; the inverse to the magnitude of a negative one, and the
/// identity to the power 0.
///
/// As [`torch.linalg.matrix_power`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_power.html).
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
/// When the matrices are not square. A singular matrix to a negative power is an error of the value.
#[track_caller]
pub fn matrix_power<B: Backend, const D: usize>(a: Tensor<B, D>, exponent: i32) -> Tensor<B, D> {
    typed(any::matrix_power(a.into_any(), exponent))
}

/// The exponentials of matrices `[.., n, n]`: the sum of `Aᵏ / k!`, by scaling and squaring with a Padé approximant
/// (N. Higham, [2005](https://doi.org/10.1137/04061101X)).
///
/// As [`torch.linalg.matrix_exp`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_exp.html). The
/// gradient (R. Mathias, [1996](https://doi.org/10.1137/S0895479895283409)) is of any order.
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
#[track_caller]
pub fn matrix_exp<B: Backend, const D: usize>(a: Tensor<B, D>) -> Tensor<B, D> {
    typed(any::matrix_exp(a.into_any()))
}

/// The inverse of a tensor as a linear map from its last axes to its first `first` axes: the lengths of both must multiply to
/// the same number. The result has the last axes first.
///
/// As [`torch.linalg.tensorinv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.tensorinv.html).
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
/// When the lengths do not suit. A singular tensor is an error of the value.
#[track_caller]
pub fn tensorinv<B: Backend, const D: usize>(a: Tensor<B, D>, first: usize) -> Tensor<B, D> {
    typed(any::tensorinv(a.into_any(), first))
}

/// `X` with `Σ A[i.., j..] X[j..] = B[i..]`: the first axes of `A` are those of `B`, the others those of `X`, and both have equally
/// many elements. `D3` is `D - D2`.
///
/// As [`torch.linalg.tensorsolve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.tensorsolve.html) without
/// its `dims`; move axes with `permute` first.
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
/// When the axes do not suit, or `D3` is not `D - D2`. A singular tensor is an error of the value.
#[track_caller]
pub fn tensorsolve<B: Backend, const D: usize, const D2: usize, const D3: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D2>,
) -> Tensor<B, D3> {
    typed(any::tensorsolve(a.into_any(), b.into_any()))
}
