//! Reductions and sorting.

use crate::library::{Call, CandleCore, Native, constant, has_numbers, nan_mask, stored};
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_foreign::Reduce;
use kiln_ir::{DType, Extremum, Reduction};

impl Reduce for CandleCore {
    fn reduce(x: &Tensor, reduction: Reduction, axes: &[usize], dtype: DType) -> Native {
        if dtype.is_float() {
            let y = match reduction {
                Reduction::Sum => x.sum_keepdim(axes),
                Reduction::Prod => product(x, axes),
                Reduction::Min => extreme(x, axes, Extremum::Min),
                Reduction::Max => extreme(x, axes, Extremum::Max),
            };
            return y.map(Some);
        }
        if !has_numbers(dtype) {
            return Ok(None);
        }
        Ok(match reduction {
            Reduction::Min => Some(folded(x, axes, Extremum::Min)?),
            Reduction::Max => Some(folded(x, axes, Extremum::Max)?),
            // `i64` holds the sum of so many narrower integers as memory holds.
            Reduction::Sum if dtype != DType::I64 => Some(x.to_dtype(CandleDType::I64)?.sum_keepdim(axes)?),
            Reduction::Sum | Reduction::Prod => None,
        })
    }

    fn arg_reduce(call: &Call<'_>, extremum: Extremum, axis: usize) -> Native {
        let (x, dtype) = (call.tensor(0)?, call.dtype());
        let index = call.ty().dtype;
        if !has_numbers(dtype) || !is_counter(index, x.dims()[axis]) {
            return Ok(None);
        }
        if x.dims()[axis] == 1 {
            return Tensor::zeros(x.shape(), stored(index), x.device()).map(Some);
        }
        let mut place = match extremum {
            Extremum::Min => x.argmin_keepdim(axis)?,
            Extremum::Max => x.argmax_keepdim(axis)?,
        };
        if dtype.is_float() {
            let mask = nan_mask(&x)?;
            place = mask.max_keepdim(axis)?.where_cond(&mask.argmax_keepdim(axis)?, &place)?;
        }
        place.to_dtype(stored(index)).map(Some)
    }

    fn sort(call: &Call<'_>, axis: usize, k: usize, descending: bool, index: DType) -> Native<[Tensor; 2]> {
        let (x, dtype) = (call.tensor(0)?, call.dtype());
        // Candle's sort is stable on the processor alone.
        if !call.library.0.is_cpu() || !has_numbers(dtype) || !is_counter(index, x.dims()[axis]) {
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
}

/// The product along axes: halves are multiplied until one element is left.
fn product(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let mut x = x.clone();
    for &axis in axes {
        while x.dims()[axis] > 1 {
            let length = x.dims()[axis];
            let half = length / 2;
            let pairs = x.narrow(axis, 0, half)?.mul(&x.narrow(axis, half, half)?)?;
            x = match length % 2 {
                0 => pairs,
                _ => Tensor::cat(&[&pairs, &x.narrow(axis, length - 1, 1)?], axis)?,
            };
        }
    }
    Ok(x)
}

/// The extreme of floats along axes; NaN where there is one.
pub(crate) fn extreme(x: &Tensor, axes: &[usize], extremum: Extremum) -> Result<Tensor> {
    let y = folded(x, axes, extremum)?;
    let has_nan = folded(&nan_mask(x)?, axes, Extremum::Max)?;
    has_nan.where_cond(&constant(&y, f64::NAN)?, &y)
}

/// The extreme along axes, in an order that a NaN disturbs. Candle divides by the stride of an axis, which may be 0 where the
/// length is 1.
pub(crate) fn folded(x: &Tensor, axes: &[usize], extremum: Extremum) -> Result<Tensor> {
    let mut x = x.clone();
    for &axis in axes {
        if x.dims()[axis] == 1 {
            continue;
        }
        x = match extremum {
            Extremum::Min => x.min_keepdim(axis)?,
            Extremum::Max => x.max_keepdim(axis)?,
        };
    }
    Ok(x)
}

/// The extreme of all elements, without axes, in an order that a NaN disturbs.
pub(crate) fn extreme_of_all(x: &Tensor, extremum: Extremum) -> Result<Tensor> {
    folded(&x.flatten_all()?, &[0], extremum)?.reshape(())
}

/// Whether places below this length, which candle counts in `u32`, are numbers of an index dtype.
fn is_counter(index: DType, length: usize) -> bool {
    has_numbers(index) && u32::try_from(length).is_ok()
}
