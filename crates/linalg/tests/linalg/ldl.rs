//! The LDL factorisation of symmetric matrices.

use crate::{assert_near, numbers_of, product, random, tensor, transposed};
use kiln_backends::{Device, Dyn};
use kiln_linalg::Side;
use kiln_linalg::any::*;
use kiln_tensor::{AnyTensor, DType, Result, Tensor};

const SHAPES: [&[usize]; 9] =
    [&[0, 0], &[1, 1], &[2, 2], &[3, 3], &[6, 6], &[0, 3, 3], &[2, 0, 0], &[2, 3, 5, 5], &[60, 60]];

fn symmetric(seed: u64, shape: &[usize]) -> AnyTensor {
    let x = random(seed, shape);
    x.clone().add(transposed(&x)).unwrap()
}

/// Zeros on the diagonal, so that the first block has 2 rows.
fn hollow(seed: u64, shape: &[usize]) -> AnyTensor {
    let a = symmetric(seed, shape);
    let identity = matrix_power(a.clone(), 0).unwrap();
    a.clone().sub(a.mul(identity).unwrap()).unwrap()
}

#[test]
fn the_factors_multiply_to_the_matrix_and_solve_systems() {
    for shape in SHAPES {
        for (kind, a) in [("symmetric", symmetric(1, shape)), ("hollow", hollow(2, shape))] {
            let what = format!("ldl {kind} {shape:?}");
            let (l, d) = ldl(a.clone()).unwrap();
            assert_near(&what, &product(&product(&l, &d), &transposed(&l)), &a, 1e-12);
            assert_near(&what, &transposed(&d), &d, 0.0);
            let n = shape[shape.len() - 1];
            if kind == "hollow" && n == 1 {
                continue;
            }
            let b = random(3, &[&shape[..shape.len() - 1], &[2]].concat());
            let (factors, pivots) = ldl_factor(a.clone()).unwrap();
            let x = ldl_solve(factors, pivots, b.clone()).unwrap();
            assert_near(&what, &product(&a, &x), &b, 1e-9);
        }
    }
}

/// A row permutation of `L` is a unit lower triangle.
#[test]
fn l_is_a_row_permuted_triangle() {
    let n = 7;
    let l = numbers_of(&ldl(hollow(4, &[n, n])).unwrap().0);
    let mut ends: Vec<usize> = Vec::new();
    for row in l.chunks(n) {
        let last = row.iter().rposition(|&x| x != 0.0).unwrap();
        assert_eq!(row[last], 1.0);
        ends.push(last);
    }
    ends.sort_unstable();
    assert_eq!(ends, (0..n).collect::<Vec<_>>());
}

#[test]
fn only_the_lower_triangle_is_read() {
    let read = tensor(vec![4.0, f64::NAN, 2.0, -1.0], &[2, 2], &Device::cpu());
    let (factors, pivots) = ldl_factor(read).unwrap();
    assert_eq!(numbers_of(&factors), [4.0, 0.0, 0.5, -2.0]);
    assert_eq!(numbers_of(&pivots), [1.0, 2.0]);
}

#[test]
fn singular_matrices_have_factors_and_no_solution() {
    let zero = tensor(vec![0.0; 4], &[2, 2], &Device::cpu());
    let (factors, pivots) = ldl_factor(zero.clone()).unwrap();
    assert_eq!((numbers_of(&factors), numbers_of(&pivots)), (vec![0.0; 4], vec![1.0, 2.0]));
    let x = ldl_solve(factors, pivots, random(5, &[2, 1])).unwrap();
    assert!(numbers_of(&x).iter().all(|x| !x.is_finite()));
    let (l, d) = ldl(zero.clone()).unwrap();
    assert_near("zero", &product(&l, &d), &zero, 0.0);
}

#[test]
fn nan_and_infinities_propagate() {
    for x in [f64::NAN, f64::INFINITY] {
        for place in 0..9 {
            let mut numbers = vec![2.0, 0.5, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5, 2.0];
            numbers[place] = x;
            numbers[place % 3 * 3 + place / 3] = x;
            let (factors, _) = ldl_factor(tensor(numbers, &[3, 3], &Device::cpu())).unwrap();
            assert!(numbers_of(&factors).iter().any(|x| !x.is_finite()), "{place}");
        }
    }
    for scale in [1e-150, 1e150] {
        let a = tensor([0.0, 2.0, 2.0, 1.0].map(|x| x * scale).to_vec(), &[2, 2], &Device::cpu());
        let (factors, pivots) = ldl_factor(a.clone()).unwrap();
        let x = ldl_solve(factors, pivots, a.clone()).unwrap();
        assert_near("scale", &x, &matrix_power(a, 0).unwrap(), 1e-12);
    }
}

