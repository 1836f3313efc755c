//! Gradients of special cases: singular and empty matrices, equal values, 16-bit floats. The rows of the suite compare
//! gradients of all functions with finite differences.

use crate::{assert_near, noise, numbers_of, tensor};
use kiln_autodiff::Checkpointing;
use kiln_backends::{Device, Dyn};
use kiln_ir::{Binary, SliceAxis};
use kiln_linalg::any::*;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_tensor::{AnyTensor, Float, Result, Stack, Tensor};

/// A function of one tensor.
type Function = fn(AnyTensor) -> Result<AnyTensor>;

fn transposed(x: AnyTensor) -> Result<AnyTensor> {
    let rank = x.rank();
    x.swap_dims(rank - 2, rank - 1)
}

/// `x + 3`, on the diagonal.
fn shifted(x: AnyTensor) -> Result<AnyTensor> {
    let identity = matrix_power(x.clone().detach(), 0)?.binary_scalar(Binary::Mul, 3.0)?;
    x.add(identity)
}

fn part(x: &AnyTensor, axis: usize, start: usize, len: usize) -> Result<AnyTensor> {
    x.clone().slice_axis(axis, SliceAxis { start, len, step: 1 })
}

/// The first three rows as a well-conditioned matrix, and the other rows.
fn three_and_rest(x: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
    let axis = x.rank() - 2;
    let rest = x.shape()[axis] - 3;
    Ok((shifted(part(&x, axis, 0, 3)?)?, part(&x, axis, 3, rest)?))
}

/// All elements of both tensors, concatenated.
fn both(a: AnyTensor, b: AnyTensor) -> Result<AnyTensor> {
    let flat = |x: AnyTensor| {
        let count = x.shape().num_elements();
        x.reshape([count])
    };
    AnyTensor::cat(vec![flat(a)?, flat(b)?], 0)
}

/// `Σ f(x) w` with fixed weights.
fn weighted(function: Function, x: AnyTensor) -> Result<AnyTensor> {
    let y = function(x)?;
    let shape = y.shape().to_vec();
    let weights = AnyTensor::from_data(
        kiln_tensor::TensorData::new(noise(99, y.shape().num_elements()), &shape[..])?,
        y.stack(),
    );
    y.mul(weights)?.sum()
}

/// The gradient of a sum by a leaf, on the inner stack.
fn gradient(sum: AnyTensor, leaf: &AnyTensor) -> Result<AnyTensor> {
    let sum: Tensor<Dyn, 1, Float> = sum.reshape([1])?.try_into_tensor()?;
    let gradients = sum.try_backward()?;
    Ok(gradients.get(leaf).expect("the sum depends on the leaf"))
}

/// The gradient of the weighted sum at these numbers.
fn first_gradient(function: Function, numbers: &[f64], shape: &[usize]) -> Result<Vec<f64>> {
    let x = tensor(numbers.to_vec(), shape, &Device::cpu().autodiff()).require_grad()?;
    Ok(numbers_of(&gradient(weighted(function, x.clone())?, &x)?))
}

#[test]
fn a_singular_matrix_has_a_gradient_of_its_determinant() {
    let x = tensor(vec![1.0, 2.0, 2.0, 4.0], &[2, 2], &Device::cpu().autodiff()).require_grad().unwrap();
    let found = gradient(det(x.clone()).unwrap().sum().unwrap(), &x).unwrap();
    assert_near("cofactors", &found, &tensor(vec![4.0, -2.0, -2.0, 1.0], &[2, 2], &Device::cpu()), 1e-12);
}

#[test]
fn equal_singular_values_have_gradients_but_not_their_vectors() {
    let leaf =
        || tensor(vec![2.0, 0.0, 0.0, 2.0], &[2, 2], &Device::cpu().autodiff()).require_grad().unwrap();
    let x = leaf();
    let found = gradient(svdvals(x.clone()).unwrap().sum().unwrap(), &x).unwrap();
    assert_near("values", &found, &tensor(vec![1.0, 0.0, 0.0, 1.0], &[2, 2], &Device::cpu()), 1e-12);
    let x = leaf();
    let (u, _, _) = svd(x.clone(), false).unwrap();
    let weights = tensor(vec![1.0, 2.0, 3.0, 4.0], &[2, 2], &Device::cpu().autodiff());
    let weights = AnyTensor::from_data(weights.to_data().unwrap(), x.stack());
    let found = gradient(u.mul(weights).unwrap().sum().unwrap(), &x).unwrap();
    assert!(numbers_of(&found).iter().any(|x| !x.is_finite()));
}

