//! The functions of complex matrices.
//!
//! They take and return [`Complex`](struct@Complex) tensors, pairs of a real and an imaginary part, as
//! [`fft`](kiln_tensor::fft) does. Names, shapes and meaning are those of the functions of real matrices
//! [one module up](crate), with adjoints `Aᴴ` (the conjugate of the transpose) in place of transposes. Real results, such as
//! singular values, are real tensors.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_linalg::{Side, complex};
//! use kiln_tensor::{Complex, Tensor};
//!
//! let real = |x: [[f32; 2]; 2]| Tensor::<Flex, 2>::from_floats(x, &Default::default());
//! let a = Complex::new(real([[2.0, 0.0], [1.0, 3.0]]), real([[0.0, 1.0], [0.0, -1.0]]));
//! let b = Complex::new(real([[1.0, 0.0], [0.0, 1.0]]), real([[0.0, 2.0], [1.0, 0.0]]));
//! let x = complex::solve(a.clone(), b.clone(), Side::Left);
//! assert!(a.matmul(x).re().all_close(b.re(), None, Some(1e-5)));
//! ```
//!
//! * **Gradients** are pairs of the derivatives by real and imaginary part, which is PyTorch's convention. Those of vectors
//!   ([`svd`], [`eigh`], [`eig`]) are right for functions that do not depend on the phases of the vectors.
//! * **Hermitian matrices.** Of the diagonal the real parts are read, and one triangle.
//! * **Errors** have the names of the functions and show the types of the real parts.

use super::{done, typed};
use crate::{QrMode, Side, Triangle, any};
use kiln_ir::Result;
use kiln_tensor::{AnyComplex, Backend, Complex, Tensor};

/// The typed tensor, or a panic with the error at the caller's line.
#[track_caller]
fn pair<B: Backend, const D: usize>(any: Result<AnyComplex>) -> Complex<B, D> {
    let (re, im) = done(any).into_parts();
    Complex::new(typed(Ok(re)), typed(Ok(im)))
}

/// Solves `A X = B` (or `X A = B` with [`Side::Right`]) for square complex matrices `A` `[.., n, n]`. `B` is `[.., n, k]`
/// (`[.., k, n]` on the right), or vectors `[.., n]` if it has one axis, or one axis less than `A` and the same leading axes.
/// Leading axes broadcast; the result has the rank of `B`.
///
/// As [`torch.linalg.solve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve.html). The gradient is that
/// of M. Giles, [2008](https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf), section 2.3.1, with adjoints.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::{Side, complex};
/// use kiln_tensor::{Complex, Tensor};
///
/// // (2i) x = 4.
/// let real = |x: f32| Tensor::<Flex, 2>::from_floats([[x]], &Default::default());
/// let (a, b) = (Complex::new(real(0.0), real(2.0)), Complex::new(real(4.0), real(0.0)));
/// let x = complex::solve(a, b, Side::Left);
/// assert_eq!((x.re().into_scalar::<f32>(), x.im().into_scalar::<f32>()), (0.0, -2.0));
/// ```
///
/// # Panics
/// When the matrices are not square, sizes differ, or leading axes do not broadcast to the rank of `B`. A singular matrix is
/// an error of the value, which comes back when the result is read.
#[track_caller]
pub fn solve<B: Backend, const D: usize, const D2: usize>(
    a: Complex<B, D>,
    b: Complex<B, D2>,
    side: Side,
) -> Complex<B, D2> {
    pair(any::complex::solve(a.into_any(), b.into_any(), side))
}

