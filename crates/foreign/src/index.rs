//! Ops by index.

use crate::call::Call;
use crate::library::{Index, Native, View};
use kiln_ir::{DType, UpdateMode, Value};

/// The indices at a place of the operands, if all are in `0..length`.
fn checked<L: Index>(call: &Call<'_, L>, place: usize, length: usize) -> Native<L> {
    let dtype = call.inputs[place].value().map_or(DType::I64, Value::dtype);
    L::indices(&call.tensor(place)?, dtype, length)
}

/// The second operand as indices along an axis of the first one.
fn along<L: Index>(call: &Call<'_, L>, axis: usize) -> Native<L> {
    checked(call, 1, call.inputs[0].value().map_or(0, |value| value.shape()[axis]))
}

/// The number of indices in the second operand.
fn count<L>(call: &Call<'_, L>) -> usize {
    call.inputs[1].value().map_or(0, |value| value.shape().num_elements())
}

pub(crate) fn check<L: Index>(call: &Call<'_, L>, length: usize) -> Native<L> {
    checked(call, 0, length)?.map(|_| call.tensor(0)).transpose()
}

pub(crate) fn take<L: Index + View>(call: &Call<'_, L>, axis: usize) -> Native<L> {
    let Some(index) = along(call, axis)? else { return Ok(None) };
    let line = L::reshape(&index, &[count(call)])?;
    L::reshape(&L::index_select(&call.tensor(0)?, &line, axis)?, call.dims()).map(Some)
}

pub(crate) fn gather<L: Index>(call: &Call<'_, L>, axis: usize) -> Native<L> {
    let Some(index) = along(call, axis)? else { return Ok(None) };
    L::gather(&call.tensor(0)?, &index, axis).map(Some)
}

pub(crate) fn scatter<L: Index>(call: &Call<'_, L>, axis: usize, mode: UpdateMode) -> Native<L> {
    if !L::has_mode(call, mode) {
        return Ok(None);
    }
    let Some(index) = along(call, axis)? else { return Ok(None) };
    L::scatter(&call.tensor(0)?, &index, &call.tensor(2)?, axis, mode, call.ty().dtype).map(Some)
}

pub(crate) fn put<L: Index + View>(call: &Call<'_, L>, axis: usize, mode: UpdateMode) -> Native<L> {
    if !L::has_mode(call, mode) {
        return Ok(None);
    }
    let Some(index) = along(call, axis)? else { return Ok(None) };
    let (mut dims, mut line) = (call.dims().to_vec(), vec![1; call.dims().len()]);
    (dims[axis], line[axis]) = (count(call), count(call));
    let index = L::broadcast(&L::reshape(&index, &line)?, &dims)?;
    let source = L::reshape(&call.tensor(2)?, &dims)?;
    L::scatter(&call.tensor(0)?, &index, &source, axis, mode, call.ty().dtype).map(Some)
}
