//! The functions of this crate for tensors whose rank and dtype are known at run time.
//!
//! Each function has the semantics of the [typed function](crate) of the same name, and returns an error for an invalid
//! shape or dtype. Results without dimensions, such as the determinant of one matrix, have rank 0.

pub mod complex;
mod decomposition;
mod determinant;
mod eigen;
mod function;
mod norm;
mod product;
mod solve;

pub use decomposition::{cholesky, ldl, ldl_factor, lu, lu_factor, qr, qr_r, svd, svdvals};
pub use determinant::{det, logdet, slogdet};
pub use eigen::{eig, eigh, eigvals, eigvalsh};
pub use function::{inverse, matrix_exp, matrix_power, pinv, tensorinv, tensorsolve};
pub use norm::{cond, matrix_norm, matrix_rank};
pub use product::{householder_product, multi_dot, vander};
pub use solve::{
    LeastSquares, cholesky_inverse, cholesky_solve, ldl_solve, lstsq, lu_solve, solve, solve_triangular,
};

/// A complex tensor: real and imaginary part.
pub type Pair = (kiln_tensor::AnyTensor, kiln_tensor::AnyTensor);