/// Solves `A X = B` (or `X A = B` with [`Side::Right`]) for triangular complex matrices `A` `[.., n, n]`, of which only that
/// triangle is read; with `unit_diagonal` its diagonal counts as ones. `B` is `[.., n, k]` (`[.., k, n]` on the right).
/// Leading axes broadcast. A zero on the diagonal returns infinities or NaNs.
///
/// As [`torch.linalg.solve_triangular`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve_triangular.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::{Side, Triangle, complex};
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [1.0, 4.0]], &Default::default());
/// let b = Tensor::<Flex, 2>::from_floats([[2.0], [9.0]], &Default::default());
/// let (a, b) = (Complex::from_real(a), Complex::new(b.zeros_like(), b));
/// let x = complex::solve_triangular(a, b, Triangle::Lower, Side::Left, false);
/// assert_eq!(x.im().into_data().to_vec::<f32>(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// When the matrices are not square, sizes differ, or leading axes do not broadcast to the rank of `B`.
#[doc(alias = "triangular_solve")]
#[track_caller]
pub fn solve_triangular<B: Backend, const D: usize, const D2: usize>(
    a: Complex<B, D>,
    b: Complex<B, D2>,
    triangle: Triangle,
    side: Side,
    unit_diagonal: bool,
) -> Complex<B, D2> {
    pair(any::complex::solve_triangular(a.into_any(), b.into_any(), triangle, side, unit_diagonal))
}

/// The inverses of complex matrices `[.., n, n]`. To multiply with one use [`solve`], which is faster and more accurate.
///
/// As [`torch.linalg.inv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[0.0, 2.0], [4.0, 0.0]], &Default::default());
/// let inverse = complex::inverse(Complex::new(a.zeros_like(), a));
/// assert_eq!(inverse.im().into_data().to_vec::<f32>(), [0.0, -0.25, -0.5, 0.0]);
/// ```
///
/// # Panics
/// When the matrices are not square. A singular matrix is an error of the value, which comes back when the result is
/// read.
#[doc(alias = "inv")]
#[track_caller]
pub fn inverse<B: Backend, const D: usize>(a: Complex<B, D>) -> Complex<B, D> {
    pair(any::complex::inverse(a.into_any()))
}

/// The determinants of complex matrices `[.., n, n]`, `[..]`. `D2` is `D - 2`; for a single matrix it may also be 1, and the
/// shape is then `[1]`.
///
/// As [`torch.linalg.det`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.det.html). The gradient is the
/// conjugate of the matrix of cofactors, so that singular matrices have one; the second gradient needs a regular matrix.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
/// let d: Complex<Flex, 1> = complex::det(Complex::new(a.zeros_like(), a));
/// assert!((d.re().into_scalar::<f32>() - 2.0).abs() < 1e-6);
/// ```
///
/// # Panics
/// When the matrices are not square, or `D2` does not suit.
#[track_caller]
pub fn det<B: Backend, const D: usize, const D2: usize>(a: Complex<B, D>) -> Complex<B, D2> {
    pair(any::complex::det(a.into_any()))
}

/// The determinants of complex matrices `[.., n, n]` divided by their magnitudes, and the logarithms of these
/// magnitudes, each `[..]`: they neither overflow nor underflow. For a singular matrix they are 0 and minus infinity.
/// `D2` is `D - 2`, or 1 for a single matrix.
///
/// As [`torch.linalg.slogdet`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.slogdet.html). Unlike that of a real
/// matrix the sign has a gradient. Gradients need a regular matrix, and are an error of the value otherwise.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[3.0, 0.0], [0.0, 1.0]], &Default::default());
/// let b = Tensor::<Flex, 2>::from_floats([[4.0, 0.0], [0.0, 0.0]], &Default::default());
/// let (sign, log): (Complex<Flex, 1>, _) = complex::slogdet(Complex::new(a, b));
/// assert!((sign.im().into_scalar::<f32>() - 0.8).abs() < 1e-6);
/// assert!((log.into_scalar::<f32>() - 5f32.ln()).abs() < 1e-6);
/// ```
///
/// # Panics
/// When the matrices are not square, or `D2` does not suit.
#[track_caller]
pub fn slogdet<B: Backend, const D: usize, const D2: usize>(
    a: Complex<B, D>,
) -> (Complex<B, D2>, Tensor<B, D2>) {
    let (sign, log) = done(any::complex::slogdet(a.into_any()));
    (pair(Ok(sign)), typed(Ok(log)))
}

