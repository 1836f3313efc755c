//! Values, functions of values and literals in WGSL.

use super::cast::cast;
use super::held;
use crate::Compute;
use crate::print::functions;
use alloc::format;
use alloc::string::{String, ToString};
use kiln_ir::{Binary, Comparison, DType, Scalar, Unary};

/// The expression of a function of values. Instructions that are no functions, and checks, are their first operand.
pub(in crate::print) fn compute(compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String {
    let at = |i: usize| operands[i].0.as_str();
    match compute {
        Compute::Unary(function, _) => functions::in_wgsl(*function, at(0), dtype),
        Compute::Binary(function, ..) => binary(*function, at(0), at(1), dtype),
        Compute::Compare(comparison, ..) => compare(*comparison, at(0), at(1), operands[0].1),
        Compute::Select(..) => format!("select({}, {}, {})", at(2), at(1), at(0)),
        Compute::Cast(_) => cast(at(0), operands[0].1, dtype),
        Compute::Bitcast(_) => wrapped(format!("bitcast<{}>({})", held(dtype), at(0)), dtype),
        Compute::Load(_)
        | Compute::LoadWhere(..)
        | Compute::LoadAt { .. }
        | Compute::Number(_)
        | Compute::Constant(_)
        | Compute::Index(_)
        | Compute::Reduce(..)
        | Compute::ColumnReduce(..)
        | Compute::Scan { .. }
        | Compute::Checked(..)
        | Compute::Store(..) => at(0).to_string(),
    }
}

/// A literal of the dtype.
pub(in crate::print) fn constant(scalar: Scalar, dtype: DType) -> String {
    match dtype {
        DType::F64 => {
            let x = scalar.to_f64();
            if x.is_normal() || x == 0.0 {
                format!("{x:?}lf")
            } else {
                format!("kiln_double({:#x}lu)", x.to_bits())
            }
        }
        DType::F32 | DType::F16 | DType::BF16 => {
            let x = scalar.to_f64() as f32;
            if x.is_normal() || x == 0.0 {
                format!("{x:?}f")
            } else {
                format!("kiln_float({:#x}u)", x.to_bits())
            }
        }
        DType::I64 if scalar.to_i64() == i64::MIN => "(-9223372036854775807li - 1li)".into(),
        DType::I64 => format!("{}li", scalar.to_i64()),
        DType::I32 => format!("i32({})", scalar.to_i64() as i32),
        DType::I16 => format!("i32({})", scalar.to_i64() as i16),
        DType::I8 => format!("i32({})", scalar.to_i64() as i8),
        DType::U64 => format!("{}lu", scalar.to_u64()),
        DType::U32 => format!("{}u", scalar.to_u64() as u32),
        DType::U16 => format!("{}u", scalar.to_u64() as u16),
        DType::U8 => format!("{}u", scalar.to_u64() as u8),
        DType::Bool => if scalar.to_bool() { "true" } else { "false" }.into(),
    }
}

/// An integer computed in 32 bits, or in 64 as native type, wrapped to its width.
pub(super) fn wrapped(expression: String, dtype: DType) -> String {
    match dtype {
        DType::I16 => format!("(({expression}) << 16u) >> 16u"),
        DType::I8 => format!("(({expression}) << 24u) >> 24u"),
        DType::U16 => format!("({expression}) & 0xffffu"),
        DType::U8 => format!("({expression}) & 0xffu"),
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::U64
        | DType::U32
        | DType::Bool => expression,
    }
}

pub(in crate::print) fn neg(x: &str, dtype: DType) -> String {
    wrapped(format!("-{x}"), dtype)
}

pub(in crate::print) fn abs(x: &str, dtype: DType) -> String {
    if dtype == DType::I64 {
        return format!("select({x}, -{x}, {x} < 0li)");
    }
    wrapped(format!("abs({x})"), dtype)
}

pub(in crate::print) fn sign(x: &str, dtype: DType) -> String {
    match dtype {
        DType::F64 => format!("kiln_sign_f64({x})"),
        DType::F32 | DType::F16 | DType::BF16 => format!("kiln_sign({x})"),
        DType::I64 => format!("select(select(0li, 1li, {x} > 0li), -1li, {x} < 0li)"),
        DType::I32 | DType::I16 | DType::I8 => format!("sign({x})"),
        DType::U64 => format!("min({x}, 1lu)"),
        DType::U32 | DType::U16 | DType::U8 => format!("min({x}, 1u)"),
        DType::Bool => x.into(),
    }
}

pub(in crate::print) fn recip(x: &str, dtype: DType) -> String {
    if dtype == DType::F64 { format!("kiln_div_f64(1.0lf, {x})") } else { format!("kiln_div(1.0f, {x})") }
}

pub(in crate::print) fn rsqrt(x: &str, dtype: DType) -> String {
    recip(&functions::in_wgsl(Unary::Sqrt, x, dtype), dtype)
}

pub(in crate::print) fn not(x: &str, dtype: DType) -> String {
    if dtype.is_bool() { format!("!{x}") } else { wrapped(format!("~{x}"), dtype) }
}

pub(super) fn binary(function: Binary, a: &str, b: &str, dtype: DType) -> String {
    let ty = held(dtype);
    let whole = |name: &str| wrapped(format!("kiln_{name}_{ty}({a}, {b})"), dtype);
    let sign = |sign: &str| wrapped(format!("{a} {sign} {b}"), dtype);
    let shift = |name: &str| {
        let width = constant(Scalar::Int(dtype.size() as i64 * 8), dtype);
        wrapped(format!("kiln_{name}_{ty}({a}, {b}, {width})"), dtype)
    };
    // The suffix of float functions.
    let f = if dtype == DType::F64 { "_f64" } else { "" };
    match function {
        Binary::Add => sign("+"),
        // Drivers replace the difference of a number and itself by 0, even for NaN and infinities.
        Binary::Sub if dtype.is_float() && a == b => format!("kiln_minus_itself{f}({a})"),
        Binary::Sub => sign("-"),
        Binary::Mul => sign("*"),
        Binary::Div if dtype.is_float() => format!("kiln_div{f}({a}, {b})"),
        Binary::Div => whole("div"),
        Binary::Rem if dtype.is_float() => format!("kiln_rem{f}({a}, {b})"),
        Binary::Rem => whole("rem"),
        Binary::Pow if dtype.is_float() => format!("kiln_pow{f}({a}, {b})"),
        Binary::Pow => whole("pow"),
        Binary::Min if dtype.is_float() => format!("kiln_min{f}({a}, {b})"),
        Binary::Min if dtype.is_bool() => format!("{a} & {b}"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Max if dtype.is_float() => format!("kiln_max{f}({a}, {b})"),
        Binary::Max if dtype.is_bool() => format!("{a} | {b}"),
        Binary::Max => format!("max({a}, {b})"),
        Binary::Atan2 => format!("kiln_atan2{f}({a}, {b})"),
        Binary::And => sign("&"),
        Binary::Or => sign("|"),
        Binary::Xor if dtype.is_bool() => format!("{a} != {b}"),
        Binary::Xor => sign("^"),
        Binary::Shl => shift("shl"),
        Binary::Shr => shift("shr"),
    }
}

/// Booleans have no order in WGSL.
pub(super) fn compare(comparison: Comparison, a: &str, b: &str, dtype: DType) -> String {
    match comparison {
        Comparison::Eq => format!("{a} == {b}"),
        // The floats' `!=` becomes an ordered comparison in SPIR-V, which is false for NaN. Drivers also take `!(a == b)`
        // for it.
        Comparison::Ne if dtype == DType::F64 => format!("kiln_ne_f64({a}, {b})"),
        Comparison::Ne if dtype.is_float() => format!("kiln_ne({a}, {b})"),
        Comparison::Ne => format!("{a} != {b}"),
        Comparison::Lt if dtype.is_bool() => format!("!{a} && {b}"),
        Comparison::Lt => format!("{a} < {b}"),
        Comparison::Le if dtype.is_bool() => format!("!{a} || {b}"),
        Comparison::Le => format!("{a} <= {b}"),
    }
}
