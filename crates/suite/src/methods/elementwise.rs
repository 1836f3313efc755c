//! Arithmetic, comparisons and elementwise functions.

use super::{Argument, Method, bools, floats, ints, ints_among, normal, one, two, uniform};
use crate::case::Fill;
use kiln_tensor::AnyTensor;

const NUMBERS: &str = "the result holds no floats";
const STEPS: &str = "piecewise constant; at a step there is no slope";

/// Rows of methods of one float tensor without further arguments.
macro_rules! unary {
    ($($method:ident $fill:expr;)*) => {
        vec![$(Method::new(stringify!($method), |x| one(x[0].clone().$method())).elementwise($fill)),*]
    };
}

/// Rows of methods of two float tensors.
macro_rules! pair {
    ($($method:ident $fill:expr;)*) => {
        vec![$(Method::new(stringify!($method), |x| one(x[0].clone().$method(x[1].clone()))).pairwise($fill)),*]
    };
}

/// Rows of methods of a tensor and a scalar.
macro_rules! with_number {
    ($($method:ident $x:expr, $fill:expr;)*) => {
        vec![$(Method::new(stringify!($method), |x| one(x[0].clone().$method($x))).elementwise($fill)),*]
    };
}

pub(super) fn rows() -> Vec<Method> {
    [functions(), steps(), arithmetic(), divisions(), powers(), choices(), comparisons(), bits(), logic()]
        .concat()
}

fn functions() -> Vec<Method> {
    unary! {
        abs Fill::Away;
        neg Fill::Normal;
        square Fill::Normal;
        recip Fill::Away;
        sqrt Fill::Positive;
        rsqrt Fill::Positive;
        exp Fill::Normal;
        expm1 Fill::Normal;
        log Fill::Positive;
        log1p Fill::Positive;
        sin Fill::Normal;
        cos Fill::Normal;
        tan Fill::Uniform(-1.0, 1.0);
        tanh Fill::Normal;
        atan Fill::Normal;
        erf Fill::Normal;
        erfcx Fill::Normal;
        frac Fill::Among(&[-1.7, -0.3, 0.4, 2.6]);
        deg2rad Fill::Normal;
        rad2deg Fill::Normal;
    }
    .into_iter()
    .map(|method| method.within(64.0))
    .collect()
}

fn steps() -> Vec<Method> {
    let numbers = Fill::Among(&[-2.5, -1.7, -0.5, 0.0, 0.4, 0.5, 1.5, 2.6, f64::NAN, f64::INFINITY]);
    let mut rows = unary! {
        sign numbers;
        floor numbers;
        ceil numbers;
        round numbers;
        trunc numbers;
    };
    rows.push(Method::new("round_decimals", |x| one(x[0].clone().round_decimals(1))).elementwise(numbers));
    rows.push(
        Method::new("round_decimals", |x| one(x[0].clone().round_decimals(-1)))
            .variant("tens")
            .elementwise(Fill::Uniform(-99.0, 99.0)),
    );
    rows.into_iter().map(|method| method.no_gradient(STEPS)).collect()
}

