//! The named composites: softmax, norms, attention, resizing, Fourier transforms, quantization.

mod attention;
mod fourier;
mod quantize;
mod resize;
mod rows;

use crate::Cpu;
use crate::array::Array;
use crate::contraction::{Width, no_number, tensor, through_f32};
use core::marker::PhantomData;
use kiln_ir::{
    AttentionSpec, DType, FftKind, NormKind, Op, Operands, Real, ResizeMode, Result, TensorType, Values,
};
use smallvec::{SmallVec, smallvec};

/// Calls the generic function for the dtype's width; 16-bit floats are computed in `f32`.
macro_rules! by_width {
    ($cpu:ident, $op:expr, $inputs:ident, $results:ident, $dtype:expr, |$float:ident| $body:expr) => {{
        let op = $op;
        match Width::of($dtype, op.name())? {
            Width::Double => {
                type $float = f64;
                $body
            }
            Width::Single => {
                type $float = f32;
                $body
            }
            Width::Half => return through_f32($cpu, &op, $inputs, $results),
        }
    }};
}

pub(crate) fn softmax(
    cpu: &Cpu,
    axis: usize,
    log: bool,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let (x, ty) = tensor(&inputs, 0)?;
    let output = by_width!(cpu, Op::Softmax { axis, log }, inputs, results, ty.dtype, |T| {
        rows::softmax::<T>(cpu, x, ty, axis, log)?
    });
    Ok(smallvec![output.into_value(results[0])])
}

pub(crate) fn norm(
    cpu: &Cpu,
    kind: NormKind,
    axes: usize,
    epsilon: f64,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let ty = results[0];
    let length = ty.shape[ty.rank() - axes..].iter().product();
    let op = Op::Norm { kind, axes, epsilon: Real(epsilon) };
    let output = by_width!(cpu, op, inputs, results, ty.dtype, |T| {
        rows::norm::<T>(cpu, kind, length, epsilon, up_to_three(&inputs)?, &ty)?
    });
    Ok(smallvec![output.into_value(ty)])
}

pub(crate) fn attention(
    cpu: &Cpu,
    spec: &AttentionSpec,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let qkv = [tensor(&inputs, 0)?, tensor(&inputs, 1)?, tensor(&inputs, 2)?];
    let mask = optional(&inputs, 3)?;
    let [y, lse] = by_width!(cpu, Op::Attention(*spec), inputs, results, results[0].dtype, |T| {
        attention::forward::<T>(cpu, spec, qkv, mask, results)?
    });
    Ok(smallvec![y.into_value(results[0]), lse.into_value(results[1])])
}

pub(crate) fn attention_grad(
    cpu: &Cpu,
    spec: &AttentionSpec,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let qkv = [tensor(&inputs, 1)?, tensor(&inputs, 2)?, tensor(&inputs, 3)?];
    let others = [tensor(&inputs, 0)?, tensor(&inputs, 4)?, tensor(&inputs, 5)?];
    let mask = optional(&inputs, 6)?;
    let arrays = by_width!(cpu, Op::AttentionGrad(*spec), inputs, results, results[0].dtype, |T| {
        attention::backward::<T>(cpu, spec, qkv, mask, others, results)?
    });
    Ok(arrays.into_iter().zip(results).map(|(array, ty)| array.into_value(*ty)).collect())
}

pub(crate) fn resize(
    cpu: &Cpu,
    mode: ResizeMode,
    size: &[usize],
    align_corners: bool,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let x = tensor(&inputs, 0)?;
    let op = Op::Resize { mode, size: size.to_vec(), align_corners };
    let output = by_width!(cpu, op, inputs, results, x.1.dtype, |T| {
        resize::resize::<T>(cpu, mode, size, align_corners, x)?
    });
    Ok(smallvec![output.into_value(results[0])])
}

pub(crate) fn fft(
    cpu: &Cpu,
    (kind, axis, inverse): (FftKind, usize, bool),
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let op = Op::Fft { kind, axis, inverse };
    let outputs = by_width!(cpu, op, inputs, results, results[0].dtype, |T| {
        let (re, ty) = tensor(&inputs, 0)?;
        let im = optional(&inputs, 1)?.map(|(im, _)| im);
        let parts: SmallVec<[&Array; 2]> = core::iter::once(re).chain(im).collect();
        fourier::fft::<T>(cpu, &parts, (kind, axis, inverse), ty, results)?
    });
    Ok(outputs.into_iter().zip(results).map(|(output, ty)| output.into_value(*ty)).collect())
}

/// Calls `$run::<$float, Q>` for the integer type `Q` of a dtype.
macro_rules! by_quantized {
    ($dtype:expr, $op:expr, $run:path, $float:ident, ($($arg:expr),*)) => {
        match $dtype {
            DType::I8 => $run($($arg),*, PhantomData::<($float, i8)>),
            DType::U8 => $run($($arg),*, PhantomData::<($float, u8)>),
            DType::I16 => $run($($arg),*, PhantomData::<($float, i16)>),
            DType::U16 => $run($($arg),*, PhantomData::<($float, u16)>),
            DType::I32 => $run($($arg),*, PhantomData::<($float, i32)>),
            DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::I64
            | DType::U64
            | DType::U32
            | DType::Bool => Err(no_number($op)),
        }
    };
}

pub(crate) fn quantize(cpu: &Cpu, dtype: DType, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let ty = results[0];
    let (_, x_ty) = tensor(&inputs, 0)?;
    let output = by_width!(cpu, Op::Quantize { dtype }, inputs, results, x_ty.dtype, |T| {
        by_quantized!(dtype, "quantize", quantize::quantize, T, (cpu, up_to_three(&inputs)?, &ty))?
    });
    Ok(smallvec![output.into_value(ty)])
}

pub(crate) fn dequantize(cpu: &Cpu, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let ty = results[0];
    let (_, q_ty) = tensor(&inputs, 0)?;
    let output = by_width!(cpu, Op::Dequantize, inputs, results, ty.dtype, |T| {
        by_quantized!(q_ty.dtype, "dequantize", quantize::dequantize, T, (cpu, up_to_three(&inputs)?, &ty))?
    });
    Ok(smallvec![output.into_value(ty)])
}

/// An optional trailing operand.
fn optional(inputs: &Operands, place: usize) -> Result<Option<(&Array, &TensorType)>> {
    if place < inputs.len() { tensor(inputs, place).map(Some) } else { Ok(None) }
}

fn up_to_three(inputs: &Operands) -> Result<[Option<(&Array, &TensorType)>; 3]> {
    Ok([optional(inputs, 0)?, optional(inputs, 1)?, optional(inputs, 2)?])
}
