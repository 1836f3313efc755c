//! Gradients against differences, in `f64`: first order for everything, second order where functions are smooth.

use crate::{assert_near, noise, numbers_of, tensor};
use kiln_autodiff::Checkpointing;
use kiln_ir::{Binary, Reduction, SliceAxis};
use kiln_linalg::any::*;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_tensor::{AnyTensor, Device, Dyn, Float, Result, Stack, Tensor};

/// A function of one tensor.
type Function = fn(AnyTensor) -> Result<AnyTensor>;

struct Case {
    name: &'static str,
    shape: &'static [usize],
    function: Function,
    /// Whether the second gradient is compared too.
    second: bool,
}

const fn first(name: &'static str, shape: &'static [usize], function: Function) -> Case {
    Case { name, shape, function, second: false }
}

const fn second(name: &'static str, shape: &'static [usize], function: Function) -> Case {
    Case { name, shape, function, second: true }
}

fn transposed(x: AnyTensor) -> Result<AnyTensor> {
    let rank = x.rank();
    x.swap_dims(rank - 2, rank - 1)
}

/// `x + 3`, on the diagonal.
fn shifted(x: AnyTensor) -> Result<AnyTensor> {
    let identity = matrix_power(x.clone().detach(), 0)?.binary_scalar(Binary::Mul, 3.0)?;
    x.add(identity)
}

fn symmetric(x: AnyTensor) -> Result<AnyTensor> {
    let other = transposed(x.clone())?;
    x.add(other)
}

fn positive(x: AnyTensor) -> Result<AnyTensor> {
    let other = transposed(x.clone())?;
    shifted(x.matmul(other)?)
}

fn part(x: &AnyTensor, axis: usize, start: usize, len: usize) -> Result<AnyTensor> {
    x.clone().slice_axis(axis, SliceAxis { start, len, step: 1 })
}

/// The first three rows, far from singular, and the others.
fn three_and_rest(x: AnyTensor) -> Result<(AnyTensor, AnyTensor)> {
    let axis = x.rank() - 2;
    let rest = x.shape()[axis] - 3;
    Ok((shifted(part(&x, axis, 0, 3)?)?, part(&x, axis, 3, rest)?))
}

/// The first columns times the last axis of the others.
fn scaled(x: AnyTensor, by: AnyTensor) -> Result<AnyTensor> {
    let row = by.shape().inserted(by.rank() - 1, 1);
    x.mul(by.reshape(row)?)
}

fn square(x: AnyTensor) -> Result<AnyTensor> {
    x.clone().mul(x)
}

/// All elements of both, in one axis.
fn both(a: AnyTensor, b: AnyTensor) -> Result<AnyTensor> {
    let flat = |x: AnyTensor| {
        let count = x.shape().num_elements();
        x.reshape([count])
    };
    AnyTensor::cat(vec![flat(a)?, flat(b)?], 0)
}

fn svd_function(x: AnyTensor) -> Result<AnyTensor> {
    let (u, s, vt) = svd(x, false)?;
    scaled(u, square(s)?)?.matmul(vt)
}

fn eigh_function(x: AnyTensor) -> Result<AnyTensor> {
    let (w, v) = eigh(symmetric(x)?, Triangle::Lower)?;
    scaled(v.clone(), square(w)?)?.matmul(transposed(v)?)
}

/// `Σ_j |V_ij|² (Re w_j + |w_j|²)`, which does not depend on the phases.
fn eig_function(x: AnyTensor) -> Result<AnyTensor> {
    let ((w_re, w_im), (v_re, v_im)) = eig(x)?;
    let weights = w_re.clone().add(square(w_re)?)?.add(square(w_im)?)?;
    let squares = square(v_re)?.add(square(v_im)?)?;
    let axis = squares.rank() - 1;
    scaled(squares, weights)?.reduce(Reduction::Sum, &[axis])
}

fn eigvals_function(x: AnyTensor) -> Result<AnyTensor> {
    let (re, im) = eigvals(x)?;
    let axis = re.rank() - 1;
    let cubes = square(re.clone())?.mul(re.clone())?.add(re.mul(square(im)?)?)?;
    cubes.reduce(Reduction::Sum, &[axis])
}

fn norm(x: AnyTensor, norm: MatrixNorm) -> Result<AnyTensor> {
    matrix_norm(x, norm)
}

