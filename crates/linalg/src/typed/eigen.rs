//! Eigenvalue decompositions.

use super::Complex;
use crate::{Triangle, any};
use kiln_tensor::{Backend, Tensor};

functions! {
    /// Computes the eigenvalues and eigenvectors of symmetric matrices `[.., n, n]`: `A = V diag(w) Vᵀ`.
    ///
    /// Eigenvalues `w` `[.., n]` are ascending. The columns of `V` `[.., n, n]` are orthonormal; their signs are not
    /// unique. Only one triangle of `A` is read. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eigh`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html). The
    /// gradient of the vectors (M. Giles, [2008](https://people.maths.ox.ac.uk/gilesm/files/NA-08-01.pdf), section 3.1) is
    /// infinite or NaN where eigenvalues are equal. For gradients of eigenvalues alone use [`eigvalsh`], whose gradient is
    /// always finite.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Triangle, eigh};
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 1.0], [1.0, 2.0]], &Default::default());
    /// let (w, v): (Tensor<Flex, 1>, _) = eigh(a.clone(), Triangle::Lower);
    /// assert!(w.clone().all_close(Tensor::from_floats([1.0, 3.0], &Default::default()), None, Some(1e-6)));
    /// assert!((v.clone() * w.unsqueeze()).matmul(v.transpose()).all_close(a, None, Some(1e-5)));
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the results: reading
    /// them returns the error.
    pub fn eigh[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
        triangle: Triangle,
    ) -> (Tensor<B, D1>, Tensor<B, D>);

    /// Computes the eigenvalues of symmetric matrices `[.., n, n]`, ascending: `[.., n]`. Only one triangle is read. `D1`
    /// is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eigvalsh`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvalsh.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::{Triangle, eigvalsh};
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 1.0], [1.0, 2.0]], &Default::default());
    /// let w: Tensor<Flex, 1> = eigvalsh(a, Triangle::Lower);
    /// assert!(w.all_close(Tensor::from_floats([1.0, 3.0], &Default::default()), None, Some(1e-6)));
    /// ```
    ///
    /// # Panics
    /// See [`eigh`].
    pub fn eigvalsh[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
        triangle: Triangle,
    ) -> Tensor<B, D1>;

    /// Computes the eigenvalues and eigenvectors of general real matrices `[.., n, n]`, which may be complex:
    /// `((re w, im w), (re V, im V))` with `A V = V diag(w)`.
    ///
    /// Eigenvalues are `[.., n]`, in no particular order except that conjugate pairs are adjacent. Eigenvectors are the
    /// columns of `[.., n, n]`, with norm 1 and the phase that makes their largest element real. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eig`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eig.html), which
    /// returns complex tensors. The gradient (C. Boeddeker and others, [2017](https://arxiv.org/abs/1701.00392)) is correct
    /// for functions that do not depend on the phases of the vectors, and infinite or NaN where eigenvalues are equal.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::eig;
    /// use kiln_tensor::Tensor;
    ///
    /// // A quarter turn has the eigenvalues i and -i.
    /// let a = Tensor::<Flex, 2>::from_floats([[0.0, -1.0], [1.0, 0.0]], &Default::default());
    /// let ((re, im), _vectors) = eig::<_, 2, 1>(a);
    /// assert!(re.abs().max().into_scalar::<f32>() < 1e-6);
    /// assert!((im.abs() - 1.0).abs().max().into_scalar::<f32>() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When the matrices are not square, or `D1` is not `D - 1`. A matrix with NaN or infinity poisons the results: reading
    /// them returns the error.
    pub fn eig[B: Backend, const D: usize, const D1: usize](
        a: Tensor<B, D> as any,
    ) -> (Complex<B, D1>, Complex<B, D>);

    /// Computes the eigenvalues of general real matrices `[.., n, n]`: real and imaginary parts, each `[.., n]`, in no
    /// particular order. `D1` is `D - 1`.
    ///
    /// Equivalent to [`torch.linalg.eigvals`](https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigvals.html).
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_linalg::eigvals;
    /// use kiln_tensor::Tensor;
    ///
    /// let a = Tensor::<Flex, 2>::from_floats([[2.0, 1.0], [0.0, 2.0]], &Default::default());
    /// let (re, _im): (Tensor<Flex, 1>, _) = eigvals(a);
    /// assert!(re.all_close(Tensor::from_floats([2.0, 2.0], &Default::default()), None, Some(1e-5)));
    /// ```
    ///
    /// # Panics
    /// See [`eig`].
    pub fn eigvals[B: Backend, const D: usize, const D1: usize](a: Tensor<B, D> as any) -> Complex<B, D1>;
}