fn arithmetic() -> Vec<Method> {
    let mut rows = pair! {
        add Fill::Normal;
        sub Fill::Normal;
        mul Fill::Normal;
        div Fill::Away;
        minimum Fill::Distinct;
        maximum Fill::Distinct;
        min_pair Fill::Distinct;
        max_pair Fill::Distinct;
        fmin Fill::Distinct;
        fmax Fill::Distinct;
        atan2 Fill::Away;
        hypot Fill::Away;
        logaddexp Fill::Normal;
        logaddexp2 Fill::Normal;
        xlogy Fill::Positive;
        xlog1py Fill::Positive;
        copysign Fill::Away;
    };
    rows.extend(with_number! {
        add_scalar 1.5, Fill::Normal;
        sub_scalar 1.5, Fill::Normal;
        mul_scalar 1.5, Fill::Normal;
        div_scalar 1.5, Fill::Normal;
        clamp_min 0.1, Fill::Distinct;
        clamp_max 0.1, Fill::Distinct;
    });
    rows.extend([
        Method::new("add", |x| one(x[0].clone().add(x[1].clone())))
            .variant("promoted")
            .on(&[normal(&[2, 3]), ints(-3, 3, &[3])]),
        Method::new("clamp", |x| one(x[0].clone().clamp(-0.1, 0.2))).elementwise(Fill::Distinct),
        Method::new("lerp", |x| one(x[0].clone().lerp(x[1].clone(), x[2].clone())))
            .on(&[normal(&[2, 3]), normal(&[2, 3]), floats(&[2, 3], Fill::Among(&[0.0, 0.2, 0.7, 1.0]))])
            .on(&[normal(&[3]), normal(&[2, 1]), uniform(0.6, 0.9, &[1])]),
        Method::new("lerp_scalar", |x| one(x[0].clone().lerp_scalar(x[1].clone(), 0.25)))
            .pairwise(Fill::Normal),
        Method::new("lerp_scalar", |x| one(x[0].clone().lerp_scalar(x[1].clone(), 0.75)))
            .variant("from the end")
            .pairwise(Fill::Normal),
        Method::new("addcmul", |x| one(x[0].clone().addcmul(x[1].clone(), x[2].clone(), 0.5))).on(&[
            normal(&[2, 3]),
            normal(&[3]),
            normal(&[2, 1]),
        ]),
        Method::new("addcdiv", |x| one(x[0].clone().addcdiv(x[1].clone(), x[2].clone(), 0.5))).on(&[
            normal(&[2, 3]),
            normal(&[3]),
            floats(&[2, 1], Fill::Away),
        ]),
    ]);
    rows.into_iter().map(|method| method.within(64.0)).collect()
}

fn divisions() -> Vec<Method> {
    let dividends = || floats(&[8], Fill::Among(&[5.5, -5.5, 7.25, -7.25]));
    let divisors = || floats(&[8], Fill::Among(&[3.0, -3.0, 0.75]));
    let mut rows = vec![
        Method::new("fmod", |x| one(x[0].clone().fmod(x[1].clone()))).on(&[dividends(), divisors()]),
        Method::new("remainder", |x| one(x[0].clone().remainder(x[1].clone())))
            .on(&[dividends(), divisors()]),
        Method::new("fmod_scalar", |x| one(x[0].clone().fmod_scalar(3.0))).on(&[dividends()]),
        Method::new("remainder_scalar", |x| one(x[0].clone().remainder_scalar(-3.0))).on(&[dividends()]),
    ];
    let integer_quotients = [
        Method::new("floor_divide", |x| one(x[0].clone().floor_divide(x[1].clone())))
            .on(&[dividends(), divisors()]),
        Method::new("trunc_divide", |x| one(x[0].clone().trunc_divide(x[1].clone())))
            .on(&[dividends(), divisors()]),
        Method::new("floor_divide_scalar", |x| one(x[0].clone().floor_divide_scalar(3.0))).on(&[dividends()]),
        Method::new("trunc_divide_scalar", |x| one(x[0].clone().trunc_divide_scalar(3.0))).on(&[dividends()]),
    ];
    rows.extend(integer_quotients.map(|method| method.no_gradient(STEPS)));
    let integers = || [ints(-9, 9, &[3, 4]), ints(-3, 3, &[4])];
    rows.extend(
        [
            Method::new("fmod", |x| one(x[0].clone().fmod(x[1].clone()))),
            Method::new("remainder", |x| one(x[0].clone().remainder(x[1].clone()))),
            Method::new("floor_divide", |x| one(x[0].clone().floor_divide(x[1].clone()))),
            Method::new("trunc_divide", |x| one(x[0].clone().trunc_divide(x[1].clone()))),
            Method::new("gcd", |x| one(x[0].clone().gcd(x[1].clone()))),
            Method::new("lcm", |x| one(x[0].clone().lcm(x[1].clone()))),
        ]
        .map(|method| method.variant("integers").on(&integers()).no_gradient(NUMBERS)),
    );
    rows
}

