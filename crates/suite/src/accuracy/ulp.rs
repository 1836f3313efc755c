//! Errors in units in the last place (ULP).

use super::Worst;
use kiln_ir::{Elements, TensorData};

/// Returns the maximum ULP error of actual results, with its argument. The distance of NaN to NaN is 0, of NaN to a
/// number infinite; the zeros are equal.
///
/// # Panics
/// When the three differ in dtype or length.
pub fn worst(x: &TensorData, expected: &TensorData, actual: &TensorData) -> Worst {
    assert_eq!(expected.ty(), actual.ty(), "a function of floats keeps their type");
    let (expected, actual, x) = (places(expected), places(actual), x.to_vec::<f64>());
    assert_eq!(x.len(), actual.len(), "one result for each argument");
    let mut worst = Worst { error: 0.0, at: x.first().copied().unwrap_or(0.0) };
    for ((expected, actual), x) in expected.into_iter().zip(actual).zip(x) {
        let error = match (expected, actual) {
            (Some(expected), Some(actual)) => (expected - actual).unsigned_abs() as f64,
            (None, None) => 0.0,
            (Some(_), None) | (None, Some(_)) => f64::INFINITY,
        };
        if error > worst.error {
            worst = Worst { error, at: x };
        }
    }
    worst
}

/// The index of each element among all floats of its dtype in ascending order; zero has index 0. `None` for NaN.
fn places(data: &TensorData) -> Vec<Option<i128>> {
    fn place(is_nan: bool, is_negative: bool, magnitude: u64) -> Option<i128> {
        let place = i128::from(magnitude);
        (!is_nan).then_some(if is_negative { -place } else { place })
    }
    match data.elements() {
        Elements::F64(x) => {
            x.iter().map(|x| place(x.is_nan(), x.is_sign_negative(), x.abs().to_bits())).collect()
        }
        Elements::F32(x) => {
            x.iter().map(|x| place(x.is_nan(), x.is_sign_negative(), x.abs().to_bits().into())).collect()
        }
        Elements::F16(x) => x
            .iter()
            .map(|x| place(x.is_nan(), x.is_sign_negative(), u64::from(x.to_bits() & 0x7fff)))
            .collect(),
        Elements::BF16(x) => x
            .iter()
            .map(|x| place(x.is_nan(), x.is_sign_negative(), u64::from(x.to_bits() & 0x7fff)))
            .collect(),
        Elements::I64(_)
        | Elements::I32(_)
        | Elements::I16(_)
        | Elements::I8(_)
        | Elements::U64(_)
        | Elements::U32(_)
        | Elements::U16(_)
        | Elements::U8(_)
        | Elements::Bool(_) => panic!("{} has no units in the last place", data.dtype()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(expected: f32, actual: f32) -> f64 {
        worst(&TensorData::from([2.0f32]), &TensorData::from([expected]), &TensorData::from([actual])).error
    }

    #[test]
    fn adjacent_floats_are_one_ulp_apart() {
        assert_eq!(error(1.0, 1.0), 0.0);
        assert_eq!(error(1.0, 1.0 + f32::EPSILON), 1.0);
        assert_eq!(error(1.0, 1.0 - f32::EPSILON), 2.0);
        assert_eq!(error(f32::from_bits(1), -f32::from_bits(1)), 2.0);
        assert_eq!(error(0.0, -0.0), 0.0);
        assert_eq!(error(f32::MAX, f32::INFINITY), 1.0);
        assert_eq!(error(f32::NAN, f32::NAN), 0.0);
        assert_eq!(error(f32::NAN, 1.0), f64::INFINITY);
        assert_eq!(error(0.0, f32::NAN), f64::INFINITY);
    }
}
