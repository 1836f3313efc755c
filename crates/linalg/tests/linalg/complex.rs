//! Complex matrices: properties of decompositions, errors, and function transforms.

use crate::{assert_near, assert_singular_values, noise, numbers_of, random, regular, says, tensor};
use kiln_backends::{Device, Dyn, Flex};
use kiln_linalg::any::complex::*;
use kiln_linalg::{QrMode, Side, Triangle, any};
use kiln_tensor::transform::{grad, jacobian, jacobian_forward, vmap};
use kiln_tensor::{AnyComplex, AnyTensor, Autodiff, Backend, Complex, DType, Forward, Result, Tensor, Vmap};

const SHAPES: [&[usize]; 13] = [
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
    &[2, 3, 4, 3],
    &[40, 37],
];

const TIGHT: f64 = 1e-12;

fn square_shapes() -> impl Iterator<Item = &'static [usize]> {
    SHAPES.into_iter().chain([&[50usize, 50][..]]).filter(|s| s[s.len() - 1] == s[s.len() - 2])
}

fn pair(re: AnyTensor, im: AnyTensor) -> AnyComplex {
    AnyComplex::new(re, im).unwrap()
}

fn noisy(seed: u64, shape: &[usize]) -> AnyComplex {
    pair(random(seed, shape), random(seed + 1000, shape))
}

/// A well-conditioned matrix.
fn far(seed: u64, shape: &[usize]) -> AnyComplex {
    pair(regular(seed, shape), random(seed + 1000, shape))
}

fn numbers(shape: &[usize], re: &[f64], im: &[f64]) -> AnyComplex {
    pair(tensor(re.to_vec(), shape, &Device::cpu()), tensor(im.to_vec(), shape, &Device::cpu()))
}

fn adjoint(x: &AnyComplex) -> AnyComplex {
    x.clone().each(|part| part.clone().swap_dims(part.rank() - 2, part.rank() - 1)).unwrap().conj().unwrap()
}

fn product(a: &AnyComplex, b: &AnyComplex) -> AnyComplex {
    a.clone().matmul(b.clone()).unwrap()
}

fn identity_like(x: &AnyComplex) -> AnyComplex {
    AnyComplex::from_real(any::matrix_power(x.re().clone(), 0).unwrap()).unwrap()
}

#[track_caller]
fn near(what: &str, actual: &AnyComplex, expected: &AnyComplex, tolerance: f64) {
    assert_near(what, actual.re(), expected.re(), tolerance);
    assert_near(what, actual.im(), expected.im(), tolerance);
}

#[track_caller]
fn assert_orthonormal_columns(what: &str, q: &AnyComplex) {
    let gram = product(&adjoint(q), q);
    near(what, &gram, &identity_like(&gram), TIGHT);
}

/// Elements below the diagonal are zero.
#[track_caller]
fn assert_upper(what: &str, x: &AnyComplex) {
    let shape = x.shape();
    let (rows, cols) = (shape[shape.rank() - 2], shape[shape.rank() - 1]);
    for part in [x.re(), x.im()] {
        let mut below =
            numbers_of(part).into_iter().enumerate().filter(|(i, _)| (i / cols) % rows > i % cols);
        assert!(below.all(|(_, x)| x == 0.0), "{what} is upper triangular");
    }
}

/// Scales the columns by real numbers.
fn scaled(x: &AnyComplex, by: &AnyTensor) -> AnyComplex {
    let row = by.clone().reshape(by.shape().inserted(by.rank() - 1, 1)).unwrap();
    x.clone().each(|part| part.mul(row.clone())).unwrap()
}

fn first(x: &AnyComplex, axis: usize, len: usize) -> AnyComplex {
    x.clone().each(|part| part.slice_axis(axis, kiln_ir::SliceAxis { start: 0, len, step: 1 })).unwrap()
}

fn hermitian(seed: u64, shape: &[usize]) -> AnyComplex {
    let x = noisy(seed, shape);
    x.clone().add(adjoint(&x)).unwrap()
}

