//! Sine, cosine and tangent of `f32` in WGSL.
//!
//! Drivers compute them from -pi to pi only, with absolute errors up to 2^-11. These functions have errors below 2 units in
//! the last place, the tangent below 3, for all finite numbers.

/// Names and definitions, each before its users.
pub(super) static FUNCTIONS: [(&str, &str); 8] = [
    (
        "kiln_wide_angle",
        "// x modulo pi/2 for x of at least 2^-7, after M. Payne and R. Hanek: the fraction of x 2/pi, of which only the bits
// from 2^1 on count. Sets the quadrant.
fn kiln_wide_angle(x: f32, quadrant: ptr<function, i32>) -> f32 {
  var bits_of_two_over_pi = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
  let bits = bitcast<u32>(x);
  let m = (bits & 0x7fffffu) | 0x800000u;
  // x = m 2^e. Of 2/pi, the bits before 2^-(e - 2) only add multiples of 4. The table starts with 32 bits before the
  // binary point.
  let first = (bits >> 23u) - 120u;
  let word = first / 32u;
  let by = first % 32u;
  var window: array<u32, 3>;
  for (var i = 0u; i < 3u; i = i + 1u) {
    let upper = bits_of_two_over_pi[word + i] << by;
    let lower = select(bits_of_two_over_pi[word + i + 1u] >> ((32u - by) & 31u), 0u, by == 0u);
    window[i] = upper | lower;
  }
  // The product of m and the window, modulo 2^96, from the low half words on.
  let m0 = m & 0xffffu;
  let m1 = m >> 16u;
  var product: array<u32, 6>;
  for (var i = 0u; i < 6u; i = i + 1u) {
    let half = (window[2u - i / 2u] >> (16u * (i % 2u))) & 0xffffu;
    let a = m0 * half;
    product[i] = product[i] + (a & 0xffffu);
    if (i < 5u) {
      let b = m1 * half;
      product[i + 1u] = product[i + 1u] + (a >> 16u) + (b & 0xffffu);
      if (i < 4u) { product[i + 2u] = product[i + 2u] + (b >> 16u); }
      product[i + 1u] = product[i + 1u] + (product[i] >> 16u);
    }
    product[i] = product[i] & 0xffffu;
  }
  // Two bits of the quadrant, then the fraction.
  let high = (product[5] << 16u) | product[4];
  let rest = (product[3] << 16u) | product[2];
  *quadrant = i32(high >> 30u);
  var fraction = (high << 2u) | (rest >> 30u);
  var tail = rest << 2u;
  var sign = 1.0f;
  if ((fraction >> 31u) == 1u) {
    *quadrant = *quadrant + 1;
    fraction = ~fraction;
    tail = ~tail;
    sign = -1.0f;
  }
  // The product of the leading 12 bits of the fraction and of pi/2 is exact.
  let lead = f32(fraction >> 20u) * 2.4414062e-4f;
  let low = f32(fraction & 0xfffffu) * 2.3283064e-10f + f32(tail) * 5.421011e-20f;
  return sign * (lead * 1.5703125f + (lead * 4.8382679e-4f + low * 1.5707964f));
}
",
    ),
    (
        "kiln_angle",
        "// x modulo pi/2, for a finite x of any sign, in parts of pi/2 whose products are exact. Sets the quadrant.
fn kiln_angle(x: f32, quadrant: ptr<function, i32>) -> f32 {
  if (abs(x) >= 3000.0f) {
    let angle = kiln_wide_angle(abs(x), quadrant);
    if (x > 0.0f) { return angle; }
    *quadrant = -*quadrant;
    return -angle;
  }
  let n = floor(x * 0.63661975f + 0.5f);
  *quadrant = i32(n);
  return (((x - n * 1.5703125f) - n * 4.837513e-4f) - n * 7.5495336e-8f) - n * 2.563344e-12f;
}
",
    ),
    (
        "kiln_sin_of_angle",
        "fn kiln_sin_of_angle(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (-0.16666655f + z * (8.332161e-3f + z * -1.9515296e-4f));
}
",
    ),
    (
        "kiln_cos_of_angle",
        "fn kiln_cos_of_angle(r: f32) -> f32 {
  let z = r * r;
  return 1.0f - (0.5f * z - z * z * (0.041666646f + z * (-1.3887316e-3f + z * 2.4433157e-5f)));
}
",
    ),
    (
        "kiln_sin",
        "fn kiln_sin(x: f32) -> f32 {
  if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) { return kiln_float(0x7fc00000u); }
  if (x == 0.0f) { return x; }
  var quadrant = 0;
  let r = kiln_angle(x, &quadrant);
  let y = select(kiln_cos_of_angle(r), kiln_sin_of_angle(r), (quadrant & 1) == 0);
  return select(y, -y, (quadrant & 2) != 0);
}
",
    ),
    (
        "kiln_cos",
        "fn kiln_cos(x: f32) -> f32 {
  if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) { return kiln_float(0x7fc00000u); }
  var quadrant = 0;
  let r = kiln_angle(x, &quadrant);
  let y = select(kiln_sin_of_angle(r), kiln_cos_of_angle(r), (quadrant & 1) == 0);
  return select(y, -y, ((quadrant + 1) & 2) != 0);
}
",
    ),
    (
        "kiln_tan_of_angle",
        "fn kiln_tan_of_angle(r: f32) -> f32 {
  let z = r * r;
  var p = 9.385402e-3f;
  p = p * z + 3.119923e-3f;
  p = p * z + 0.024430135f;
  p = p * z + 0.05341128f;
  p = p * z + 0.133388f;
  p = p * z + 0.33333157f;
  return r + r * z * p;
}
",
    ),
    (
        "kiln_tan",
        "fn kiln_tan(x: f32) -> f32 {
  if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) { return kiln_float(0x7fc00000u); }
  if (x == 0.0f) { return x; }
  var quadrant = 0;
  let r = kiln_angle(x, &quadrant);
  let y = kiln_tan_of_angle(r);
  if ((quadrant & 1) == 0) { return y; }
  return kiln_div(-1.0f, y);
}
",
    ),
];
