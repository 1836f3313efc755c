//! Properties of decompositions, for matrices of all shapes and condition numbers.

use crate::{
    assert_near, assert_singular_values, numbers_of, positive, product, random, regular, tensor, transposed,
};
use kiln_backends::Device;
use kiln_linalg::any::*;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_tensor::{AnyTensor, DType};

const SHAPES: [&[usize]; 14] = [
    &[0, 0],
    &[0, 3],
    &[3, 0],
    &[1, 1],
    &[4, 4],
    &[5, 3],
    &[3, 5],
    &[1, 6],
    &[6, 1],
    &[0, 3, 3],
    &[2, 0, 2],
    &[3, 4, 4],
    &[2, 3, 4, 3],
    &[40, 37],
];

const TIGHT: f64 = 1e-12;

fn identity_like(x: &AnyTensor) -> AnyTensor {
    matrix_power(x.clone(), 0).unwrap()
}

#[track_caller]
fn assert_orthonormal_columns(what: &str, q: &AnyTensor) {
    let gram = product(&transposed(q), q);
    assert_near(what, &gram, &identity_like(&gram), TIGHT);
}

/// Elements below (or, of the transpose, above) the diagonal.
fn below_diagonal(x: &AnyTensor) -> Vec<f64> {
    let shape = *x.shape();
    let (rows, cols) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
    let numbers = numbers_of(x).into_iter().enumerate();
    numbers.filter(|(i, _)| (i / cols) % rows > i % cols).map(|(_, x)| x).collect()
}

#[track_caller]
fn assert_upper(what: &str, x: &AnyTensor) {
    assert!(below_diagonal(x).iter().all(|&x| x == 0.0), "{what} is upper triangular");
}

fn row(x: &AnyTensor) -> AnyTensor {
    x.clone().reshape(x.shape().inserted(x.rank() - 1, 1)).unwrap()
}

fn column(x: &AnyTensor) -> AnyTensor {
    x.clone().reshape(x.shape().inserted(x.rank(), 1)).unwrap()
}

/// Scales the columns.
fn scaled(x: &AnyTensor, by: &AnyTensor) -> AnyTensor {
    x.clone().mul(row(by)).unwrap()
}

fn square_shapes() -> impl Iterator<Item = &'static [usize]> {
    SHAPES
        .into_iter()
        .chain([&[70usize, 70][..]])
        .filter(|shape| shape[shape.len() - 1] == shape[shape.len() - 2])
}

#[test]
fn qr_has_orthonormal_columns_and_a_triangle() {
    for shape in SHAPES {
        let a = random(1, shape);
        for mode in [QrMode::Reduced, QrMode::Complete] {
            let what = format!("qr {shape:?} {mode:?}");
            let (q, r) = qr(a.clone(), mode).unwrap();
            assert_near(&what, &product(&q, &r), &a, TIGHT);
            assert_orthonormal_columns(&what, &q);
            assert_upper(&what, &r);
        }
    }
}

#[test]
fn lu_is_a_permutation_and_two_triangles() {
    for shape in SHAPES.into_iter().chain([&[70usize, 70][..], &[50, 90], &[90, 50]]) {
        let what = format!("lu {shape:?}");
        let a = random(2, shape);
        let (p, l, u) = lu(a.clone()).unwrap();
        assert_near(&what, &product(&p, &product(&l, &u)), &a, TIGHT);
        assert_orthonormal_columns(&what, &p);
        assert_upper(&what, &u);
        assert_upper(&what, &transposed(&l));
        assert!(numbers_of(&l).iter().all(|x| x.abs() <= 1.0), "{what}: the greatest element is the pivot");
    }
}

#[test]
fn svd_has_orthonormal_columns_and_descending_values() {
    for shape in SHAPES {
        let a = random(3, shape);
        for full in [false, true] {
            let what = format!("svd {shape:?} {full}");
            let (u, s, vt) = svd(a.clone(), full).unwrap();
            assert_orthonormal_columns(&what, &u);
            assert_orthonormal_columns(&what, &transposed(&vt));
            let (rank, k) = (u.rank(), s.shape()[s.rank() - 1]);
            let first = |x: &AnyTensor, axis| {
                let slice = kiln_ir::SliceAxis { start: 0, len: k, step: 1 };
                x.clone().slice_axis(axis, slice).unwrap()
            };
            let again = product(&scaled(&first(&u, rank - 1), &s), &first(&vt, rank - 2));
            assert_near(&what, &again, &a, TIGHT);
            assert_near(&what, &svdvals(a.clone()).unwrap(), &s, TIGHT);
            assert_singular_values(&what, &s);
        }
    }
}

