//! The ops on blocks, for operands of any layout.

use super::expand::FromSingle;
use super::{BlockRows, Precision, dequantize_blocks, matmul_blocks};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::matmul;
use kiln_ir::{Axes, BlockFormat, DType, Layout, Result, Shape, TensorType};

/// `x · dequantize(w)ᵀ` in `f32`: `[.., m, k] x [n, row bytes] -> [.., m, n]`. Rounds `x` to two bytes, or to one if the
/// engine has int8 activations.
///
/// # Errors
/// When there is not enough memory.
pub(in crate::contraction) fn singles(
    cpu: &Cpu,
    (x, x_ty): (&Array, &TensorType),
    (w, w_ty): (&Array, &TensorType),
    format: BlockFormat,
    ty: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    if output.num_elements() == 0 {
        return Ok(output);
    }
    let x = cpu.contiguous(x, x_ty)?;
    let w = rows(cpu, w, w_ty)?;
    let (n, k) = (w.shape()[0], x_ty.shape[x_ty.rank() - 1]);
    let sizes = [output.num_elements() / n, k, n];
    let row_bytes = if n == 1 { 0 } else { w.strides()[0].unsigned_abs() };
    let weights = BlockRows { start: w.as_ptr(), row_bytes, format };
    let precision = if cpu.int8_activations { Precision::OneByte } else { Precision::TwoBytes };
    let c = output.as_mut_ptr();
    // SAFETY: sizes by inference; the output is fresh.
    unsafe { matmul_blocks(cpu.level, &cpu.pool, precision, sizes, x.as_ptr(), weights, c) };
    Ok(output)
}

/// As [`singles`] in `f64`, with expanded weights: nothing is rounded.
///
/// # Errors
/// When there is not enough memory.
pub(in crate::contraction) fn doubles(
    cpu: &Cpu,
    (x, x_ty): (&Array, &TensorType),
    (w, w_ty): (&Array, &TensorType),
    format: BlockFormat,
    ty: &TensorType,
) -> Result<Array> {
    let (n, k) = (w.shape()[0], x_ty.shape[x_ty.rank() - 1]);
    let weights =
        expanded(cpu, (w, w_ty), format, &TensorType { shape: Shape::from([n, k]), dtype: DType::F64 })?;
    let transposed = Array { layout: weights.layout.permute(&Axes::new(&[1, 0])), ..weights };
    let x = cpu.contiguous(x, x_ty)?;
    let rows = ty.shape.num_elements() / n.max(1);
    let mut layout = Layout::contiguous(Shape::from([rows, k]));
    layout.offset = x.layout.offset;
    let flat = Array { layout, ..x };
    let product = TensorType { shape: Shape::from([rows, n]), dtype: DType::F64 };
    let output = matmul::floats::<f64, f64>(cpu, [&flat, &transposed], &product)?;
    Ok(Array { layout: Layout::contiguous(ty.shape), ..output })
}

/// The elements of blocks, in a float dtype: `[.., row bytes] -> [.., elements]`.
///
/// # Errors
/// When there is not enough memory.
pub(in crate::contraction) fn expanded(
    cpu: &Cpu,
    (blocks, blocks_ty): (&Array, &TensorType),
    format: BlockFormat,
    ty: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    if output.num_elements() == 0 {
        return Ok(output);
    }
    let blocks = cpu.contiguous(blocks, blocks_ty)?;
    match ty.dtype {
        DType::F32 => expand::<f32>(cpu, &blocks, format, &output),
        DType::F64 => expand::<f64>(cpu, &blocks, format, &output),
        DType::F16 => expand::<half::f16>(cpu, &blocks, format, &output),
        DType::BF16 => expand::<half::bf16>(cpu, &blocks, format, &output),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => return Err(crate::contraction::no_number("dequantize_blocks")),
    }
    Ok(output)
}

fn expand<T: FromSingle>(cpu: &Cpu, blocks: &Array, format: BlockFormat, output: &Array) {
    let columns = output.shape()[output.shape().rank() - 1];
    let rows = output.num_elements() / columns;
    let row_bytes = blocks.num_elements() / rows;
    let weights = BlockRows { start: blocks.as_ptr(), row_bytes, format };
    // SAFETY: sizes by inference; blocks are contiguous, the output is fresh.
    unsafe { dequantize_blocks::<T>(cpu.level, &cpu.pool, [rows, columns], weights, output.as_mut_ptr()) };
}

/// An array with contiguous rows that follow each other in memory; copied only if needed.
///
/// # Errors
/// When there is not enough memory.
fn rows(cpu: &Cpu, blocks: &Array, ty: &TensorType) -> Result<Array> {
    let [row, byte] = [blocks.strides()[0], blocks.strides()[1]];
    if row >= 0 && (byte == 1 || ty.shape[1] == 1) { Ok(blocks.clone()) } else { cpu.contiguous(blocks, ty) }
}