const CASES: &[Case] = &[
    second("cholesky", &[3, 3], |x| cholesky(positive(x)?, Triangle::Lower)),
    second("cholesky of a batch", &[2, 3, 3], |x| cholesky(positive(x)?, Triangle::Upper)),
    second("cholesky_solve", &[5, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        cholesky_solve(transposed(b)?, cholesky(positive(a)?, Triangle::Upper)?, Triangle::Upper)
    }),
    second("cholesky_inverse", &[3, 3], |x| cholesky_inverse(shifted(x)?, Triangle::Lower)),
    second("qr", &[4, 3], |x| qr(x, QrMode::Reduced).and_then(|(q, r)| both(square(q)?, square(r)?))),
    second("qr of a wide matrix", &[3, 5], |x| {
        qr(x, QrMode::Complete).and_then(|(q, r)| both(square(q)?, square(r)?))
    }),
    first("qr_r", &[2, 4, 3], |x| square(qr_r(x)?)),
    second("lu", &[3, 3], |x| lu(shifted(x)?).and_then(|(_, l, u)| both(l, u))),
    second("lu of a wide matrix", &[3, 5], |x| lu(x).and_then(|(_, l, u)| both(l, u))),
    second("lu of a tall matrix", &[2, 5, 3], |x| lu(x).and_then(|(_, l, u)| both(l, u))),
    second("lu_solve", &[5, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        let (factors, pivots) = lu_factor(a)?;
        lu_solve(factors, pivots, b, Side::Right)
    }),
    second("svd", &[3, 3], svd_function),
    second("svd of a tall matrix", &[4, 2], svd_function),
    second("svd of a wide matrix", &[2, 2, 4], svd_function),
    first("full svd", &[4, 2], |x| {
        let (u, s, vt) = svd(x, true)?;
        scaled(part(&u, 1, 0, 2)?, square(s)?)?.matmul(vt)
    }),
    second("svdvals", &[3, 4], svdvals),
    second("eigh", &[3, 3], eigh_function),
    second("eigvalsh", &[2, 3, 3], |x| eigvalsh(symmetric(x)?, Triangle::Upper)),
    second("eig", &[4, 4], eig_function),
    first("eig of a batch", &[2, 3, 3], eig_function),
    second("eigvals", &[4, 4], eigvals_function),
    // Each eigenvalue for itself.
    second("eigvals in order", &[5, 5], |x| eigvals(x).and_then(|(re, im)| both(re, im))),
    second("solve", &[5, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        solve(a, transposed(b)?, Side::Left)
    }),
    second("solve on the right", &[2, 4, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        solve(a, b, Side::Right)
    }),
    second("solve for vectors", &[4, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        solve(a, b.reshape([3])?, Side::Left)
    }),
    second("solve_triangular", &[5, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        solve_triangular(a, transposed(b)?, Triangle::Lower, Side::Left, false)
    }),
    second("solve_triangular with ones", &[5, 3], |x| {
        let (a, b) = three_and_rest(x)?;
        solve_triangular(a, b, Triangle::Upper, Side::Right, true)
    }),
    second("lstsq", &[6, 3], |x| {
        let found = lstsq(part(&x, 1, 0, 2)?, part(&x, 1, 2, 1)?, None)?;
        both(found.solution, both(found.residuals, found.singular_values)?)
    }),
    first("lstsq of a wide matrix", &[2, 5], |x| {
        Ok(lstsq(part(&x, 1, 0, 4)?, part(&x, 1, 4, 1)?, None)?.solution)
    }),
    second("inverse", &[3, 3], |x| inverse(shifted(x)?)),
    second("pinv", &[3, 2], |x| pinv(x, Tolerance::default())),
    second("pinv of a wide matrix", &[2, 2, 3], |x| pinv(x, Tolerance::default())),
    second("det", &[3, 3], det),
    second("det of one number", &[1, 1], det),
    second("det of a batch", &[2, 2, 2], det),
    second("slogdet", &[3, 3], |x| slogdet(x).map(|(_, log)| log)),
    second("logdet", &[3, 3], |x| logdet(positive(x)?)),
    second("matrix_power", &[3, 3], |x| matrix_power(x, 5)),
    second("matrix_power with an inverse", &[3, 3], |x| matrix_power(shifted(x)?, -2)),
    second("matrix_exp", &[3, 3], matrix_exp),
    second("Frobenius norm", &[2, 3], |x| norm(x, MatrixNorm::Frobenius)),
    second("nuclear norm", &[2, 3], |x| norm(x, MatrixNorm::Nuclear)),
    second("spectral norm", &[3, 2], |x| norm(x, MatrixNorm::Spectral)),
    first("least singular value", &[3, 3], |x| norm(x, MatrixNorm::LeastSingularValue)),
    first("column sum", &[3, 2], |x| norm(x, MatrixNorm::GreatestColumnSum)),
    first("row sum", &[3, 2], |x| norm(x, MatrixNorm::LeastRowSum)),
    second("cond", &[3, 3], |x| cond(shifted(x)?, MatrixNorm::Spectral)),
    second("Frobenius cond", &[3, 3], |x| cond(shifted(x)?, MatrixNorm::Frobenius)),
    second("vander", &[2, 3], |x| vander(x, Some(4))),
    second("householder_product", &[5, 3], |x| {
        householder_product(part(&x, 0, 0, 4)?, part(&x, 0, 4, 1)?.reshape([3])?)
    }),
    second("multi_dot", &[3, 3], |x| multi_dot(vec![x.clone(), part(&x, 1, 0, 2)?, part(&x, 0, 0, 2)?])),
    second("tensorinv", &[3, 3], |x| tensorinv(shifted(x)?.reshape([3, 3])?, 1)),
];