#[test]
fn cholesky_reads_one_triangle() {
    for shape in square_shapes() {
        let what = format!("cholesky {shape:?}");
        let a = positive(4, shape);
        let l = cholesky(a.clone(), Triangle::Lower).unwrap();
        assert_near(&what, &product(&l, &transposed(&l)), &a, TIGHT);
        assert_upper(&what, &transposed(&l));
        let u = cholesky(a.clone(), Triangle::Upper).unwrap();
        assert_near(&what, &u, &transposed(&l), TIGHT);
        let b = random(5, &[&shape[..shape.len() - 1], &[2]].concat());
        let x = cholesky_solve(b.clone(), u, Triangle::Upper).unwrap();
        assert_near(&what, &product(&a, &x), &b, TIGHT);
        let inverse = cholesky_inverse(l, Triangle::Lower).unwrap();
        assert_near(&what, &product(&a, &inverse), &identity_like(&a), TIGHT);
    }
    let a = tensor(vec![4.0, f64::NAN, 2.0, 10.0], &[2, 2], &Device::cpu());
    assert_eq!(numbers_of(&cholesky(a, Triangle::Lower).unwrap()), [2.0, 0.0, 1.0, 3.0]);
}

#[test]
fn eigh_has_orthonormal_vectors_and_ascending_values() {
    for shape in square_shapes() {
        let what = format!("eigh {shape:?}");
        let x = random(6, shape);
        let a = x.clone().add(transposed(&x)).unwrap();
        for triangle in [Triangle::Lower, Triangle::Upper] {
            let (w, v) = eigh(a.clone(), triangle).unwrap();
            assert_orthonormal_columns(&what, &v);
            assert_near(&what, &product(&scaled(&v, &w), &transposed(&v)), &a, TIGHT);
            assert_near(&what, &eigvalsh(a.clone(), triangle).unwrap(), &w, TIGHT);
            let n = shape[shape.len() - 1].max(1);
            assert!(numbers_of(&w).chunks(n).all(|w| w.is_sorted()), "{what}");
        }
    }
    let a = tensor(vec![1.0, 100.0, 0.5, 2.0], &[2, 2], &Device::cpu());
    let symmetric = tensor(vec![1.0, 0.5, 0.5, 2.0], &[2, 2], &Device::cpu());
    let expected = eigvalsh(symmetric, Triangle::Upper).unwrap();
    assert_near("lower", &eigvalsh(a.clone(), Triangle::Lower).unwrap(), &expected, TIGHT);
    assert_near("lower", &eigh(a, Triangle::Lower).unwrap().0, &expected, TIGHT);
}

#[test]
fn eig_has_unit_eigenvectors() {
    for shape in square_shapes() {
        let what = format!("eig {shape:?}");
        let a = random(7, shape);
        let ((w_re, w_im), (v_re, v_im)) = eig(a.clone()).unwrap();
        let re = scaled(&v_re, &w_re).sub(scaled(&v_im, &w_im)).unwrap();
        let im = scaled(&v_re, &w_im).add(scaled(&v_im, &w_re)).unwrap();
        assert_near(&what, &product(&a, &v_re), &re, 1e-11);
        assert_near(&what, &product(&a, &v_im), &im, 1e-11);
        let rank = v_re.rank();
        let squares = v_re.clone().mul(v_re).unwrap().add(v_im.clone().mul(v_im).unwrap()).unwrap();
        let lengths = squares.reduce(kiln_ir::Reduction::Sum, &[rank - 2]).unwrap();
        assert!(numbers_of(&lengths).iter().all(|length| (length - 1.0).abs() < TIGHT), "{what}");
        let (re, im) = eigvals(a).unwrap();
        assert_eq!((numbers_of(&re), numbers_of(&im)), (numbers_of(&w_re), numbers_of(&w_im)), "{what}");
    }
}

#[test]
fn left_and_right_systems_are_solved() {
    for shape in square_shapes() {
        let what = format!("solve {shape:?}");
        let (a, n) = (regular(8, shape), shape[shape.len() - 1]);
        let batch = &shape[..shape.len() - 2];
        let (b, c) = (random(9, &[batch, &[n, 2]].concat()), random(10, &[batch, &[2, n]].concat()));
        let x = solve(a.clone(), b.clone(), Side::Left).unwrap();
        assert_near(&what, &product(&a, &x), &b, TIGHT);
        let y = solve(a.clone(), c.clone(), Side::Right).unwrap();
        assert_near(&what, &product(&y, &a), &c, TIGHT);
        let inverse = inverse(a.clone()).unwrap();
        assert_near(&what, &product(&a, &inverse), &identity_like(&a), TIGHT);
        let (factors, pivots) = lu_factor(a.clone()).unwrap();
        let again = lu_solve(factors.clone(), pivots.clone(), b, Side::Left).unwrap();
        assert_near(&what, &again, &x, TIGHT);
        assert_near(&what, &lu_solve(factors, pivots, c, Side::Right).unwrap(), &y, TIGHT);
    }
}

