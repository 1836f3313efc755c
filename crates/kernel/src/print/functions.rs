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
    plain(Unary::Sqrt, Call("sqrt"), Call("sqrt")),
    plain(Unary::Rsqrt, Call("rsqrt"), Text(wgsl::rsqrt)),
    plain(Unary::Exp, Call("exp"), Call("exp")),
    Function {
        function: Unary::Expm1,
        cpp: Call("expm1"),
        narrow: None,
        wgsl: Call("kiln_expm1"),
        definition: "// After W. Kahan: the error of exp is divided out again by the logarithm.
fn kiln_expm1(x: f32) -> f32 {
  let u = exp(x);
  if (u == 1.0f) { return x; }
  if (x > 80.0f || kiln_is_nan(x)) { return u; }
  if (u - 1.0f == -1.0f) { return -1.0f; }
  return (u - 1.0f) * x / log(u);
}
",
    },
    plain(Unary::Ln, Call("log"), Call("log")),
    Function {
        function: Unary::Log1p,
        cpp: Call("log1p"),
        narrow: None,
        wgsl: Call("kiln_log1p"),
        definition: "// log(1 + x) = 2 artanh(x / (2 + x)) near 0, by its series. Compilers may simplify sums that undo a rounding.
fn kiln_log1p(x: f32) -> f32 {
  if (x > -0.29f && x < 0.41f) {
    let s = x / (2.0f + x);
    let z = s * s;
    return 2.0f * s + 2.0f * s * z * (0.33333333f + z * (0.2f + z * (0.14285714f + z * (0.11111111f + z * 0.09090909f))));
  }
  return log(1.0f + x);
}
",
    },
    plain(Unary::Sin, Call("sin"), Call("sin")),
    plain(Unary::Cos, Call("cos"), Call("cos")),
    plain(Unary::Tan, Call("tan"), Call("tan")),
    Function {
        function: Unary::Tanh,
        cpp: Call("tanh"),
        narrow: None,
        wgsl: Call("kiln_tanh"),
        definition: "fn kiln_tanh(x: f32) -> f32 {
  if (kiln_is_nan(x)) { return x; }
  return tanh(clamp(x, -20.0f, 20.0f));
}
",
    },
    plain(Unary::Atan, Call("atan"), Call("atan")),
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
  let y = 1.0f - p * exp(-min(a, 10.0f) * min(a, 10.0f));
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
  let q = 2.0f * b / (b + 3.0f) - 1.0f;
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
  let y = p * (0.5f / (a + 0.5f));
  if (x >= 0.0f) { return y; }
  return 2.0f * exp(min(a, 20.0f) * min(a, 20.0f)) - y;
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
    if dtype == DType::F64 {
        return wgsl::unary64(function, x);
    }
    match FUNCTIONS[function as usize].wgsl {
        Call(name) => format!("{name}({x})"),
        Text(text) => text(x, dtype),
    }
}