#[test]
fn qr_has_orthonormal_columns_and_a_positive_diagonal() {
    for shape in SHAPES {
        let a = noisy(1, shape);
        for mode in [QrMode::Reduced, QrMode::Complete] {
            let what = format!("qr {shape:?} {mode:?}");
            let (q, r) = qr(a.clone(), mode).unwrap();
            near(&what, &product(&q, &r), &a, TIGHT);
            assert_orthonormal_columns(&what, &q);
            assert_upper(&what, &r);
            let (rows, cols) = (r.shape()[r.shape().rank() - 2], r.shape()[r.shape().rank() - 1]);
            let on_diagonal = |x: &AnyTensor| -> Vec<f64> {
                let all = numbers_of(x).into_iter().enumerate();
                all.filter(|(i, _)| (i / cols) % rows == i % cols).map(|(_, x)| x).collect()
            };
            assert!(on_diagonal(r.re()).iter().all(|&x| x > 0.0), "{what}");
            assert!(on_diagonal(r.im()).iter().all(|&x| x == 0.0), "{what}");
        }
        let (_, r) = qr(a.clone(), QrMode::Reduced).unwrap();
        near("qr_r", &qr_r(a).unwrap(), &r, 0.0);
    }
}

#[test]
fn svd_has_orthonormal_columns_and_descending_values() {
    for shape in SHAPES {
        let a = noisy(2, shape);
        for full in [false, true] {
            let what = format!("svd {shape:?} {full}");
            let (u, s, vh) = svd(a.clone(), full).unwrap();
            assert_orthonormal_columns(&what, &u);
            assert_orthonormal_columns(&what, &adjoint(&vh));
            let (rank, k) = (u.shape().rank(), s.shape()[s.rank() - 1]);
            let again = product(&scaled(&first(&u, rank - 1, k), &s), &first(&vh, rank - 2, k));
            near(&what, &again, &a, TIGHT);
            assert_near(&what, &svdvals(a.clone()).unwrap(), &s, TIGHT);
            assert_singular_values(&what, &s);
        }
    }
}

#[test]
fn hermitian_matrices_have_orthonormal_vectors_and_ascending_values() {
    for shape in square_shapes() {
        let what = format!("eigh {shape:?}");
        let a = hermitian(3, shape);
        for triangle in [Triangle::Lower, Triangle::Upper] {
            let (w, v) = eigh(a.clone(), triangle).unwrap();
            assert_orthonormal_columns(&what, &v);
            near(&what, &product(&scaled(&v, &w), &adjoint(&v)), &a, TIGHT);
            assert_near(&what, &eigvalsh(a.clone(), triangle).unwrap(), &w, TIGHT);
            let n = shape[shape.len() - 1].max(1);
            assert!(numbers_of(&w).chunks(n).all(|w| w.is_sorted()), "{what}");
        }
    }
    // Only one triangle and the real parts of the diagonal are read.
    let a = numbers(&[2, 2], &[1.0, 100.0, 0.5, 2.0], &[7.0, 30.0, 0.25, -8.0]);
    let clean = numbers(&[2, 2], &[1.0, 0.5, 0.5, 2.0], &[0.0, -0.25, 0.25, 0.0]);
    let expected = eigvalsh(clean.clone(), Triangle::Upper).unwrap();
    assert_near("lower", &eigvalsh(a.clone(), Triangle::Lower).unwrap(), &expected, TIGHT);
    assert_near("lower", &eigh(a.clone(), Triangle::Lower).unwrap().0, &expected, TIGHT);
    let expected = cholesky(clean, Triangle::Lower).unwrap();
    near("lower", &cholesky(a, Triangle::Lower).unwrap(), &expected, TIGHT);
}

#[test]
fn cholesky_times_its_adjoint_is_the_matrix() {
    for shape in square_shapes() {
        let what = format!("cholesky {shape:?}");
        let x = noisy(4, shape);
        let square = product(&x, &adjoint(&x));
        let a = square.clone().add(identity_like(&square)).unwrap();
        let l = cholesky(a.clone(), Triangle::Lower).unwrap();
        near(&what, &product(&l, &adjoint(&l)), &a, TIGHT);
        assert_upper(&what, &adjoint(&l));
        near(&what, &cholesky(a, Triangle::Upper).unwrap(), &adjoint(&l), TIGHT);
    }
}

#[test]
fn eig_has_unit_eigenvectors() {
    for shape in square_shapes() {
        let what = format!("eig {shape:?}");
        let a = noisy(5, shape);
        let (w, v) = eig(a.clone()).unwrap();
        let row = |x: &AnyTensor| x.clone().reshape(x.shape().inserted(x.rank() - 1, 1)).unwrap();
        let turned = v.clone().mul(pair(row(w.re()), row(w.im()))).unwrap();
        near(&what, &product(&a, &v), &turned, 1e-11);
        let gram = product(&adjoint(&v), &v);
        let lengths = gram.re().clone().mul(identity_like(&gram).re().clone()).unwrap();
        assert_near(&what, &lengths, identity_like(&gram).re(), TIGHT);
        near(&what, &eigvals(a).unwrap(), &w, 0.0);
    }
}

