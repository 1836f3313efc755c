//! Views, copies and padding: ops that move elements.

use crate::call::Call;
use crate::places::{pick, place, positions};
use alloc::vec::Vec;
use kiln_ir::{Axes, DType, Elements, PadAxis, Result, Shape, SliceAxis, TensorData, TensorType};

pub(crate) fn reshape(x: &TensorData, shape: Shape) -> Result<TensorData> {
    x.clone().reshape(shape)
}

pub(crate) fn bitcast(x: &TensorData, dtype: DType) -> Result<TensorData> {
    TensorData::from_elements(Elements::from_bytes(x.bytes(), dtype)?, *x.shape())
}

pub(crate) fn permute(x: &TensorData, axes: &Axes, shape: Shape) -> Result<TensorData> {
    let places = positions(shape).map(|position| {
        let mut source = position;
        for (to, from) in axes.iter().enumerate() {
            source[from] = position[to];
        }
        place(x.shape(), &source)
    });
    pick(&[x], places, shape)
}

pub(crate) fn broadcast(x: &TensorData, shape: Shape) -> Result<TensorData> {
    let added = shape.rank() - x.shape().rank();
    let places = positions(shape).map(|position| {
        let indices = x.shape().iter().zip(&position[added..]);
        let source: Shape = indices.map(|(&length, &index)| if length == 1 { 0 } else { index }).collect();
        place(x.shape(), &source)
    });
    pick(&[x], places, shape)
}

pub(crate) fn slice(x: &TensorData, slices: &[SliceAxis], shape: Shape) -> Result<TensorData> {
    pick(&[x], slice_places(x.shape(), slices), shape)
}

/// The places of a tensor that a slice reads, in the order of its result.
pub(crate) fn slice_places(shape: &Shape, slices: &[SliceAxis]) -> Vec<usize> {
    let lengths: Shape = slices.iter().map(|slice| slice.len).collect();
    let source = |position: Shape| -> Shape {
        let indices = slices.iter().zip(position.iter());
        indices.map(|(slice, &index)| slice.start.wrapping_add_signed(index as isize * slice.step)).collect()
    };
    positions(lengths).map(|position| place(shape, &source(position))).collect()
}

/// Pads with the second operand, a scalar.
pub(crate) fn pad(call: &Call<'_>, pads: &[PadAxis]) -> Result<TensorData> {
    let x = call.data(0)?;
    let ty = call.ty();
    let padding = call.filled(1, TensorType::new([], ty.dtype))?;
    let padding_place = x.num_elements();
    let places = positions(ty.shape).map(|position| {
        let mut source = position;
        for (axis, pad) in pads.iter().enumerate() {
            match unpadded(position[axis], pad, x.shape()[axis]) {
                Some(index) => source[axis] = index,
                None => return padding_place,
            }
        }
        place(x.shape(), &source)
    });
    pick(&[x, &padding], places, ty.shape)
}

/// The source index of an index of the padded axis; `None` in padding.
fn unpadded(index: usize, pad: &PadAxis, length: usize) -> Option<usize> {
    let past = index.checked_sub(pad.low)?;
    let source = past / (pad.interior.saturating_add(1));
    (past.is_multiple_of(pad.interior.saturating_add(1)) && source < length).then_some(source)
}

pub(crate) fn concat(parts: &[&TensorData], axis: usize, shape: Shape) -> Result<TensorData> {
    // For each index along the joined axis: its part, the start of that part, and the index of the part.
    let mut origins = Vec::new();
    let mut start = 0;
    for part in parts {
        origins.extend((0..part.shape()[axis]).map(|index| (*part.shape(), start, index)));
        start += part.num_elements();
    }
    let places = positions(shape).map(|mut position| {
        let (part, start, index) = origins[position[axis]];
        position[axis] = index;
        start + place(&part, &position)
    });
    pick(parts, places, shape)
}

pub(crate) fn windows(
    x: &TensorData,
    axis: usize,
    step: usize,
    dilation: usize,
    shape: Shape,
) -> Result<TensorData> {
    let rank = x.shape().rank();
    let places = positions(shape).map(|position| {
        let index = position[axis] * step + position[rank] * dilation;
        place(x.shape(), &position.without(rank).with(axis, index))
    });
    pick(&[x], places, shape)
}

pub(crate) fn iota(ty: TensorType, axis: usize) -> Result<TensorData> {
    let indices = positions(ty.shape).map(|position| position[axis] as i128).collect();
    crate::numbers::Numbers::Integer(indices).into_data(ty)
}

/// A tensor filled with the operand, a scalar.
pub(crate) fn filled(call: &Call<'_>) -> Result<TensorData> {
    call.filled(0, call.ty()).map(alloc::borrow::Cow::into_owned)
}
