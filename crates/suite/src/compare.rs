//! Comparing tensors.

use crate::case::Tolerance;
use crate::fill::epsilon;
use kiln_ir::TensorData;

/// Describes the difference of `actual` and `expected`, if any: the first element outside the tolerance, and their
/// number.
pub fn difference(expected: &TensorData, actual: &TensorData, tolerance: Tolerance) -> Option<String> {
    if expected.ty() != actual.ty() {
        return Some(format!("type {} instead of {}", actual.ty(), expected.ty()));
    }
    match tolerance {
        Tolerance::Bits => bits(expected, actual),
        Tolerance::Exact => elements(expected, actual, 0.0, 0.0),
        Tolerance::Near { relative, absolute } => {
            let epsilon = epsilon(expected.dtype());
            elements(expected, actual, relative * epsilon, absolute * epsilon)
        }
    }
}

/// Whether two numbers agree: both NaN, equal, or within `absolute + relative * |expected|`.
pub fn agree(expected: f64, actual: f64, relative: f64, absolute: f64) -> bool {
    if expected.is_nan() || actual.is_nan() {
        return expected.is_nan() && actual.is_nan();
    }
    expected == actual || (actual - expected).abs() <= absolute + relative * expected.abs()
}

fn bits(expected: &TensorData, actual: &TensorData) -> Option<String> {
    if expected.bytes() == actual.bytes() {
        return None;
    }
    let size = expected.dtype().size();
    let pairs = expected.bytes().chunks(size).zip(actual.bytes().chunks(size));
    let place = pairs.into_iter().position(|(a, b)| a != b)?;
    let (e, a) = (&expected.bytes()[place * size..][..size], &actual.bytes()[place * size..][..size]);
    Some(format!("element {place}: bytes {a:02x?} instead of {e:02x?}"))
}

fn elements(expected: &TensorData, actual: &TensorData, relative: f64, absolute: f64) -> Option<String> {
    if expected.dtype().is_float() {
        let agree =
            |e: f64, a: f64| agree(e, a, relative, absolute) && (e.is_finite() || e.is_nan() || e == a);
        return first(&expected.to_vec::<f64>(), &actual.to_vec::<f64>(), agree);
    }
    if expected.dtype() == kiln_ir::DType::U64 {
        return first(&expected.to_vec::<u64>(), &actual.to_vec::<u64>(), |e, a| e == a);
    }
    first(&expected.to_vec::<i64>(), &actual.to_vec::<i64>(), |e, a| e == a)
}

fn first<T: Copy + std::fmt::Debug>(
    expected: &[T],
    actual: &[T],
    agree: impl Fn(T, T) -> bool,
) -> Option<String> {
    let wrong: Vec<usize> = (0..expected.len()).filter(|&i| !agree(expected[i], actual[i])).collect();
    let &place = wrong.first()?;
    Some(format!(
        "element {place}: {:?} instead of {:?} ({} of {} elements differ)",
        actual[place],
        expected[place],
        wrong.len(),
        expected.len()
    ))
}
