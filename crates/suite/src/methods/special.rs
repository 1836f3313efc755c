//! Special functions.

use super::{Method, floats, one};
use crate::case::Fill;

/// A row of a method of one float tensor without further arguments.
macro_rules! row {
    ($method:ident, $fill:expr) => {
        Method::new(stringify!($method), |x| one(x[0].clone().$method())).elementwise($fill)
    };
}

/// Away from ±1, where inverse functions are steep.
const WITHIN_ONE: Fill = Fill::Uniform(-0.9, 0.9);
/// Both sides of the points where formulas switch, but not the points.
const WIDE: Fill = Fill::Uniform(-3.0, 3.0);
/// Numbers that are not integers, which are poles.
const NO_POLE: Fill = Fill::Among(&[-2.7, -1.4, -0.3, 0.2, 0.7, 1.3, 2.6, 4.2, 7.7, 12.3]);
const POSITIVE: Fill = Fill::Among(&[0.2, 0.7, 1.3, 2.6, 4.2, 7.7, 12.3]);

/// Numbers where incomplete gamma functions switch formulas.
const LARGE: Fill = Fill::Among(&[15.0, 22.0, 30.0, 41.0]);
/// Orders of zeta functions, away from the pole at 1.
const ORDERS: Fill = Fill::Among(&[1.5, 2.0, 3.0, 4.5]);

pub(super) fn rows() -> Vec<Method> {
    vec![
        row!(asin, WITHIN_ONE),
        row!(acos, WITHIN_ONE),
        row!(sinc, WIDE).within(64.0),
        row!(sinh, WIDE).within(64.0),
        row!(cosh, WIDE).within(64.0),
        row!(asinh, WIDE),
        row!(acosh, Fill::Uniform(1.2, 4.0)),
        row!(atanh, WITHIN_ONE),
        row!(exp2, WIDE).within(64.0),
        row!(log2, Fill::Positive),
        row!(log10, Fill::Positive),
        row!(cbrt, Fill::Away),
        row!(sigmoid, WIDE),
        row!(logit, Fill::Uniform(0.1, 0.9)),
        row!(erfc, WIDE),
        row!(erfinv, WITHIN_ONE).within(64.0),
        row!(lgamma, NO_POLE).within(256.0),
        row!(digamma, NO_POLE).within(256.0),
        row!(i0, WIDE).within(64.0),
        row!(i0e, WIDE),
        row!(i1, WIDE).within(64.0),
        row!(i1e, WIDE),
        row!(ndtri, Fill::Uniform(0.05, 0.95)).within(64.0),
        row!(bessel_j0, WIDE).within(64.0),
        row!(bessel_j1, WIDE).within(64.0),
        row!(bessel_y0, POSITIVE).within(256.0),
        row!(bessel_y1, POSITIVE).within(256.0),
        row!(modified_bessel_k0, POSITIVE).within(64.0),
        row!(modified_bessel_k1, POSITIVE).within(64.0),
        row!(scaled_modified_bessel_k0, POSITIVE).within(64.0),
        row!(scaled_modified_bessel_k1, POSITIVE).within(64.0),
        row!(spherical_bessel_j0, WIDE).within(64.0),
        Method::new("gammainc", |x| one(x[0].clone().gammainc(x[1].clone())))
            .on(&[floats(&[2, 3], POSITIVE), floats(&[2, 3], POSITIVE)])
            .on(&[floats(&[3], LARGE), floats(&[2, 1], LARGE)])
            .within(1024.0)
            .once("the derivative by the shape is an expression of its own"),
        Method::new("gammaincc", |x| one(x[0].clone().gammaincc(x[1].clone())))
            .on(&[floats(&[2, 3], POSITIVE), floats(&[2, 3], POSITIVE)])
            .on(&[floats(&[3], LARGE), floats(&[2, 1], LARGE)])
            .within(1024.0)
            .once("the derivative by the shape is an expression of its own"),
        Method::new("zeta", |x| one(x[0].clone().zeta(x[1].clone())))
            .on(&[floats(&[2, 3], ORDERS), floats(&[2, 3], POSITIVE)])
            .on(&[floats(&[3], ORDERS), floats(&[2, 1], POSITIVE)])
            .within(1024.0)
            .once("the derivative by the order is an expression of its own"),
        Method::new("polygamma", |x| one(x[0].clone().polygamma(1))).elementwise(NO_POLE).within(1024.0),
        Method::new("polygamma", |x| one(x[0].clone().polygamma(2)))
            .variant("order 2")
            .elementwise(POSITIVE)
            .within(4096.0),
        Method::new("polygamma", |x| one(x[0].clone().polygamma(3)))
            .variant("order 3")
            .elementwise(POSITIVE)
            .within(16384.0),
    ]
}
