//! The functions for typed tensors, which call those of [`any`](crate::any).

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

use kiln_ir::Result;
use kiln_tensor::{AnyTensor, Backend, Float, Kind, Tensor};

/// Real and imaginary part of a complex tensor, as [`eig`] returns them. [`kiln_tensor::Complex::new`] combines them
/// into the operand type of [`complex`](mod@complex).
pub type Complex<B, const D: usize> = (Tensor<B, D>, Tensor<B, D>);

/// Returns the typed tensor, or panics with the error at the caller's line.
#[track_caller]
fn typed<B: Backend, const D: usize, K: Kind>(any: Result<AnyTensor>) -> Tensor<B, D, K> {
    match any {
        // A scalar may also be a tensor of shape `[1]`, like that of a sum.
        Ok(number) if number.rank() == 0 && D == 1 => Tensor::from_any(done(number.reshape([1]))),
        Ok(any) => Tensor::from_any(any),
        Err(error) => fail(&error),
    }
}

#[track_caller]
fn pair<B: Backend, const D: usize>((re, im): (AnyTensor, AnyTensor)) -> Complex<B, D> {
    (typed(Ok(re)), typed::<B, D, Float>(Ok(im)))
}

#[track_caller]
fn done<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(&error),
    }
}

#[cold]
#[track_caller]
fn fail(error: &kiln_ir::Error) -> ! {
    panic!("{error}")
}
