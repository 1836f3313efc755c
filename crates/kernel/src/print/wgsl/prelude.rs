//! The WGSL math prelude: functions that WGSL lacks, or whose edge cases differ from the ops.

use super::{functions64, integers, rounded, trigonometry};
use crate::print::functions::{FUNCTIONS, Form};
use crate::print::prelude::Helper;
use alloc::vec::Vec;

/// Names and definitions, each before its users.
const BEFORE: [Helper; 13] = [
    (
        "kiln_float",
        "// WGSL has no constants for infinities and NaN.\nfn kiln_float(bits: u32) -> f32 {\n  return bitcast<f32>(bits);\n}\n",
    ),
    (
        "kiln_double",
        "// WGSL has no constants for infinities and NaN.\nfn kiln_double(bits: u64) -> f64 {\n  return bitcast<f64>(bits);\n}\n",
    ),
    (
        "kiln_is_nan",
        "fn kiln_is_nan(x: f32) -> bool {\n  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}\n",
    ),
    (
        "kiln_minus_itself",
        "fn kiln_minus_itself(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) { return bitcast<f32>(bits | 0x400000u); }
  return 0.0f;
}
",
    ),
    (
        "kiln_ne",
        "fn kiln_ne(a: f32, b: f32) -> bool {\n  return a != b || kiln_is_nan(a) || kiln_is_nan(b);\n}\n",
    ),
    ("kiln_is_negative", "fn kiln_is_negative(x: f32) -> bool {\n  return bitcast<i32>(x) < 0;\n}\n"),
    (
        "kiln_to_f16",
        "fn kiln_to_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) { return sign | 0x7e00u; }
  if (rest >= 0x47800000u) { return sign | 0x7c00u; }
  if (rest < 0x38800000u) {
    // Adding one half shifts the kept bits to the end, rounded to even.
    return sign | (bitcast<u32>(bitcast<f32>(rest) + 0.5f) - 0x3f000000u);
  }
  return sign | ((rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u);
}
",
    ),
    (
        "kiln_from_f16",
        "fn kiln_from_f16(h: u32) -> f32 {
  let sign = (h & 0x8000u) << 16u;
  let rest = h & 0x7fffu;
  if (rest >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13u)); }
  if (rest >= 0x400u) { return bitcast<f32>(sign | ((rest << 13u) + 0x38000000u)); }
  return bitcast<f32>(sign | bitcast<u32>(f32(rest) * 5.9604645e-8f));
}
",
    ),
    (
        "kiln_to_bf16",
        "fn kiln_to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (kiln_is_nan(x)) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
",
    ),
    ("kiln_from_bf16", "fn kiln_from_bf16(h: u32) -> f32 {\n  return bitcast<f32>(h << 16u);\n}\n"),
    (
        "kiln_sign",
        "fn kiln_sign(x: f32) -> f32 {\n  if (x > 0.0f) { return 1.0f; }\n  if (x < 0.0f) { return -1.0f; }\n  return x;\n}\n",
    ),
    (
        "kiln_exp_sum",
        "// exp(high + low).
fn kiln_exp_sum(high: f32, low: f32) -> f32 {
  let x = high + low;
  if (kiln_is_nan(x)) { return x; }
  if (x > 88.8f) { return kiln_float(0x7f800000u); }
  if (x < -104.0f) { return 0.0f; }
  let n = floor(x * 1.442695f + 0.5f);
  let r = (high - n * 0.693359375f) + n * 2.1219444e-4f + low;
  let p = 1.0f + r * (1.0f + r * (0.5f + r * (0.16666667f + r * (0.041666667f + r * (8.3333333e-3f + r * (1.3888889e-3f + r * 1.984127e-4f))))));
  let power = i32(n);
  let half = power >> 1u;
  return p * bitcast<f32>((half + 127) << 23u) * bitcast<f32>((power - half + 127) << 23u);
}
",
    ),
    (
        "kiln_area",
        "// (artanh(s) - s) / s by its series, for a square z of s up to 0.03.
fn kiln_area(z: f32) -> f32 {
  return z * (0.33333333f + z * (0.2f + z * (0.14285714f + z * (0.11111111f + z * 0.09090909f))));
}
",
    ),
];

