//! Sorting.

use crate::call::{Call, Native, nan_mask};
use crate::data::{has_numbers, stored};
use crate::reduce::{extreme_of_all, is_counter};
use candle_core::{Result, Tensor};
use kiln_ir::{DType, Extremum};

/// The first `k` entries of a stable sort along an axis, with their places.
pub(crate) fn sort(
    call: &Call<'_>,
    axis: usize,
    k: usize,
    descending: bool,
    index: DType,
) -> Native<[Tensor; 2]> {
    let (x, dtype) = (call.tensor(0)?, call.dtype());
    // Candle's sort is stable on the processor alone.
    if !call.device.is_cpu() || !has_numbers(dtype) || !is_counter(index, x.dims()[axis]) {
        return Ok(None);
    }
    if dtype.is_float() && extreme_of_all(&nan_mask(&x)?, Extremum::Max)?.to_scalar::<u8>()? != 0 {
        return Ok(None);
    }
    let last = x.rank() - 1;
    let lines = x.transpose(axis, last)?.contiguous()?;
    let places = lines.arg_sort_last_dim(!descending)?.narrow(last, 0, k)?.contiguous()?;
    let values = lines.gather(&places, last)?;
    let back = |sorted: Tensor| -> Result<Tensor> { sorted.transpose(axis, last) };
    Ok(Some([back(values)?, back(places.to_dtype(stored(index))?)?]))
}
