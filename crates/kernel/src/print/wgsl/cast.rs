//! Conversions between dtypes in WGSL.

use super::expression::{compare, constant, wrapped};
use super::held;
use alloc::format;
use alloc::string::{String, ToString};
use kiln_ir::{Comparison, DType, Scalar};

/// A value converted to another dtype. Floats are truncated to integers and saturate; NaN becomes 0.
pub(in crate::print) fn cast(x: &str, from: DType, to: DType) -> String {
    if to.is_bool() {
        return to_bool(x, from);
    }
    match to {
        DType::F16 | DType::BF16 => to_16_bits(x, from, to),
        DType::F64 | DType::F32 => format!("{}({x})", held(to)),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => {
            if from.is_float() {
                whole(x, from, to)
            } else if to == DType::U64 && from.is_signed_int() {
                // The direct conversion extends by zeros, for the result is unsigned.
                format!("u64(i64({x}))")
            } else if to == DType::I64 && !from.is_signed_int() && !from.is_bool() {
                // The direct conversion extends the highest bit, for the result is signed.
                format!("i64(u64({x}))")
            } else {
                wrapped(format!("{}({x})", held(to)), to)
            }
        }
    }
}

/// Whether a value is not zero. Floats are compared by their bits, since drivers take subnormals for zero.
fn to_bool(x: &str, from: DType) -> String {
    match from {
        DType::Bool => x.into(),
        DType::F64 => format!("(bitcast<u64>({x}) & 0x7ffffffffffffffflu) != 0lu"),
        DType::F32 | DType::F16 | DType::BF16 => format!("(bitcast<u32>({x}) & 0x7fffffffu) != 0u"),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => compare(Comparison::Ne, x, &constant(Scalar::Int(0), from), from),
    }
}

/// A value rounded to a 16-bit float. Wide numbers are rounded to odd first, so that they are rounded once.
fn to_16_bits(x: &str, from: DType, to: DType) -> String {
    let single = match from {
        DType::F32 | DType::F16 | DType::BF16 => x.to_string(),
        DType::F64 | DType::I64 | DType::I32 | DType::U64 | DType::U32 => {
            format!("kiln_odd_{}({x})", held(from))
        }
        DType::I16 | DType::I8 | DType::U16 | DType::U8 | DType::Bool => format!("f32({x})"),
    };
    let name = if to == DType::F16 { "f16" } else { "bf16" };
    format!("kiln_from_{name}(kiln_to_{name}({single}))")
}

/// A float converted to an integer.
fn whole(x: &str, from: DType, to: DType) -> String {
    let real = if from == DType::F64 { DType::F64 } else { DType::F32 };
    let bits = to.size() * 8 - usize::from(to.is_signed_int());
    let most = constant(Scalar::UInt(((1u128 << bits) - 1) as u64), to);
    let bound = (1u128 << bits) as f64;
    let high = constant(Scalar::Float(bound), real);
    let name = format!("kiln_whole_{}_{}", held(to), held(real));
    if to.is_signed_int() {
        let low = constant(Scalar::Float(-bound), real);
        let least = constant(Scalar::Int((-(1i128 << bits)) as i64), to);
        return format!("{name}({x}, {low}, {high}, {least}, {most})");
    }
    format!("{name}({x}, {high}, {most})")
}