/// `Σ f(x) w` with weights that are always the same.
fn weighted(function: Function, x: AnyTensor) -> Result<AnyTensor> {
    let y = function(x)?;
    let shape = y.shape().to_vec();
    let weights = AnyTensor::from_data(
        kiln_tensor::TensorData::new(noise(99, y.shape().num_elements()), &shape[..])?,
        y.stack(),
    );
    y.mul(weights)?.sum()
}

/// The gradient of a sum by a leaf, on the stack below.
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

/// The gradient of the weighted gradient.
fn second_gradient(function: Function, numbers: &[f64], shape: &[usize]) -> Result<Vec<f64>> {
    let below = Device::cpu().autodiff();
    let above: Device = below.autodiff();
    let stack: &Stack = above.as_ref();
    let leaf = tensor(numbers.to_vec(), shape, &below).require_grad()?;
    let x = leaf.clone().from_inner(stack)?.require_grad()?;
    let once = gradient(weighted(function, x.clone())?, &x)?;
    let weights = tensor(noise(7, numbers.len()), shape, &below);
    Ok(numbers_of(&gradient(once.mul(weights)?.sum()?, &leaf)?))
}

/// The central difference of a function of many numbers in each direction.
fn differences(numbers: &[f64], step: f64, value: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let along = |i: usize| {
        let at = |offset: f64| {
            let mut moved = numbers.to_vec();
            moved[i] += offset;
            value(&moved)
        };
        (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)
    };
    (0..numbers.len()).map(along).collect()
}

fn disagreement(found: &[f64], expected: &[f64], tolerance: f64) -> Option<String> {
    let scale = expected.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    let wrong = (0..expected.len()).find(|&i| {
        let difference = (found[i] - expected[i]).abs();
        difference.is_nan() || difference > tolerance * scale
    })?;
    Some(format!("element {wrong} is {}, not {}", found[wrong], expected[wrong]))
}

#[test]
fn gradients_are_the_limits_of_differences() {
    let mut problems = Vec::new();
    for (place, case) in CASES.iter().enumerate() {
        let numbers = noise(100 + place as u64, case.shape.iter().product());
        let value = |numbers: &[f64]| {
            let x = tensor(numbers.to_vec(), case.shape, &Device::cpu());
            numbers_of(&weighted(case.function, x).unwrap_or_else(|error| panic!("{}: {error}", case.name)))
                [0]
        };
        let found = first_gradient(case.function, &numbers, case.shape);
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let expected = differences(&numbers, 1e-3, value);
        problems.extend(disagreement(&found, &expected, 1e-7).map(|text| format!("{}: {text}", case.name)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn second_gradients_are_the_limits_of_differences_of_the_first() {
    let mut problems = Vec::new();
    for (place, case) in CASES.iter().enumerate().filter(|(_, case)| case.second) {
        let numbers = noise(100 + place as u64, case.shape.iter().product());
        let weights = noise(7, numbers.len());
        let value = |numbers: &[f64]| -> f64 {
            let gradient = first_gradient(case.function, numbers, case.shape);
            let gradient = gradient.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            gradient.iter().zip(&weights).map(|(g, w)| g * w).sum()
        };
        let found = second_gradient(case.function, &numbers, case.shape);
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let expected = differences(&numbers, 1e-3, value);
        problems.extend(disagreement(&found, &expected, 1e-6).map(|text| format!("{}: {text}", case.name)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
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
    let found = gradient(norm(x.clone(), MatrixNorm::Frobenius).unwrap().sum().unwrap(), &x).unwrap();
    assert_eq!(numbers_of(&found), [0.0; 4]);
}

#[test]
fn balanced_checkpointing_gives_the_same_gradients() {
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
fn narrow_floats_have_gradients_in_their_dtype() {
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
