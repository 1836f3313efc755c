//! Creation, views and movement. These run on the bits of every dtype.

use crate::ffi::Argument::{Int, Ints, Tensors};
use crate::library::{Call, Native, Torch, stored};
use crate::tensor::{Result, Tensor, TorchType, ints, one};
use kiln_foreign::{View, binary};
use kiln_ir::{Binary, DType, PadAxis, Scalar, SliceAxis, UpdateMode};

impl View for Torch {
    fn count(call: &Call<'_>, length: usize) -> Native {
        // Counting is a sum of ones, which stay on the device.
        let ones = call.repeated(Scalar::Int(1), DType::I64, &[length])?;
        let line = one(c"cumsum", &[ones.arg(), Int(0)])?.with(c"sub.Scalar", Int(1))?;
        let dtype = call.ty().dtype;
        let is_narrow = dtype.is_float() && dtype.size() == 2;
        let line = if is_narrow { line.to(TorchType::Float)? } else { line };
        line.to(stored(dtype)).map(Some)
    }

    fn reshape(x: &Tensor, dims: &[usize]) -> Result {
        x.with(c"reshape", Ints(&ints(dims)))
    }

    fn permute(x: &Tensor, axes: &[usize]) -> Result {
        x.with(c"permute", Ints(&ints(axes)))
    }

    fn broadcast(x: &Tensor, dims: &[usize]) -> Result {
        x.with(c"expand", Ints(&ints(dims)))
    }

    fn contiguous(x: &Tensor) -> Result {
        x.map(c"contiguous")
    }

    fn concat(parts: &[Tensor], axis: usize) -> Result {
        one(c"cat", &[Tensors(parts), Int(axis as i64)])
    }

    fn slice(_: &Call<'_>, x: &Tensor, slices: &[SliceAxis]) -> Native {
        reversed(&range(x, slices)?, slices).map(Some)
    }

    fn pad(call: &Call<'_>, x: &Tensor, pads: &[PadAxis], number: Scalar) -> Result {
        let y = call.repeated(number, call.ty().dtype, call.dims())?.copied()?;
        let mut inside = y.clone();
        for (axis, (pad, length)) in pads.iter().zip(x.dims()).enumerate() {
            let step = pad.interior.saturating_add(1);
            inside = inside.slice(axis, pad.low, pad.low + (length - 1) * step + 1, step)?;
        }
        inside.overwrite(x)?;
        Ok(y)
    }

    fn windows(_: &Call<'_>, x: &Tensor, axis: usize, size: usize, step: usize, dilation: usize) -> Native {
        let reach = dilation * (size - 1) + 1;
        let [axis, length, step] = [axis, reach, step].map(|number| Int(number as i64));
        let y = one(c"unfold", &[x.arg(), axis, length, step])?;
        let last = y.rank() - 1;
        y.slice(last, 0, reach, dilation).map(Some)
    }

    fn slice_update(
        base: &Tensor,
        source: &Tensor,
        slices: &[SliceAxis],
        mode: UpdateMode,
        dtype: DType,
    ) -> Native {
        let source = reversed(source, slices)?;
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
        let Some(written) = binary::<Torch>(&inside, &source, function, dtype)? else { return Ok(None) };
        inside.overwrite(&written)?;
        Ok(Some(y))
    }

    fn non_zero(x: &Tensor) -> Native {
        x.map(c"nonzero").map(Some)
    }
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
