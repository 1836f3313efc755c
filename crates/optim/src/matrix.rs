//! Matrix functions by matmuls only: inverse roots and eigenvectors.

use crate::error::Result;
use crate::math::{norm, ratio, scalar, scalar_type, times};
use kiln_ir::Comparison;
use kiln_tensor::{AnyTensor, DType, TensorType};

/// The sides of a parameter, seen as a matrix, that have a preconditioner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) left: bool,
    pub(crate) right: bool,
    dtype: DType,
}

impl Sides {
    /// The sides of at least 2 and at most `max_size` elements. The rows are the first axis.
    pub(crate) fn of(parameter: TensorType, max_size: usize) -> Sides {
        let rows = if parameter.rank() == 0 { 1 } else { parameter.shape[0] };
        let columns = parameter.num_elements().checked_div(rows).unwrap_or(0);
        let is_on = |size: usize| (2..=max_size).contains(&size) && parameter.num_elements() > 0;
        let dtype = scalar_type(parameter).dtype;
        Sides { rows, columns, left: is_on(rows), right: is_on(columns), dtype }
    }

    /// The same, without sides for vectors and scalars.
    pub(crate) fn of_matrix(parameter: TensorType, max_size: usize) -> Sides {
        Sides::of(parameter, if parameter.rank() < 2 { 0 } else { max_size })
    }

    /// The number of sides with a preconditioner.
    pub(crate) fn count(self) -> usize {
        usize::from(self.left) + usize::from(self.right)
    }

    pub(crate) fn left_type(self) -> TensorType {
        TensorType::new([self.rows, self.rows], self.dtype)
    }

    pub(crate) fn right_type(self) -> TensorType {
        TensorType::new([self.columns, self.columns], self.dtype)
    }
}

/// The identity matrix of the size of a square matrix.
pub(crate) fn identity(like: &AnyTensor) -> Result<AnyTensor> {
    let size = like.shape()[0];
    Ok(AnyTensor::eye(size, size, like.dtype(), like.stack())?)
}

/// Iterations of [`inverse_root`]: enough for a condition number of `1 / RIDGE`.
const ROOT_ITERATIONS: usize = 30;

/// The ridge of [`inverse_root`], relative to the norm of the matrix.
const RIDGE: f64 = 1e-6;

/// The inverse root `A^(-1 / order)` of a symmetric positive semidefinite matrix, by the coupled Newton iteration of
/// [Anil et al. 2020](https://arxiv.org/abs/2002.09018). The order is 2 or 4.
pub(crate) fn inverse_root(matrix: AnyTensor, order: usize) -> Result<AnyTensor> {
    let power = order as f64;
    let identity = identity(&matrix)?;
    let size = norm(&matrix)?;
    let matrix = matrix.add(times(identity.clone(), size.clone().mul_scalar(RIDGE)?)?)?;
    // The eigenvalues of the scaled matrix are below (1 + power) / 2, where the iteration converges.
    let scale = size.recip()?.mul_scalar((1.0 + power) / (2.0 * (1.0 + RIDGE)))?;
    let mut rest = times(matrix, scale.clone())?;
    let mut root = times(identity.clone(), scale.powf_scalar(1.0 / power)?)?;
    for _ in 0..ROOT_ITERATIONS {
        let correction = rest.clone().mul_scalar(-1.0 / power)?;
        let correction = correction.add(identity.clone().mul_scalar(1.0 + 1.0 / power)?)?;
        root = root.matmul(correction.clone())?;
        let mut raised = correction;
        for _ in 0..order.ilog2() {
            raised = raised.clone().matmul(raised)?;
        }
        rest = raised.matmul(rest)?;
    }
    Ok(root)
}

/// Off-diagonal elements below this, relative to the trace, are rounding errors.
const NEGLIGIBLE: f64 = 3e-7;

/// The largest Frobenius norm of a skew matrix `T`, for which the Newton-Schulz iteration of `I + T` converges.
const MAX_ROTATION: f64 = 1.5;

/// Newton-Schulz iterations that make a rotation orthogonal.
const ORTHOGONAL_ITERATIONS: usize = 7;