/// The Cholesky factor of Hermitian positive definite matrices `[.., n, n]`: the lower triangular `L` of `A = L Lᴴ`, or the
/// upper triangular `U` of `A = Uᴴ U`, with a positive diagonal. Only that triangle of `A` is read.
///
/// As [`torch.linalg.cholesky`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html). The gradient
/// (I. Murray, [2016](https://arxiv.org/abs/1602.07527), with adjoints) is Hermitian.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::{Triangle, complex};
/// use kiln_tensor::{Complex, Tensor};
///
/// let re = Tensor::<Flex, 2>::from_floats([[4.0, 0.0], [0.0, 10.0]], &Default::default());
/// let im = Tensor::<Flex, 2>::from_floats([[0.0, -2.0], [2.0, 0.0]], &Default::default());
/// let l = complex::cholesky(Complex::new(re, im), Triangle::Lower);
/// assert_eq!(l.re().into_data().to_vec::<f32>(), [2.0, 0.0, 0.0, 3.0]);
/// assert_eq!(l.im().into_data().to_vec::<f32>(), [0.0, 0.0, 1.0, 0.0]);
/// ```
///
/// # Panics
/// When the matrices are not square. A matrix that is not positive definite is an error of the value, which comes back when
/// the result is read.
#[doc(alias = "cho_factor")]
#[track_caller]
pub fn cholesky<B: Backend, const D: usize>(a: Complex<B, D>, triangle: Triangle) -> Complex<B, D> {
    pair(any::complex::cholesky(a.into_any(), triangle))
}

/// The QR decomposition of complex matrices `[.., m, n]`: `A = Q R` with orthonormal columns of `Q` and upper triangular `R`,
/// whose diagonal is real and not negative. [`QrMode`] says how large they are.
///
/// As [`torch.linalg.qr`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.qr.html), which leaves the signs of the
/// diagonal of `R` open. The gradient (S. Walter and L. Lehmann, [2010](https://arxiv.org/abs/1001.1654); D. Roberts and
/// L. Roberts, [2020](https://arxiv.org/abs/2009.10071), with adjoints) needs the first `min(m, n)` columns to be independent.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::{QrMode, complex};
/// use kiln_tensor::{Complex, Tensor};
///
/// let re = Tensor::<Flex, 2>::from_floats([[0.0, 1.0], [4.0, 2.0]], &Default::default());
/// let im = Tensor::<Flex, 2>::from_floats([[3.0, 1.0], [0.0, 5.0]], &Default::default());
/// let (q, r) = complex::qr(Complex::new(re.clone(), im), QrMode::Reduced);
/// assert!((r.re().into_data().to_vec::<f32>()[0] - 5.0).abs() < 1e-5);
/// assert!(q.matmul(r).re().all_close(re, None, Some(1e-5)));
/// ```
///
/// # Panics
/// When the tensor has fewer than two axes.
#[track_caller]
pub fn qr<B: Backend, const D: usize>(a: Complex<B, D>, mode: QrMode) -> (Complex<B, D>, Complex<B, D>) {
    let (q, r) = done(any::complex::qr(a.into_any(), mode));
    (pair(Ok(q)), pair(Ok(r)))
}

/// `R` of the reduced [QR decomposition](qr) alone, `[.., min(m, n), n]`. Unlike PyTorch's mode `"r"` it has a gradient.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[3.0], [4.0]], &Default::default());
/// let r = complex::qr_r(Complex::new(a.zeros_like(), a));
/// assert!((r.re().into_scalar::<f32>() - 5.0).abs() < 1e-5);
/// ```
///
/// # Panics
/// When the tensor has fewer than two axes.
#[doc(alias = "qr")]
#[track_caller]
pub fn qr_r<B: Backend, const D: usize>(a: Complex<B, D>) -> Complex<B, D> {
    pair(any::complex::qr_r(a.into_any()))
}