#[test]
fn batch_dims_broadcast_and_16_bit_floats_are_computed_in_f32() {
    let a = symmetric(6, &[2, 1, 3, 3]);
    let (factors, pivots) = ldl_factor(a.clone()).unwrap();
    let b = random(7, &[4, 3, 2]);
    let x = ldl_solve(factors, pivots, b.clone()).unwrap();
    assert_near("solve", &x, &solve(a.clone(), b.clone(), Side::Left).unwrap(), 1e-10);
    let narrow = |x: AnyTensor| x.cast(DType::F16).unwrap();
    let (factors, pivots) = ldl_factor(narrow(a)).unwrap();
    assert_eq!((factors.dtype(), pivots.dtype()), (DType::F16, DType::I32));
    assert_eq!(ldl_solve(factors, pivots, narrow(b)).unwrap().dtype(), DType::F16);
}

fn gradient(sum: AnyTensor, leaf: &AnyTensor) -> Result<Option<AnyTensor>> {
    let sum: Tensor<Dyn, 1> = sum.sum()?.try_into_tensor()?;
    Ok(sum.try_backward()?.get(leaf))
}

/// A tensor with a gradient.
fn leaf(x: &AnyTensor) -> AnyTensor {
    AnyTensor::from_data(x.to_data().unwrap(), &Device::cpu().autodiff()).require_grad().unwrap()
}

#[test]
fn right_hand_sides_have_gradients_and_those_of_factors_are_errors() {
    let (a, b) = (symmetric(8, &[3, 3]), random(9, &[3, 2]));
    let right = leaf(&b);
    let there = AnyTensor::from_data(a.to_data().unwrap(), right.stack());
    let (factors, pivots) = ldl_factor(there).unwrap();
    let x = ldl_solve(factors.clone(), pivots.clone(), right.clone()).unwrap();
    let found = gradient(x, &right).unwrap().unwrap();
    let ones = tensor(vec![1.0; 6], &[3, 2], &Device::cpu());
    assert_near("right side", &found, &solve(a.clone(), ones, Side::Left).unwrap(), 1e-10);

    let matrix = leaf(&a);
    let (factors, pivots) = ldl_factor(matrix.clone()).unwrap();
    let text = "[ldl_factor] the factorisation has no gradient\n  hint: use `solve`, `det` or `eigh`, or detach the matrix to differentiate `ldl_solve` by its right sides alone";
    let x = ldl_solve(factors.clone(), pivots, right).unwrap();
    assert_eq!(gradient(x, &matrix).unwrap_err().to_string(), text);
    assert_eq!(gradient(factors, &matrix).unwrap_err().to_string(), text);
    let (l, _) = ldl(matrix.clone()).unwrap();
    assert_eq!(gradient(l, &matrix).unwrap_err().to_string(), text.replace("ldl_factor]", "ldl]"));
}

/// The gradient of given LDL factors is undefined, so it is NaN.
#[test]
fn the_gradient_of_given_factors_is_nan() {
    let (factors, pivots) = ldl_factor(symmetric(10, &[3, 3])).unwrap();
    let factors = leaf(&factors);
    let place = |x: AnyTensor| AnyTensor::from_data(x.to_data().unwrap(), factors.stack());
    let x = ldl_solve(factors.clone(), place(pivots), place(random(11, &[3, 1]))).unwrap();
    let found = gradient(x, &factors).unwrap().unwrap();
    assert!(numbers_of(&found).iter().all(|x| x.is_nan()));
}

#[test]
fn invalid_pivots_are_errors() {
    let (factors, pivots) = ldl_factor(symmetric(12, &[2, 2])).unwrap();
    let b = random(13, &[2, 1]);
    let error = ldl_solve(factors.clone(), random(1, &[2]), b.clone()).unwrap_err().to_string();
    assert!(error.starts_with("[ldl_solve] pivots of f64[2] do not belong to these factors"), "{error}");
    let few = pivots.clone().slice_axis(0, kiln_ir::SliceAxis::range(0..1)).unwrap();
    let error = ldl_solve(factors.clone(), few, b.clone()).unwrap_err().to_string();
    assert!(error.starts_with("[ldl_solve] pivots of i32[1] do not belong"), "{error}");
    // An exchange with an eliminated row, half a block of 2 rows, and a missing row.
    for wrong in [[1, 1], [1, -2], [-2, 2], [3, 2], [0, 2]] {
        let wrong = AnyTensor::from_data(kiln_tensor::TensorData::from(wrong), &Device::cpu());
        let read = ldl_solve(factors.clone(), wrong, b.clone()).unwrap().into_data();
        let error = read.unwrap_err().to_string();
        assert!(error.starts_with("[ldl_solve] the pivot "), "{error}");
        assert!(error.contains("pass the pivots that `ldl_factor` returned with these factors"), "{error}");
    }
    let error = ldl_factor(random(1, &[2, 3])).unwrap_err().to_string();
    assert!(error.starts_with("[ldl_factor] needs square matrices: f64[2, 3]"), "{error}");
    let error = ldl(random(1, &[3])).unwrap_err().to_string();
    assert!(error.starts_with("[ldl] needs matrices, in the last two dimensions: f64[3]"), "{error}");
    let error = ldl_solve(factors, pivots, random(1, &[3, 1])).unwrap_err().to_string();
    assert!(error.starts_with("[ldl_solve] sizes differ: f64[2, 2] x f64[3, 1]"), "{error}");
}
