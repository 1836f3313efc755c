//! Creation, views and movement. These run on the bits of every dtype.

use crate::call::{Call, Native};
use crate::data::{has_numbers, stored};
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_ir::{Axes, Operand, PadAxis, SliceAxis, TensorType, UpdateMode};

/// The greatest number up to which `f32` has every whole number.
const WHOLE_F32: usize = 1 << 24;

pub(crate) fn full(call: &Call<'_>) -> Native {
    let Operand::Scalar(scalar) = call.inputs[0] else { return Ok(None) };
    call.repeated(scalar, call.ty().dtype, call.dims())?.contiguous().map(Some)
}

pub(crate) fn iota(call: &Call<'_>, ty: TensorType, axis: usize) -> Native {
    let length = ty.shape[axis];
    let is_narrow = ty.dtype.is_float() && ty.dtype.size() == 2;
    if !has_numbers(ty.dtype) || ty.dtype.is_bool() || (is_narrow && length > WHOLE_F32) {
        return Ok(None);
    }
    let mut line = Tensor::arange(0, length as i64, call.device)?;
    if is_narrow {
        line = line.to_dtype(CandleDType::F32)?;
    }
    let mut dims = vec![1; ty.shape.rank()];
    dims[axis] = length;
    let line = line.to_dtype(stored(ty.dtype))?.reshape(dims)?;
    line.broadcast_as(&*ty.shape)?.contiguous().map(Some)
}

pub(crate) fn reshape(call: &Call<'_>) -> Native {
    call.tensor(0)?.reshape(call.dims()).map(Some)
}

pub(crate) fn permute(call: &Call<'_>, axes: &Axes) -> Native {
    call.tensor(0)?.permute(axes.iter().collect::<Vec<_>>()).map(Some)
}

pub(crate) fn broadcast(call: &Call<'_>) -> Native {
    call.tensor(0)?.broadcast_as(call.dims()).map(Some)
}

pub(crate) fn slice(call: &Call<'_>, slices: &[SliceAxis]) -> Native {
    let mut x = call.tensor(0)?;
    for (axis, slice) in slices.iter().enumerate() {
        if slice.step == 1 {
            x = x.narrow(axis, slice.start, slice.len)?;
            continue;
        }
        let place = |i: usize| slice.start.wrapping_add_signed(slice.step.wrapping_mul(i as isize));
        let Some(places) = call.places((0..slice.len).map(place).collect())? else { return Ok(None) };
        x = x.contiguous()?.index_select(&places, axis)?;
    }
    Ok(Some(x))
}

pub(crate) fn pad(call: &Call<'_>, pads: &[PadAxis]) -> Native {
    let mut x = call.tensor(0)?;
    let Operand::Scalar(scalar) = call.inputs[1] else { return Ok(None) };
    let fill = |dims: &[usize]| call.repeated(scalar, call.ty().dtype, dims);
    for (axis, pad) in pads.iter().enumerate() {
        x = spread(&x, axis, pad.interior, &fill)?;
        let side = |length: usize| {
            let mut dims = x.dims().to_vec();
            dims[axis] = length;
            fill(&dims)
        };
        let mut parts = Vec::new();
        if pad.low > 0 {
            parts.push(side(pad.low)?);
        }
        parts.push(x.clone());
        if pad.high > 0 {
            parts.push(side(pad.high)?);
        }
        if parts.len() > 1 {
            x = Tensor::cat(&parts, axis)?;
        }
    }
    Ok(Some(x))
}

/// Puts so many fillings between neighbours along an axis.
fn spread(
    x: &Tensor,
    axis: usize,
    between: usize,
    fill: &dyn Fn(&[usize]) -> Result<Tensor>,
) -> Result<Tensor> {
    let length = x.dims()[axis];
    if between == 0 || length < 2 {
        return Ok(x.clone());
    }
    let x = x.unsqueeze(axis + 1)?;
    let mut dims = x.dims().to_vec();
    dims[axis + 1] = between;
    let rows = Tensor::cat(&[&x, &fill(&dims)?], axis + 1)?;
    dims.remove(axis + 1);
    dims[axis] = length * (between + 1);
    rows.reshape(dims)?.narrow(axis, 0, length + (length - 1) * between)
}

pub(crate) fn concat(call: &Call<'_>, axis: usize) -> Native {
    let parts: Result<Vec<Tensor>> = (0..call.inputs.len()).map(|place| call.tensor(place)).collect();
    Tensor::cat(&parts?, axis).map(Some)
}

pub(crate) fn windows(call: &Call<'_>, axis: usize, size: usize, step: usize, dilation: usize) -> Native {
    let x = call.tensor(0)?.contiguous()?;
    let count = call.dims()[axis];
    let place = |i: usize| i / size * step + i % size * dilation;
    let Some(places) = call.places((0..count * size).map(place).collect())? else { return Ok(None) };
    let mut dims = x.dims().to_vec();
    dims[axis] = count;
    dims.insert(axis + 1, size);
    let rows = x.index_select(&places, axis)?.reshape(dims)?;
    let mut axes: Vec<usize> = (0..rows.rank()).filter(|&other| other != axis + 1).collect();
    axes.push(axis + 1);
    rows.permute(axes).map(Some)
}

pub(crate) fn slice_update(call: &Call<'_>, slices: &[SliceAxis], mode: UpdateMode) -> Native {
    let dtype = call.ty().dtype;
    let adds = match mode {
        UpdateMode::Set => false,
        UpdateMode::Add if dtype.is_float() => true,
        UpdateMode::Add | UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => return Ok(None),
    };
    if slices.iter().any(|slice| slice.step != 1) {
        return Ok(None);
    }
    let (base, source) = (call.tensor(0)?, call.tensor(1)?);
    written(&base, &source, slices, 0, adds).map(Some)
}

/// The base with the source set or added over the range, from an axis on.
fn written(base: &Tensor, source: &Tensor, slices: &[SliceAxis], axis: usize, adds: bool) -> Result<Tensor> {
    let Some(slice) = slices.get(axis) else {
        // One addition of 16-bit floats is rounded once.
        return if adds { base.add(source) } else { Ok(source.clone()) };
    };
    let end = slice.start + slice.len;
    let inside = base.narrow(axis, slice.start, slice.len)?;
    let inside = written(&inside, source, slices, axis + 1, adds)?;
    let mut parts = Vec::new();
    if slice.start > 0 {
        parts.push(base.narrow(axis, 0, slice.start)?);
    }
    parts.push(inside);
    if end < base.dims()[axis] {
        parts.push(base.narrow(axis, end, base.dims()[axis] - end)?);
    }
    if parts.len() == 1 { Ok(parts.remove(0)) } else { Tensor::cat(&parts, axis) }
}
