//! Views where strides allow, otherwise copies.

mod join;

pub(crate) use join::{concat, pad};

use crate::Cpu;
use crate::array::Array;
use alloc::format;
use kiln_ir::{
    Axes, DType, Error, Layout, Operand, Operands, Result, Shape, SliceAxis, TensorType, Value, Values,
};
use smallvec::smallvec;

pub(crate) fn reshape(cpu: &Cpu, shape: &Shape, inputs: Operands) -> Result<Values> {
    let value = only(inputs)?;
    if value.shape() == shape {
        return Ok(smallvec![value]);
    }
    let array = Array::of(&value)?;
    if array.num_elements() != shape.num_elements() {
        let problem = format!("{} elements do not fill shape {shape}", array.num_elements());
        return Err(Error::value("reshape", problem));
    }
    let ty = value.ty().with_shape(*shape);
    if let Some(layout) = array.layout.reshape(shape) {
        return viewed(value, layout, ty.dtype);
    }
    let mut copy = cpu.copied(array, value.ty())?;
    copy.layout = Layout::contiguous(*shape);
    Ok(smallvec![copy.into_value(ty)])
}

pub(crate) fn permute(axes: &Axes, inputs: Operands) -> Result<Values> {
    view(inputs, |layout| layout.permute(axes))
}

pub(crate) fn broadcast(shape: &Shape, inputs: Operands) -> Result<Values> {
    view(inputs, |layout| layout.broadcast(shape))
}

pub(crate) fn slice(slices: &[SliceAxis], inputs: Operands) -> Result<Values> {
    view(inputs, |layout| layout.slice(slices))
}

pub(crate) fn windows(
    axis: usize,
    size: usize,
    step: usize,
    dilation: usize,
    inputs: Operands,
) -> Result<Values> {
    view(inputs, |layout| layout.windows(axis, size, step, dilation))
}

/// Both dtypes have the same size and any bits are valid, so the layout stays.
pub(crate) fn bitcast(dtype: DType, inputs: Operands) -> Result<Values> {
    let value = only(inputs)?;
    let layout = Array::of(&value)?.layout;
    viewed(value, layout, dtype)
}

pub(crate) fn copy(cpu: &Cpu, inputs: Operands) -> Result<Values> {
    let value = only(inputs)?;
    let array = Array::of(&value)?;
    if array.is_contiguous() {
        return Ok(smallvec![value]);
    }
    let ty = *value.ty();
    Ok(smallvec![cpu.copied(array, &ty)?.into_value(ty)])
}

fn view(inputs: Operands, relaid: impl FnOnce(&Layout) -> Layout) -> Result<Values> {
    let value = only(inputs)?;
    let layout = relaid(&Array::of(&value)?.layout);
    let dtype = value.dtype();
    viewed(value, layout, dtype)
}

/// The value's buffer under another layout and dtype; the same value if it has no other owner and the type stays.
fn viewed(mut value: Value, layout: Layout, dtype: DType) -> Result<Values> {
    let ty = TensorType { shape: layout.shape, dtype };
    if *value.ty() == ty
        && let Some(array) = value.payload_mut::<Array>()
    {
        array.layout = layout;
        return Ok(smallvec![value]);
    }
    let buffer = Array::of(&value)?.buffer.clone();
    Ok(smallvec![Array { buffer, layout }.into_value(ty)])
}

/// The only operand.
fn only(mut inputs: Operands) -> Result<Value> {
    match inputs.pop() {
        Some(Operand::Value(value)) => Ok(value),
        Some(Operand::Scalar(_)) | None => Err(Error::unsupported("cpu", "a tensor operand is missing")),
    }
}
