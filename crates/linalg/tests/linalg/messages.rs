//! Error messages for invalid shapes or dtypes: the exact text.

use crate::{random, says, tensor};
use kiln_backends::{Device, Flex};
use kiln_linalg::any::*;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_tensor::{AnyTensor, DType, Result, Tensor};

fn t(shape: &[usize]) -> AnyTensor {
    random(1, shape)
}

fn of(shape: &[usize], dtype: DType) -> AnyTensor {
    random(1, shape).cast(dtype).unwrap()
}

#[test]
fn matrices_must_be_square() {
    let text = |op: &str| {
        format!(
            "[{op}] needs square matrices: f64[2, 3]\n  hint: each matrix is 2 x 3; the last two dimensions must be equal"
        )
    };
    says(cholesky(t(&[2, 3]), Triangle::Lower), &text("cholesky"));
    says(cholesky_inverse(t(&[2, 3]), Triangle::Lower), &text("cholesky_inverse"));
    says(eigh(t(&[2, 3]), Triangle::Lower), &text("eigh"));
    says(eigvalsh(t(&[2, 3]), Triangle::Upper), &text("eigvalsh"));
    says(eig(t(&[2, 3])), &text("eig"));
    says(eigvals(t(&[2, 3])), &text("eigvals"));
    says(inverse(t(&[2, 3])), &text("inverse"));
    says(det(t(&[2, 3])), &text("det"));
    says(slogdet(t(&[2, 3])), &text("slogdet"));
    says(logdet(t(&[2, 3])), &text("logdet"));
    says(matrix_exp(t(&[2, 3])), &text("matrix_exp"));
    says(matrix_power(t(&[2, 3]), 2), &text("matrix_power"));
    says(cond(t(&[2, 3]), MatrixNorm::Frobenius), &text("cond"));
    says(
        solve(t(&[2, 3]), t(&[2, 1]), Side::Left),
        "[solve] needs square matrices: f64[2, 3] x f64[2, 1]\n  hint: each matrix is 2 x 3; the last two dimensions must be equal",
    );
    says(
        solve_triangular(t(&[4, 2, 3]), t(&[2, 1]), Triangle::Upper, Side::Left, false),
        "[solve_triangular] needs square matrices: f64[4, 2, 3] x f64[2, 1]\n  hint: each matrix is 2 x 3; the last two dimensions must be equal",
    );
}

#[test]
fn tensors_must_have_at_least_two_axes() {
    let text = |op: &str| {
        format!(
            "[{op}] needs matrices, in the last two dimensions: f64[3]\n  hint: add dimensions of length 1 with `unsqueeze_dim`, or reshape"
        )
    };
    says(qr(t(&[3]), QrMode::Reduced), &text("qr"));
    says(lu(t(&[3])), &text("lu"));
    says(lu_factor(t(&[3])), &text("lu_factor"));
    says(svd(t(&[3]), false), &text("svd"));
    says(svdvals(t(&[3])), &text("svdvals"));
    says(cholesky(t(&[3]), Triangle::Lower), &text("cholesky"));
    says(pinv(t(&[3]), Tolerance::default()), &text("pinv"));
    says(matrix_rank(t(&[3]), Tolerance::default()), &text("matrix_rank"));
    says(matrix_norm(t(&[3]), MatrixNorm::Nuclear), &text("matrix_norm"));
    says(cond(t(&[3]), MatrixNorm::Spectral), &text("cond"));
    says(
        lstsq(t(&[3, 3]), t(&[3]), None).map(|_| ()),
        "[lstsq] needs matrices, in the last two dimensions: f64[3, 3] x f64[3]\n  hint: add dimensions of length 1 with `unsqueeze_dim`, or reshape",
    );
}

