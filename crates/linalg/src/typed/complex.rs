//! The functions of complex matrices.
//!
//! They accept and return [`Complex`](struct@Complex) tensors, pairs of a real and an imaginary part, as
//! [`fft`](kiln_tensor::fft) does. Names, shapes and semantics are those of the [functions of real matrices](crate),
//! with adjoints `Aᴴ` (conjugate transposes) instead of transposes. Real results, such as singular values, are real
//! tensors.
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
//! * **Gradients** are pairs of the derivatives with respect to the real and imaginary part, as in PyTorch. The
//!   gradients of vectors ([`svd`], [`eigh`], [`eig`]) are correct for functions that do not depend on the phases of
//!   the vectors.
//! * **Hermitian matrices.** One triangle and the real part of the diagonal are read.
//! * **Errors** name the function and show the types of the real parts.

use crate::any::complex as any;
use crate::{QrMode, Side, Triangle};
use kiln_tensor::{Backend, Complex, Tensor};

functions! {
    /// Solves the linear system `A X = B` (or `X A = B` with [`Side::Right`]) for square complex matrices `A` `[.., n, n]`.
    ///
    /// `B` is `[.., n, k]` (`[.., k, n]` on the right). It is a batch of vectors `[.., n]` if it has rank 1, or one
    /// dimension less than `A` and the same batch dimensions. Batch dimensions broadcast; the result has the rank of `B`.
    ///
    /// Equivalent to [`torch.linalg.solve`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve.html). The
    /// gradient is that of M. Giles, [2008](https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf), section 2.3.1, with
    /// adjoints.
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
    /// When the matrices are not square, sizes differ, or batch dimensions do not broadcast to the rank of `B`. A singular
    /// matrix poisons the result: reading it returns the error.
    pub fn solve[B: Backend, const D: usize, const D2: usize](
        a: Complex<B, D> as any,
        b: Complex<B, D2> as any,
        side: Side,
    ) -> Complex<B, D2>;

    /// Solves the triangular linear system `A X = B` (or `X A = B` with [`Side::Right`]) for complex matrices `A`
    /// `[.., n, n]`.
    ///
    /// Only the given triangle of `A` is read; with `unit_diagonal` its diagonal is taken to be ones. `B` is `[.., n, k]`
    /// (`[.., k, n]` on the right). Batch dimensions broadcast. A zero on the diagonal results in infinities or NaNs.
    ///
    /// Equivalent to `torch.linalg`'s
    /// [`solve_triangular`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve_triangular.html).
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
    /// When the matrices are not square, sizes differ, or batch dimensions do not broadcast to the rank of `B`.
    #[doc(alias = "triangular_solve")]
    pub fn solve_triangular[B: Backend, const D: usize, const D2: usize](
        a: Complex<B, D> as any,
        b: Complex<B, D2> as any,
        triangle: Triangle,
        side: Side,
        unit_diagonal: bool,
    ) -> Complex<B, D2>;

    /// Computes the inverses of complex matrices `[.., n, n]`. To multiply by an inverse use [`solve`], which is faster and
    /// more accurate.
    ///
    /// Equivalent to [`torch.linalg.inv`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.inv.html).
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
    /// When the matrices are not square. A singular matrix poisons the result: reading it returns the error.
    #[doc(alias = "inv")]
    pub fn inverse[B: Backend, const D: usize](a: Complex<B, D> as any) -> Complex<B, D>;

    /// Computes the determinants of complex matrices `[.., n, n]`: `[..]`. `D2` is `D - 2`; for a single matrix it may also
    /// be 1, with shape `[1]`.
    ///
    /// Equivalent to [`torch.linalg.det`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.det.html). The
    /// gradient is the conjugate of the cofactor matrix, so singular matrices have one. The second gradient requires
    /// nonsingular matrices.
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
    /// When the matrices are not square, or `D2` does not match.
    pub fn det[B: Backend, const D: usize, const D2: usize](a: Complex<B, D> as any) -> Complex<B, D2>;

    /// Computes the determinants of complex matrices `[.., n, n]` divided by their magnitudes, and the logarithms of these
    /// magnitudes, each `[..]`.
    ///
    /// Unlike [`det`], they neither overflow nor underflow. For a singular matrix they are 0 and -∞. `D2` is `D - 2`, or 1
    /// for a single matrix.
    ///
    /// Equivalent to [`torch.linalg.slogdet`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.slogdet.html).
    /// Unlike the sign of a real determinant, the complex sign has a gradient. Gradients require nonsingular matrices;
    /// otherwise reading them returns the error.
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
    /// When the matrices are not square, or `D2` does not match.
    pub fn slogdet[B: Backend, const D: usize, const D2: usize](
        a: Complex<B, D> as any,
    ) -> (Complex<B, D2>, Tensor<B, D2>);

    /// Computes the Cholesky decomposition of Hermitian positive definite matrices `[.., n, n]`: the lower triangular `L`
    /// of `A = L Lᴴ`, or the upper triangular `U` of `A = Uᴴ U`, with a positive diagonal. Only the given triangle of `A`
    /// is read.
    ///
    /// Equivalent to [`torch.linalg.cholesky`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html).
    /// The gradient (I. Murray, [2016](https://arxiv.org/abs/1602.07527), with adjoints) is Hermitian.
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
    /// When the matrices are not square. A matrix that is not positive definite poisons the result: reading it returns the
    /// error.
    #[doc(alias = "cho_factor")]
    pub fn cholesky[B: Backend, const D: usize](a: Complex<B, D> as any, triangle: Triangle) -> Complex<B, D>;

    /// Computes the QR decomposition of complex matrices `[.., m, n]`: `A = Q R` with orthonormal columns of `Q` and upper
    /// triangular `R`, whose diagonal is real and not negative. [`QrMode`] selects their shapes.
    ///
    /// Equivalent to [`torch.linalg.qr`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.qr.html), which does
    /// not fix the phases of the diagonal of `R`. The gradient (S. Walter and L. Lehmann,
    /// [2010](https://arxiv.org/abs/1001.1654); D. Roberts and L. Roberts, [2020](https://arxiv.org/abs/2009.10071), with
    /// adjoints) requires the first `min(m, n)` columns to be linearly independent.
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
    /// When the tensor has fewer than two dimensions.
    pub fn qr[B: Backend, const D: usize](
        a: Complex<B, D> as any,
        mode: QrMode,
    ) -> (Complex<B, D>, Complex<B, D>);

    /// Computes only `R` of the reduced [QR decomposition](qr), `[.., min(m, n), n]`. Unlike PyTorch's mode `"r"` it has a
    /// gradient.
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
    /// When the tensor has fewer than two dimensions.
    #[doc(alias = "qr")]
    pub fn qr_r[B: Backend, const D: usize](a: Complex<B, D> as any) -> Complex<B, D>;

    /// Computes the singular value decomposition of complex matrices `[.., m, n]`: `(U, S, Vᴴ)` with `A = U diag(S) Vᴴ`.
    ///
    /// `U` is `[.., m, k]` and `Vᴴ` is `[.., k, n]` with `k = min(m, n)`; with `full` they are square. Columns of `U` and
    /// `V` are orthonormal, and their phases are not unique. Singular values `S` `[.., k]` are real and in descending
    /// order. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.svd`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html). The
    /// gradient of the vectors (Z. Wan and S. Zhang, [2019](https://arxiv.org/abs/1909.02659)) is correct for functions
    /// that do not depend on the phases. It is infinite or NaN where singular values are equal or zero, and ignores columns
    /// that only `full` adds. For gradients of singular values alone use [`svdvals`], whose gradient is always finite.
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
    /// When the tensor has fewer than two dimensions, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the
    /// results: reading them returns the error.
    pub fn svd[B: Backend, const D: usize, const D1: usize](
        a: Complex<B, D> as any,
        full: bool,
    ) -> (Complex<B, D>, Tensor<B, D1>, Complex<B, D>);

    /// Computes the singular values of complex matrices `[.., m, n]` in descending order: `[.., min(m, n)]`. `D1` is
    /// `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.svdvals`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svdvals.html).
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
    /// When the tensor has fewer than two dimensions, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the
    /// result: reading it returns the error.
    pub fn svdvals[B: Backend, const D: usize, const D1: usize](a: Complex<B, D> as any) -> Tensor<B, D1>;

    /// Computes the eigenvalues and eigenvectors of Hermitian matrices `[.., n, n]`: `A = V diag(w) Vᴴ`.
    ///
    /// Eigenvalues `w` `[.., n]` are real and ascending. The columns of `V` `[.., n, n]` are orthonormal; their phases are
    /// not unique. Only one triangle of `A` and the real part of its diagonal are read. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eigh`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html). The
    /// gradient of the vectors (M. Giles, [2008](https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf), section 3.1,
    /// with adjoints) is correct for functions that do not depend on the phases. It is infinite or NaN where eigenvalues
    /// are equal. For gradients of eigenvalues alone use [`eigvalsh`], whose gradient is always finite.
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
    /// When the matrices are not square, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the results: reading
    /// them returns the error.
    pub fn eigh[B: Backend, const D: usize, const D1: usize](
        a: Complex<B, D> as any,
        triangle: Triangle,
    ) -> (Tensor<B, D1>, Complex<B, D>);

    /// Computes the eigenvalues of Hermitian matrices `[.., n, n]`, real and ascending: `[.., n]`. Only one triangle and
    /// the real part of the diagonal are read. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eigvalsh`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvalsh.html).
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
    /// See [`eigh`].
    pub fn eigvalsh[B: Backend, const D: usize, const D1: usize](
        a: Complex<B, D> as any,
        triangle: Triangle,
    ) -> Tensor<B, D1>;

    /// Computes the eigenvalues and eigenvectors of general complex matrices `[.., n, n]`: `(w, V)` with `A V = V diag(w)`.
    ///
    /// Eigenvalues are `[.., n]`, in no particular order. Eigenvectors are the columns of `[.., n, n]`, with norm 1 and the
    /// phase that makes their largest element real. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eig`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eig.html). The
    /// gradient (C. Boeddeker and others, [2017](https://arxiv.org/abs/1701.00392)) is correct for functions that do not
    /// depend on the phases of the vectors, and infinite or NaN where eigenvalues are equal.
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
    /// When the matrices are not square, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the results: reading
    /// them returns the error.
    pub fn eig[B: Backend, const D: usize, const D1: usize](
        a: Complex<B, D> as any,
    ) -> (Complex<B, D1>, Complex<B, D>);

    /// Computes the eigenvalues of general complex matrices `[.., n, n]`: `[.., n]`, in no particular order. `D1` is
    /// `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eigvals`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvals.html).
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
    /// See [`eig`].
    pub fn eigvals[B: Backend, const D: usize, const D1: usize](a: Complex<B, D> as any) -> Complex<B, D1>;
}