#[test]
fn batch_dims_broadcast() {
    let (a, b) = (regular(11, &[2, 1, 3, 3]), random(12, &[4, 3, 2]));
    let x = solve(a.clone(), b.clone(), Side::Left).unwrap();
    assert_eq!(x.shape()[..], [2, 4, 3, 2]);
    assert_near("solve", &product(&a, &x), &b.clone().expand([2, 4, 3, 2]).unwrap(), TIGHT);
    let triangular = solve_triangular(a.clone(), b.clone(), Triangle::Upper, Side::Left, false).unwrap();
    assert_eq!(triangular.shape()[..], [2, 4, 3, 2]);
    assert_eq!(lstsq(a.clone(), b, None).unwrap().solution.shape()[..], [2, 4, 3, 2]);
    let vector = solve(a, random(13, &[3]), Side::Left).unwrap();
    assert_eq!(vector.shape()[..], [2, 1, 3]);
}

#[test]
fn pseudo_inverses_satisfy_the_conditions_of_penrose() {
    for shape in SHAPES {
        let what = format!("pinv {shape:?}");
        let a = random(14, shape);
        let p = pinv(a.clone(), Tolerance::default()).unwrap();
        let (ap, pa) = (product(&a, &p), product(&p, &a));
        assert_near(&what, &product(&ap, &a), &a, TIGHT);
        assert_near(&what, &product(&pa, &p), &p, 1e-10);
        assert_near(&what, &transposed(&ap), &ap, TIGHT);
        assert_near(&what, &transposed(&pa), &pa, TIGHT);
    }
}

#[test]
fn least_squares_residuals_are_orthogonal_to_the_columns() {
    for shape in SHAPES {
        let what = format!("lstsq {shape:?}");
        let (a, m, n) = (random(15, shape), shape[shape.len() - 2], shape[shape.len() - 1]);
        let b = random(16, &[&shape[..shape.len() - 2], &[m, 2]].concat());
        let found = lstsq(a.clone(), b.clone(), None).unwrap();
        let difference = product(&a, &found.solution).sub(b).unwrap();
        let normal = product(&transposed(&a), &difference);
        assert!(numbers_of(&normal).iter().all(|x| x.abs() < 1e-11), "{what}");
        assert!(numbers_of(&found.rank).iter().all(|&rank| rank == m.min(n) as f64), "{what}");
        let columns = if m > n { 2 } else { 0 };
        assert_eq!(found.residuals.shape()[found.residuals.rank() - 1], columns, "{what}");
    }
}

#[test]
fn the_determinant_is_the_product_of_the_singular_values() {
    for shape in square_shapes() {
        let what = format!("det {shape:?}");
        let a = random(17, shape);
        let n = shape[shape.len() - 1];
        let values = numbers_of(&svdvals(a.clone()).unwrap());
        let dets = numbers_of(&det(a.clone()).unwrap());
        let (signs, logs) = slogdet(a).unwrap();
        let (signs, logs) = (numbers_of(&signs), numbers_of(&logs));
        assert_eq!(dets.len(), shape[..shape.len() - 2].iter().product::<usize>(), "{what}");
        for (i, &det) in dets.iter().enumerate() {
            let magnitude: f64 = values[i * n..][..n].iter().product();
            assert!((det.abs() / magnitude - 1.0).abs() < 1e-9, "{what}");
            assert!((signs[i] * logs[i].exp() / det - 1.0).abs() < 1e-9, "{what}");
        }
    }
    assert_eq!(numbers_of(&det(random(1, &[0, 0])).unwrap()), [1.0]);
}

