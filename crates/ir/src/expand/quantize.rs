//! Blockwise quantization.

use super::around;
use crate::{DType, Shape, Var};

pub(super) fn quantize<'e>(inputs: &[Var<'e>], dtype: DType) -> Var<'e> {
    let x = &inputs[0];
    let shape = x.shape();
    let working = x.dtype().accumulator();
    let scale = blocks(&inputs[1].cast(working), &shape);
    let mut q = (x.cast(working) / scale).round();
    if let Some(zero) = inputs.get(2) {
        let exact = exact(&q, dtype);
        q = q.cast(exact) + blocks(&zero.cast(exact), &shape);
    }
    // A cast to integers saturates, which is the clamp.
    q.cast(dtype)
}

pub(super) fn dequantize<'e>(inputs: &[Var<'e>]) -> Var<'e> {
    let (q, dtype) = (&inputs[0], inputs[1].dtype());
    let shape = q.shape();
    let working = dtype.accumulator();
    let scale = inputs[1].cast(working);
    let difference = match inputs.get(2) {
        Some(zero) => {
            let exact = exact(&scale, q.dtype());
            q.cast(exact) - blocks(&zero.cast(exact), &shape)
        }
        None => q.clone(),
    };
    (difference.cast(working) * blocks(&scale, &shape)).cast(dtype)
}

/// A float dtype that represents sums of two quantized integers exactly: `f64` for 32 bits, if the engine supports it.
fn exact(beside: &Var<'_>, quantized: DType) -> DType {
    let wide = quantized == DType::I32 && beside.engine().caps().dtypes.contains(DType::F64);
    if wide { DType::F64 } else { beside.dtype() }
}

/// Repeats each entry over its block.
fn blocks<'e>(x: &Var<'e>, shape: &Shape) -> Var<'e> {
    let mut y = x.clone();
    for (axis, &len) in shape.iter().enumerate() {
        let [before, count, after] = around(&y.shape(), axis);
        if count != 1 && count != len {
            let block = len / count;
            let repeated = y.reshape([before, count, 1, after]).broadcast([before, count, block, after]);
            y = repeated.reshape(y.shape().with(axis, len));
        }
    }
    y.broadcast(*shape)
}
