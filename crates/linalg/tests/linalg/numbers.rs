//! NaN and infinity: no hang, no panic, and no finite results.

use crate::{numbers_of, tensor};
use kiln_backends::Device;
use kiln_linalg::any::*;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_tensor::{AnyTensor, Result};

const SIZES: [usize; 3] = [1, 3, 40];

/// Symmetric matrices with one NaN or infinity, at different positions.
fn special() -> Vec<AnyTensor> {
    let mut tensors = Vec::new();
    for n in SIZES {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for place in [(0, 0), (n - 1, 0), (n - 1, n - 1)] {
                let mut numbers: Vec<f64> =
                    (0..n * n).map(|i| if i / n == i % n { n as f64 } else { 0.5 }).collect();
                numbers[place.0 * n + place.1] = x;
                numbers[place.1 * n + place.0] = x;
                tensors.push(tensor(numbers, &[n, n], &Device::cpu()));
            }
        }
    }
    tensors
}

/// Asserts that the result is an error or has a nonfinite element.
#[track_caller]
fn assert_told(what: &str, result: Result<AnyTensor>) {
    if let Ok(data) = result.unwrap().into_data() {
        assert!(data.to_vec::<f64>().iter().any(|x| !x.is_finite()), "{what}");
    }
}

#[test]
fn nan_and_infinities_propagate_through_every_function() {
    for a in special() {
        let b = || tensor(vec![1.0; a.shape()[0]], &[a.shape()[0], 1], &Device::cpu());
        assert_told("cholesky", cholesky(a.clone(), Triangle::Lower));
        assert_told("qr", qr(a.clone(), QrMode::Complete).map(|(q, _)| q));
        assert_told("lu", lu(a.clone()).map(|(_, _, u)| u));
        assert_told("svd", svd(a.clone(), true).map(|(u, _, _)| u));
        assert_told("svdvals", svdvals(a.clone()));
        assert_told("eigh", eigh(a.clone(), Triangle::Upper).map(|(w, _)| w));
        assert_told("eigvalsh", eigvalsh(a.clone(), Triangle::Lower));
        assert_told("eig", eig(a.clone()).map(|((re, _), _)| re));
        assert_told("eigvals", eigvals(a.clone()).map(|(re, _)| re));
        assert_told("pinv", pinv(a.clone(), Tolerance::default()));
        assert_told("lstsq", lstsq(a.clone(), b(), None).map(|found| found.solution));
        assert_told("det", det(a.clone()));
        assert_told("matrix_exp", matrix_exp(a.clone()));
        assert_told("matrix_norm", matrix_norm(a.clone(), MatrixNorm::Frobenius));
        assert_told(
            "matrix_rank",
            matrix_rank(a.clone(), Tolerance::default()).and_then(|rank| rank.cast(kiln_tensor::DType::F64)),
        );
        // Systems with an infinity may have a finite limit; the solver must terminate.
        for result in
            [solve(a.clone(), b(), Side::Left), inverse(a.clone()), cond(a.clone(), MatrixNorm::Frobenius)]
        {
            let _ = result.unwrap().into_data();
        }
    }
}

#[test]
fn extreme_scales_are_not_errors() {
    for scale in [1e-150, 1e150] {
        let a = tensor(vec![2.0 * scale, scale, scale, 3.0 * scale], &[2, 2], &Device::cpu());
        let near = |found: &AnyTensor, expected: [f64; 2]| {
            for (a, e) in numbers_of(found).into_iter().zip(expected) {
                assert!((a / scale / e - 1.0).abs() < 1e-12, "{a:e}");
            }
        };
        let (small, large) = (2.5 - 1.25f64.sqrt(), 2.5 + 1.25f64.sqrt());
        near(&svdvals(a.clone()).unwrap(), [large, small]);
        near(&eigvalsh(a.clone(), Triangle::Lower).unwrap(), [small, large]);
        let x = solve(a.clone(), a, Side::Left).unwrap();
        assert!((numbers_of(&x)[0] - 1.0).abs() < 1e-12);
    }
}
