//! Division and square root in WGSL, rounded to nearest.
//!
//! Drivers may divide with errors of 2.5 units in the last place, take roots with greater ones, and flush subnormals to
//! zero. The functions take the driver's result for the significands, and correct it by its remainder in integers. The
//! remainder is exact, since it is small and integers wrap. So the results depend neither on the contraction nor on the
//! order of float operations, and subnormals are those of IEEE 754.

/// Functions of `f32`. Names and definitions, each before its users.
pub(super) static FUNCTIONS: [(&str, &str); 2] = [
    (
        "kiln_div",
        "// a / b, rounded to nearest. The driver's quotient of the significands is corrected by its remainder in integers.
fn kiln_div(a: f32, b: f32) -> f32 {
  let x = bitcast<u32>(a) & 0x7fffffffu;
  let y = bitcast<u32>(b) & 0x7fffffffu;
  let sign_bit = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
  var power = i32(x >> 23u) - i32(y >> 23u);
  var m = (x & 0x7fffffu) | 0x800000u;
  var n = (y & 0x7fffffu) | 0x800000u;
  if (x - 0x800000u >= 0x7f000000u || y - 0x800000u >= 0x7f000000u) {
    if (x > 0x7f800000u || y > 0x7f800000u || (x == y && (x == 0u || x == 0x7f800000u))) {
      return kiln_float(0x7fc00000u);
    }
    if (x == 0u || y == 0x7f800000u) { return bitcast<f32>(sign_bit); }
    if (y == 0u || x == 0x7f800000u) { return bitcast<f32>(sign_bit | 0x7f800000u); }
    // The highest bit of a subnormal takes the place of the implicit one.
    if (x < 0x800000u) {
      let by = countLeadingZeros(x) - 8u;
      m = x << by;
      power = power + 1 - i32(by);
    }
    if (y < 0x800000u) {
      let by = countLeadingZeros(y) - 8u;
      n = y << by;
      power = power - 1 + i32(by);
    }
  }
  let less = select(0u, 1u, m < n);
  let about = bitcast<f32>(m + 0x3f000000u) / bitcast<f32>(n + 0x3f000000u);
  var q = bitcast<u32>(about) - 0x3f000000u + (less << 23u);
  var rest = bitcast<i32>((m << (23u + less)) - q * n);
  let divisor = i32(n);
  let two = select(0, 2, 2 * rest > 3 * divisor) - select(0, 2, 2 * rest < -3 * divisor);
  rest = rest - two * divisor;
  let one = select(0, 1, 2 * rest > divisor) - select(0, 1, 2 * rest < -divisor);
  rest = rest - one * divisor;
  q = q + bitcast<u32>(two + one);
  power = power + 126 - i32(less);
  if (power >= 0) { return bitcast<f32>(sign_bit | min((u32(power) << 23u) + q, 0x7f800000u)); }
  // A subnormal: two more bits of the quotient, of which the last is that of any remainder.
  let by = u32(min(2 - power, 30));
  let wide = (q << 2u) + bitcast<u32>(sign(rest));
  return bitcast<f32>(sign_bit | ((wide + (1u << (by - 1u)) - 1u + ((wide >> by) & 1u)) >> by));
}
",
    ),
    (
        "kiln_sqrt",
        "// The square root, rounded to nearest. The driver's root is corrected by its remainder in integers.
fn kiln_sqrt(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  var power = i32(bits >> 23u);
  var m = (bits & 0x7fffffu) | 0x800000u;
  if (bits - 0x800000u >= 0x7f000000u) {
    if ((bits & 0x7fffffffu) == 0u || bits == 0x7f800000u) { return x; }
    if (bits > 0x7f800000u) { return kiln_float(0x7fc00000u); }
    let by = countLeadingZeros(bits) - 8u;
    m = bits << by;
    power = 1 - i32(by);
  }
  let odd = u32(~power) & 1u;
  let about = sqrt(bitcast<f32>(m + 0x3f000000u + (odd << 23u)));
  var root = bitcast<u32>(about) - 0x3f000000u;
  var rest = bitcast<i32>((m << (23u + odd)) - root * root);
  let by = i32(round(f32(rest) * 5.9604645e-8f / about));
  rest = rest - by * (2 * i32(root) + by);
  root = root + bitcast<u32>(by);
  let one = select(0, 1, rest > i32(root)) - select(0, 1, rest <= -i32(root));
  root = root + bitcast<u32>(one);
  return bitcast<f32>((u32((power + 125 - i32(odd)) >> 1u) << 23u) + root);
}
",
    ),
];

