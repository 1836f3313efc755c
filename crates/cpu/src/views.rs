//! The ops that put the same elements elsewhere.

use crate::Cpu;
use crate::array::{Array, is_reusable};
use crate::copy::copy;
use crate::fill;
use crate::layout::Layout;
use kiln_ir::{Axes, Operand, Operands, PadAxis, Result, Shape, TensorType, Value, Values};
use smallvec::smallvec;

/// The tensor operand at a place.
///
/// # Errors
/// Where it is a plain number, which inference refuses.
pub(crate) fn tensor(inputs: &Operands, place: usize) -> Result<&Value> {
    inputs.get(place).and_then(Operand::value).ok_or_else(|| {
        kiln_ir::Error::unsupported("cpu", alloc::format!("operand {place} must be a tensor"))
    })
}

/// The same buffer by another layout.
fn view(inputs: &Operands, ty: &TensorType, layout: impl FnOnce(&Layout) -> Layout) -> Result<Values> {
    let array = Array::of(tensor(inputs, 0)?)?;
    let layout = layout(&array.layout);
    Ok(smallvec![Array { buffer: array.buffer.clone(), layout }.into_value(*ty)])
}

pub(crate) fn reshape(cpu: &Cpu, shape: &Shape, inputs: &Operands, ty: &TensorType) -> Result<Values> {
    let value = tensor(inputs, 0)?;
    if value.shape() == shape {
        return Ok(smallvec![value.clone()]);
    }
    let array = Array::of(value)?;
    if let Some(layout) = array.layout.reshape(shape) {
        return Ok(smallvec![Array { buffer: array.buffer.clone(), layout }.into_value(*ty)]);
    }
    let copied = cpu.copied(array, value.ty())?;
    Ok(smallvec![Array { buffer: copied.buffer, layout: Layout::contiguous(*shape) }.into_value(*ty)])
}

pub(crate) fn permute(axes: &Axes, inputs: &Operands, ty: &TensorType) -> Result<Values> {
    view(inputs, ty, |layout| layout.permute(axes))
}

pub(crate) fn broadcast(inputs: &Operands, ty: &TensorType) -> Result<Values> {
    view(inputs, ty, |layout| layout.broadcast(&ty.shape))
}

pub(crate) fn slice(slices: &[kiln_ir::SliceAxis], inputs: &Operands, ty: &TensorType) -> Result<Values> {
    view(inputs, ty, |layout| layout.slice(slices))
}

pub(crate) fn windows(
    axis: usize,
    (size, step, dilation): (usize, usize, usize),
    inputs: &Operands,
    ty: &TensorType,
) -> Result<Values> {
    view(inputs, ty, |layout| layout.windows(axis, size, step, dilation))
}

/// Elements of equal size lie in equal places.
pub(crate) fn bitcast(inputs: &Operands, ty: &TensorType) -> Result<Values> {
    view(inputs, ty, |layout| *layout)
}

/// A contiguous tensor; the operand itself where it is one that fills its buffer.
pub(crate) fn contiguous_copy(cpu: &Cpu, mut inputs: Operands, ty: &TensorType) -> Result<Values> {
    if let Some(Operand::Value(value)) = inputs.first_mut() {
        let fills = Array::of(value)?.buffer.len() == ty.num_bytes() && Array::of(value)?.is_contiguous();
        if fills || is_reusable(value) {
            return Ok(smallvec![value.clone()]);
        }
    }
    let array = cpu.copied(Array::of(tensor(&inputs, 0)?)?, ty)?;
    Ok(smallvec![array.into_value(*ty)])
}

pub(crate) fn pad(cpu: &Cpu, pads: &[PadAxis], inputs: &Operands, ty: &TensorType) -> Result<Values> {
    let value = tensor(inputs, 0)?;
    let filled = fill::full(cpu, ty, &smallvec![inputs[1].clone()])?;
    let target = Array::of(&filled[0])?;
    let mut layout = target.layout;
    for (axis, pad) in pads.iter().enumerate() {
        layout.offset += pad.low * layout.strides[axis] as usize;
        layout.strides[axis] *= (pad.interior + 1) as isize;
    }
    layout.shape = *value.shape();
    write(cpu, Array::of(value)?, value.ty(), &Array { buffer: target.buffer.clone(), layout });
    Ok(filled)
}

pub(crate) fn concat(cpu: &Cpu, axis: usize, inputs: &Operands, ty: &TensorType) -> Result<Values> {
    if inputs.len() == 1 {
        return Ok(smallvec![tensor(inputs, 0)?.clone()]);
    }
    let result = Array::uninit(ty)?;
    let mut layout = result.layout;
    for place in 0..inputs.len() {
        let value = tensor(inputs, place)?;
        layout.shape = *value.shape();
        write(cpu, Array::of(value)?, value.ty(), &Array { buffer: result.buffer.clone(), layout });
        layout.offset += value.shape()[axis] * layout.strides[axis] as usize;
    }
    Ok(smallvec![result.into_value(*ty)])
}

/// Copies into a part of a result that is being made.
pub(crate) fn write(cpu: &Cpu, source: &Array, ty: &TensorType, target: &Array) {
    let size = ty.dtype.size();
    let address = |array: &Array| array.buffer.as_ptr().wrapping_add(array.layout.offset * size);
    // SAFETY: both have the shape of the type, and the target belongs to a fresh buffer that is not the source's.
    unsafe {
        copy(
            &cpu.pool,
            size,
            &ty.shape,
            (address(source), source.strides()),
            (address(target), target.strides()),
        );
    }
}
