//! Ops by index.

use crate::library::{Call, CandleCore, Native, has_numbers};
use crate::reduce::extreme_of_all;
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_foreign::{Index, Library};
use kiln_ir::{DType, Extremum, UpdateMode};

impl Index for CandleCore {
    fn indices(x: &Tensor, dtype: DType, length: usize) -> Native {
        if !has_numbers(dtype) || length >= u32::MAX as usize {
            return Ok(None);
        }
        let index = x.contiguous()?.to_dtype(CandleDType::I64)?;
        let least = extreme_of_all(&index, Extremum::Min)?.to_scalar::<i64>()?;
        let greatest = extreme_of_all(&index, Extremum::Max)?.to_scalar::<i64>()?;
        let is_inside = least >= 0 && (greatest as u64) < length as u64;
        is_inside.then(|| index.to_dtype(CandleDType::U32)).transpose()
    }

    fn index_select(x: &Tensor, index: &Tensor, axis: usize) -> Result<Tensor> {
        x.contiguous()?.index_select(index, axis)
    }

    fn gather(x: &Tensor, index: &Tensor, axis: usize) -> Result<Tensor> {
        x.contiguous()?.gather(index, axis)
    }

    /// Candle sets without an order on GPUs, and adds integers with a check.
    fn has_mode(call: &Call<'_>, mode: UpdateMode) -> bool {
        match mode {
            UpdateMode::Set => call.library.0.is_cpu(),
            UpdateMode::Add => call.ty().dtype.is_float(),
            UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => false,
        }
    }

    fn scatter(
        base: &Tensor,
        index: &Tensor,
        source: &Tensor,
        axis: usize,
        mode: UpdateMode,
        dtype: DType,
    ) -> Result<Tensor> {
        let index = index.contiguous()?;
        if mode == UpdateMode::Set {
            return base.scatter(&index, &source.contiguous()?, axis);
        }
        let wide = |x: &Tensor| CandleCore::widened(x)?.contiguous();
        CandleCore::rounded(&wide(base)?.scatter_add(&index, &wide(source)?, axis)?, dtype)
    }
}
