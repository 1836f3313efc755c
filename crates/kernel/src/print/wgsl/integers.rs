//! The WGSL prelude for integers: division, powers, shifts, checks and conversions whose edge cases are those of the ops.

/// Functions of a signed type: name, unsigned type, suffixes of literals.
macro_rules! signed {
    ($ty:literal, $unsigned:literal, $i:literal, $u:literal) => {
        [
            (
                concat!("kiln_div_", $ty),
                concat!(
                    "fn kiln_div_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b == 0",
                    $i,
                    ") { return 0",
                    $i,
                    "; }\n",
                    "  if (b == -1",
                    $i,
                    ") { return -a; }\n  return a / b;\n}\n"
                ),
            ),
            (
                concat!("kiln_rem_", $ty),
                concat!(
                    "fn kiln_rem_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b == 0",
                    $i,
                    " || b == -1",
                    $i,
                    ") { return 0",
                    $i,
                    "; }\n  return a % b;\n}\n"
                ),
            ),
            (
                concat!("kiln_pow_", $ty),
                concat!(
                    "fn kiln_pow_",
                    $ty,
                    "(base: ",
                    $ty,
                    ", exponent: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (exponent < 0",
                    $i,
                    ") {\n",
                    "    if (base == -1",
                    $i,
                    ") { return select(1",
                    $i,
                    ", -1",
                    $i,
                    ", (exponent & 1",
                    $i,
                    ") == 1",
                    $i,
                    "); }\n",
                    "    return select(0",
                    $i,
                    ", 1",
                    $i,
                    ", base == 1",
                    $i,
                    ");\n  }\n",
                    "  return bitcast<",
                    $ty,
                    ">(kiln_pow_",
                    $unsigned,
                    "(bitcast<",
                    $unsigned,
                    ">(base), bitcast<",
                    $unsigned,
                    ">(exponent)));\n}\n"
                ),
            ),
            (
                concat!("kiln_shl_", $ty),
                concat!(
                    "fn kiln_shl_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ", width: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b < 0",
                    $i,
                    " || b >= width) { return 0",
                    $i,
                    "; }\n  return a << u32(b);\n}\n"
                ),
            ),
            (
                concat!("kiln_shr_", $ty),
                concat!(
                    "fn kiln_shr_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ", width: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b < 0",
                    $i,
                    " || b >= width) { return select(0",
                    $i,
                    ", -1",
                    $i,
                    ", a < 0",
                    $i,
                    "); }\n",
                    "  return a >> u32(b);\n}\n"
                ),
            ),
            (
                concat!("kiln_odd_", $ty),
                concat!(
                    "fn kiln_odd_",
                    $ty,
                    "(x: ",
                    $ty,
                    ") -> f32 {\n  let bits = bitcast<",
                    $unsigned,
                    ">(x);\n",
                    "  if (x < 0",
                    $i,
                    ") { return -kiln_odd_",
                    $unsigned,
                    "(0",
                    $u,
                    " - bits); }\n",
                    "  return kiln_odd_",
                    $unsigned,
                    "(bits);\n}\n"
                ),
            ),
        ]
    };
}

/// Functions of an unsigned type.
macro_rules! unsigned {
    ($ty:literal, $u:literal) => {
        [
            (
                concat!("kiln_div_", $ty),
                concat!(
                    "fn kiln_div_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b == 0",
                    $u,
                    ") { return 0",
                    $u,
                    "; }\n  return a / b;\n}\n"
                ),
            ),
            (
                concat!("kiln_rem_", $ty),
                concat!(
                    "fn kiln_rem_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b == 0",
                    $u,
                    ") { return 0",
                    $u,
                    "; }\n  return a % b;\n}\n"
                ),
            ),
            (
                concat!("kiln_pow_", $ty),
                concat!(
                    "fn kiln_pow_",
                    $ty,
                    "(base: ",
                    $ty,
                    ", exponent: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  var power = 1",
                    $u,
                    ";\n  var square = base;\n",
                    "  for (var rest = exponent; rest > 0",
                    $u,
                    "; rest = rest >> 1u) {\n",
                    "    if ((rest & 1",
                    $u,
                    ") == 1",
                    $u,
                    ") { power = power * square; }\n",
                    "    square = square * square;\n  }\n  return power;\n}\n"
                ),
            ),
            (
                concat!("kiln_shl_", $ty),
                concat!(
                    "fn kiln_shl_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ", width: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b >= width) { return 0",
                    $u,
                    "; }\n  return a << u32(b);\n}\n"
                ),
            ),
            (
                concat!("kiln_shr_", $ty),
                concat!(
                    "fn kiln_shr_",
                    $ty,
                    "(a: ",
                    $ty,
                    ", b: ",
                    $ty,
                    ", width: ",
                    $ty,
                    ") -> ",
                    $ty,
                    " {\n",
                    "  if (b >= width) { return 0",
                    $u,
                    "; }\n  return a >> u32(b);\n}\n"
                ),
            ),
        ]
    };
}