#[test]
fn powers_and_the_exponential_satisfy_their_identities() {
    for shape in square_shapes() {
        let what = format!("{shape:?}");
        let a = random(18, shape);
        let half = a.clone().binary_scalar(kiln_ir::Binary::Mul, 0.5).unwrap();
        let e = matrix_exp(half).unwrap();
        let scale = numbers_of(&e).iter().fold(1.0f64, |a, b| a.max(b.abs()));
        assert_near(&what, &matrix_exp(a.clone()).unwrap(), &product(&e, &e), 1e-12 * scale * scale);
        let cube = product(&a, &product(&a, &a));
        assert_near(&what, &matrix_power(a, 3).unwrap(), &cube, TIGHT);
        let r = regular(19, shape);
        let gone = product(&matrix_power(r.clone(), 2).unwrap(), &matrix_power(r, -2).unwrap());
        assert_near(&what, &gone, &identity_like(&gone), 1e-11);
    }
    let huge = tensor(vec![-1000.0, 0.0, 0.0, 700.0], &[2, 2], &Device::cpu());
    let exponential = numbers_of(&matrix_exp(huge).unwrap());
    assert!(exponential[0] == 0.0 && (exponential[3] / 700f64.exp() - 1.0).abs() < 1e-10);
}

#[test]
fn norms_of_a_diagonal_matrix() {
    let a = tensor(vec![3.0, 0.0, 0.0, -4.0], &[2, 2], &Device::cpu());
    let expected = [
        (MatrixNorm::Frobenius, 5.0, 5.0 * (1.0f64 / 9.0 + 1.0 / 16.0).sqrt()),
        (MatrixNorm::Nuclear, 7.0, 7.0 * (1.0 / 3.0 + 0.25)),
        (MatrixNorm::Spectral, 4.0, 4.0 / 3.0),
        (MatrixNorm::LeastSingularValue, 3.0, 0.75),
        (MatrixNorm::GreatestColumnSum, 4.0, 4.0 / 3.0),
        (MatrixNorm::LeastColumnSum, 3.0, 0.75),
        (MatrixNorm::GreatestRowSum, 4.0, 4.0 / 3.0),
        (MatrixNorm::LeastRowSum, 3.0, 0.75),
    ];
    for (norm, of_matrix, condition) in expected {
        assert!(
            (numbers_of(&matrix_norm(a.clone(), norm).unwrap())[0] - of_matrix).abs() < TIGHT,
            "{norm:?}"
        );
        assert!((numbers_of(&cond(a.clone(), norm).unwrap())[0] - condition).abs() < TIGHT, "{norm:?}");
    }
    let singular = tensor(vec![1.0, 2.0, 2.0, 4.0], &[2, 2], &Device::cpu());
    for norm in [MatrixNorm::Frobenius, MatrixNorm::GreatestColumnSum, MatrixNorm::LeastRowSum] {
        assert_eq!(numbers_of(&cond(singular.clone(), norm).unwrap()), [f64::INFINITY], "{norm:?}");
    }
    let empty = random(1, &[2, 0, 0]);
    assert_eq!(numbers_of(&cond(empty.clone(), MatrixNorm::Frobenius).unwrap()), [0.0, 0.0]);
    assert_eq!(numbers_of(&matrix_norm(empty.clone(), MatrixNorm::Nuclear).unwrap()), [0.0, 0.0]);
    assert_eq!(numbers_of(&matrix_rank(empty, Tolerance::default()).unwrap()), [0.0, 0.0]);
}

#[test]
fn rank_deficient_matrices_have_factors() {
    let device = Device::cpu();
    let zero = tensor(vec![0.0; 12], &[4, 3], &device);
    let ones = tensor(vec![1.0; 12], &[4, 3], &device);
    let gap = tensor(vec![0.0, 1.0, 0.0, 2.0, 0.0, 3.0], &[3, 2], &device);
    for a in [zero, ones, gap] {
        let (q, r) = qr(a.clone(), QrMode::Complete).unwrap();
        assert_orthonormal_columns("qr", &q);
        assert_near("qr", &product(&q, &r), &a, TIGHT);
        let (u, s, vt) = svd(a.clone(), false).unwrap();
        assert_orthonormal_columns("svd", &u);
        assert_near("svd", &product(&scaled(&u, &s), &vt), &a, TIGHT);
        let (p, l, u) = lu(a.clone()).unwrap();
        assert_near("lu", &product(&p, &product(&l, &u)), &a, TIGHT);
    }
    let singular = tensor(vec![1.0, 2.0, 2.0, 4.0], &[2, 2], &device);
    assert_eq!(numbers_of(&det(singular.clone()).unwrap()), [0.0]);
    assert_eq!(numbers_of(&slogdet(singular.clone()).unwrap().1), [f64::NEG_INFINITY]);
    assert_eq!(numbers_of(&logdet(singular.clone()).unwrap()), [f64::NEG_INFINITY]);
    assert_eq!(numbers_of(&matrix_rank(singular, Tolerance::default()).unwrap()), [1.0]);
    let defective = tensor(vec![2.0, 1.0, 0.0, 2.0], &[2, 2], &device);
    assert!(numbers_of(&eigvals(defective).unwrap().0).iter().all(|w| (w - 2.0).abs() < 1e-7));
}

