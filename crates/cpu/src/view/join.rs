//! Padding and concatenation.

use crate::Cpu;
use crate::array::Array;
use crate::contraction::tensor;
use crate::copy::copy;
use crate::scalar::scalar_bytes;
use kiln_ir::{Error, MAX_RANK, Operands, PadAxis, Result, Shape, SliceAxis, Values};
use smallvec::smallvec;

pub(crate) fn pad(cpu: &Cpu, pads: &[PadAxis], mut inputs: Operands) -> Result<Values> {
    let padding = inputs.get(1).and_then(|operand| operand.scalar());
    let Some(padding) = padding else {
        return Err(Error::unsupported("cpu", "the padding must be a number"));
    };
    if pads.iter().all(|pad| *pad == PadAxis::default()) {
        inputs.truncate(1);
        return Ok(inputs.into_iter().filter_map(|operand| operand.value().cloned()).collect());
    }
    let (x, ty) = tensor(&inputs, 0)?;
    let ty = ty.with_shape(pads.iter().zip(ty.shape.iter()).map(padded).collect::<Shape>());
    let result = Array::uninit(&ty)?;
    let word = u64::from_ne_bytes(scalar_bytes(padding, ty.dtype));
    // SAFETY: the result is fresh.
    unsafe { fill_around(cpu, &result, (&raw const word).cast(), ty.dtype.size(), x.shape(), pads) };
    let inside = pads.iter().zip(x.shape().iter());
    let inside = inside.map(|(pad, &len)| SliceAxis { start: pad.low, len, step: pad.step(len) });
    let inside = result.layout.slice(&inside.collect::<smallvec::SmallVec<[SliceAxis; MAX_RANK]>>());
    let target = result.as_mut_ptr::<u8>().wrapping_add(inside.offset * ty.dtype.size());
    // SAFETY: the slice is within the result, which is fresh, and has the shape of `x`.
    unsafe {
        let source = (x.address(ty.dtype.size()).cast_const(), x.strides());
        copy(&cpu.pool, ty.dtype.size(), x.shape(), source, (target, inside.strides()));
    }
    Ok(smallvec![result.into_value(ty)])
}

/// The length of a padded axis.
fn padded((pad, &length): (&PadAxis, &usize)) -> usize {
    pad.low + pad.high + length + pad.interior * length.saturating_sub(1)
}

/// Fills the result outside of the range that `pads` leaves for `inside`, with the element of that many bytes at
/// `word`. Along each axis it fills before and after the range, within the range of the previous axes. With interior
/// padding, it fills everything.
///
/// # Safety
/// Nothing else accesses the result.
unsafe fn fill_around(
    cpu: &Cpu,
    result: &Array,
    word: *const u8,
    size: usize,
    inside: &Shape,
    pads: &[PadAxis],
) {
    let everything = pads.iter().any(|pad| pad.interior > 0);
    let mut region: Shape = *result.shape();
    let mut start = 0;
    let fill = |start: usize, region: &Shape| {
        let target = result.as_mut_ptr::<u8>().wrapping_add(start * size);
        // SAFETY: the region is within the result; the one element is read repeatedly.
        unsafe { copy(&cpu.pool, size, region, (word, &[0; MAX_RANK]), (target, result.strides())) }
    };
    if everything {
        return fill(0, &region);
    }
    for (axis, pad) in pads.iter().enumerate() {
        let stride = result.strides()[axis] as usize;
        region[axis] = pad.low;
        fill(start, &region);
        region[axis] = pad.high;
        fill(start + (pad.low + inside[axis]) * stride, &region);
        region[axis] = inside[axis];
        start += pad.low * stride;
    }
}

pub(crate) fn concat(cpu: &Cpu, axis: usize, mut inputs: Operands) -> Result<Values> {
    if inputs.len() == 1 {
        return Ok(inputs.drain(..).filter_map(|operand| operand.value().cloned()).collect());
    }
    let (_, first) = tensor(&inputs, 0)?;
    let mut length = 0;
    for place in 0..inputs.len() {
        length += tensor(&inputs, place)?.1.shape[axis];
    }
    let ty = first.with_shape(first.shape.with(axis, length));
    let size = ty.dtype.size();
    let result = Array::uninit(&ty)?;
    let mut start = 0;
    for place in 0..inputs.len() {
        let (part, _) = tensor(&inputs, place)?;
        let target = result.as_mut_ptr::<u8>().wrapping_add(start * size);
        // SAFETY: the result is fresh; the parts are adjacent within it.
        unsafe {
            let source = (part.address(size).cast_const(), part.strides());
            copy(&cpu.pool, size, part.shape(), source, (target, result.strides()));
        }
        start += part.shape()[axis] * result.strides()[axis] as usize;
    }
    Ok(smallvec![result.into_value(ty)])
}
