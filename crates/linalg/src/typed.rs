//! The functions for typed tensors: shells around [`any`](crate::any).

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

/// The real and the imaginary part of a complex tensor, as [`eig`] returns them. [`kiln_tensor::Complex::new`] combines
/// them into the type that [`complex`](mod@complex) works with.
pub type Complex<B, const D: usize> = (Tensor<B, D>, Tensor<B, D>);

/// The typed tensor, or a panic with the error at the caller's line.
#[track_caller]
fn typed<B: Backend, const D: usize, K: Kind>(any: Result<AnyTensor>) -> Tensor<B, D, K> {
    match any {
        // A single number may stand in a tensor with one axis, as that of a sum does.
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