#[test]
fn sizes_must_agree() {
    let hint =
        "the matrices are 3 x 3 and the right sides have 2 elements along that dimension: both must be equal";
    says(
        solve(t(&[3, 3]), t(&[2, 4]), Side::Left),
        &format!("[solve] sizes differ: f64[3, 3] x f64[2, 4]\n  hint: {hint}"),
    );
    says(
        solve(t(&[3, 3]), t(&[2]), Side::Left),
        &format!("[solve] sizes differ: f64[3, 3] x f64[2]\n  hint: {hint}"),
    );
    says(
        solve_triangular(t(&[3, 3]), t(&[4, 2]), Triangle::Lower, Side::Right, false),
        &format!("[solve_triangular] sizes differ: f64[3, 3] x f64[4, 2]\n  hint: {hint}"),
    );
    says(
        cholesky_solve(t(&[2, 1]), t(&[3, 3]), Triangle::Lower),
        &format!("[cholesky_solve] sizes differ: f64[3, 3] x f64[2, 1]\n  hint: {hint}"),
    );
    says(
        lstsq(t(&[4, 3]), t(&[3, 1]), None).map(|_| ()),
        "[lstsq] sizes differ: f64[4, 3] x f64[3, 1]\n  hint: the matrices have 4 rows and the right sides 3: both must be equal",
    );
    says(
        solve(t(&[2, 3, 3]), t(&[4, 3, 1]), Side::Left),
        "[solve] batch dimensions do not broadcast: f64[2, 3, 3] x f64[4, 3, 1]\n  hint: aligned from the right they must be equal or 1, without the last two",
    );
    let (factors, pivots) = lu_factor(t(&[2, 3, 3])).unwrap();
    says(
        lu_solve(
            factors,
            pivots.slice_axis(0, kiln_ir::SliceAxis::range(0..1)).unwrap(),
            t(&[3, 1]),
            Side::Left,
        ),
        "[lu_solve] pivots of i32[1, 3] do not belong to these factors: f64[2, 3, 3] x f64[3, 1]\n  hint: pass the pivots that `lu_factor` returned with the factors",
    );
    says(
        multi_dot(vec![t(&[2, 3]), t(&[4, 5])]),
        "[multi_dot] inner sizes of tensors 0 and 1 differ: f64[2, 3] x f64[4, 5]",
    );
    says(
        multi_dot(vec![t(&[2, 3]), t(&[3]), t(&[3, 2])]),
        "[multi_dot] tensor 1 has 1 dimensions: f64[2, 3] x f64[3] x f64[3, 2]\n  hint: all are matrices; only the first and the last may have one dimension",
    );
    says(multi_dot(vec![t(&[2, 3])]), "[multi_dot] needs at least 2 tensors, not 1: f64[2, 3]");
    says(
        tensorinv(t(&[2, 3, 4]), 2),
        "[tensorinv] the first 2 dimensions have 6 elements and the others 4: f64[2, 3, 4]\n  hint: both products must be equal",
    );
    says(
        tensorinv(t(&[2, 2]), 2),
        "[tensorinv] cannot split 2 dimensions after the first 2: f64[2, 2]\n  hint: at least one dimension must be on either side",
    );
    says(
        tensorsolve(t(&[2, 3, 6]), t(&[3, 2])),
        "[tensorsolve] the first dimensions differ: f64[2, 3, 6] x f64[3, 2]\n  hint: the first operand must begin with the dimensions of the second",
    );
    says(
        tensorsolve(t(&[2, 3, 5]), t(&[2, 3])),
        "[tensorsolve] 6 equations for 5 unknowns: f64[2, 3, 5] x f64[2, 3]\n  hint: the numbers of equations and unknowns must be equal",
    );
    says(
        householder_product(t(&[2, 3]), t(&[2])),
        "[householder_product] more columns than rows: f64[2, 3] x f64[2]\n  hint: the number of reflections is at most the number of rows",
    );
    says(
        householder_product(t(&[3, 2]), t(&[3])),
        "[householder_product] 3 factors for 2 columns: f64[3, 2] x f64[3]\n  hint: at most one for each column",
    );
    says(
        matrix_norm(t(&[0, 3]), MatrixNorm::Spectral),
        "[matrix_norm] matrices without elements have no greatest or least: f64[0, 3]\n  hint: the Frobenius and the nuclear norm of such matrices is 0",
    );
}

#[test]
fn dtypes_must_be_floats_and_agree() {
    says(
        inverse(of(&[2, 2], DType::I32)),
        "[inverse] needs a float dtype, not i32: i32[2, 2]\n  hint: cast the tensor first",
    );
    says(
        svd(of(&[2, 2], DType::Bool), true),
        "[svd] needs a float dtype, not bool: bool[2, 2]\n  hint: cast the tensor first",
    );
    says(
        solve(t(&[2, 2]), of(&[2, 1], DType::F32), Side::Left),
        "[solve] dtypes differ: f64[2, 2] x f32[2, 1]\n  hint: cast one operand to the other's dtype",
    );
    let elsewhere = AnyTensor::from_data(t(&[2, 1]).to_data().unwrap(), &Device::cpu().autodiff());
    says(
        solve(t(&[2, 2]), elsewhere, Side::Left),
        "[solve] tensors are on different devices: cpu and autodiff over cpu: f64[2, 2] x f64[2, 1]\n  hint: move one of them with `to_device`",
    );
}