#[test]
fn an_ill_conditioned_hilbert_system_is_solved() {
    let n = 9;
    let hilbert = |i: usize| 1.0 / ((i / n + i % n) as f64 + 1.0);
    let a = tensor((0..n * n).map(hilbert).collect(), &[n, n], &Device::cpu());
    let condition = numbers_of(&cond(a.clone(), MatrixNorm::Spectral).unwrap())[0];
    assert!((condition / 4.9315e11 - 1.0).abs() < 1e-3, "{condition:e}");
    let b = random(20, &[n, 1]);
    let x = solve(a.clone(), b.clone(), Side::Left).unwrap();
    let scale = numbers_of(&x).iter().fold(1.0f64, |a, b| a.max(b.abs()));
    assert_near("solve", &product(&a, &x), &b, 1e-15 * scale);
    let (w, v) = eigh(a.clone(), Triangle::Lower).unwrap();
    assert_near("eigh", &product(&scaled(&v, &w), &transposed(&v)), &a, TIGHT);
    assert_eq!(numbers_of(&matrix_rank(a.clone(), Tolerance::default()).unwrap()), [9.0]);
    assert_eq!(numbers_of(&matrix_rank(a, Tolerance::absolute(1e-6)).unwrap()), [6.0]);
}

#[test]
fn householder_products_are_orthonormal() {
    let (v, n) = (random(21, &[2, 5, 3]), 3);
    let numbers = numbers_of(&v);
    // With `2 / |v|²` each factor is a reflection.
    let tau: Vec<f64> = (0..2 * n)
        .map(|place| {
            let (matrix, j) = (place / n, place % n);
            let below = (j + 1..5).map(|i| numbers[matrix * 15 + i * 3 + j].powi(2)).sum::<f64>();
            2.0 / (1.0 + below)
        })
        .collect();
    let q = householder_product(v, tensor(tau, &[2, 3], &Device::cpu())).unwrap();
    assert_orthonormal_columns("householder", &q);
}

#[test]
fn multi_dot_and_vander_match_their_definition() {
    let [a, b, c] = [random(1, &[2, 6]), random(2, &[6, 3]), random(3, &[3, 4])];
    let expected = product(&a, &product(&b, &c));
    assert_near("multi_dot", &multi_dot(vec![a, b, c]).unwrap(), &expected, TIGHT);
    assert_eq!(vander(random(4, &[2, 3]), Some(0)).unwrap().shape()[..], [2, 3, 0]);
    assert_eq!(
        numbers_of(&vander(tensor(vec![0.0], &[1], &Device::cpu()), Some(3)).unwrap()),
        [1.0, 0.0, 0.0]
    );
    let (a, b) = (random(5, &[2, 3, 6]), random(6, &[2, 3]));
    let x = tensorsolve(a.clone(), b.clone()).unwrap();
    let again = product(&a.clone().reshape([6, 6]).unwrap(), &column(&x));
    assert_near("tensorsolve", &again.reshape([2, 3]).unwrap(), &b, 1e-11);
    let inverse = tensorinv(a.clone(), 2).unwrap();
    let one = product(&inverse.reshape([6, 6]).unwrap(), &a.reshape([6, 6]).unwrap());
    assert_near("tensorinv", &one, &identity_like(&one), 1e-11);
}

#[test]
fn sixteen_bit_floats_are_computed_in_f32_and_rounded() {
    let a = regular(22, &[3, 3]);
    let exact = inverse(a.clone()).unwrap();
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        let narrow = inverse(a.clone().cast(dtype).unwrap()).unwrap();
        assert_eq!(narrow.dtype(), dtype);
        assert_near(&format!("{dtype}"), &narrow, &exact, tolerance);
        let rank = matrix_rank(a.clone().cast(dtype).unwrap(), Tolerance::default()).unwrap();
        assert_eq!(rank.dtype(), DType::I32);
        assert_eq!(numbers_of(&rank), [3.0]);
    }
}

#[test]
fn batched_results_equal_results_of_single_matrices() {
    let (count, n) = (24, 40);
    let a = random(23, &[count, n, n]);
    let all = numbers_of(&inverse(a.clone()).unwrap());
    for i in [0, 7, count - 1] {
        let slice = kiln_ir::SliceAxis { start: i, len: 1, step: 1 };
        let one = inverse(a.clone().slice_axis(0, slice).unwrap()).unwrap();
        assert_eq!(numbers_of(&one), all[i * n * n..][..n * n], "matrix {i}");
    }
}
