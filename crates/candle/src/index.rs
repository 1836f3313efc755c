//! Ops by index. An index out of range makes the host run the op, whose error names the index and its position.

use crate::call::{Call, Native, rounded, widened};
use crate::data::has_numbers;
use crate::reduce::extreme_of_all;
use candle_core::{DType as CandleDType, Tensor};
use kiln_ir::{DType, Extremum, Operand, UpdateMode};

/// The indices at a place of the operands as candle takes them, if all are in `0..length`.
fn checked(call: &Call<'_>, place: usize, length: usize) -> Native {
    let dtype = call.inputs[place].value().map_or(DType::Bool, kiln_ir::Value::dtype);
    if !has_numbers(dtype) || length >= u32::MAX as usize {
        return Ok(None);
    }
    let index = call.tensor(place)?.contiguous()?.to_dtype(CandleDType::I64)?;
    let least = extreme_of_all(&index, Extremum::Min)?.to_scalar::<i64>()?;
    let greatest = extreme_of_all(&index, Extremum::Max)?.to_scalar::<i64>()?;
    let is_inside = least >= 0 && (greatest as u64) < length as u64;
    is_inside.then(|| index.to_dtype(CandleDType::U32)).transpose()
}

/// The length of an axis of the first operand.
fn length_of(call: &Call<'_>, axis: usize) -> usize {
    call.inputs[0].value().map_or(0, |value| value.shape()[axis])
}

pub(crate) fn check(call: &Call<'_>, length: usize) -> Native {
    let index = call.tensor(0)?;
    Ok(checked(call, 0, length)?.map(|_| index))
}

pub(crate) fn take(call: &Call<'_>, axis: usize) -> Native {
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    let x = call.tensor(0)?.contiguous()?;
    x.index_select(&index.flatten_all()?, axis)?.reshape(call.dims()).map(Some)
}

pub(crate) fn gather(call: &Call<'_>, axis: usize) -> Native {
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    call.tensor(0)?.contiguous()?.gather(&index, axis).map(Some)
}

/// How candle combines written and present elements.
#[derive(Clone, Copy, PartialEq)]
enum Write {
    Set,
    Add,
}

impl Write {
    /// `None` where candle has no such kernel: it sets without an order on GPUs, and adds integers with a check.
    fn of(call: &Call<'_>, mode: UpdateMode) -> Option<Write> {
        match mode {
            UpdateMode::Set => call.device.is_cpu().then_some(Write::Set),
            UpdateMode::Add => call.ty().dtype.is_float().then_some(Write::Add),
            UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => None,
        }
    }

    /// Writes each element of the source at its index along an axis, in order.
    fn run(self, base: &Tensor, index: &Tensor, source: &Tensor, axis: usize, dtype: DType) -> Native {
        let index = index.contiguous()?;
        Ok(Some(match self {
            Write::Set => base.scatter(&index, &source.contiguous()?, axis)?,
            Write::Add => {
                let (base, source) = (widened(base)?.contiguous()?, widened(source)?.contiguous()?);
                rounded(&base.scatter_add(&index, &source, axis)?, dtype)?
            }
        }))
    }
}

pub(crate) fn scatter(call: &Call<'_>, axis: usize, mode: UpdateMode) -> Native {
    let Some(write) = Write::of(call, mode) else { return Ok(None) };
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    write.run(&call.tensor(0)?, &index, &call.tensor(2)?, axis, call.ty().dtype)
}

pub(crate) fn put(call: &Call<'_>, axis: usize, mode: UpdateMode) -> Native {
    let Some(write) = Write::of(call, mode) else { return Ok(None) };
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    let index = index.flatten_all()?;
    let base = call.tensor(0)?;
    let mut dims = base.dims().to_vec();
    dims[axis] = index.elem_count();
    let source = call.tensor(2)?.reshape(dims.as_slice())?;
    let mut line = vec![1; dims.len()];
    line[axis] = dims[axis];
    let index = index.reshape(line)?.broadcast_as(dims)?;
    write.run(&base, &index, &source, axis, call.ty().dtype)
}

/// Whether an operand is a tensor of no elements.
pub(crate) fn is_empty(operand: &Operand) -> bool {
    operand.value().is_some_and(|value| value.shape().num_elements() == 0)
}