/// Conversions of a float to a signed and an unsigned type: types, suffixes of literals, and the test for NaN.
macro_rules! whole {
    ($float:literal, $f:literal, $nan:literal, $signed:literal, $i:literal, $unsigned:literal, $u:literal) => {
        [
            (
                concat!("kiln_whole_", $signed, "_", $float),
                concat!(
                    "// Truncated, saturated; 0 for NaN.\n",
                    "fn kiln_whole_",
                    $signed,
                    "_",
                    $float,
                    "(x: ",
                    $float,
                    ", low: ",
                    $float,
                    ", high: ",
                    $float,
                    ", least: ",
                    $signed,
                    ", most: ",
                    $signed,
                    ") -> ",
                    $signed,
                    " {\n",
                    "  if (",
                    $nan,
                    "(x)) { return 0",
                    $i,
                    "; }\n  if (x <= low) { return least; }\n",
                    "  if (x >= high) { return most; }\n  return ",
                    $signed,
                    "(x);\n}\n"
                ),
            ),
            (
                concat!("kiln_whole_", $unsigned, "_", $float),
                concat!(
                    "// Truncated, saturated; 0 for NaN.\n",
                    "fn kiln_whole_",
                    $unsigned,
                    "_",
                    $float,
                    "(x: ",
                    $float,
                    ", high: ",
                    $float,
                    ", most: ",
                    $unsigned,
                    ") -> ",
                    $unsigned,
                    " {\n",
                    "  if (",
                    $nan,
                    "(x) || x <= 0.0",
                    $f,
                    ") { return 0",
                    $u,
                    "; }\n",
                    "  if (x >= high) { return most; }\n  return ",
                    $unsigned,
                    "(x);\n}\n"
                ),
            ),
        ]
    };
}

/// Rounds an integer to odd: rounding the result to 16 bits again then equals rounding once.
const ODD: [(&str, &str); 2] = [
    (
        "kiln_odd_u32",
        "// Round to odd: rounding the result to 16 bits again then equals rounding once.
fn kiln_odd_u32(x: u32) -> f32 {
  if (x < 0x1000000u) { return f32(x); }
  let by = firstLeadingBit(x) - 23u;
  let kept = x >> by;
  let odd = select(0u, 1u, (kept << by) != x);
  return f32(kept | odd) * bitcast<f32>((127u + by) << 23u);
}
",
    ),
    (
        "kiln_odd_u64",
        "fn kiln_odd_u64(x: u64) -> f32 {
  let high = u32(x >> 32u);
  if (high == 0u) { return kiln_odd_u32(u32(x)); }
  let by = firstLeadingBit(high) + 9u;
  let kept = u32(x >> by);
  let odd = select(0u, 1u, (u64(kept) << by) != x);
  return f32(kept | odd) * bitcast<f32>((127u + by) << 23u);
}
",
    ),
];

/// Functions of a check: of a type, the index as `i32`.
macro_rules! checked {
    ($ty:literal, $negative:literal, $shown:literal) => {
        (
            concat!("kiln_checked_", $ty),
            concat!(
                "fn kiln_checked_",
                $ty,
                "(index: ",
                $ty,
                ", bound: ",
                $ty,
                ", word: i32, point: i32) -> ",
                $ty,
                " {\n",
                "  if (",
                $negative,
                "index >= bound) { kiln_fail(word, ",
                $shown,
                ", point); }\n  return index;\n}\n"
            ),
        )
    };
}

const FAIL: (&str, &str) = (
    "kiln_fail",
    "// Keeps the first failing point and its index.
fn kiln_fail(word: i32, shown: i32, point: i32) {
  let before = 4294967295u - u32(point);
  if (atomicMax(&failed[word + 1], before) < before) {
    if (atomicLoad(&failed[word + 1]) == before) { atomicStore(&failed[word], bitcast<u32>(shown)); }
  }
}
",
);

/// Names and definitions, each before its users.
#[rustfmt::skip]
pub(super) static FUNCTIONS: [&[(&str, &str)]; 9] = [
    &ODD,
    &unsigned!("u32", "u"),
    &signed!("i32", "u32", "", "u"),
    &unsigned!("u64", "lu"),
    &signed!("i64", "u64", "li", "lu"),
    &whole!("f32", "f", "kiln_is_nan", "i32", "", "u32", "u"),
    &whole!("f32", "f", "kiln_is_nan", "i64", "li", "u64", "lu"),
    &[FAIL],
    &[
        checked!("i32", "index < 0 || ", "index"),
        checked!("u32", "", "i32(min(index, 2147483647u))"),
        checked!("i64", "index < 0li || ", "i32(clamp(index, -2147483648li, 2147483647li))"),
        checked!("u64", "", "i32(min(index, 2147483647lu))"),
    ],
];

/// Conversions of `f64`, after its functions.
#[rustfmt::skip]
pub(super) static OF_F64: [&[(&str, &str)]; 2] = [
    &whole!("f64", "lf", "kiln_is_nan_f64", "i32", "", "u32", "u"),
    &whole!("f64", "lf", "kiln_is_nan_f64", "i64", "li", "u64", "lu"),
];