fn powers() -> Vec<Method> {
    vec![
        Method::new("pow", |x| one(x[0].clone().pow(x[1].clone()))).pairwise(Fill::Positive).within(64.0),
        Method::new("powf", |x| one(x[0].clone().powf(x[1].clone()))).pairwise(Fill::Positive).within(64.0),
        Method::new("pow_scalar", |x| one(x[0].clone().pow_scalar(2.5)))
            .elementwise(Fill::Positive)
            .within(64.0),
        Method::new("powf_scalar", |x| one(x[0].clone().powf_scalar(-0.5)))
            .elementwise(Fill::Positive)
            .within(64.0),
        Method::new("powi", |x| one(x[0].clone().powi(x[1].clone())))
            .on(&[floats(&[2, 3], Fill::Away), ints(-2, 3, &[3])])
            .within(64.0),
        Method::new("powi_scalar", |x| one(x[0].clone().powi_scalar(-2)))
            .elementwise(Fill::Away)
            .within(64.0),
        Method::new("float_power", |x| one(x[0].clone().float_power(x[1].clone())))
            .pairwise(Fill::Positive)
            .within(64.0),
        Method::new("frexp", |x| two(x[0].clone().frexp())).on(&[floats(&[8], Fill::Away)]),
        Method::new("ldexp", |x| one(x[0].clone().ldexp(x[1].clone())))
            .on(&[floats(&[2, 3], Fill::Away), ints(-6, 6, &[3])]),
        Method::new("nextafter", |x| one(x[0].clone().nextafter(x[1].clone())))
            .pairwise(Fill::Among(&[-1.0, 0.0, 1.0, 1.5, f64::INFINITY, f64::NAN]))
            .no_gradient("bits do not change smoothly"),
    ]
}