#[test]
fn left_and_right_systems_are_solved() {
    for shape in square_shapes() {
        let what = format!("solve {shape:?}");
        let (a, n) = (far(6, shape), shape[shape.len() - 1]);
        let batch = &shape[..shape.len() - 2];
        let (b, c) = (noisy(7, &[batch, &[n, 2]].concat()), noisy(8, &[batch, &[2, n]].concat()));
        let x = solve(a.clone(), b.clone(), Side::Left).unwrap();
        near(&what, &product(&a, &x), &b, TIGHT);
        let y = solve(a.clone(), c.clone(), Side::Right).unwrap();
        near(&what, &product(&y, &a), &c, TIGHT);
        let inverse = inverse(a.clone()).unwrap();
        near(&what, &product(&a, &inverse), &identity_like(&a), TIGHT);
        let (q, r) = qr(a.clone(), QrMode::Reduced).unwrap();
        let right = product(&adjoint(&q), &b);
        let again = solve_triangular(r, right, Triangle::Upper, Side::Left, false).unwrap();
        near(&what, &again, &x, 1e-11);
    }
    let (a, b) = (far(9, &[2, 1, 3, 3]), noisy(10, &[4, 3, 2]));
    let x = solve(a.clone(), b.clone(), Side::Left).unwrap();
    assert_eq!(x.shape()[..], [2, 4, 3, 2]);
    let all = b.each(|part| part.expand([2, 4, 3, 2])).unwrap();
    near("broadcast", &product(&a, &x), &all, TIGHT);
    assert_eq!(solve(a, noisy(11, &[3]), Side::Left).unwrap().shape()[..], [2, 1, 3]);
}

#[test]
fn the_determinant_agrees_with_its_sign_and_logarithm() {
    for shape in square_shapes() {
        let what = format!("det {shape:?}");
        let a = noisy(12, shape);
        let n = shape[shape.len() - 1];
        let values = numbers_of(&svdvals(a.clone()).unwrap());
        let d = det(a.clone()).unwrap();
        let (sign, log) = slogdet(a).unwrap();
        let (re, im) = (numbers_of(d.re()), numbers_of(d.im()));
        let (cos, sin, log) = (numbers_of(sign.re()), numbers_of(sign.im()), numbers_of(&log));
        assert_eq!(re.len(), shape[..shape.len() - 2].iter().product::<usize>(), "{what}");
        for i in 0..re.len() {
            let magnitude: f64 = values[i * n..][..n].iter().product();
            assert!((log[i].exp() / magnitude - 1.0).abs() < 1e-9, "{what}");
            assert!((cos[i] * cos[i] + sin[i] * sin[i] - 1.0).abs() < TIGHT, "{what}");
            assert!((re[i] - cos[i] * magnitude).abs() < 1e-9 * magnitude, "{what}");
            assert!((im[i] - sin[i] * magnitude).abs() < 1e-9 * magnitude, "{what}");
        }
    }
    let singular = numbers(&[2, 2], &[1.0, 0.0, 0.0, -1.0], &[0.0, 1.0, 1.0, 0.0]);
    let (sign, log) = slogdet(singular.clone()).unwrap();
    assert_eq!([numbers_of(sign.re()), numbers_of(sign.im())], [[0.0], [0.0]]);
    assert_eq!(numbers_of(&log), [f64::NEG_INFINITY]);
    assert_eq!(numbers_of(det(singular).unwrap().re()), [0.0]);
}

/// With zero imaginary parts, results match the functions of real matrices.
#[test]
fn zero_imaginary_parts_give_the_real_results() {
    let (a, b) = (regular(13, &[3, 3]), random(14, &[3, 2]));
    let lifted = |x: &AnyTensor| AnyComplex::from_real(x.clone()).unwrap();
    let x = solve(lifted(&a), lifted(&b), Side::Left).unwrap();
    near("solve", &x, &lifted(&any::solve(a.clone(), b, Side::Left).unwrap()), TIGHT);
    near("det", &det(lifted(&a)).unwrap(), &lifted(&any::det(a.clone()).unwrap()), TIGHT);
    let values = any::svdvals(a.clone()).unwrap();
    assert_near("svdvals", &svdvals(lifted(&a)).unwrap(), &values, TIGHT);
}

