//! Estimates the range of correct results by runs with noise.

use crate::trace::{Slot, same};
use kiln_ir::{DType, Elements, TensorData};
use kiln_suite::fill::{epsilon, float_limits};

/// Numbers of noisy runs per difference between two runs; later counts apply if earlier runs do not explain it. A
/// difference that depends on the rounding of five values occurs in one of several hundred runs.
const ROUNDS: [u64; 3] = [8, 120, 1500];

/// Checks that `found` is a plausible result of a correct run, given another run's `expected`. Returns the first
/// problem. `noisy` is one more run with noise, by number; it is called only if bits differ.
pub(crate) fn first_problem(
    expected: &[Slot],
    found: &[Slot],
    noisy: &dyn Fn(u64) -> Option<Vec<Slot>>,
) -> Option<(usize, String)> {
    let differing: Vec<usize> =
        (0..expected.len()).filter(|&place| !same(&expected[place], &found[place])).collect();
    if differing.is_empty() {
        return None;
    }
    let mut runs: Vec<Vec<Slot>> = Vec::new();
    let mut problem = None;
    for rounds in ROUNDS {
        for number in runs.len() as u64..rounds {
            // A missing run, like a failed one, explains no difference.
            runs.push(noisy(number).unwrap_or_else(|| expected.to_vec()));
        }
        let of = |&place: &usize| {
            let list: Vec<&Slot> = runs.iter().filter_map(|run| run.get(place)).collect();
            outside(&expected[place], &found[place], &list).map(|text| (place, text))
        };
        problem = differing.iter().find_map(of);
        problem.as_ref()?;
    }
    problem
}

fn outside(expected: &Slot, found: &Slot, runs: &[&Slot]) -> Option<String> {
    if runs.iter().any(|run| run.is_ok() != expected.is_ok()) {
        return None;
    }
    let (expected, found) = match (expected, found) {
        (Ok(expected), Ok(found)) => (expected, found),
        (Ok(_), Err(error)) => return Some(format!("failed: {error}")),
        (Err(error), Ok(_)) => return Some(format!("gave a value instead of failing: {error}")),
        (Err(_), Err(_)) => return None,
    };
    let runs: Vec<&TensorData> = runs.iter().filter_map(|run| run.as_ref().ok()).collect();
    // After `NonZero`, the shape depends on the data.
    if runs.iter().any(|run| run.ty() != expected.ty()) {
        return None;
    }
    if found.ty() != expected.ty() {
        return Some(format!("{} instead of {}", found.ty(), expected.ty()));
    }
    match expected.dtype() {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => floats(expected, found, &runs),
        DType::I64
        | DType::U64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => integers(expected, found, &runs),
    }
}

/// Checks that an integer that is equal in all runs has that value. 64-bit integers are compared as the bits of `i64`.
fn integers(expected: &TensorData, found: &TensorData, runs: &[&TensorData]) -> Option<String> {
    let bits = |data: &TensorData| match data.elements() {
        Elements::U64(list) => list.iter().map(|&x| x as i64).collect(),
        Elements::F64(_)
        | Elements::F32(_)
        | Elements::F16(_)
        | Elements::BF16(_)
        | Elements::I64(_)
        | Elements::I32(_)
        | Elements::I16(_)
        | Elements::I8(_)
        | Elements::U32(_)
        | Elements::U16(_)
        | Elements::U8(_)
        | Elements::Bool(_) => data.to_vec::<i64>(),
    };
    let (expected, found): (Vec<i64>, Vec<i64>) = (bits(expected), bits(found));
    let runs: Vec<Vec<i64>> = runs.iter().map(|run| bits(run)).collect();
    let wrong = |&i: &usize| found[i] != expected[i] && runs.iter().all(|run| run[i] == expected[i]);
    let i = (0..expected.len()).find(wrong)?;
    Some(format!("element {i}: {} instead of {}", found[i], expected[i]))
}

/// Checks that a float is within the range of the runs, or close to it.
fn floats(expected: &TensorData, found: &TensorData, runs: &[&TensorData]) -> Option<String> {
    let dtype = expected.dtype();
    let (expected, found): (Vec<f64>, Vec<f64>) = (expected.to_vec(), found.to_vec());
    let runs: Vec<Vec<f64>> = runs.iter().map(|run| run.to_vec()).collect();
    let (greatest, _, least) = float_limits(dtype);
    (0..expected.len()).find_map(|i| {
        let (here, there) = (expected[i], found[i]);
        if here == there || here.is_nan() && there.is_nan() {
            return None;
        }
        let all = || runs.iter().map(|run| run[i]).chain([here]);
        let kind = |x: f64| (x.is_nan(), x == f64::INFINITY, x == f64::NEG_INFINITY);
        if all().any(|x| kind(x) != kind(here)) {
            return None;
        }
        let (low, high) = all().fold((here, here), |(low, high), x| (low.min(x), high.max(x)));
        let most = low.abs().max(high.abs());
        let allowed = 4.0 * (high - low) + 2.0 * epsilon(dtype) * most + least;
        let inside = there >= low - allowed && there <= high + allowed;
        let overflows = there.is_infinite() && most + allowed >= greatest * (1.0 - 8.0 * epsilon(dtype));
        let text =
            || format!("element {i}: {there:?} instead of {here:?}, or of {low:?} to {high:?} by chance");
        (!inside && !overflows).then(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(list: &[f64]) -> Slot {
        Ok(TensorData::from(list))
    }

    #[test]
    fn differences_beyond_the_noise_are_reported() {
        let noisy = |number: u64| Some(vec![slot(&[1.0, 2.0 + number as f64 * 1e-9])]);
        let judge = |found: &[f64]| first_problem(&[slot(&[1.0, 2.0])], &[slot(found)], &noisy);
        assert_eq!(judge(&[1.0, 2.0 + 3e-9]), None);
        assert!(judge(&[1.0 + 1e-9, 2.0]).unwrap().1.contains("element 0"));
        assert!(judge(&[1.0, 2.1]).unwrap().1.contains("element 1"));
        assert!(judge(&[1.0, f64::NAN]).is_some());
    }

    #[test]
    fn integers_that_vary_between_runs_are_ignored() {
        let data = |x: i64| vec![Ok(TensorData::from([x]))];
        let jumps = |number: u64| Some(data((number % 2) as i64));
        assert_eq!(first_problem(&data(0), &data(5), &jumps), None);
        assert!(first_problem(&data(0), &data(5), &|_| Some(data(0))).is_some());
    }
}