/// The eigenvectors of a symmetric matrix, as columns. Continues from an orthogonal matrix: each iteration rotates all
/// pairs of columns by the angles of Jacobi's method, all at once, and makes the result orthogonal by Newton-Schulz
/// iterations. It converges quadratically near the eigenvectors, and keeps their order.
pub(crate) fn eigenvectors(matrix: AnyTensor, start: AnyTensor, iterations: usize) -> Result<AnyTensor> {
    let identity = identity(&matrix)?;
    let trace = matrix.clone().mul(identity.clone())?.sum()?;
    let matrix = times(matrix, ratio(scalar(1.0, &trace)?, trace)?)?;
    let mut basis = start;
    for _ in 0..iterations {
        let rotated = basis.clone().transpose()?.matmul(matrix.clone())?.matmul(basis.clone())?;
        let skew = tangents(rotated, identity.clone())?;
        let damping = norm(&skew)?.clamp_min(MAX_ROTATION)?.recip()?.mul_scalar(MAX_ROTATION)?;
        basis = basis.matmul(times(skew, damping)?.add(identity.clone())?)?;
        for _ in 0..ORTHOGONAL_ITERATIONS {
            let gram = basis.clone().transpose()?.matmul(basis.clone())?;
            let correction = identity.clone().mul_scalar(1.5)?.sub(gram.mul_scalar(0.5)?)?;
            basis = basis.matmul(correction)?;
        }
    }
    Ok(basis)
}

/// The tangents of Jacobi's rotation angles, as a skew matrix: `2 s / (d + sign(d) sqrt(d^2 + 4 s^2))` for an
/// off-diagonal element `s` and the difference `d` of its diagonal elements.
fn tangents(matrix: AnyTensor, identity: AnyTensor) -> Result<AnyTensor> {
    let diagonal = matrix.clone().mul(identity)?.sum_dim(0)?;
    let gap = diagonal.clone().sub(diagonal.transpose()?)?;
    let is_negligible = matrix.clone().abs()?.compare_scalar(Comparison::Lt, NEGLIGIBLE)?;
    let double = is_negligible.if_else_number(0.0, matrix)?.mul_scalar(2.0)?;
    let root = gap.clone().square()?.add(double.clone().square()?)?.sqrt()?;
    let is_negative = gap.clone().compare_scalar(Comparison::Lt, 0.0)?;
    let denominator = gap.add(is_negative.if_else(root.clone().neg()?, root)?)?;
    let is_zero = denominator.clone().compare_scalar(Comparison::Eq, 0.0)?;
    let tangent = double.div(is_zero.if_else_number(1.0, denominator)?)?.triu(1)?;
    Ok(tangent.clone().sub(tangent.transpose()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use kiln_backends::Flex;
    use kiln_tensor::{Tensor, TensorData};

    /// A symmetric positive definite matrix of size 6.
    fn matrix() -> AnyTensor {
        let numbers: Vec<f32> = (0..36).map(|i| libm::sinf(1.7 * (i * i) as f32)).collect();
        let data = TensorData::new(numbers, [6, 6]).unwrap();
        let x = Tensor::<Flex, 2>::from_data(data, &Default::default()).into_any();
        x.clone().transpose().unwrap().matmul(x).unwrap()
    }

    fn largest(tensor: AnyTensor) -> f32 {
        tensor.abs().unwrap().max().unwrap().item().unwrap()
    }

    #[test]
    fn inverse_roots_invert_their_powers() {
        for order in [2, 4] {
            let mut power = inverse_root(matrix(), order).unwrap();
            for _ in 0..order.ilog2() {
                power = power.clone().matmul(power).unwrap();
            }
            let product = power.matmul(matrix()).unwrap();
            let error = product.sub(identity(&matrix()).unwrap()).unwrap();
            assert!(largest(error) < 2e-3);
        }
    }

    #[test]
    fn eigenvectors_make_a_matrix_diagonal() {
        let start = identity(&matrix()).unwrap();
        let basis = eigenvectors(matrix(), start.clone(), 20).unwrap();
        let gram = basis.clone().transpose().unwrap().matmul(basis.clone()).unwrap();
        assert!(largest(gram.sub(start.clone()).unwrap()) < 1e-5);
        let rotated = basis.clone().transpose().unwrap().matmul(matrix()).unwrap().matmul(basis).unwrap();
        let diagonal = rotated.clone().mul(start).unwrap();
        assert!(largest(rotated.sub(diagonal.clone()).unwrap()) < 1e-4 * largest(diagonal));
    }

    #[test]
    fn eigenvectors_of_zeros_are_the_start() {
        let zeros = matrix().zeros_like().unwrap();
        let start = identity(&zeros).unwrap();
        let basis = eigenvectors(zeros, start.clone(), 2).unwrap();
        assert_eq!(basis.to_data().unwrap(), start.to_data().unwrap());
    }
}
