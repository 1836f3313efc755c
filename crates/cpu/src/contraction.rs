//! Matmul, convolution and pooling.
//!
//! Everything computes in `f32` or `f64`. 16-bit floats are converted to `f32`: matmuls convert as they read, other ops
//! convert whole operands and the result.

pub(crate) mod conv;
pub(crate) mod matmul;
mod pool;
pub(crate) mod scratch;
pub(crate) mod simd;

use crate::Cpu;
use crate::array::Array;
use kiln_ir::{
    BlockFormat, ConvPass, ConvSpec, DType, Element, Engine, Error, Op, Operand, Operands, PoolSpec, Result,
    TensorType, Value, Values,
};
use smallvec::smallvec;

pub(crate) fn matmul(cpu: &Cpu, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let [a, b] = [tensor(&inputs, 0)?, tensor(&inputs, 1)?];
    let pair = [(a.0, *a.1), (b.0, *b.1)];
    let ty = results[0];
    if let Some(zeros) = without_elements(&pair, &ty) {
        return zeros;
    }
    let arrays = [a.0, b.0];
    let output = match a.1.dtype {
        DType::F64 => matmul::floats::<f64, f64>(cpu, arrays, &ty)?,
        DType::F32 => matmul::floats::<f32, f32>(cpu, arrays, &ty)?,
        DType::F16 => matmul::floats::<f32, half::f16>(cpu, arrays, &ty)?,
        DType::BF16 => matmul::floats::<f32, half::bf16>(cpu, arrays, &ty)?,
        DType::I64 => matmul::integers::<i64>(cpu, pair, &ty)?,
        DType::I32 => matmul::integers::<i32>(cpu, pair, &ty)?,
        DType::I16 => matmul::integers::<i16>(cpu, pair, &ty)?,
        DType::I8 => matmul::integers::<i8>(cpu, pair, &ty)?,
        DType::U64 => matmul::integers::<u64>(cpu, pair, &ty)?,
        DType::U32 => matmul::integers::<u32>(cpu, pair, &ty)?,
        DType::U16 => matmul::integers::<u16>(cpu, pair, &ty)?,
        DType::U8 => matmul::integers::<u8>(cpu, pair, &ty)?,
        DType::Bool => return Err(no_number("matmul")),
    };
    Ok(smallvec![output.into_value(ty)])
}

/// The sums over no elements, if an operand is empty. Its other lengths may be huge, so no kernel may count them.
fn without_elements(operands: &[(&Array, TensorType)], ty: &TensorType) -> Option<Result<Values>> {
    let is_empty = operands.iter().any(|(_, ty)| ty.shape.has_no_elements());
    is_empty.then(|| Ok(smallvec![Array::zeros(ty)?.into_value(*ty)]))
}

/// The matmul of an `f32` array and quantized weights: integers of that dtype, with scales and zero points per block.
///
/// # Errors
/// When there is not enough memory.
pub(crate) fn matmul_dequantized(
    cpu: &Cpu,
    x: &Array,
    (q, dtype): (&Array, DType),
    scale: &Array,
    zero: Option<&Array>,
    ty: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    matmul::with_weights(cpu, x, (q, dtype), scale, zero, &output);
    Ok(output)
}

/// The matmul of floats with quantized blocks. `f32` and 16-bit floats are rounded to two bytes, or to one by option; `f64`
/// is not rounded.
pub(crate) fn matmul_blocks(
    cpu: &Cpu,
    format: BlockFormat,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let [x, w] = [tensor(&inputs, 0)?, tensor(&inputs, 1)?];
    let ty = results[0];
    let output = match Width::of(ty.dtype, "matmul_blocks")? {
        Width::Double => matmul::blocks::doubles(cpu, x, w, format, &ty)?,
        Width::Single => matmul::blocks::singles(cpu, x, w, format, &ty)?,
        Width::Half => return through_f32(cpu, &Op::MatMulBlocks { format }, inputs, results),
    };
    Ok(smallvec![output.into_value(ty)])
}

