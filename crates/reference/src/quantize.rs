//! Blockwise quantization and dequantization.

use crate::call::Call;
use crate::numbers::{Numbers, integers, reals};
use crate::places::{place, positions};
use alloc::vec::Vec;
use kiln_ir::{BlockFormat, DType, Result, Shape, TensorData};

/// Quantizes a tensor. The quotient is rounded to the accumulator dtype of the operand before it is rounded to an
/// integer, so that engines that divide in that dtype agree at ties. NaN becomes 0 for every zero point, as in a cast.
pub(crate) fn quantize(call: &Call<'_>) -> Result<TensorData> {
    let (x, scale) = (call.data(0)?, call.data(1)?);
    let zero = call.optional(2)?.map(integers);
    let (least, greatest) = range(call.ty().dtype);
    let quotients = reals(x);
    let scales = reals(scale);
    let blocks = block_places(x.shape(), scale.shape());
    let quotients = quotients.iter().zip(&blocks).map(|(&x, &block)| x / scales[block]).collect();
    let quotient_ty = x.ty().with_dtype(x.dtype().accumulator());
    let quotients = reals(&Numbers::Real(quotients).into_data(quotient_ty)?);
    let quantized = quotients.iter().zip(&blocks).map(|(&quotient, &block)| {
        if quotient.is_nan() {
            return 0;
        }
        let rounded = libm::rint(quotient).clamp(-1e30, 1e30) as i128;
        (rounded + zero.as_ref().map_or(0, |zero| zero[block])).clamp(least, greatest)
    });
    Numbers::Integer(quantized.collect()).into_data(call.ty())
}

pub(crate) fn dequantize(call: &Call<'_>) -> Result<TensorData> {
    let (q, scale) = (call.data(0)?, call.data(1)?);
    let zero = call.optional(2)?.map(integers);
    let scales = reals(scale);
    let blocks = block_places(q.shape(), scale.shape());
    let number =
        |(q, block): (i128, usize)| (q - zero.as_ref().map_or(0, |zero| zero[block])) as f64 * scales[block];
    Numbers::Real(integers(q).into_iter().zip(blocks).map(number).collect()).into_data(call.ty())
}

pub(crate) fn dequantize_blocks(call: &Call<'_>, format: BlockFormat) -> Result<TensorData> {
    let values = decoded(call.data(0)?, format);
    Numbers::Real(values.into_iter().map(f64::from).collect()).into_data(call.ty())
}

/// The elements of quantized blocks.
pub(crate) fn decoded(blocks: &TensorData, format: BlockFormat) -> Vec<f32> {
    let bytes = blocks.bytes();
    let mut values = alloc::vec![0.0; bytes.len() / format.bytes() * format.len()];
    format.decode(bytes, &mut values);
    values
}

/// For each element of a tensor, the index of its block's scale.
fn block_places(shape: &Shape, scales: &Shape) -> Vec<usize> {
    let block = |position: Shape| {
        let axes = shape.iter().zip(scales.iter()).zip(position.iter());
        let block: Shape = axes.map(|((&length, &blocks), &index)| index / (length / blocks)).collect();
        place(scales, &block)
    };
    positions(*shape).map(block).collect()
}

/// The minimum and maximum of an integer dtype.
fn range(dtype: DType) -> (i128, i128) {
    let values = 1i128 << (dtype.size() * 8);
    if dtype.is_signed_int() { (-values / 2, values / 2 - 1) } else { (0, values - 1) }
}
