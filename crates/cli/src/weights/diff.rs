//! The differences of two files.

use std::collections::BTreeSet;

use kiln_store::{StoreError, TensorInfo, Weights};
use kiln_tensor::{DType, TensorData};

use super::Outcome;
use super::progress::Progress;
use crate::table::{columns, printable};

/// Compares names, types and elements.
pub(super) fn diff(left: &Weights, right: &Weights, tolerance: f64) -> Result<Outcome, StoreError> {
    let names: BTreeSet<&str> = left.names().into_iter().chain(right.names()).collect();
    let progress = Progress::new(names.len());
    let mut rows = Vec::new();
    for name in &names {
        if let Some(difference) = difference(left, right, name, tolerance)? {
            rows.push(vec![printable(name), difference]);
        }
        progress.step(name);
    }
    progress.finish();
    let text = match rows.len() {
        0 => format!("{} tensors are equal\n", names.len()),
        count => format!("{}\n{count} of {} tensors differ\n", columns(&rows), names.len()),
    };
    Ok(Outcome { text, differs: !rows.is_empty() })
}

/// Describes the difference of a tensor; `None` if there is none.
fn difference(
    left: &Weights,
    right: &Weights,
    name: &str,
    tolerance: f64,
) -> Result<Option<String>, StoreError> {
    let (a, b) = match (left.info(name), right.info(name)) {
        (Some(a), Some(b)) => (a, b),
        (Some(_), None) => {
            return Ok(Some(format!("only in {}", printable(&left.path().display().to_string()))));
        }
        (None, _) => return Ok(Some(format!("only in {}", printable(&right.path().display().to_string())))),
    };
    if a.shape != b.shape {
        return Ok(Some(format!("shape {} and {}", a.shape, b.shape)));
    }
    let greatest = greatest_difference(&left.read(name)?, &right.read(name)?);
    // Formats have different names for one dtype: `F32`, `f32`, `float32`.
    let types = ((a.dtype, a.blocks) != (b.dtype, b.blocks)).then(|| types(&a, &b));
    // NaN on one side only is a difference.
    let differs = greatest.is_nan() || greatest > tolerance;
    Ok(match (differs, types) {
        (true, Some(types)) => Some(format!("differs by up to {greatest:e}; {types}")),
        (true, None) => Some(format!("differs by up to {greatest:e}")),
        (false, Some(types)) if tolerance == 0.0 => Some(types),
        (false, Some(_) | None) => None,
    })
}

fn types(a: &TensorInfo, b: &TensorInfo) -> String {
    format!("type {} and {}", printable(&a.dtype_name), printable(&b.dtype_name))
}

/// The greatest absolute difference of two tensors of equal shapes. NaN equals NaN, and an infinity equals itself.
fn greatest_difference(a: &TensorData, b: &TensorData) -> f64 {
    if a == b {
        return 0.0;
    }
    let (a, b) = (a.clone().convert(DType::F64), b.clone().convert(DType::F64));
    let differences = a.iter::<f64>().zip(b.iter::<f64>()).map(|(a, b)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if a == b => 0.0,
        (false, false) => (a - b).abs(),
        (true, false) | (false, true) => f64::NAN,
    });
    differences.fold(0.0, |greatest: f64, difference| match difference.is_nan() || greatest.is_nan() {
        true => f64::NAN,
        false => greatest.max(difference),
    })
}