#[test]
#[should_panic(expected = "[cholesky] needs square matrices: f32[2, 3]")]
fn typed_functions_panic_with_the_message() {
    let _ = kiln_linalg::cholesky(Tensor::<Flex, 2>::ones([2, 3], &Default::default()), Triangle::Lower);
}

#[test]
#[should_panic(expected = "is not a tensor of kind Float with 2 axes: f32[2]")]
fn a_wrong_rank_of_the_result_is_named() {
    let _: Tensor<Flex, 2> = kiln_linalg::svdvals(Tensor::<Flex, 2>::ones([2, 3], &Default::default()));
}

fn numbers(shape: &[usize], numbers: &[f64]) -> AnyTensor {
    tensor(numbers.to_vec(), shape, &Device::cpu())
}

/// A batch of four matrices, with another last one.
fn batch(last: [f64; 4]) -> AnyTensor {
    let good = [2.0, 0.0, 0.0, 3.0];
    numbers(&[4, 2, 2], &[good, good, good, last].concat())
}

#[test]
fn numerical_errors_are_reported_at_the_read() {
    let read = |x: Result<AnyTensor>| x.unwrap().into_data();
    says(
        read(cholesky(batch([1.0, 2.0, 2.0, 1.0]), Triangle::Lower)),
        "[cholesky] matrix 3 of the batch is not positive definite\n  hint: its leading minor of order 2 is not positive; for a matrix that should be positive definite, add a small multiple of the identity",
    );
    says(
        read(cholesky(
            batch([1.0, 0.0, 0.0, 1.0])
                .reshape([2, 2, 2, 2])
                .unwrap()
                .binary_scalar(kiln_ir::Binary::Mul, -1.0)
                .unwrap(),
            Triangle::Upper,
        )),
        "[cholesky] matrix [0, 0] of the batch is not positive definite\n  hint: its leading minor of order 1 is not positive; for a matrix that should be positive definite, add a small multiple of the identity",
    );
    says(
        read(solve(batch([1.0, 2.0, 2.0, 4.0]), t(&[2, 1]), Side::Left)),
        "[solve] matrix 3 of the batch is singular\n  hint: the pivot of row 1 is zero; `pinv` and `lstsq` accept such matrices",
    );
    says(
        read(inverse(numbers(&[2, 2], &[0.0; 4]))),
        "[inverse] the matrix is singular\n  hint: the pivot of row 0 is zero; `pinv` and `lstsq` accept such matrices",
    );
    says(
        read(svdvals(batch([f64::NAN, 0.0, 0.0, 1.0]))),
        "[svdvals] matrix 3 of the batch contains NaN or infinity\n  hint: find non-finite elements with `is_finite`",
    );
    let (factors, pivots) = lu_factor(numbers(&[2, 2], &[1.0, 2.0, 3.0, 4.0])).unwrap();
    let wrong = pivots.binary_scalar(kiln_ir::Binary::Mul, 9).unwrap();
    says(
        read(lu_solve(factors, wrong, t(&[2, 1]), Side::Left)),
        "[lu_solve] the pivot 18 is not in 1..=2\n  hint: pass the pivots that `lu_factor` returned with these factors",
    );
}

#[test]
fn missing_gradients_are_errors() {
    let device = Device::cpu().autodiff();
    let x = AnyTensor::from_data(t(&[3, 2]).to_data().unwrap(), &device).require_grad().unwrap();
    let (q, _) = qr(x, QrMode::Complete).unwrap();
    let sum: Tensor<kiln_backends::Dyn, 1> = q.sum().unwrap().try_into_tensor().unwrap();
    says(
        sum.try_backward().map(|_| ()),
        "[qr] a complete decomposition of 3 x 2 matrices has no gradient\n  hint: the added columns of Q are not determined by the matrix: use the reduced form",
    );
}