#[test]
fn rank_deficient_matrices_have_factors() {
    let zero = numbers(&[4, 3], &[0.0; 12], &[0.0; 12]);
    let ones = numbers(&[4, 3], &[1.0; 12], &[-1.0; 12]);
    let gap = numbers(&[3, 2], &[0.0; 6], &[0.0, 1.0, 0.0, 2.0, 0.0, 3.0]);
    for a in [zero, ones, gap] {
        let (q, r) = qr(a.clone(), QrMode::Complete).unwrap();
        assert_orthonormal_columns("qr", &q);
        near("qr", &product(&q, &r), &a, TIGHT);
        let (u, s, vh) = svd(a.clone(), false).unwrap();
        assert_orthonormal_columns("svd", &u);
        near("svd", &product(&scaled(&u, &s), &vh), &a, TIGHT);
    }
}

#[test]
fn nan_infinities_and_extreme_scales() {
    for n in [1, 3, 40] {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for is_imaginary in [false, true] {
                let mut parts = [vec![0.5; n * n], vec![0.25; n * n]];
                (0..n).for_each(|i| parts[0][i * n + i] = n as f64);
                parts[usize::from(is_imaginary)][n * n - n] = x;
                let a = numbers(&[n, n], &parts[0], &parts[1]);
                let told = |what: &str, parts: &[AnyTensor]| {
                    let special = |part: &AnyTensor| match part.to_data() {
                        Ok(data) => data.to_vec::<f64>().iter().any(|x| !x.is_finite()),
                        Err(_) => true,
                    };
                    assert!(parts.iter().any(special), "{what} {n} {x}");
                };
                let told_of = |what: &str, x: AnyComplex| told(what, &[x.re().clone(), x.im().clone()]);
                told_of("qr", qr(a.clone(), QrMode::Complete).unwrap().0);
                told_of("svd", svd(a.clone(), true).unwrap().0);
                told("svdvals", &[svdvals(a.clone()).unwrap()]);
                told_of("eigh", eigh(a.clone(), Triangle::Lower).unwrap().1);
                told_of("eig", eig(a.clone()).unwrap().0);
                told_of("det", det(a.clone()).unwrap());
                // Systems with an infinity may have a finite limit; the solver must terminate.
                let _ = inverse(a.clone()).unwrap().re().to_data();
                let _ = solve(a.clone(), a, Side::Left).unwrap().re().to_data();
            }
        }
    }
    for scale in [1e-150, 1e150] {
        let a = numbers(
            &[2, 2],
            &[2.0, 1.0, 1.0, 3.0].map(|x| x * scale),
            &[0.0, 1.0, -1.0, 0.5].map(|x| x * scale),
        );
        near("scale", &solve(a.clone(), a.clone(), Side::Left).unwrap(), &identity_like(&a), TIGHT);
        let s = svdvals(a.clone()).unwrap().binary_scalar(kiln_ir::Binary::Div, scale).unwrap();
        let (_, log) = slogdet(a).unwrap();
        let sum: f64 = numbers_of(&s).iter().map(|s| s.ln()).sum();
        assert!((numbers_of(&log)[0] - sum - 2.0 * scale.ln()).abs() < 1e-9);
    }
}

#[test]
fn sixteen_bit_floats_are_computed_in_f32_and_rounded() {
    let a = far(15, &[3, 3]);
    let exact = inverse(a.clone()).unwrap();
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        let narrow = inverse(a.clone().each(|part| part.cast(dtype)).unwrap()).unwrap();
        assert_eq!(narrow.re().dtype(), dtype);
        near(&format!("{dtype}"), &narrow, &exact, tolerance);
    }
}

