//! Comparing tensors.

use crate::case::Tolerance;
use crate::fill::epsilon;
use kiln_ir::{DType, TensorData};

/// Describes the difference of `actual` and `expected`, if any: the first element outside the tolerance, and their
/// number.
pub fn difference(expected: &TensorData, actual: &TensorData, tolerance: Tolerance) -> Option<String> {
    difference_of_any(&[expected], actual, tolerance, 0.0)
}

/// Works like [`difference`], where each element may agree with that of any expected tensor, and floats may also differ
/// by `allowed`. Bits are compared with the first expected tensor.
///
/// # Panics
/// When there is no expected tensor.
pub fn difference_of_any(
    expected: &[&TensorData],
    actual: &TensorData,
    tolerance: Tolerance,
    allowed: f64,
) -> Option<String> {
    if let Some(expected) = expected.iter().find(|expected| expected.ty() != actual.ty()) {
        return Some(format!("type {} instead of {}", actual.ty(), expected.ty()));
    }
    let (&first, others) = expected.split_first().expect("there is an expected tensor");
    let (relative, absolute) = match tolerance {
        Tolerance::Bits => return bits(first, actual),
        Tolerance::Exact => (0.0, 0.0),
        Tolerance::Near { relative, absolute } => {
            let epsilon = epsilon(actual.dtype());
            (relative * epsilon, absolute * epsilon)
        }
    };
    let differing = |expected: &TensorData| differing(expected, actual, relative, absolute + allowed);
    let mut wrong = differing(first);
    for &other in others {
        let wrong_there = differing(other);
        wrong.retain(|place| wrong_there.binary_search(place).is_ok());
    }
    let &place = wrong.first()?;
    Some(format!(
        "element {place}: {} instead of {} ({} of {} elements differ)",
        element(actual, place),
        element(first, place),
        wrong.len(),
        actual.shape().num_elements()
    ))
}

/// Returns whether two numbers agree: both NaN, equal, or within `absolute + relative * |expected|`.
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

/// The places of elements that differ, in order.
fn differing(expected: &TensorData, actual: &TensorData, relative: f64, absolute: f64) -> Vec<usize> {
    if expected.dtype().is_float() {
        let agree =
            |e: f64, a: f64| agree(e, a, relative, absolute) && (e.is_finite() || e.is_nan() || e == a);
        return places(&expected.to_vec::<f64>(), &actual.to_vec::<f64>(), agree);
    }
    if expected.dtype() == DType::U64 {
        return places(&expected.to_vec::<u64>(), &actual.to_vec::<u64>(), |e, a| e == a);
    }
    places(&expected.to_vec::<i64>(), &actual.to_vec::<i64>(), |e, a| e == a)
}

fn places<T: Copy>(expected: &[T], actual: &[T], agree: impl Fn(T, T) -> bool) -> Vec<usize> {
    (0..expected.len()).filter(|&i| !agree(expected[i], actual[i])).collect()
}

/// An element in messages.
fn element(data: &TensorData, place: usize) -> String {
    if data.dtype().is_float() {
        format!("{:?}", data.to_vec::<f64>()[place])
    } else if data.dtype() == DType::U64 {
        data.to_vec::<u64>()[place].to_string()
    } else {
        data.to_vec::<i64>()[place].to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_agree_with_any_expected_tensor() {
        let data = |numbers: [f32; 3]| TensorData::new(numbers.to_vec(), [3]).unwrap();
        let (a, b) = (data([1.0, 2.0, 3.0]), data([4.0, 5.0, 6.0]));
        let mixed = data([1.0, 5.0, 3.0]);
        assert_eq!(difference_of_any(&[&a, &b], &mixed, Tolerance::Exact, 0.0), None);
        let problem = difference_of_any(&[&a, &b], &data([1.0, 5.0, 4.0]), Tolerance::Exact, 0.0).unwrap();
        assert_eq!(problem, "element 2: 4.0 instead of 3.0 (1 of 3 elements differ)");
        assert_eq!(difference_of_any(&[&a], &data([1.5, 2.0, 3.0]), Tolerance::Exact, 0.5), None);
        assert!(difference(&a, &data([1.5, 2.0, 3.0]), Tolerance::Exact).is_some());
    }
}
