//! Linear algebra: matrix decompositions, solvers, determinants and matrix functions, with gradients.
//!
//! Functions have the names, shapes and semantics of `torch.linalg`. The last two axes are the matrix. Leading axes are
//! batch axes, which broadcast between operands.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_linalg::{Side, Triangle, cholesky, eigvalsh, solve};
//! use kiln_tensor::{Autodiff, Tensor};
//!
//! type B = Autodiff<Flex>;
//! let device = Default::default();
//! let a = Tensor::<B, 2>::from_floats([[4.0, 1.0], [1.0, 3.0]], &device).require_grad();
//! let b = Tensor::<B, 1>::from_floats([1.0, 2.0], &device);
//! let x = solve(a.clone(), b, Side::Left);
//! let gradients = x.sum().backward();
//! assert_eq!(a.grad(&gradients).unwrap().dims(), [2, 2]);
//!
//! let factor = cholesky(a.clone(), Triangle::Lower);
//! let values: Tensor<B, 1> = eigvalsh(a, Triangle::Lower);
//! assert_eq!((factor.dims(), values.dims()), ([2, 2], [2]));
//! ```
//!
//! | family | functions |
//! |---|---|
//! | decompositions | [`cholesky`], [`ldl`], [`ldl_factor`], [`qr`], [`qr_r`], [`lu`], [`lu_factor`], [`svd`], [`svdvals`] |
//! | eigenvalues | [`eigh`], [`eigvalsh`], [`eig`], [`eigvals`] |
//! | solvers | [`solve`], [`solve_triangular`], [`cholesky_solve`], [`ldl_solve`], [`lu_solve`], [`lstsq`], [`tensorsolve`] |
//! | inverses | [`inverse`], [`pinv`], [`cholesky_inverse`], [`tensorinv`] |
//! | scalars | [`det`], [`slogdet`], [`logdet`], [`matrix_norm`], [`cond`], [`matrix_rank`] |
//! | matrix functions | [`matrix_exp`], [`matrix_power`], [`multi_dot`], [`vander`], [`householder_product`] |
//! | complex matrices | [`complex::solve`], [`complex::solve_triangular`], [`complex::inverse`], [`complex::det`], [`complex::slogdet`], [`complex::cholesky`], [`complex::qr`], [`complex::qr_r`], [`complex::svd`], [`complex::svdvals`], [`complex::eigh`], [`complex::eigvalsh`], [`complex::eig`], [`complex::eigvals`] |
//!
//! Products, vector norms, traces and diagonals need no decomposition. They are re-exported from
//! [`kiln_tensor::linalg`].
//!
//! * **Ranks.** A result without the last axis has its own const parameter for the rank, as `squeeze_dim` does: `let
//!   s: Tensor<B, 1> = svdvals(a)`. [`any`] has the same functions for [`AnyTensor`](kiln_tensor::AnyTensor)s, whose
//!   rank is known at run time; they return errors instead of panicking.
//! * **Dtypes.** `f32` and `f64`. `f16` and `bf16` are computed in `f32` and rounded at the end.
//! * **Complex results** of real matrices ([`eig`], [`eigvals`]) are pairs of tensors, the real and the imaginary
//!   part. Functions of complex matrices are in [`complex`](mod@complex), and accept [`kiln_tensor::Complex`].
//! * **Gradients** follow published rules, which each function cites. They are expressions of ops, so they have
//!   gradients themselves. Where vectors are not unique (equal singular values or eigenvalues), gradients are
//!   infinite or NaN, as PyTorch's are.
//! * **Errors.** An invalid shape or dtype panics with the function's name and the types (or is an error of [`any`]).
//!   Numerical problems, such as a singular matrix, are known only when the op runs. They poison the result, and
//!   reading it returns the error: `[cholesky] matrix 3 of the batch is not positive definite`.
//! * **Devices.** Decompositions run on the host for every engine, by [`faer`](https://docs.rs/faer) or kernels of
//!   this crate. A batch uses several cores with the feature `threads`. All other ops run on the device.
//!
//! The ops are [custom ops](kiln_ir::CustomOp) named `linalg::…`; call [`register`] before reading programs with them
//! from text.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod any;
mod call;
mod host;
mod kernel;
mod matrix;
mod op;
mod options;
mod typed;

pub use kiln_tensor::linalg::*;
pub use op::register;
pub use options::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
pub use typed::{
    Complex, LeastSquares, cholesky, cholesky_inverse, cholesky_solve, complex, cond, det, eig, eigh,
    eigvals, eigvalsh, householder_product, inverse, ldl, ldl_factor, ldl_solve, logdet, lstsq, lu,
    lu_factor, lu_solve, matrix_exp, matrix_norm, matrix_power, matrix_rank, multi_dot, pinv, qr, qr_r,
    slogdet, solve, solve_triangular, svd, svdvals, tensorinv, tensorsolve, vander,
};