#[test]
fn shape_errors_match_those_of_real_matrices() {
    let text = |op: &str| {
        format!(
            "[{op}] needs square matrices: f64[2, 3]\n  hint: each matrix is 2 x 3; the last two dimensions must be equal"
        )
    };
    let a = || noisy(1, &[2, 3]);
    says(inverse(a()), &text("inverse"));
    says(det(a()), &text("det"));
    says(slogdet(a()), &text("slogdet"));
    says(cholesky(a(), Triangle::Lower), &text("cholesky"));
    says(eigh(a(), Triangle::Lower), &text("eigh"));
    says(eigvalsh(a(), Triangle::Upper), &text("eigvalsh"));
    says(eig(a()), &text("eig"));
    says(eigvals(a()), &text("eigvals"));
    let text = |op: &str| {
        format!(
            "[{op}] needs matrices, in the last two dimensions: f64[3]\n  hint: add dimensions of length 1 with `unsqueeze_dim`, or reshape"
        )
    };
    says(qr(noisy(1, &[3]), QrMode::Reduced), &text("qr"));
    says(svd(noisy(1, &[3]), false), &text("svd"));
    says(svdvals(noisy(1, &[3])), &text("svdvals"));
    says(
        solve(noisy(1, &[3, 3]), noisy(1, &[2, 4]), Side::Left),
        "[solve] sizes differ: f64[3, 3] x f64[2, 4]\n  hint: the matrices are 3 x 3 and the right sides have 2 elements along that dimension: both must be equal",
    );
    says(
        solve(noisy(1, &[3, 3]), noisy(1, &[3, 4]).each(|part| part.cast(DType::F32)).unwrap(), Side::Left),
        "[solve] dtypes differ: f64[3, 3] x f32[3, 4]\n  hint: cast one operand to the other's dtype",
    );
    says(
        solve_triangular(noisy(1, &[2, 3, 3]), noisy(1, &[4, 3, 1]), Triangle::Lower, Side::Left, false),
        "[solve_triangular] batch dimensions do not broadcast: f64[2, 3, 3] x f64[4, 3, 1]\n  hint: aligned from the right they must be equal or 1, without the last two",
    );
}

#[test]
fn numerical_errors_are_reported_at_the_read() {
    let read = |x: Result<AnyComplex>| x.unwrap().re().to_data();
    let singular = || numbers(&[2, 2], &[1.0, 0.0, 0.0, -1.0], &[0.0, 1.0, 1.0, 0.0]);
    let hint = "the pivot of row 1 is zero; `complex::svd` accepts such matrices";
    says(
        read(solve(singular(), noisy(1, &[2, 1]), Side::Left)),
        &format!("[solve] the matrix is singular\n  hint: {hint}"),
    );
    says(read(inverse(singular())), &format!("[inverse] the matrix is singular\n  hint: {hint}"));
    says(
        read(cholesky(numbers(&[2, 2], &[1.0, 0.0, 0.0, 1.0], &[0.0, -2.0, 2.0, 0.0]), Triangle::Lower)),
        "[cholesky] the matrix is not positive definite\n  hint: its leading minor of order 2 is not positive; for a matrix that should be positive definite, add a small multiple of the identity",
    );
    let special = || numbers(&[2, 1, 1], &[1.0, 1.0], &[0.0, f64::NAN]);
    let text = |op: &str| {
        format!(
            "[{op}] matrix 1 of the batch contains NaN or infinity\n  hint: find non-finite elements with `is_finite`"
        )
    };
    says(svdvals(special()).unwrap().to_data(), &text("svdvals"));
    says(svd(special(), false).unwrap().1.to_data(), &text("svd"));
    says(eigvalsh(special(), Triangle::Lower).unwrap().to_data(), &text("eigvalsh"));
    says(eigh(special(), Triangle::Lower).unwrap().0.to_data(), &text("eigh"));
    says(read(eig(special()).map(|(w, _)| w)), &text("eig"));
}

#[test]
#[should_panic(expected = "[inverse] needs square matrices: f32[2, 3]")]
fn typed_functions_panic_with_the_message() {
    let x = Tensor::<Flex, 2>::ones([2, 3], &Default::default());
    let _ = kiln_linalg::complex::inverse(Complex::from_real(x));
}

/// The gradient of the sum of results by both parts of a leaf.
fn gradients(f: impl Fn(AnyComplex) -> Result<AnyTensor>, x: &AnyComplex) -> Result<[AnyTensor; 2]> {
    let leaf =
        |part: &AnyTensor| AnyTensor::from_data(part.to_data()?, &Device::cpu().autodiff()).require_grad();
    let (re, im) = (leaf(x.re())?, leaf(x.im())?);
    let sum: Tensor<Dyn, 1> = f(AnyComplex::new(re.clone(), im.clone())?)?.sum()?.try_into_tensor()?;
    let found = sum.try_backward()?;
    Ok([found.get(&re).expect("a gradient"), found.get(&im).expect("a gradient")])
}

#[test]
fn a_singular_matrix_has_a_gradient_of_its_determinant() {
    let x = numbers(&[2, 2], &[1.0, 0.0, 0.0, -1.0], &[0.0, 1.0, 1.0, 0.0]);
    // d Re det = Re(C dA), with the cofactors [[-1, -i], [-i, 1]].
    let [re, im] = gradients(|x| Ok(det(x)?.re().clone()), &x).unwrap();
    assert_near("re", &re, &tensor(vec![-1.0, 0.0, 0.0, 1.0], &[2, 2], &Device::cpu()), TIGHT);
    assert_near("im", &im, &tensor(vec![0.0, 1.0, 1.0, 0.0], &[2, 2], &Device::cpu()), TIGHT);
}

