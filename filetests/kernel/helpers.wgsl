// WGSL has no constants for infinities and NaN.
fn kiln_float(bits: u32) -> f32 {
  return bitcast<f32>(bits);
}

fn kiln_is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn kiln_is_negative(x: f32) -> bool {
  return bitcast<i32>(x) < 0;
}

fn kiln_to_f16(x: f32) -> u32 {
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

fn kiln_from_f16(h: u32) -> f32 {
  let sign = (h & 0x8000u) << 16u;
  let rest = h & 0x7fffu;
  if (rest >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13u)); }
  if (rest >= 0x400u) { return bitcast<f32>(sign | ((rest << 13u) + 0x38000000u)); }
  return bitcast<f32>(sign | bitcast<u32>(f32(rest) * 5.9604645e-8f));
}

fn kiln_to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (kiln_is_nan(x)) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

fn kiln_from_bf16(h: u32) -> f32 {
  return bitcast<f32>(h << 16u);
}

fn kiln_sign(x: f32) -> f32 {
  if (x > 0.0f) { return 1.0f; }
  if (x < 0.0f) { return -1.0f; }
  return x;
}

// exp(high + low).
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

// (artanh(s) - s) / s by its series, for a square z of s up to 0.03.
fn kiln_area(z: f32) -> f32 {
  return z * (0.33333333f + z * (0.2f + z * (0.14285714f + z * (0.11111111f + z * 0.09090909f))));
}

// a / b, rounded to nearest. The driver's quotient of the significands is corrected by its remainder in integers.
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

// The square root, rounded to nearest. The driver's root is corrected by its remainder in integers.
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

fn kiln_pow_u32(base: u32, exponent: u32) -> u32 {
  var power = 1u;
  var square = base;
  for (var rest = exponent; rest > 0u; rest = rest >> 1u) {
    if ((rest & 1u) == 1u) { power = power * square; }
    square = square * square;
  }
  return power;
}

fn kiln_div_i32(a: i32, b: i32) -> i32 {
  if (b == 0) { return 0; }
  if (b == -1) { return -a; }
  return a / b;
}

fn kiln_rem_i32(a: i32, b: i32) -> i32 {
  if (b == 0 || b == -1) { return 0; }
  return a % b;
}

fn kiln_pow_i32(base: i32, exponent: i32) -> i32 {
  if (exponent < 0) {
    if (base == -1) { return select(1, -1, (exponent & 1) == 1); }
    return select(0, 1, base == 1);
  }
  return bitcast<i32>(kiln_pow_u32(bitcast<u32>(base), bitcast<u32>(exponent)));
}

fn kiln_shl_i32(a: i32, b: i32, width: i32) -> i32 {
  if (b < 0 || b >= width) { return 0; }
  return a << u32(b);
}

fn kiln_shr_i32(a: i32, b: i32, width: i32) -> i32 {
  if (b < 0 || b >= width) { return select(0, -1, a < 0); }
  return a >> u32(b);
}

// Truncated, saturated; 0 for NaN.
fn kiln_whole_i32_f32(x: f32, low: f32, high: f32, least: i32, most: i32) -> i32 {
  if (kiln_is_nan(x)) { return 0; }
  if (x <= low) { return least; }
  if (x >= high) { return most; }
  return i32(x);
}

// Truncated, saturated; 0 for NaN.
fn kiln_whole_u32_f32(x: f32, high: f32, most: u32) -> u32 {
  if (kiln_is_nan(x) || x <= 0.0f) { return 0u; }
  if (x >= high) { return most; }
  return u32(x);
}

// Keeps the first failing point and its index.
fn kiln_fail(word: i32, shown: i32, point: i32) {
  let before = 4294967295u - u32(point);
  if (atomicMax(&failed[word + 1], before) < before) {
    if (atomicLoad(&failed[word + 1]) == before) { atomicStore(&failed[word], bitcast<u32>(shown)); }
  }
}

fn kiln_checked_i32(index: i32, bound: i32, word: i32, point: i32) -> i32 {
  if (index < 0 || index >= bound) { kiln_fail(word, index, point); }
  return index;
}

// exp(r) 2^n by a Taylor polynomial. Drivers may implement exp with 18 correct bits only.
fn kiln_exp(x: f32) -> f32 {
  return kiln_exp_sum(x, 0.0f);
}

fn kiln_expm1(x: f32) -> f32 {
  if (x == 0.0f) { return x; }
  if (!(abs(x) < 0.4f)) { return kiln_exp(x) - 1.0f; }
  let p = 0.5f + x * (0.16666667f + x * (0.041666667f + x * (8.3333333e-3f + x * (1.3888889e-3f + x * 1.984127e-4f))));
  return x + x * x * p;
}

// log(2^e m) = e log(2) + 2 artanh((m - 1) / (m + 1)).
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

fn kiln_log1p(x: f32) -> f32 {
  if (x > -0.29f && x < 0.41f) {
    let s = kiln_div(x, 2.0f + x);
    return 2.0f * s + 2.0f * s * kiln_area(s * s);
  }
  return kiln_ln(1.0f + x);
}

fn kiln_tanh(x: f32) -> f32 {
  if (kiln_is_nan(x) || x == 0.0f) { return x; }
  let a = kiln_expm1(2.0f * clamp(x, -20.0f, 20.0f));
  return kiln_div(a, a + 2.0f);
}

// The angle is halved, so that the series converges quickly.
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

// The series of erf near 0, and formula 7.1.26 of Abramowitz and Stegun (1964) elsewhere.
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

// (1 + 2 a) erfcx(a) is a polynomial in (a - 3) / (a + 3).
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

fn kiln_atan2(y: f32, x: f32) -> f32 {
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

// base^b for a positive finite base other than 1. The logarithm has an upper and a lower part, as its error is
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

fn kiln_pow(a: f32, b: f32) -> f32 {
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

// Exact: long division of the significands, 8 bits at a time. Integers, since drivers take subnormals for zero.
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

fn kiln_min(a: f32, b: f32) -> f32 {
  if (kiln_is_nan(a) || a < b) { return a; }
  return b;
}

fn kiln_max(a: f32, b: f32) -> f32 {
  if (kiln_is_nan(a) || a > b) { return a; }
  return b;
}