/// As [`BEFORE`], after the elementary functions.
const AFTER: [Helper; 6] = [
    (
        "kiln_atan2",
        "fn kiln_atan2(y: f32, x: f32) -> f32 {
  if (kiln_is_nan(x) || kiln_is_nan(y)) { return x + y; }
  let a = abs(x);
  let b = abs(y);
  var angle = 0.0f;
  if (a == b && a > 0.0f) {
    angle = 0.78539816f;
  } else if (b > a) {
    angle = 1.57079633f - kiln_atan(kiln_div(a, b));
  } else if (a > 0.0f) {
    angle = kiln_atan(kiln_div(b, a));
  }
  if (kiln_is_negative(x)) { angle = 3.14159265f - angle; }
  return select(angle, -angle, kiln_is_negative(y));
}
",
    ),
    (
        "kiln_pow_of",
        "// base^b for a positive finite base other than 1. The logarithm has an upper and a lower part, as its error is
// multiplied by b. Bits are cut as integers, since compilers may simplify sums of floats.
fn kiln_pow_of(base: f32, b: f32) -> f32 {
  let about = b * kiln_ln(base);
  if (about > 89.0f) { return kiln_float(0x7f800000u); }
  if (about < -105.0f) { return 0.0f; }
  // The highest bit of a subnormal takes the place of the implicit one.
  let by = max(countLeadingZeros(bitcast<u32>(base)), 8u) - 8u;
  let bits = bitcast<u32>(base) << by;
  let large = select(0u, 1u, (bits & 0x7fffffu) > 0x3504f3u);
  let e = f32(i32((bits >> 23u) + large) - 127 - i32(by));
  let m = bitcast<f32>((bits & 0x7fffffu) | ((127u - large) << 23u));
  let above = bitcast<f32>(bitcast<u32>(m + 1.0f) & 0xfffff000u);
  let above_rest = m - (above - 1.0f);
  let s = (m - 1.0f) / (m + 1.0f);
  let s_high = floor(s * 4096.0f) * 2.44140625e-4f;
  let s_low = ((m - 1.0f) - s_high * above - s_high * above_rest) / (m + 1.0f);
  let high = e * 0.693359375f + 2.0f * s_high;
  let low = (2.0f * s_low + 2.0f * s * kiln_area(s * s)) - e * 2.1219444e-4f;
  let high_cut = bitcast<f32>(bitcast<u32>(high) & 0xfffff000u);
  let b_cut = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
  return kiln_exp_sum(b_cut * high_cut, b_cut * (high - high_cut) + (b - b_cut) * high + b * low);
}
",
    ),
    (
        "kiln_pow",
        "fn kiln_pow(a: f32, b: f32) -> f32 {
  if (b == 0.0f || a == 1.0f) { return 1.0f; }
  if (kiln_is_nan(a) || kiln_is_nan(b)) { return a + b; }
  let whole = trunc(b) == b;
  let odd = whole && abs(b) < 16777216.0f && (i32(b) & 1) == 1;
  let negative = kiln_is_negative(a);
  let base = abs(a);
  let infinite = kiln_float(0x7f800000u);
  if (negative && !whole && base > 0.0f && base < infinite) { return kiln_float(0x7fc00000u); }
  var power = 0.0f;
  if (base == 1.0f) {
    power = 1.0f;
  } else if (abs(b) == infinite) {
    power = select(0.0f, infinite, (base > 1.0f) == (b > 0.0f));
  } else if (base == 0.0f || base == infinite) {
    power = select(0.0f, infinite, (base == 0.0f) == (b < 0.0f));
  } else {
    power = kiln_pow_of(base, b);
  }
  return select(power, -power, negative && odd);
}
",
    ),
    (
        "kiln_rem",
        "// Exact: long division of the significands, 8 bits at a time. Integers, since drivers take subnormals for zero.
fn kiln_rem(a: f32, b: f32) -> f32 {
  let x = bitcast<u32>(a) & 0x7fffffffu;
  let y = bitcast<u32>(b) & 0x7fffffffu;
  let negative = bitcast<u32>(a) & 0x80000000u;
  if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) { return kiln_float(0x7fc00000u); }
  if (x < y) { return a; }
  let x_power = max(x >> 23u, 1u);
  let y_power = max(y >> 23u, 1u);
  let divisor = (y & 0x7fffffu) | select(0u, 0x800000u, y >= 0x800000u);
  var rest = (x & 0x7fffffu) | select(0u, 0x800000u, x >= 0x800000u);
  rest = rest % divisor;
  for (var count = i32(x_power - y_power); count > 0; count = count - 8) {
    rest = (rest << u32(min(count, 8))) % divisor;
  }
  if (rest == 0u) { return bitcast<f32>(negative); }
  let by = min(countLeadingZeros(rest) - 8u, y_power - 1u);
  return bitcast<f32>(negative | ((rest << by) + ((y_power - 1u - by) << 23u)));
}
",
    ),
    (
        "kiln_min",
        "fn kiln_min(a: f32, b: f32) -> f32 {\n  if (kiln_is_nan(a) || a < b) { return a; }\n  return b;\n}\n",
    ),
    (
        "kiln_max",
        "fn kiln_max(a: f32, b: f32) -> f32 {\n  if (kiln_is_nan(a) || a > b) { return a; }\n  return b;\n}\n",
    ),
];

/// All functions, each before its users.
pub(in crate::print) fn functions() -> Vec<Helper> {
    let defined = FUNCTIONS.iter().filter_map(|row| match row.wgsl {
        Form::Call(name) if !row.definition.is_empty() => Some((name, row.definition)),
        Form::Call(_) | Form::Text(_) => None,
    });
    BEFORE
        .into_iter()
        .chain(rounded::FUNCTIONS)
        .chain(rounded::OF_F64)
        .chain(trigonometry::FUNCTIONS)
        .chain(integers::FUNCTIONS.into_iter().flatten().copied())
        .chain(defined)
        .chain(AFTER)
        .chain(functions64::FUNCTIONS)
        .chain(integers::OF_F64.into_iter().flatten().copied())
        .collect()
}