#[test]
fn missing_gradients_are_errors() {
    let found = gradients(|x| Ok(qr(x, QrMode::Complete)?.0.re().clone()), &noisy(16, &[3, 2]));
    says(
        found,
        "[qr] a complete decomposition of 3 x 2 matrices has no gradient\n  hint: the added columns of Q are not determined by the matrix: use the reduced form",
    );
}

#[test]
fn equal_singular_values_have_gradients_but_not_their_vectors() {
    let x = numbers(&[2, 2], &[2.0, 0.0, 0.0, 0.0], &[0.0, 0.0, 0.0, 2.0]);
    let [re, im] = gradients(svdvals, &x).unwrap();
    assert_near("re", &re, &tensor(vec![1.0, 0.0, 0.0, 0.0], &[2, 2], &Device::cpu()), TIGHT);
    assert_near("im", &im, &tensor(vec![0.0, 0.0, 0.0, 1.0], &[2, 2], &Device::cpu()), TIGHT);
    let weights = noise(17, 4);
    let of_vectors = |x: AnyComplex| {
        let u = svd(x, false)?.0;
        let squares = u.re().clone().mul(u.re().clone())?.add(u.im().clone().mul(u.im().clone())?)?;
        let weights =
            AnyTensor::from_data(kiln_tensor::TensorData::new(weights.clone(), [2, 2])?, squares.stack());
        squares.mul(weights)
    };
    let found = gradients(of_vectors, &x).unwrap();
    assert!(found.iter().any(|part| numbers_of(part).iter().any(|x| !x.is_finite())));
}

/// A function of a complex matrix, given by its parts, by several decompositions.
fn several<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 1> {
    use kiln_linalg::complex;
    let part = |place| x.clone().narrow(0, place, 1).reshape([2, 2]);
    let a = Complex::new(part(0), part(1));
    let hermitian = a.clone() + a.clone().each(|part| part.transpose()).conj();
    let inverse = complex::inverse(a.clone());
    let r = complex::qr_r(a.clone());
    let (_, log) = complex::slogdet::<B, 2, 1>(a.clone());
    let values: Tensor<B, 1> = complex::eigvalsh(hermitian, Triangle::Lower);
    let singular: Tensor<B, 1> = complex::svdvals(a);
    let weights = Tensor::<B, 1>::from_floats([1.0, 2.0], &x.device()).cast(x.dtype());
    inverse.re().sum()
        + inverse.im().sum() * 2.0
        + r.im().sum()
        + log
        + (values * weights.clone()).sum()
        + (singular * weights).sum()
}

fn two_matrices() -> Tensor<Flex, 4> {
    let numbers =
        vec![2.0f64, 0.5, -0.25, 3.0, 0.5, 1.0, -1.0, 0.25, 1.5, -0.5, 0.75, -2.0, 1.0, 0.25, 0.5, 2.0];
    let all = AnyTensor::from_data(numbers, &Flex::stack(&Default::default()));
    Tensor::<Flex, 1>::from_any(all).reshape([2, 2, 2, 2])
}

#[track_caller]
fn close<const D: usize, const E: usize>(found: Tensor<Flex, D>, expected: Tensor<Flex, E>) {
    let (found, expected) = (found.into_data().to_vec::<f64>(), expected.into_data().to_vec::<f64>());
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{found:?} instead of {expected:?}");
    }
}

#[test]
fn transforms_of_complex_functions() {
    let alone = |number| two_matrices().narrow(0, number, 1).reshape([2, 2, 2]);
    let each: Tensor<Flex, 2> = vmap(several::<Vmap<Flex>>)(two_matrices());
    close(each, Tensor::cat(vec![several(alone(0)), several(alone(1))], 0));
    let slopes: Tensor<Flex, 4> = vmap(grad(several::<Autodiff<Vmap<Flex>>>))(two_matrices());
    for number in 0..2 {
        let one = grad(several::<Autodiff<Flex>>)(alone(number));
        close(slopes.clone().narrow(0, number, 1), one);
    }
    let reverse: Tensor<Flex, 4> = jacobian(several::<Autodiff<Flex>>)(alone(0));
    let forward: Tensor<Flex, 4> = jacobian_forward(several::<Forward<Flex>>)(alone(0));
    close(forward, reverse);
}