/// The singular value decomposition of complex matrices `[.., m, n]`: `(U, S, Vᴴ)` with `A = U diag(S) Vᴴ`, orthonormal columns
/// of `U` and `V`, and real singular values `S` `[.., k]`, `k = min(m, n)`, the greatest first. `U` is `[.., m, k]` and `Vᴴ` is
/// `[.., k, n]`; with `full` they are square. The phases of the vectors are not fixed. `D1` is `D - 1`.
///
/// As [`torch.linalg.svd`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html). The gradient of the vectors
/// (Z. Wan and S. Zhang, [2019](https://arxiv.org/abs/1909.02659)) is right for functions that do not depend on the phases. It
/// is infinite or NaN where singular values are equal or zero; columns that only `full` adds take no part in it. For a
/// gradient of singular values alone use [`svdvals`], which is always finite.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[3.0, 0.0, 0.0], [0.0, 0.0, -2.0]], &Default::default());
/// let (u, s, vh): (_, Tensor<Flex, 1>, _) = complex::svd(Complex::new(a.zeros_like(), a.clone()), false);
/// assert!(s.clone().all_close(Tensor::from_floats([3.0, 2.0], &Default::default()), None, Some(1e-6)));
/// let again = u.each(|part| part * s.clone().unsqueeze()).matmul(vh);
/// assert!(again.im().all_close(a, None, Some(1e-5)));
/// ```
///
/// # Panics
/// When the tensor has fewer than two axes, or `D1` is not `D - 1`. A matrix with a NaN or an infinity is an error of the
/// value, which comes back when a result is read.
#[track_caller]
pub fn svd<B: Backend, const D: usize, const D1: usize>(
    a: Complex<B, D>,
    full: bool,
) -> (Complex<B, D>, Tensor<B, D1>, Complex<B, D>) {
    let (u, s, v) = done(any::complex::svd(a.into_any(), full));
    (pair(Ok(u)), typed(Ok(s)), pair(Ok(v)))
}

/// The singular values of complex matrices `[.., m, n]`, the greatest first: `[.., min(m, n)]`. `D1` is `D - 1`.
///
/// As [`torch.linalg.svdvals`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svdvals.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[0.0, -2.0], [5.0, 0.0]], &Default::default());
/// let s: Tensor<Flex, 1> = complex::svdvals(Complex::new(a.zeros_like(), a));
/// assert!(s.all_close(Tensor::from_floats([5.0, 2.0], &Default::default()), None, None));
/// ```
///
/// # Panics
/// When the tensor has fewer than two axes, or `D1` is not `D - 1`. A matrix with a NaN or an infinity is an error of the
/// value.
#[track_caller]
pub fn svdvals<B: Backend, const D: usize, const D1: usize>(a: Complex<B, D>) -> Tensor<B, D1> {
    typed(any::complex::svdvals(a.into_any()))
}

/// The eigenvalues and eigenvectors of Hermitian matrices `[.., n, n]`: `A = V diag(w) Vᴴ` with real ascending values `w`
/// `[.., n]` and orthonormal columns of `V` `[.., n, n]`. Only one triangle of `A` is read, and of its diagonal the real parts.
/// The phases of the vectors are not fixed. `D1` is `D - 1`.
///
/// As [`torch.linalg.eigh`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html). The gradient of the
/// vectors (M. Giles, [2008](https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf), section 3.1, with adjoints) is right for
/// functions that do not depend on the phases, and infinite or NaN where eigenvalues are equal; for a gradient of values
/// alone use [`eigvalsh`], which is always finite.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::{Triangle, complex};
/// use kiln_tensor::{Complex, Tensor};
///
/// let re = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [0.0, 2.0]], &Default::default());
/// let im = Tensor::<Flex, 2>::from_floats([[0.0, -1.0], [1.0, 0.0]], &Default::default());
/// let (w, _v): (Tensor<Flex, 1>, _) = complex::eigh(Complex::new(re, im), Triangle::Lower);
/// assert!(w.all_close(Tensor::from_floats([1.0, 3.0], &Default::default()), None, Some(1e-6)));
/// ```
///
/// # Panics
/// When the matrices are not square, or `D1` is not `D - 1`. A matrix with a NaN or an infinity is an error of the value,
/// which comes back when a result is read.
#[track_caller]
pub fn eigh<B: Backend, const D: usize, const D1: usize>(
    a: Complex<B, D>,
    triangle: Triangle,
) -> (Tensor<B, D1>, Complex<B, D>) {
    let (values, vectors) = done(any::complex::eigh(a.into_any(), triangle));
    (typed(Ok(values)), pair(Ok(vectors)))
}