fn choices() -> Vec<Method> {
    let numbers: Fill = Fill::Among(&[-1.5, 0.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    vec![
        Method::new("nan_to_num", |x| one(x[0].clone().nan_to_num(0.5, Some(9.0), None)))
            .elementwise(numbers)
            .no_gradient("infinities have no slope"),
        Method::new("heaviside", |x| one(x[0].clone().heaviside(x[1].clone())))
            .pairwise(numbers)
            .no_gradient(STEPS),
        Method::new("signbit", |x| one(x[0].clone().signbit())).elementwise(numbers).no_gradient(NUMBERS),
        Method::new("is_nan", |x| one(x[0].clone().is_nan())).elementwise(numbers).no_gradient(NUMBERS),
        Method::new("contains_nan", |x| one(x[0].clone().contains_nan()))
            .elementwise(numbers)
            .no_gradient(NUMBERS),
        Method::new("is_inf", |x| one(x[0].clone().is_inf())).elementwise(numbers).no_gradient(NUMBERS),
        Method::new("is_pos_inf", |x| one(x[0].clone().is_pos_inf()))
            .elementwise(numbers)
            .no_gradient(NUMBERS),
        Method::new("is_neg_inf", |x| one(x[0].clone().is_neg_inf()))
            .elementwise(numbers)
            .no_gradient(NUMBERS),
        Method::new("is_finite", |x| one(x[0].clone().is_finite())).elementwise(numbers).no_gradient(NUMBERS),
    ]
}

fn comparisons() -> Vec<Method> {
    let numbers = Fill::Among(&[-1.0, 0.0, 1.0, f64::NAN, f64::INFINITY]);
    let mut rows = pair! {
        equal numbers;
        not_equal numbers;
        lower numbers;
        lower_equal numbers;
        greater numbers;
        greater_equal numbers;
    };
    rows.extend(with_number! {
        equal_elem 1.0, numbers;
        not_equal_elem 1.0, numbers;
        lower_elem 1.0, numbers;
        lower_equal_elem 1.0, numbers;
        greater_elem 0.0, numbers;
        greater_equal_elem 0.0, numbers;
    });
    rows.push(
        Method::new("is_close", |x| one(x[0].clone().is_close(x[1].clone(), Some(0.5), Some(0.25))))
            .pairwise(Fill::Among(&[-1.0, 1.0, 1.25, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])),
    );
    rows.push(
        Method::new("all_close", |x| {
            let same = x[0].clone().all_close(x[1].clone(), Some(0.5), None)?;
            one(AnyTensor::full(kiln_ir::TensorType::new([], kiln_ir::DType::Bool), same, x[0].stack()))
        })
        .pairwise(Fill::Among(&[1.0, 1.25])),
    );
    rows.into_iter().map(|method| method.no_gradient(NUMBERS)).collect()
}

/// Rows of integer methods, with a tensor and with a scalar.
macro_rules! integers {
    ($($method:ident $with_number:ident;)*) => {
        vec![$(
            Method::new(stringify!($method), |x| one(x[0].clone().$method(x[1].clone())))
                .on(&[ints(-99, 99, &[3, 4]), ints(0, 9, &[4])]),
            Method::new(stringify!($with_number), |x| one(x[0].clone().$with_number(3)))
                .on(&[ints(-99, 99, &[3, 4])])
                .on(&[ints(-99, 99, &[0])]),
        )*]
    };
}

fn bits() -> Vec<Method> {
    let mut rows = integers! {
        bitwise_and bitwise_and_scalar;
        bitwise_or bitwise_or_scalar;
        bitwise_xor bitwise_xor_scalar;
        bitwise_left_shift bitwise_left_shift_scalar;
        bitwise_right_shift bitwise_right_shift_scalar;
    };
    rows.push(
        Method::new("bitwise_left_shift", |x| one(x[0].clone().bitwise_left_shift(x[1].clone())))
            .variant("too far")
            .on(&[ints(-99, 99, &[8]), ints_among(&[-1.0, 31.0, 32.0, 40.0], &[8])]),
    );
    rows.push(
        Method::new("bitwise_right_shift", |x| one(x[0].clone().bitwise_right_shift(x[1].clone())))
            .variant("too far")
            .on(&[ints(-99, 99, &[8]), ints_among(&[-1.0, 31.0, 32.0, 40.0], &[8])]),
    );
    rows.push(Method::new("bitwise_not", |x| one(x[0].clone().bitwise_not())).on(&[ints(-9, 9, &[4])]));
    rows.push(Method::new("count_ones", |x| one(x[0].clone().count_ones())).on(&[ints(-9, 9, &[4])]));
    rows.into_iter().map(|method| method.no_gradient(NUMBERS)).collect()
}

fn logic() -> Vec<Method> {
    let numbers = |shape: &'static [usize]| -> Argument {
        floats(shape, Fill::Among(&[0.0, -0.0, 1.0, -2.0, f64::NAN])).constant()
    };
    let rows = vec![
        Method::new("logical_not", |x| one(x[0].clone().logical_not()))
            .on(&[numbers(&[6])])
            .on(&[bools(&[3])]),
        Method::new("logical_and", |x| one(x[0].clone().logical_and(x[1].clone()))),
        Method::new("logical_or", |x| one(x[0].clone().logical_or(x[1].clone()))),
        Method::new("logical_xor", |x| one(x[0].clone().logical_xor(x[1].clone()))),
    ];
    let with_operands = |method: Method| match method.cases.is_empty() {
        true => method.on(&[bools(&[2, 3]), bools(&[3])]).on(&[numbers(&[6]), bools(&[6])]),
        false => method,
    };
    rows.into_iter().map(|method| with_operands(method).no_gradient(NUMBERS)).collect()
}
