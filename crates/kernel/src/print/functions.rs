//! Scalar functions in each target language, one table row each.

use super::{cpp, wgsl};
use Form::{Call, Text};
use alloc::format;
use alloc::string::String;
use kiln_ir::{DType, Unary};

/// The form of a function in a language.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// A call of this name. In C++, that of `double`; the name of `float` ends with `f`.
    Call(&'static str),
    /// The text for an operand of a dtype.
    Text(fn(&str, DType) -> String),
}

/// A function in each target language.
pub(super) struct Function {
    function: Unary,
    cpp: Form,
    /// The C++ name of a cheaper `float` function for 16-bit results.
    narrow: Option<&'static str>,
    pub(super) wgsl: Form,
    /// The definition in WGSL, where the language lacks the function or its edge cases differ from those of the op.
    pub(super) definition: &'static str,
}

const fn plain(function: Unary, cpp: Form, wgsl: Form) -> Function {
    Function { function, cpp, narrow: None, wgsl, definition: "" }
}

/// The row of each function, at `function as usize`. A definition that another one calls comes before it.
pub(super) static FUNCTIONS: [Function; Unary::ALL.len()] = [
    plain(Unary::Neg, Text(cpp::neg), Text(wgsl::neg)),
    plain(Unary::Abs, Text(cpp::abs), Text(wgsl::abs)),
    plain(Unary::Sign, Text(cpp::sign), Text(wgsl::sign)),
    plain(Unary::Recip, Text(cpp::recip), Text(wgsl::recip)),
    plain(Unary::Sqrt, Call("sqrt"), Call("kiln_sqrt")),
    plain(Unary::Rsqrt, Call("rsqrt"), Text(wgsl::rsqrt)),
    Function {
        function: Unary::Exp,
        cpp: Call("exp"),
        narrow: None,
        wgsl: Call("kiln_exp"),
        definition: "// exp(r) 2^n by a Taylor polynomial. Drivers may implement exp with 18 correct bits only.
fn kiln_exp(x: f32) -> f32 {
  return kiln_exp_sum(x, 0.0f);
}
",
    },
    Function {
        function: Unary::Expm1,
        cpp: Call("expm1"),
        narrow: None,
        wgsl: Call("kiln_expm1"),
        definition: "fn kiln_expm1(x: f32) -> f32 {
  if (x == 0.0f) { return x; }
  if (!(abs(x) < 0.4f)) { return kiln_exp(x) - 1.0f; }
  let p = 0.5f + x * (0.16666667f + x * (0.041666667f + x * (8.3333333e-3f + x * (1.3888889e-3f + x * 1.984127e-4f))));
  return x + x * x * p;
}
",
    },
    Function {
        function: Unary::Ln,
        cpp: Call("log"),
        narrow: None,
        wgsl: Call("kiln_ln"),
        definition: "// log(2^e m) = e log(2) + 2 artanh((m - 1) / (m + 1)).
fn kiln_ln(x: f32) -> f32 {
  let all = bitcast<u32>(x);
  if ((all & 0x7fffffffu) == 0u) { return kiln_float(0xff800000u); }
  if (all == 0x7f800000u) { return x; }
  if (all > 0x7f800000u) { return kiln_float(0x7fc00000u); }
  // The highest bit of a subnormal takes the place of the implicit one.
  let by = max(countLeadingZeros(all), 8u) - 8u;
  let bits = all << by;
  let large = select(0u, 1u, (bits & 0x7fffffu) > 0x3504f3u);
  let e = f32(i32((bits >> 23u) + large) - 127 - i32(by));
  let m = bitcast<f32>((bits & 0x7fffffu) | ((127u - large) << 23u));
  let s = kiln_div(m - 1.0f, m + 1.0f);
  return e * 0.693359375f + (2.0f * s + (2.0f * s * kiln_area(s * s) - e * 2.1219444e-4f));
}
",
    },
    Function {
        function: Unary::Log1p,
        cpp: Call("log1p"),
        narrow: None,
        wgsl: Call("kiln_log1p"),
        definition: "fn kiln_log1p(x: f32) -> f32 {
  if (x > -0.29f && x < 0.41f) {
    let s = kiln_div(x, 2.0f + x);
    return 2.0f * s + 2.0f * s * kiln_area(s * s);
  }
  return kiln_ln(1.0f + x);
}
",
    },
    plain(Unary::Sin, Call("sin"), Call("kiln_sin")),
    plain(Unary::Cos, Call("cos"), Call("kiln_cos")),
    plain(Unary::Tan, Call("tan"), Call("kiln_tan")),
    Function {
        function: Unary::Tanh,
        cpp: Call("tanh"),
        narrow: None,
        wgsl: Call("kiln_tanh"),
        definition: "fn kiln_tanh(x: f32) -> f32 {
  if (kiln_is_nan(x) || x == 0.0f) { return x; }
  let a = kiln_expm1(2.0f * clamp(x, -20.0f, 20.0f));
  return kiln_div(a, a + 2.0f);
}
",
    },
    Function {
        function: Unary::Atan,
        cpp: Call("atan"),
        narrow: None,
        wgsl: Call("kiln_atan"),
        definition: "// The angle is halved, so that the series converges quickly.
fn kiln_atan(x: f32) -> f32 {
  if (kiln_is_nan(x)) { return x; }
  let a = abs(x);
  let b = kiln_div(min(a, 1.0f), max(a, 1.0f));
  let c = kiln_div(b, 1.0f + sqrt(1.0f + b * b));
  let z = c * c;
  var p = -0.05263158f;
  p = p * z + 0.05882353f;
  p = p * z - 0.06666667f;
  p = p * z + 0.07692308f;
  p = p * z - 0.09090909f;
  p = p * z + 0.11111111f;
  p = p * z - 0.14285714f;
  p = p * z + 0.2f;
  p = p * z - 0.33333333f;
  let halved = 2.0f * c + 2.0f * c * z * p;
  let angle = select(halved, 1.57079633f - halved, a > 1.0f);
  return select(angle, -angle, kiln_is_negative(x));
}
",
    },
    Function {
        function: Unary::Erf,
        cpp: Call("erf"),
        narrow: Some("kiln_erf16"),
        wgsl: Call("kiln_erf"),
        definition: "// The series of erf near 0, and formula 7.1.26 of Abramowitz and Stegun (1964) elsewhere.
fn kiln_erf(x: f32) -> f32 {
  if (kiln_is_nan(x)) { return x; }
  let a = abs(x);
  if (a < 1.0f) {
    let s = x * x;
    var sum = 1.0f / 6894720.0f;
    sum = 1.0f / 685440.0f - s * sum;
    sum = 1.0f / 75600.0f - s * sum;
    sum = 1.0f / 9360.0f - s * sum;
    sum = 1.0f / 1320.0f - s * sum;
    sum = 1.0f / 216.0f - s * sum;
    sum = 1.0f / 42.0f - s * sum;
    sum = 1.0f / 10.0f - s * sum;
    sum = 1.0f / 3.0f - s * sum;
    return 1.1283791671f * x * (1.0f - s * sum);
  }
  let t = 1.0f / (1.0f + 0.3275911f * a);
  let p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  let y = 1.0f - p * kiln_exp(-min(a, 10.0f) * min(a, 10.0f));
  return select(y, -y, x < 0.0f);
}
",
    },
    Function {
        function: Unary::Erfcx,
        cpp: Call("erfcx"),
        narrow: None,
        wgsl: Call("kiln_erfcx"),
        definition: "// (1 + 2 a) erfcx(a) is a polynomial in (a - 3) / (a + 3).
fn kiln_erfcx(x: f32) -> f32 {
  if (kiln_is_nan(x)) { return x; }
  let a = abs(x);
  let b = min(a, 1e18f);
  let q = kiln_div(b - 3.0f, b + 3.0f);
  var p = 3.861849e-6f;
  p = p * q + 7.731024e-5f;
  p = p * q - 1.0413071e-4f;
  p = p * q - 7.2645367e-4f;
  p = p * q + 1.8881129e-3f;
  p = p * q + 2.4991168e-3f;
  p = p * q - 2.3770334e-2f;
  p = p * q + 6.831657e-2f;
  p = p * q - 0.11927369f;
  p = p * q + 0.12964411f;
  p = p * q - 4.7562294e-2f;
  p = p * q - 0.13562107f;
  p = p * q + 1.253008f;
  let y = p * kiln_div(0.5f, a + 0.5f);
  if (x >= 0.0f) { return y; }
  // The square of the leading bits is exact. Bits are cut as integers, since compilers may simplify sums of floats.
  let c = min(a, 20.0f);
  let cut = bitcast<f32>(bitcast<u32>(c) & 0xfffff000u);
  return 2.0f * kiln_exp_sum(cut * cut, (c - cut) * (c + cut)) - y;
}
",
    },
    plain(Unary::Floor, Call("floor"), Call("floor")),
    plain(Unary::Ceil, Call("ceil"), Call("ceil")),
    plain(Unary::Round, Call("rint"), Call("round")),
    plain(Unary::Trunc, Call("trunc"), Call("trunc")),
    plain(Unary::Not, Text(cpp::not), Text(wgsl::not)),
];

// Checks that each row is at the index of its function.
const _: () = {
    let mut i = 0;
    while i < FUNCTIONS.len() {
        assert!(FUNCTIONS[i].function as usize == i);
        i += 1;
    }
};

/// The expression in C++.
pub(super) fn in_cpp(function: Unary, x: &str, dtype: DType) -> String {
    let row = &FUNCTIONS[function as usize];
    match (row.narrow, row.cpp) {
        (Some(narrow), _) if dtype == DType::F16 || dtype == DType::BF16 => format!("{narrow}({x})"),
        (_, Call(name)) => format!("{name}{}({x})", cpp::suffix(dtype)),
        (_, Text(text)) => text(x, dtype),
    }
}

/// The expression in WGSL.
pub(super) fn in_wgsl(function: Unary, x: &str, dtype: DType) -> String {
    match FUNCTIONS[function as usize].wgsl {
        Call(_) if dtype == DType::F64 => wgsl::unary64(function, x),
        Call(name) => format!("{name}({x})"),
        Text(text) => text(x, dtype),
    }
}
