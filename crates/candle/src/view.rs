//! Creation, views and movement. These run on the bits of every dtype.

use crate::library::{Call, CandleCore, Native, has_numbers, indices_of, stored};
use candle_core::{DType as CandleDType, Result, Tensor};
use kiln_foreign::View;
use kiln_ir::{DType, PadAxis, Scalar, SliceAxis, UpdateMode};

impl View for CandleCore {
    fn count(call: &Call<'_>, length: usize) -> Native {
        let dtype = call.ty().dtype;
        if !has_numbers(dtype) || dtype.is_bool() {
            return Ok(None);
        }
        let line = Tensor::arange(0, length as i64, &call.library.0)?;
        let is_narrow = dtype.is_float() && dtype.size() == 2;
        let line = if is_narrow { line.to_dtype(CandleDType::F32)? } else { line };
        line.to_dtype(stored(dtype)).map(Some)
    }

    fn reshape(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
        x.reshape(dims)
    }

    fn permute(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
        x.permute(axes)
    }

    fn broadcast(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
        x.broadcast_as(dims)
    }

    fn contiguous(x: &Tensor) -> Result<Tensor> {
        x.contiguous()
    }

    fn concat(parts: &[Tensor], axis: usize) -> Result<Tensor> {
        Tensor::cat(parts, axis)
    }

    fn slice(call: &Call<'_>, x: &Tensor, slices: &[SliceAxis]) -> Native {
        let mut x = x.clone();
        for (axis, slice) in slices.iter().enumerate() {
            if slice.step == 1 {
                x = x.narrow(axis, slice.start, slice.len)?;
                continue;
            }
            let place = |i: usize| slice.start.wrapping_add_signed(slice.step.wrapping_mul(i as isize));
            let places = (0..slice.len).map(place).collect();
            let Some(places) = indices_of(call, places)? else { return Ok(None) };
            x = x.contiguous()?.index_select(&places, axis)?;
        }
        Ok(Some(x))
    }

    fn pad(call: &Call<'_>, x: &Tensor, pads: &[PadAxis], number: Scalar) -> Result<Tensor> {
        let mut x = x.clone();
        let fill = |dims: &[usize]| call.repeated(number, call.ty().dtype, dims);
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
        Ok(x)
    }

    fn windows(
        call: &Call<'_>,
        x: &Tensor,
        axis: usize,
        size: usize,
        step: usize,
        dilation: usize,
    ) -> Native {
        let x = x.contiguous()?;
        let count = call.dims()[axis];
        let place = |i: usize| i / size * step + i % size * dilation;
        let places = (0..count * size).map(place).collect();
        let Some(places) = indices_of(call, places)? else { return Ok(None) };
        let mut dims = x.dims().to_vec();
        dims[axis] = count;
        dims.insert(axis + 1, size);
        let rows = x.index_select(&places, axis)?.reshape(dims)?;
        let mut axes: Vec<usize> = (0..rows.rank()).filter(|&other| other != axis + 1).collect();
        axes.push(axis + 1);
        rows.permute(axes).map(Some)
    }

    fn slice_update(
        base: &Tensor,
        source: &Tensor,
        slices: &[SliceAxis],
        mode: UpdateMode,
        dtype: DType,
    ) -> Native {
        let adds = match mode {
            UpdateMode::Set => false,
            UpdateMode::Add if dtype.is_float() => true,
            UpdateMode::Add | UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => return Ok(None),
        };
        if slices.iter().any(|slice| slice.step != 1) {
            return Ok(None);
        }
        written(base, source, slices, 0, adds).map(Some)
    }
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
