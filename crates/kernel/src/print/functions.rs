//! The elementary functions of one float in each language: a row for each.

use alloc::format;
use alloc::string::String;
use kiln_ir::{DType, Unary};

/// The names of a function.
pub(super) struct Elementary {
    function: Unary,
    /// In C++, of `double`; that of `float` ends with `f`.
    cpp: &'static str,
    /// In C++, of `float` for results of 16 bits, where they can be had for less.
    narrow: Option<&'static str>,
    /// In WGSL.
    pub(super) wgsl: &'static str,
    /// The definition in WGSL, where the language lacks the function or its edge cases differ from those of the op.
    pub(super) definition: &'static str,
}

/// A function whose definition another one calls comes before it.
pub(super) const ELEMENTARY: &[Elementary] = &[
    Elementary { function: Unary::Exp, cpp: "exp", narrow: None, wgsl: "exp", definition: "" },
    Elementary {
        function: Unary::Expm1,
        cpp: "expm1",
        narrow: None,
        wgsl: "kiln_expm1",
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
    Elementary { function: Unary::Ln, cpp: "log", narrow: None, wgsl: "log", definition: "" },
    Elementary {
        function: Unary::Log1p,
        cpp: "log1p",
        narrow: None,
        wgsl: "kiln_log1p",
        definition: "// After W. Kahan: the error of the sum is divided out again.
fn kiln_log1p(x: f32) -> f32 {
  let u = 1.0f + x;
  if (u == 1.0f) { return x; }
  if (x > 1e30f || !(u > 0.0f)) { return log(u); }
  return log(u) * x / (u - 1.0f);
}
",
    },
    Elementary { function: Unary::Sin, cpp: "sin", narrow: None, wgsl: "sin", definition: "" },
    Elementary { function: Unary::Cos, cpp: "cos", narrow: None, wgsl: "cos", definition: "" },
    Elementary { function: Unary::Tan, cpp: "tan", narrow: None, wgsl: "tan", definition: "" },
    Elementary {
        function: Unary::Tanh,
        cpp: "tanh",
        narrow: None,
        wgsl: "kiln_tanh",
        definition: "fn kiln_tanh(x: f32) -> f32 {
  if (kiln_is_nan(x)) { return x; }
  return tanh(clamp(x, -20.0f, 20.0f));
}
",
    },
    Elementary { function: Unary::Atan, cpp: "atan", narrow: None, wgsl: "atan", definition: "" },
    Elementary {
        function: Unary::Erf,
        cpp: "erf",
        narrow: Some("kiln_erf16"),
        wgsl: "kiln_erf",
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
    Elementary {
        function: Unary::Erfcx,
        cpp: "erfcx",
        narrow: None,
        wgsl: "kiln_erfcx",
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
];

fn row(function: Unary) -> &'static Elementary {
    let found = ELEMENTARY.iter().find(|row| row.function == function);
    found.unwrap_or_else(|| panic!("`{}` has no row among the elementary functions", function.name()))
}

/// A call in C++.
pub(super) fn cpp(function: Unary, x: &str, dtype: DType) -> String {
    let row = row(function);
    match row.narrow {
        Some(narrow) if dtype == DType::F16 || dtype == DType::BF16 => format!("{narrow}({x})"),
        Some(_) | None if dtype == DType::F64 => format!("{}({x})", row.cpp),
        Some(_) | None => format!("{}f({x})", row.cpp),
    }
}

/// A call in WGSL.
pub(super) fn wgsl(function: Unary, x: &str) -> String {
    format!("{}({x})", row(function).wgsl)
}