pub(crate) fn dequantize_blocks(
    cpu: &Cpu,
    format: BlockFormat,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let output = matmul::blocks::expanded(cpu, tensor(&inputs, 0)?, format, &results[0])?;
    Ok(smallvec![output.into_value(results[0])])
}

pub(crate) fn conv(
    cpu: &Cpu,
    spec: &ConvSpec,
    pass: &ConvPass,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let [a, b] = [tensor(&inputs, 0)?, tensor(&inputs, 1)?];
    let pair = [(a.0, *a.1), (b.0, *b.1)];
    let ty = results[0];
    if let Some(zeros) = without_elements(&pair, &ty) {
        return zeros;
    }
    let output = match Width::of(ty.dtype, "conv")? {
        Width::Double => conv::run::<f64>(cpu, spec, pass, pair, &ty)?,
        Width::Single => conv::run::<f32>(cpu, spec, pass, pair, &ty)?,
        Width::Half => {
            let op = Op::Conv { spec: spec.clone(), pass: pass.clone() };
            return through_f32(cpu, &op, inputs, results);
        }
    };
    Ok(smallvec![output.into_value(ty)])
}

pub(crate) fn pool(cpu: &Cpu, spec: &PoolSpec, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    pool::forward(cpu, spec, inputs, results)
}

pub(crate) fn pool_grad(
    cpu: &Cpu,
    spec: &PoolSpec,
    size: &[usize],
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    pool::backward(cpu, spec, size, inputs, results)
}

/// The float width of a kernel's arithmetic.
pub(crate) enum Width {
    /// `f64`.
    Double,
    /// `f32`.
    Single,
    /// A 16-bit float, through `f32`.
    Half,
}

impl Width {
    /// The width of a dtype that inference has checked to be a float.
    pub(crate) fn of(dtype: DType, op: &str) -> Result<Width> {
        match dtype {
            DType::F64 => Ok(Width::Double),
            DType::F32 => Ok(Width::Single),
            DType::F16 | DType::BF16 => Ok(Width::Half),
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => Err(no_number(op)),
        }
    }
}

/// The error for a dtype that inference rejects.
#[cold]
pub(crate) fn no_number(op: &str) -> Error {
    Error::unsupported("cpu", alloc::format!("{op} does not support operands of this dtype"))
}

/// The array and the type of an operand that must be a tensor.
pub(crate) fn tensor(inputs: &Operands, place: usize) -> Result<(&Array, &TensorType)> {
    match inputs.get(place) {
        Some(Operand::Value(value)) => Ok((Array::of(value)?, value.ty())),
        Some(Operand::Scalar(_)) | None => Err(Error::unsupported("cpu", "a tensor operand is missing")),
    }
}

/// Runs an op on 16-bit floats: operands converted to `f32`, results back to their types.
pub(crate) fn through_f32(cpu: &Cpu, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let cast = |value: Value, ty: TensorType| -> Value {
        let mut cast = cpu.execute(&Op::Cast(ty.dtype), smallvec![value.into()], &[ty]);
        cast.swap_remove(0)
    };
    let widened = inputs
        .into_iter()
        .map(|operand| match operand {
            Operand::Value(value) if half(value.dtype()) => {
                let ty = value.ty().with_dtype(f32::DTYPE);
                Operand::Value(cast(value, ty))
            }
            Operand::Value(_) | Operand::Scalar(_) => operand,
        })
        .collect();
    let wide = |ty: &TensorType| if half(ty.dtype) { ty.with_dtype(f32::DTYPE) } else { *ty };
    let types: alloc::vec::Vec<TensorType> = results.iter().map(wide).collect();
    let values = cpu.execute(op, widened, &types);
    Ok(values
        .into_iter()
        .zip(results)
        .map(|(value, ty)| if value.ty() == ty { value } else { cast(value, *ty) })
        .collect())
}