/// The eigenvalues of Hermitian matrices `[.., n, n]`, real and ascending: `[.., n]`. Only one triangle is read, and of its
/// diagonal the real parts. `D1` is `D - 1`.
///
/// As [`torch.linalg.eigvalsh`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvalsh.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::{Triangle, complex};
/// use kiln_tensor::{Complex, Tensor};
///
/// let re = Tensor::<Flex, 2>::from_floats([[2.0, 0.0], [0.0, 2.0]], &Default::default());
/// let im = Tensor::<Flex, 2>::from_floats([[0.0, -1.0], [1.0, 0.0]], &Default::default());
/// let w: Tensor<Flex, 1> = complex::eigvalsh(Complex::new(re, im), Triangle::Upper);
/// assert!(w.all_close(Tensor::from_floats([1.0, 3.0], &Default::default()), None, Some(1e-6)));
/// ```
///
/// # Panics
/// As [`eigh`].
#[track_caller]
pub fn eigvalsh<B: Backend, const D: usize, const D1: usize>(
    a: Complex<B, D>,
    triangle: Triangle,
) -> Tensor<B, D1> {
    typed(any::complex::eigvalsh(a.into_any(), triangle))
}

/// The eigenvalues and eigenvectors of general complex matrices `[.., n, n]`: `(w, V)` with `A V = V diag(w)`. Values are
/// `[.., n]` in no particular order; vectors are the columns of `[.., n, n]`, of length 1, with a phase that makes their
/// greatest element real. `D1` is `D - 1`.
///
/// As [`torch.linalg.eig`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eig.html). The gradient
/// (C. Boeddeker and others, [2017](https://arxiv.org/abs/1701.00392)) is right for functions that do not depend on the phase
/// of the vectors, and is infinite or NaN where eigenvalues are equal.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let re = Tensor::<Flex, 2>::from_floats([[1.0, 5.0], [0.0, 0.0]], &Default::default());
/// let im = Tensor::<Flex, 2>::from_floats([[0.0, 0.0], [0.0, 2.0]], &Default::default());
/// let (w, _v) = complex::eig::<_, 2, 1>(Complex::new(re, im));
/// assert!((w.re().sum().into_scalar::<f32>() - 1.0).abs() < 1e-5);
/// assert!((w.im().sum().into_scalar::<f32>() - 2.0).abs() < 1e-5);
/// ```
///
/// # Panics
/// When the matrices are not square, or `D1` is not `D - 1`. A matrix with a NaN or an infinity is an error of the value.
#[track_caller]
pub fn eig<B: Backend, const D: usize, const D1: usize>(a: Complex<B, D>) -> (Complex<B, D1>, Complex<B, D>) {
    let (values, vectors) = done(any::complex::eig(a.into_any()));
    (pair(Ok(values)), pair(Ok(vectors)))
}

/// The eigenvalues of general complex matrices `[.., n, n]`: `[.., n]`, in no particular order. `D1` is `D - 1`.
///
/// As [`torch.linalg.eigvals`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvals.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_linalg::complex;
/// use kiln_tensor::{Complex, Tensor};
///
/// let a = Tensor::<Flex, 2>::from_floats([[3.0]], &Default::default());
/// let w: Complex<Flex, 1> = complex::eigvals(Complex::new(a.zeros_like(), a));
/// assert!((w.im().into_scalar::<f32>() - 3.0).abs() < 1e-6);
/// ```
///
/// # Panics
/// As [`eig`].
#[track_caller]
pub fn eigvals<B: Backend, const D: usize, const D1: usize>(a: Complex<B, D>) -> Complex<B, D1> {
    pair(any::complex::eigvals(a.into_any()))
}