/// The same of `f64`. The integers have 64 bits.
pub(super) static OF_F64: [(&str, &str); 3] = [
    (
        "kiln_zeros_f64",
        "// The zero bits before the significand of a subnormal.
fn kiln_zeros_f64(bits: u64) -> u32 {
  let high = u32(bits >> 32u);
  if (high != 0u) { return countLeadingZeros(high) - 11u; }
  return countLeadingZeros(u32(bits & 0xfffffffflu)) + 21u;
}
",
    ),
    (
        "kiln_div_f64",
        "// a / b, rounded to nearest. The driver's quotient of the significands is corrected by its remainder in integers.
fn kiln_div_f64(a: f64, b: f64) -> f64 {
  let x = bitcast<u64>(a) & 0x7ffffffffffffffflu;
  let y = bitcast<u64>(b) & 0x7ffffffffffffffflu;
  let sign_bit = (bitcast<u64>(a) ^ bitcast<u64>(b)) & 0x8000000000000000lu;
  var power = i32(x >> 52u) - i32(y >> 52u);
  var m = (x & 0xffffffffffffflu) | 0x10000000000000lu;
  var n = (y & 0xffffffffffffflu) | 0x10000000000000lu;
  if (x - 0x10000000000000lu >= 0x7fe0000000000000lu || y - 0x10000000000000lu >= 0x7fe0000000000000lu) {
    if (x > 0x7ff0000000000000lu || y > 0x7ff0000000000000lu || (x == y && (x == 0lu || x == 0x7ff0000000000000lu))) {
      return kiln_double(0x7ff8000000000000lu);
    }
    if (x == 0lu || y == 0x7ff0000000000000lu) { return bitcast<f64>(sign_bit); }
    if (y == 0lu || x == 0x7ff0000000000000lu) { return bitcast<f64>(sign_bit | 0x7ff0000000000000lu); }
    // The highest bit of a subnormal takes the place of the implicit one.
    if (x < 0x10000000000000lu) {
      let by = kiln_zeros_f64(x);
      m = x << by;
      power = power + 1 - i32(by);
    }
    if (y < 0x10000000000000lu) {
      let by = kiln_zeros_f64(y);
      n = y << by;
      power = power - 1 + i32(by);
    }
  }
  let less = select(0u, 1u, m < n);
  let about = bitcast<f64>(m + 0x3fe0000000000000lu) / bitcast<f64>(n + 0x3fe0000000000000lu);
  var q = bitcast<u64>(about) - 0x3fe0000000000000lu + (u64(less) << 52u);
  var rest = bitcast<i64>((m << (52u + less)) - q * n);
  let divisor = bitcast<i64>(n);
  let two = select(0li, 2li, 2li * rest > 3li * divisor) - select(0li, 2li, 2li * rest < -3li * divisor);
  rest = rest - two * divisor;
  let one = select(0li, 1li, 2li * rest > divisor) - select(0li, 1li, 2li * rest < -divisor);
  rest = rest - one * divisor;
  q = q + bitcast<u64>(two + one);
  power = power + 1022 - i32(less);
  if (power >= 0) { return bitcast<f64>(sign_bit | min((u64(u32(power)) << 52u) + q, 0x7ff0000000000000lu)); }
  // A subnormal: two more bits of the quotient, of which the last is that of any remainder.
  let by = u32(min(2 - power, 60));
  let wide = (q << 2u) + select(0lu, 1lu, rest > 0li) - select(0lu, 1lu, rest < 0li);
  return bitcast<f64>(sign_bit | ((wide + (1lu << (by - 1u)) - 1lu + ((wide >> by) & 1lu)) >> by));
}
",
    ),
    (
        "kiln_sqrt_f64",
        "// The square root, rounded to nearest. The driver's root is corrected by its remainder in integers.
fn kiln_sqrt_f64(x: f64) -> f64 {
  let bits = bitcast<u64>(x);
  var power = i32(bits >> 52u);
  var m = (bits & 0xffffffffffffflu) | 0x10000000000000lu;
  if (bits - 0x10000000000000lu >= 0x7fe0000000000000lu) {
    if ((bits & 0x7ffffffffffffffflu) == 0lu || bits == 0x7ff0000000000000lu) { return x; }
    if (bits > 0x7ff0000000000000lu) { return kiln_double(0x7ff8000000000000lu); }
    let by = kiln_zeros_f64(bits);
    m = bits << by;
    power = 1 - i32(by);
  }
  let odd = u32(~power) & 1u;
  let about = sqrt(bitcast<f64>(m + 0x3fe0000000000000lu + (u64(odd) << 52u)));
  var root = bitcast<u64>(about) - 0x3fe0000000000000lu;
  var rest = bitcast<i64>((m << (52u + odd)) - root * root);
  let by = i64(floor(f64(rest) * 1.1102230246251565e-16lf / about + 0.5lf));
  rest = rest - by * (2li * bitcast<i64>(root) + by);
  root = root + bitcast<u64>(by);
  let one = select(0li, 1li, rest > bitcast<i64>(root)) - select(0li, 1li, rest <= -bitcast<i64>(root));
  root = root + bitcast<u64>(one);
  return bitcast<f64>((u64(u32((power + 1021 - i32(odd)) >> 1u)) << 52u) + root);
}
",
    ),
];
