//! Creation, views and movement. These run on the bits of every dtype.

use crate::call::{Call, Native};
use crate::data::stored;
use crate::elementwise::combined;
use crate::ffi::Argument::Int;
use crate::tensor::{Result, Tensor, TorchType, cat, one};
use kiln_ir::{Axes, Binary, Operand, PadAxis, SliceAxis, TensorType, UpdateMode};

/// The greatest number up to which `f32` has every whole number.
const WHOLE_F32: usize = 1 << 24;

pub(crate) fn full(call: &Call<'_>) -> Native {
    let Operand::Scalar(scalar) = call.inputs[0] else { return Ok(None) };
    call.repeated(scalar, call.ty().dtype, call.dims())?.contiguous().map(Some)
}

pub(crate) fn iota(call: &Call<'_>, ty: TensorType, axis: usize) -> Native {
    let length = ty.shape[axis];
    let is_narrow = ty.dtype.is_float() && ty.dtype.size() == 2;
    if is_narrow && length > WHOLE_F32 {
        return Ok(None);
    }
    // Counting is a sum of ones, which stay on the device.
    let ones = call.repeated(kiln_ir::Scalar::Int(1), kiln_ir::DType::I64, &[length])?;
    let line = one(c"cumsum", &[ones.arg(), Int(0)])?.with(c"sub.Scalar", Int(1))?;
    let line = if is_narrow { line.to(TorchType::Float)? } else { line };
    let mut dims = vec![1; ty.shape.rank()];
    dims[axis] = length;
    line.to(stored(ty.dtype))?.reshape(&dims)?.expand(&ty.shape)?.contiguous().map(Some)
}

pub(crate) fn reshape(call: &Call<'_>) -> Native {
    call.tensor(0)?.reshape(call.dims()).map(Some)
}

pub(crate) fn permute(call: &Call<'_>, axes: &Axes) -> Native {
    call.tensor(0)?.permute(&axes.to_vec()).map(Some)
}

pub(crate) fn broadcast(call: &Call<'_>) -> Native {
    call.tensor(0)?.expand(call.dims()).map(Some)
}

/// The range of an axis as one that ascends, and whether it is to be reversed.
fn ascending(slice: &SliceAxis) -> (usize, usize, usize, bool) {
    let step = slice.step.unsigned_abs();
    let reach = slice.len.saturating_sub(1) * step;
    let start = if slice.step < 0 { slice.start - reach } else { slice.start };
    (start, start + reach + 1, step, slice.step < 0 && slice.len > 1)
}

/// The range as a view, with reversed axes the right way round.
fn range(x: &Tensor, slices: &[SliceAxis]) -> Result {
    let mut x = x.clone();
    for (axis, slice) in slices.iter().enumerate() {
        let (start, end, step, _) = ascending(slice);
        x = x.slice(axis, start, end, step)?;
    }
    Ok(x)
}

/// Reverses the axes along which the range descends.
fn reversed(x: &Tensor, slices: &[SliceAxis]) -> Result {
    let mut x = x.clone();
    for (axis, slice) in slices.iter().enumerate() {
        if ascending(slice).3 {
            x = x.flip(axis)?;
        }
    }
    Ok(x)
}

pub(crate) fn slice(call: &Call<'_>, slices: &[SliceAxis]) -> Native {
    reversed(&range(&call.tensor(0)?, slices)?, slices).map(Some)
}

pub(crate) fn pad(call: &Call<'_>, pads: &[PadAxis]) -> Native {
    let x = call.tensor(0)?;
    let Operand::Scalar(scalar) = call.inputs[1] else { return Ok(None) };
    let y = call.repeated(scalar, call.ty().dtype, call.dims())?.copied()?;
    let mut inside = y.clone();
    for (axis, (pad, length)) in pads.iter().zip(x.dims()).enumerate() {
        let step = pad.interior.saturating_add(1);
        inside = inside.slice(axis, pad.low, pad.low + (length - 1) * step + 1, step)?;
    }
    inside.overwrite(&x)?;
    Ok(Some(y))
}

pub(crate) fn concat(call: &Call<'_>, axis: usize) -> Native {
    let parts: Result<Vec<Tensor>> = (0..call.inputs.len()).map(|place| call.tensor(place)).collect();
    cat(&parts?, axis).map(Some)
}

pub(crate) fn windows(call: &Call<'_>, axis: usize, size: usize, step: usize, dilation: usize) -> Native {
    let x = call.tensor(0)?;
    let reach = dilation * (size - 1) + 1;
    let [axis, length, step] = [axis, reach, step].map(|number| Int(number as i64));
    let y = one(c"unfold", &[x.arg(), axis, length, step])?;
    let last = y.rank() - 1;
    y.slice(last, 0, reach, dilation).map(Some)
}

pub(crate) fn slice_update(call: &Call<'_>, slices: &[SliceAxis], mode: UpdateMode) -> Native {
    let (base, source) = (call.tensor(0)?, reversed(&call.tensor(1)?, slices)?);
    let y = base.copied()?;
    let inside = range(&y, slices)?;
    let function = match mode {
        UpdateMode::Set => {
            inside.overwrite(&source)?;
            return Ok(Some(y));
        }
        UpdateMode::Add => Binary::Add,
        UpdateMode::Mul => Binary::Mul,
        UpdateMode::Min => Binary::Min,
        UpdateMode::Max => Binary::Max,
    };
    let Some(written) = combined(&inside, &source, function, call.ty().dtype)? else { return Ok(None) };
    inside.overwrite(&written)?;
    Ok(Some(y))
}

pub(crate) fn non_zero(call: &Call<'_>) -> Native {
    let places = call.tensor(0)?.map(c"nonzero")?;
    places.to(stored(call.ty().dtype)).map(Some)
}
