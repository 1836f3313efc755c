//! Ops by index. An index out of range makes the host run the op, whose error names the index and its position.

use crate::call::{Call, Native, numbers, ordered, rounded, unordered, widened};
use crate::ffi::Argument::{Int, Text};
use crate::ffi::{Failure, call as call_torch};
use crate::tensor::{Result, Tensor, TorchType, one};
use kiln_ir::{DType, Operand, UpdateMode};

/// The indices at a place of the operands as LibTorch takes them, if all are in `0..length`.
fn checked(call: &Call<'_>, place: usize, length: usize) -> Native {
    let dtype = call.inputs[place].value().map_or(DType::I64, kiln_ir::Value::dtype);
    let index = call.tensor(place)?;
    // Numbers of `u64` from 2⁶³ on are negative as bits, and out of range both ways.
    let index = numbers(&index, dtype)?.unwrap_or(index).to(TorchType::Long)?;
    let [least, greatest] = call_torch(c"aminmax", &[index.arg()])?;
    let is_inside = number(&least)? >= 0 && (number(&greatest)? as u64) < length as u64;
    Ok(is_inside.then_some(index))
}

/// The number in a tensor of one `i64`.
fn number(x: &Tensor) -> Result<i64> {
    let mut bytes = [0; 8];
    x.read(&mut bytes)?;
    Ok(i64::from_ne_bytes(bytes))
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
    let rows = one(c"index_select", &[call.tensor(0)?.arg(), Int(axis as i64), index.flat()?.arg()])?;
    rows.reshape(call.dims()).map(Some)
}

pub(crate) fn gather(call: &Call<'_>, axis: usize) -> Native {
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    one(c"gather", &[call.tensor(0)?.arg(), Int(axis as i64), index.arg()]).map(Some)
}

/// Whether LibTorch writes in this mode as Kiln does: on GPUs, elements that are set have no order.
fn has_mode(call: &Call<'_>, mode: UpdateMode) -> bool {
    match mode {
        UpdateMode::Set => call.place.is_processor(),
        UpdateMode::Add | UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => true,
    }
}

/// Writes each element of the source at its index along an axis, in order.
fn written(
    base: &Tensor,
    index: &Tensor,
    source: &Tensor,
    axis: usize,
    mode: UpdateMode,
    dtype: DType,
) -> Result {
    let axis = Int(axis as i64);
    let reduction = match mode {
        UpdateMode::Set => return one(c"scatter.src", &[base.arg(), axis, index.arg(), source.arg()]),
        UpdateMode::Add => {
            let (base, source) = (widened(base)?, widened(source)?);
            let y = one(c"scatter_add", &[base.arg(), axis, index.arg(), source.arg()])?;
            return rounded(&y, dtype);
        }
        UpdateMode::Mul => {
            let (base, source) = (widened(base)?, widened(source)?);
            return rounded(&reduced(&base, axis, index, &source, "prod")?, dtype);
        }
        UpdateMode::Min => "amin",
        UpdateMode::Max => "amax",
    };
    unordered(&reduced(&ordered(base, dtype)?, axis, index, &ordered(source, dtype)?, reduction)?, dtype)
}

fn reduced(
    base: &Tensor,
    axis: crate::ffi::Argument<'_>,
    index: &Tensor,
    source: &Tensor,
    how: &str,
) -> Result {
    one(c"scatter_reduce.two", &[base.arg(), axis, index.arg(), source.arg(), Text(how)])
}

pub(crate) fn scatter(call: &Call<'_>, axis: usize, mode: UpdateMode) -> Native {
    if !has_mode(call, mode) {
        return Ok(None);
    }
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    written(&call.tensor(0)?, &index, &call.tensor(2)?, axis, mode, call.ty().dtype).map(Some)
}

pub(crate) fn put(call: &Call<'_>, axis: usize, mode: UpdateMode) -> Native {
    if !has_mode(call, mode) {
        return Ok(None);
    }
    let Some(index) = checked(call, 1, length_of(call, axis))? else { return Ok(None) };
    let index = index.flat()?;
    let count = *index.dims().first().ok_or_else(|| Failure("the index has no axis".into()))?;
    let base = call.tensor(0)?;
    let mut dims = base.dims();
    let mut line = vec![1; dims.len()];
    (dims[axis], line[axis]) = (count, count);
    let source = call.tensor(2)?.reshape(&dims)?;
    let index = index.reshape(&line)?.expand(&dims)?;
    written(&base, &index, &source, axis, mode, call.ty().dtype).map(Some)
}

/// Whether an operand is a tensor of no elements.
pub(crate) fn is_empty(operand: &Operand) -> bool {
    operand.value().is_some_and(|value| value.shape().num_elements() == 0)
}
