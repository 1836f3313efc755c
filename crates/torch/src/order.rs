//! Sorting.

use crate::call::{Call, Native, ordered, rounded, unordered};
use crate::ffi::Argument::{Bool, Int};
use crate::ffi::call as call_torch;
use crate::tensor::Tensor;
use kiln_ir::DType;

/// The first `k` entries of a stable sort along an axis, with their places.
pub(crate) fn sort(
    call: &Call<'_>,
    axis: usize,
    k: usize,
    descending: bool,
    index: DType,
) -> Native<[Tensor; 2]> {
    let dtype = call.dtype();
    let x = ordered(&call.tensor(0)?, dtype)?;
    let arguments = [x.arg(), Bool(true), Int(axis as i64), Bool(descending)];
    let [values, places] = call_torch(c"sort.stable", &arguments)?;
    let first = |sorted: Tensor| sorted.narrow(axis, 0, k);
    Ok(Some([unordered(&first(values)?, dtype)?, rounded(&first(places)?, index)?]))
}
