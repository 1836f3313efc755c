//! Subgradients at kinks and singular points, by the conventions of PyTorch and JAX.

use crate::layer::{gradient, layer, leaf, value};
use kiln_ir::{Binary, Reduction, UpdateMode, Var};

fn slope(x: &[f64], function: impl for<'e> Fn(&Var<'e>) -> Var<'e>) -> Vec<f64> {
    let layer = layer();
    let x = leaf(&layer, x);
    let gradients = layer.backward(&value(&function(&x)), None).unwrap();
    gradient(&layer, &gradients, &x)
}

#[test]
fn extrema_against_a_scalar_have_zero_gradient_at_ties() {
    assert_eq!(slope(&[-1.0, 0.0, 1.0], |x| x.max(&x.scalar(0.0))), [0.0, 0.0, 1.0]);
    assert_eq!(slope(&[-1.0, 0.0, 1.0], |x| x.scalar(0.0).max(x)), [0.0, 0.0, 1.0]);
    assert_eq!(slope(&[-1.0, 0.0, 1.0], |x| x.min(&x.scalar(0.0))), [1.0, 0.0, 0.0]);
    assert_eq!(slope(&[-2.0, 0.0, 3.0], |x| x.abs()), [-1.0, 0.0, 1.0]);
}

#[test]
fn ties_between_tensors_halve_the_gradient() {
    let layer = layer();
    let (a, b) = (leaf(&layer, &[1.0, 2.0, 3.0]), leaf(&layer, &[1.0, 3.0, 2.0]));
    for (y, left, right) in
        [(a.max(&b), [0.5, 0.0, 1.0], [0.5, 1.0, 0.0]), (a.min(&b), [0.5, 1.0, 0.0], [0.5, 0.0, 1.0])]
    {
        let gradients = layer.backward(&value(&y), None).unwrap();
        assert_eq!(gradient(&layer, &gradients, &a), left);
        assert_eq!(gradient(&layer, &gradients, &b), right);
    }
    assert_eq!(slope(&[2.0, 5.0, 5.0, 1.0], |x| x.reduce(Reduction::Max, &[0])), [0.0, 0.5, 0.5, 0.0]);
    assert_eq!(
        slope(&[1.0, 5.0, 1.0, 1.0], |x| x.scan(Reduction::Max, 0, false, false)),
        [1.0, 3.0, 0.0, 0.0]
    );
}

/// PyTorch: `evenly_distribute_backward` for reductions, the position of the NaN for scans.
#[test]
fn the_gradient_of_a_nan_extremum_goes_to_the_nan() {
    for reduction in [Reduction::Max, Reduction::Min] {
        let nan = f64::NAN;
        assert_eq!(slope(&[1.0, nan, 3.0], |x| x.reduce(reduction, &[0])), [0.0, 1.0, 0.0]);
        assert_eq!(slope(&[nan, 2.0, nan], |x| x.reduce(reduction, &[0])), [0.5, 0.0, 0.5]);
        assert_eq!(slope(&[1.0, nan, 1.0], |x| x.scan(reduction, 0, false, false)), [1.0, 2.0, 0.0]);
        let scattered = |x: &Var<'_>| {
            let index = Var::zeros(x.engine(), x.ty().with_dtype(kiln_ir::DType::I32));
            let base = Var::zeros(x.engine(), x.ty());
            value(&base.scatter(
                0,
                if reduction == Reduction::Max { UpdateMode::Max } else { UpdateMode::Min },
                &index,
                x,
            ))
        };
        let layer = layer();
        let x = leaf(&layer, &[1.0, nan, 3.0]);
        let gradients = layer.backward(&scattered(&x), None).unwrap();
        assert_eq!(gradient(&layer, &gradients, &x), [0.0, 1.0, 0.0]);
    }
}

/// PyTorch: `atan2_backward` gives 0 where the denominator is 0; elsewhere `(x, -y) / (x² + y²)`.
#[test]
fn the_gradient_of_atan2_at_the_origin_is_zero() {
    let layer = layer();
    let (y, x) =
        (leaf(&layer, &[0.0, -0.0, 3.0, 1e-200, 3e200]), leaf(&layer, &[0.0, 0.0, 4.0, 1e-200, 4e200]));
    let gradients = layer.backward(&value(&y.binary(Binary::Atan2, &x)), None).unwrap();
    let close = |found: Vec<f64>, expected: [f64; 5]| {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} instead of {expected}");
        }
    };
    close(gradient(&layer, &gradients, &y), [0.0, 0.0, 0.16, 5e199, 1.6e-201]);
    close(gradient(&layer, &gradients, &x), [0.0, 0.0, -0.12, -5e199, -1.2e-201]);
    assert_eq!(slope(&[0.0, 1.0], |y| y.binary(Binary::Atan2, &y.scalar(0.0))), [0.0, 0.0]);
    assert_eq!(slope(&[0.0, 2.0], |x| x.scalar(0.0).binary(Binary::Atan2, x)), [0.0, 0.0]);
}

#[test]
fn gradients_of_pow_at_zero_and_negative_bases() {
    assert_eq!(slope(&[0.0, -2.0], |x| x.pow(&x.scalar(2.0))), [0.0, -4.0]);
    assert_eq!(slope(&[0.0, -2.0], |x| x.pow(&x.scalar(3.0))), [0.0, 12.0]);
    assert_eq!(slope(&[0.0, -2.0], |x| x.pow(&x.scalar(0.0))), [0.0, 0.0]);
    assert_eq!(slope(&[0.0, -2.0], |x| x.pow(&x.scalar(1.0))), [1.0, 1.0]);
    let layer = layer();
    let (a, b) = (leaf(&layer, &[0.0, 0.0, -2.0]), leaf(&layer, &[0.0, 2.0, 3.0]));
    let gradients = layer.backward(&value(&a.binary(Binary::Pow, &b)), None).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [0.0, 0.0, 12.0]);
    let exponent = gradient(&layer, &gradients, &b);
    assert_eq!(exponent[..2], [0.0, 0.0]);
    assert!(exponent[2].is_nan(), "a negative base is no smooth function of its exponent");
    assert_eq!(slope(&[2.0], |x| x.scalar(0.0).pow(x)), [0.0]);
}

#[test]
fn piecewise_constant_functions_have_a_zero_gradient() {
    let layer = layer();
    let x = leaf(&layer, &[0.4]);
    let gradients = layer.backward(&value(&x.floor()), None).unwrap();
    assert!(gradients.get(&value(&x)).is_none(), "zero everywhere is not computed");
}