#[test]
fn the_norm_of_zeros_has_a_gradient_of_zero() {
    let x = tensor(vec![0.0; 4], &[2, 2], &Device::cpu().autodiff()).require_grad().unwrap();
    let found = gradient(matrix_norm(x.clone(), MatrixNorm::Frobenius).unwrap().sum().unwrap(), &x).unwrap();
    assert_eq!(numbers_of(&found), [0.0; 4]);
}

#[test]
fn balanced_checkpointing_computes_the_same_gradients() {
    let numbers = noise(3, 15);
    let function: Function = |x| {
        let (a, b) = three_and_rest(x)?;
        solve(a, transposed(b)?, Side::Left)
    };
    let stack = AsRef::<Stack>::as_ref(&Device::cpu()).with_autodiff(Checkpointing::Balanced);
    let data = kiln_tensor::TensorData::new(numbers.clone(), [5, 3]).unwrap();
    let x = AnyTensor::from_data(data, &stack).require_grad().unwrap();
    let found = gradient(weighted(function, x.clone()).unwrap(), &x).unwrap();
    let plain = first_gradient(function, &numbers, &[5, 3]).unwrap();
    assert_eq!(numbers_of(&found), plain);
}

#[test]
fn sixteen_bit_floats_have_gradients_in_their_dtype() {
    let device = Device::cpu().autodiff();
    let x = tensor(vec![2.0, 0.0, 0.0, 4.0], &[2, 2], &device).cast(kiln_tensor::DType::F16).unwrap();
    let x = x.require_grad().unwrap();
    let found = gradient(inverse(x.clone()).unwrap().sum().unwrap(), &x).unwrap();
    assert_eq!(found.dtype(), kiln_tensor::DType::F16);
    assert_near(
        "inverse",
        &found,
        &tensor(vec![-0.25, -0.125, -0.125, -0.0625], &[2, 2], &Device::cpu()),
        1e-3,
    );
}

#[test]
fn matrices_without_elements_and_empty_batches_have_gradients() {
    let functions: [(&str, Function); 12] = [
        ("cholesky", |x| cholesky(x, Triangle::Lower)),
        ("qr", |x| qr(x, QrMode::Reduced).and_then(|(q, r)| both(q, r))),
        ("lu", |x| lu(x).and_then(|(_, l, u)| both(l, u))),
        ("svd", |x| svd(x, false).and_then(|(u, s, vt)| both(u, both(s, vt)?))),
        ("svdvals", svdvals),
        ("eigh", |x| eigh(x, Triangle::Lower).and_then(|(w, v)| both(w, v))),
        ("eig", |x| eig(x).and_then(|((a, b), (c, d))| both(both(a, b)?, both(c, d)?))),
        ("solve", |x| solve(x.clone(), x, Side::Left)),
        ("pinv", |x| pinv(x, Tolerance::default())),
        ("det", det),
        ("slogdet", |x| slogdet(x).map(|(_, log)| log)),
        ("matrix_exp", matrix_exp),
    ];
    for (name, function) in functions {
        for shape in [&[0usize, 0][..], &[0, 3, 3], &[2, 0, 0]] {
            let x = tensor(vec![], shape, &Device::cpu().autodiff()).require_grad().unwrap();
            let found = gradient(function(x.clone()).unwrap().sum().unwrap(), &x);
            assert_eq!(found.unwrap_or_else(|error| panic!("{name}: {error}")).shape()[..], *shape, "{name}");
        }
    }
}

/// The identity does not depend on the matrix: a backward pass finds zeros, for infinite elements too.
#[test]
fn the_power_of_zero_has_a_gradient_of_zero() -> Result<()> {
    let data = kiln_tensor::TensorData::from([[1.0f64, f64::INFINITY], [f64::NAN, 2.0]]);
    let x = AnyTensor::from_data(data, &Device::flex().autodiff()).require_grad()?;
    let y = matrix_power(x.clone(), 0)?;
    assert_eq!(y.to_data()?.to_vec::<f64>(), [1.0, 0.0, 0.0, 1.0]);
    assert_eq!(gradient(y.sum()?, &x)?.into_data()?.to_vec::<f64>(), [0.0; 4]);
    Ok(())
}

#[test]
fn a_vandermonde_matrix_with_too_many_columns_is_an_error() {
    let x = AnyTensor::from_data(kiln_tensor::TensorData::from([1.0f64, 2.0]), &Device::flex());
    let error = vander(x, Some(1 << 40)).unwrap_err().to_string();
    assert!(error.contains("[vander] 1099511627776 columns"), "{error}");
}
