//! Functions of `f64` in WGSL. SPIR-V has no elementary functions of `f64`, and drivers' quotients and roots
//! may have errors of many units in the last place.
//!
//! Errors are a few units in the last place. Compilers of shaders may treat sums of floats as associative. The functions
//! therefore use no such sums to separate parts of a number; `kiln_cut_f64` cuts its bits as an integer. Where products with
//! parts of a constant are subtracted, `max` with a number below all differences keeps the parts apart.

use alloc::format;
use alloc::string::String;
use kiln_ir::Unary;

/// The call of a function of an `f64`, of WGSL or of [`FUNCTIONS`].
pub(in crate::print) fn unary(function: Unary, x: &str) -> String {
    const OF_WGSL: [Unary; 3] = [Unary::Floor, Unary::Ceil, Unary::Trunc];
    let name = function.name();
    if OF_WGSL.contains(&function) { format!("{name}({x})") } else { format!("kiln_{name}_f64({x})") }
}

/// Names and definitions, each before its users.
pub(super) static FUNCTIONS: [(&str, &str); 35] = [
    (
        "kiln_is_nan_f64",
        "fn kiln_is_nan_f64(x: f64) -> bool {
  return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}
",
    ),
    (
        "kiln_minus_itself_f64",
        "fn kiln_minus_itself_f64(x: f64) -> f64 {
  let bits = bitcast<u64>(x);
  if ((bits & 0x7ff0000000000000lu) == 0x7ff0000000000000lu) { return bitcast<f64>(bits | 0x8000000000000lu); }
  return 0.0lf;
}
",
    ),
    (
        "kiln_ne_f64",
        "fn kiln_ne_f64(a: f64, b: f64) -> bool {
  return a != b || kiln_is_nan_f64(a) || kiln_is_nan_f64(b);
}
",
    ),
    (
        "kiln_is_negative_f64",
        "fn kiln_is_negative_f64(x: f64) -> bool {
  return (bitcast<u64>(x) >> 63u) != 0lu;
}
",
    ),
    (
        "kiln_with_sign_f64",
        "// The magnitude of one number with the sign of another.
fn kiln_with_sign_f64(x: f64, sign: f64) -> f64 {
  return bitcast<f64>((bitcast<u64>(x) & 0x7ffffffffffffffflu) | (bitcast<u64>(sign) & 0x8000000000000000lu));
}
",
    ),
    (
        "kiln_cut_f64",
        "// The upper 26 bits of the significand: products of two such numbers are exact. The bits are cut as an integer, since
// compilers may simplify sums of floats.
fn kiln_cut_f64(x: f64) -> f64 {
  return bitcast<f64>(bitcast<u64>(x) & 0xfffffffff8000000lu);
}
",
    ),
    (
        "kiln_odd_f64",
        "// Round to odd: rounding the result to 16 bits again then equals rounding once.
fn kiln_odd_f64(x: f64) -> f32 {
  let nearest = f32(x);
  let bits = bitcast<u32>(nearest);
  let wide = f64(nearest);
  if (wide == x || kiln_is_nan_f64(x) || (bits & 1u) == 1u) { return nearest; }
  return bitcast<f32>(select(bits + 1u, bits - 1u, abs(wide) > abs(x)));
}
",
    ),
    (
        "kiln_sign_f64",
        "fn kiln_sign_f64(x: f64) -> f64 {
  if (x > 0.0lf) { return 1.0lf; }
  if (x < 0.0lf) { return -1.0lf; }
  return x;
}
",
    ),
    (
        "kiln_round_f64",
        "// To the nearest integer; ties to even.
fn kiln_round_f64(x: f64) -> f64 {
  let a = abs(x);
  if (!(a < 4503599627370496.0lf)) { return x; }
  let below = floor(a);
  let rest = a - below;
  let is_odd = (u64(below) & 1lu) == 1lu;
  let up = rest > 0.5lf || (rest == 0.5lf && is_odd);
  return kiln_with_sign_f64(select(below, below + 1.0lf, up), x);
}
",
    ),
    (
        "kiln_scale_f64",
        "// x * 2^power, in two steps, so that powers out of the range of f64 are possible.
fn kiln_scale_f64(x: f64, power: i32) -> f64 {
  let p = clamp(power, -2000, 2000);
  let half = p >> 1u;
  let first = bitcast<f64>(u64(half + 1023) << 52u);
  let second = bitcast<f64>(u64(p - half + 1023) << 52u);
  return x * first * second;
}
",
    ),
    (
        "kiln_exp_sum_f64",
        "// exp(high + low): exp(r) 2^n by a Taylor polynomial.
fn kiln_exp_sum_f64(high: f64, low: f64) -> f64 {
  if (kiln_is_nan_f64(high)) { return high; }
  if (high > 709.8lf) { return kiln_double(0x7ff0000000000000lu); }
  if (high < -745.2lf) { return 0.0lf; }
  let n = floor((high + low) * 1.4426950408889634lf + 0.5lf);
  let r = max(high - n * 0.6931471803691238lf, -2.0lf) - n * 1.9082149292705877e-10lf + low;
  var p = 1.6059043836821613e-10lf;
  p = p * r + 2.08767569878681e-09lf;
  p = p * r + 2.505210838544172e-08lf;
  p = p * r + 2.755731922398589e-07lf;
  p = p * r + 2.7557319223985893e-06lf;
  p = p * r + 2.48015873015873e-05lf;
  p = p * r + 0.0001984126984126984lf;
  p = p * r + 0.001388888888888889lf;
  p = p * r + 0.008333333333333333lf;
  p = p * r + 0.041666666666666664lf;
  p = p * r + 0.16666666666666666lf;
  p = p * r + 0.5lf;
  p = p * r + 1.0lf;
  p = p * r + 1.0lf;
  return kiln_scale_f64(p, i32(n));
}
",
    ),
    (
        "kiln_exp_f64",
        "fn kiln_exp_f64(x: f64) -> f64 {
  return kiln_exp_sum_f64(x, 0.0lf);
}
",
    ),
    (
        "kiln_exp_square_f64",
        "// exp(x * x) or exp(-x * x), where the square is not rounded.
fn kiln_exp_square_f64(x: f64, sign: f64) -> f64 {
  let a = min(abs(x), 40.0lf);
  let cut = kiln_cut_f64(a);
  return kiln_exp_sum_f64(sign * cut * cut, sign * (a - cut) * (a + cut));
}
",
    ),
    (
        "kiln_expm1_f64",
        "fn kiln_expm1_f64(x: f64) -> f64 {
  if (x == 0.0lf) { return x; }
  if (!(abs(x) < 0.4lf)) { return kiln_exp_f64(x) - 1.0lf; }
  var p = 4.779477332387385e-14lf;
  p = p * x + 7.647163731819816e-13lf;
  p = p * x + 1.1470745597729725e-11lf;
  p = p * x + 1.6059043836821613e-10lf;
  p = p * x + 2.08767569878681e-09lf;
  p = p * x + 2.505210838544172e-08lf;
  p = p * x + 2.755731922398589e-07lf;
  p = p * x + 2.7557319223985893e-06lf;
  p = p * x + 2.48015873015873e-05lf;
  p = p * x + 0.0001984126984126984lf;
  p = p * x + 0.001388888888888889lf;
  p = p * x + 0.008333333333333333lf;
  p = p * x + 0.041666666666666664lf;
  p = p * x + 0.16666666666666666lf;
  p = p * x + 0.5lf;
  return x + x * x * p;
}
",
    ),
    (
        "kiln_area_f64",
        "// (artanh(s) - s) / s by its series, for a square z of s up to 0.03.
fn kiln_area_f64(z: f64) -> f64 {
  var p = 0.043478260869565216lf;
  p = p * z + 0.047619047619047616lf;
  p = p * z + 0.05263157894736842lf;
  p = p * z + 0.058823529411764705lf;
  p = p * z + 0.06666666666666667lf;
  p = p * z + 0.07692307692307693lf;
  p = p * z + 0.09090909090909091lf;
  p = p * z + 0.1111111111111111lf;
  p = p * z + 0.14285714285714285lf;
  p = p * z + 0.2lf;
  p = p * z + 0.3333333333333333lf;
  return z * p;
}
",
    ),
    (
        "kiln_ln_f64",
        "// log(2^e m) = e log(2) + 2 artanh((m - 1) / (m + 1)).
fn kiln_ln_f64(x: f64) -> f64 {
  if (kiln_is_nan_f64(x)) { return x; }
  if (x == 0.0lf) { return kiln_double(0xfff0000000000000lu); }
  if (x < 0.0lf) { return kiln_double(0x7ff8000000000000lu); }
  if (x > 1.7976931348623157e308lf) { return x; }
  let is_small = x < 2.2250738585072014e-308lf;
  let bits = bitcast<u64>(select(x, x * 18014398509481984.0lf, is_small));
  let is_large = (bits & 0xffffffffffffflu) > 0x6a09e667f3bcdlu;
  let exponent = i32(bits >> 52u) - select(1023, 1077, is_small) + select(0, 1, is_large);
  let m = bitcast<f64>((bits & 0xffffffffffffflu) | select(0x3ff0000000000000lu, 0x3fe0000000000000lu, is_large));
  let s = kiln_div_f64(m - 1.0lf, m + 1.0lf);
  let e = f64(exponent);
  return e * 0.6931471803691238lf + (2.0lf * s + (2.0lf * s * kiln_area_f64(s * s) + e * 1.9082149292705877e-10lf));
}
",
    ),
    (
        "kiln_log1p_f64",
        "fn kiln_log1p_f64(x: f64) -> f64 {
  if (x > -0.29lf && x < 0.41lf) {
    let s = kiln_div_f64(x, 2.0lf + x);
    return 2.0lf * s + 2.0lf * s * kiln_area_f64(s * s);
  }
  return kiln_ln_f64(1.0lf + x);
}
",
    ),
    (
        "kiln_wide_angle_f64",
        "// x modulo pi/2 for x of at least 2^20, after M. Payne and R. Hanek: the fraction of x 2/pi, of which only the bits
// from 2^1 on count. Sets the quadrant.
fn kiln_wide_angle_f64(x: f64, quadrant: ptr<function, i32>) -> f64 {
  var bits_of_two_over_pi = array<u64, 20>(0lu, 0xa2f9836e4e441529lu, 0xfc2757d1f534ddc0lu, 0xdb6295993c439041lu, 0xfe5163abdebbc561lu, 0xb7246e3a424dd2e0lu, 0x06492eea09d1921clu, 0xfe1deb1cb129a73elu, 0xe88235f52ebb4484lu, 0xe99c7026b45f7e41lu, 0x3991d639835339f4lu, 0x9c845f8bbdf9283blu, 0x1ff897ffde05980flu, 0xef2f118b5a0a6d1flu, 0x6d367ecf27cb09b7lu, 0x4f463f669e5fea2dlu, 0x7527bac7ebe5f17blu, 0x3d0739f78a5292ealu, 0x6bfb5fb11f8d5d08lu, 0x56033046fc7b6bablu);
  let bits = bitcast<u64>(x);
  let m = (bits & 0xffffffffffffflu) | 0x10000000000000lu;
  // x = m 2^e. Of 2/pi, the bits before 2^-(e - 2) only add multiples of 4. The table starts with 64 bits before the
  // binary point.
  let e = i32(bits >> 52u) - 1075;
  let first = e + 62;
  let word = first / 64;
  let by = u32(first % 64);
  var window: array<u64, 3>;
  for (var i = 0; i < 3; i = i + 1) {
    let upper = bits_of_two_over_pi[word + i] << by;
    let lower = select(bits_of_two_over_pi[word + i + 1] >> ((64u - by) & 63u), 0lu, by == 0u);
    window[i] = upper | lower;
  }
  // The product of m and the window, modulo 2^192, from the low half words on.
  let m0 = m & 0xfffffffflu;
  let m1 = m >> 32u;
  var product: array<u64, 6>;
  for (var i = 0; i < 6; i = i + 1) {
    let half = (window[2 - i / 2] >> (32u * u32(i % 2))) & 0xfffffffflu;
    let a = m0 * half;
    product[i] = product[i] + (a & 0xfffffffflu);
    if (i < 5) {
      let b = m1 * half;
      product[i + 1] = product[i + 1] + (a >> 32u) + (b & 0xfffffffflu);
      if (i < 4) { product[i + 2] = product[i + 2] + (b >> 32u); }
      product[i + 1] = product[i + 1] + (product[i] >> 32u);
    }
    product[i] = product[i] & 0xfffffffflu;
  }
  // Two bits of the quadrant, then the fraction.
  let high = (product[5] << 32u) | product[4];
  let rest = (product[3] << 32u) | product[2];
  *quadrant = i32(high >> 62u);
  var fraction = (high << 2u) | (rest >> 62u);
  var tail = rest << 2u;
  var sign = 1.0lf;
  if ((fraction >> 63u) == 1lu) {
    *quadrant = *quadrant + 1;
    fraction = ~fraction;
    tail = ~tail;
    sign = -1.0lf;
  }
  let turn = f64(fraction) * 5.421010862427522e-20lf + f64(tail) * 2.938735877055719e-39lf;
  return sign * turn * 1.5707963267948966lf;
}
",
    ),
    (
        "kiln_angle_f64",
        "// x modulo pi/2, for a finite x of any sign, in parts of pi/2 whose products are exact. Sets the quadrant.
fn kiln_angle_f64(x: f64, quadrant: ptr<function, i32>) -> f64 {
  if (abs(x) >= 1048576.0lf) {
    let angle = kiln_wide_angle_f64(abs(x), quadrant);
    if (x > 0.0lf) { return angle; }
    *quadrant = -*quadrant;
    return -angle;
  }
  let n = floor(x * 0.6366197723675814lf + 0.5lf);
  *quadrant = i32(n);
  let upper = max(x - n * 1.5707963267341256lf, -2.0lf);
  let rest = max(upper - n * 6.077100506303966e-11lf, -2.0lf);
  return max(rest - n * 2.0222662487111665e-21lf, -2.0lf) - n * 8.4784276603689e-32lf;
}
",
    ),
    (
        "kiln_sin_of_angle_f64",
        "fn kiln_sin_of_angle_f64(r: f64) -> f64 {
  let z = r * r;
  var p = -8.22063524662433e-18lf;
  p = p * z + 2.8114572543455206e-15lf;
  p = p * z + -7.647163731819816e-13lf;
  p = p * z + 1.6059043836821613e-10lf;
  p = p * z + -2.505210838544172e-08lf;
  p = p * z + 2.7557319223985893e-06lf;
  p = p * z + -0.0001984126984126984lf;
  p = p * z + 0.008333333333333333lf;
  p = p * z + -0.16666666666666666lf;
  return r + r * z * p;
}
",
    ),
    (
        "kiln_cos_of_angle_f64",
        "fn kiln_cos_of_angle_f64(r: f64) -> f64 {
  let z = r * r;
  var p = -1.5619206968586225e-16lf;
  p = p * z + 4.779477332387385e-14lf;
  p = p * z + -1.1470745597729725e-11lf;
  p = p * z + 2.08767569878681e-09lf;
  p = p * z + -2.755731922398589e-07lf;
  p = p * z + 2.48015873015873e-05lf;
  p = p * z + -0.001388888888888889lf;
  p = p * z + 0.041666666666666664lf;
  p = p * z + -0.5lf;
  return 1.0lf + z * p;
}
",
    ),
    (
        "kiln_sin_f64",
        "fn kiln_sin_f64(x: f64) -> f64 {
  if (!(abs(x) <= 1.7976931348623157e308lf)) { return kiln_double(0x7ff8000000000000lu); }
  if (x == 0.0lf) { return x; }
  var quadrant = 0;
  let r = kiln_angle_f64(x, &quadrant);
  var y = 0.0lf;
  if ((quadrant & 1) == 0) { y = kiln_sin_of_angle_f64(r); } else { y = kiln_cos_of_angle_f64(r); }
  return select(y, -y, (quadrant & 2) != 0);
}
",
    ),
    (
        "kiln_cos_f64",
        "fn kiln_cos_f64(x: f64) -> f64 {
  if (!(abs(x) <= 1.7976931348623157e308lf)) { return kiln_double(0x7ff8000000000000lu); }
  var quadrant = 0;
  let r = kiln_angle_f64(x, &quadrant);
  var y = 0.0lf;
  if ((quadrant & 1) == 0) { y = kiln_cos_of_angle_f64(r); } else { y = kiln_sin_of_angle_f64(r); }
  return select(y, -y, ((quadrant + 1) & 2) != 0);
}
",
    ),
    (
        "kiln_tan_f64",
        "fn kiln_tan_f64(x: f64) -> f64 {
  if (!(abs(x) <= 1.7976931348623157e308lf)) { return kiln_double(0x7ff8000000000000lu); }
  if (x == 0.0lf) { return x; }
  var quadrant = 0;
  let r = kiln_angle_f64(x, &quadrant);
  let s = kiln_sin_of_angle_f64(r);
  let c = kiln_cos_of_angle_f64(r);
  if ((quadrant & 1) == 0) { return kiln_div_f64(s, c); }
  return kiln_div_f64(-c, s);
}
",
    ),
    (
        "kiln_tanh_f64",
        "fn kiln_tanh_f64(x: f64) -> f64 {
  if (kiln_is_nan_f64(x)) { return x; }
  if (abs(x) > 20.0lf) { return kiln_with_sign_f64(1.0lf, x); }
  if (x == 0.0lf) { return x; }
  let a = kiln_expm1_f64(2.0lf * x);
  return kiln_div_f64(a, a + 2.0lf);
}
",
    ),
    (
        "kiln_atan_f64",
        "// The angle is halved twice, so that the series converges quickly.
fn kiln_atan_f64(x: f64) -> f64 {
  if (kiln_is_nan_f64(x)) { return x; }
  let a = abs(x);
  let b = select(a, kiln_div_f64(1.0lf, a), a > 1.0lf);
  let c = kiln_div_f64(b, 1.0lf + kiln_sqrt_f64(1.0lf + b * b));
  let d = kiln_div_f64(c, 1.0lf + kiln_sqrt_f64(1.0lf + c * c));
  let z = d * d;
  var p = 0.04lf;
  p = p * z + -0.043478260869565216lf;
  p = p * z + 0.047619047619047616lf;
  p = p * z + -0.05263157894736842lf;
  p = p * z + 0.058823529411764705lf;
  p = p * z + -0.06666666666666667lf;
  p = p * z + 0.07692307692307693lf;
  p = p * z + -0.09090909090909091lf;
  p = p * z + 0.1111111111111111lf;
  p = p * z + -0.14285714285714285lf;
  p = p * z + 0.2lf;
  p = p * z + -0.3333333333333333lf;
  let angle = 4.0lf * d + 4.0lf * d * z * p;
  return kiln_with_sign_f64(select(angle, 1.5707963267948966lf - (angle - 6.123233995736766e-17lf), a > 1.0lf), x);
}
",
    ),
    (
        "kiln_atan2_f64",
        "fn kiln_atan2_f64(y: f64, x: f64) -> f64 {
  if (kiln_is_nan_f64(x) || kiln_is_nan_f64(y)) { return x + y; }
  let a = abs(x);
  let b = abs(y);
  var angle = 0.0lf;
  if (a == b && a > 0.0lf) {
    angle = 0.7853981633974483lf;
  } else if (b > a) {
    angle = 1.5707963267948966lf - (kiln_atan_f64(kiln_div_f64(a, b)) - 6.123233995736766e-17lf);
  } else if (a > 0.0lf) {
    angle = kiln_atan_f64(kiln_div_f64(b, a));
  }
  if (kiln_is_negative_f64(x)) { angle = 3.141592653589793lf - (angle - 1.2246467991473532e-16lf); }
  return kiln_with_sign_f64(angle, y);
}
",
    ),
    (
        "kiln_scaled_erfc_f64",
        "// erfcx(a) of a number that is not negative: (1 + 2 a) erfcx(a) is a polynomial in (a - 4) / (a + 4).
fn kiln_scaled_erfc_f64(a: f64) -> f64 {
  let b = min(a, 1e30lf);
  let q = 1.0lf - kiln_div_f64(8.0lf, b + 4.0lf);
  var p = 4.180821739675544e-11lf;
  p = p * q + -1.374652989001164e-10lf;
  p = p * q + -5.377133821031794e-10lf;
  p = p * q + 1.7903326159489847e-09lf;
  p = p * q + 3.950879254166685e-09lf;
  p = p * q + -1.4709550868669278e-08lf;
  p = p * q + -2.1868462576141457e-08lf;
  p = p * q + 1.1009737295274889e-07lf;
  p = p * q + 7.888177117406594e-08lf;
  p = p * q + -8.249198427508354e-07lf;
  p = p * q + 2.9094470866632674e-07lf;
  p = p * q + 5.709206053072183e-06lf;
  p = p * q + -1.1220772697788498e-05lf;
  p = p * q + -2.4398944545280832e-05lf;
  p = p * q + 0.00015062131406268513lf;
  p = p * q + -0.0001992567757633648lf;
  p = p * q + -0.0007577732210512849lf;
  p = p * q + 0.005031969992669933lf;
  p = p * q + -0.016197734065728945lf;
  p = p * q + 0.03716751553592911lf;
  p = p * q + -0.06633036581166812lf;
  p = p * q + 0.09373283499843826lf;
  p = p * q + -0.10103906603632413lf;
  p = p * q + 0.0680970542546904lf;
  p = p * q + 0.015379652102620026lf;
  p = p * q + -0.1396211168405625lf;
  p = p * q + 1.2329951186255526lf;
  return p * kiln_div_f64(0.5lf, a + 0.5lf);
}
",
    ),
    (
        "kiln_erf_f64",
        "// The Taylor series near 0, elsewhere 1 - exp(-x x) erfcx(x).
fn kiln_erf_f64(x: f64) -> f64 {
  if (kiln_is_nan_f64(x)) { return x; }
  let a = abs(x);
  if (a < 1.0lf) {
    let z = x * x;
    var p = 1.0025164934907719e-20lf;
    p = p * z + -2.107855191442136e-19lf;
    p = p * z + 4.221407288807088e-18lf;
    p = p * z + -8.032735012415773e-17lf;
    p = p * z + 1.4483264643598138e-15lf;
    p = p * z + -2.466827010264457e-14lf;
    p = p * z + 3.9554295164585257e-13lf;
    p = p * z + -5.9477940136376354e-12lf;
    p = p * z + 8.35070279514724e-11lf;
    p = p * z + -1.0892221037148573e-09lf;
    p = p * z + 1.3122532963802806e-08lf;
    p = p * z + -1.4503852223150468e-07lf;
    p = p * z + 1.4589169000933706e-06lf;
    p = p * z + -1.3227513227513228e-05lf;
    p = p * z + 0.00010683760683760684lf;
    p = p * z + -0.0007575757575757576lf;
    p = p * z + 0.004629629629629629lf;
    p = p * z + -0.023809523809523808lf;
    p = p * z + 0.1lf;
    p = p * z + -0.3333333333333333lf;
    return 1.1283791670955126lf * (x + x * z * p);
  }
  return kiln_with_sign_f64(1.0lf - kiln_exp_square_f64(a, -1.0lf) * kiln_scaled_erfc_f64(a), x);
}
",
    ),
    (
        "kiln_erfcx_f64",
        "fn kiln_erfcx_f64(x: f64) -> f64 {
  if (kiln_is_nan_f64(x)) { return x; }
  let y = kiln_scaled_erfc_f64(abs(x));
  if (x >= 0.0lf) { return y; }
  return 2.0lf * kiln_exp_square_f64(x, 1.0lf) - y;
}
",
    ),
    (
        "kiln_pow_of_f64",
        "// base^b for a positive finite base other than 1. The logarithm has an upper and a lower part, as its error is
// multiplied by b.
fn kiln_pow_of_f64(base: f64, b: f64) -> f64 {
  let about = b * kiln_ln_f64(base);
  if (about > 710.0lf) { return kiln_double(0x7ff0000000000000lu); }
  if (about < -746.0lf) { return 0.0lf; }
  let is_small = base < 2.2250738585072014e-308lf;
  let bits = bitcast<u64>(select(base, base * 18014398509481984.0lf, is_small));
  let is_large = (bits & 0xffffffffffffflu) > 0x6a09e667f3bcdlu;
  let e = f64(i32(bits >> 52u) - select(1023, 1077, is_small) + select(0, 1, is_large));
  let m = bitcast<f64>((bits & 0xffffffffffffflu) | select(0x3ff0000000000000lu, 0x3fe0000000000000lu, is_large));
  // s = (m - 1) / (m + 1) in two parts; the upper one is a multiple of 2^-26.
  let below = m - 1.0lf;
  let above = kiln_cut_f64(m + 1.0lf);
  let above_rest = m - (above - 1.0lf);
  let s = kiln_div_f64(below, m + 1.0lf);
  let s_high = floor(s * 67108864.0lf) * 1.4901161193847656e-8lf;
  let s_low = kiln_div_f64(below - s_high * above - s_high * above_rest, m + 1.0lf);
  let high = e * 0.6931471803691238lf + 2.0lf * s_high;
  let low = e * 1.9082149292705877e-10lf + (2.0lf * s_low + 2.0lf * s * kiln_area_f64(s * s));
  let high_cut = kiln_cut_f64(high);
  let b_cut = kiln_cut_f64(b);
  let upper = b_cut * high_cut;
  let lower = b_cut * (high - high_cut) + (b - b_cut) * high + b * low;
  return kiln_exp_sum_f64(upper, lower);
}
",
    ),
    (
        "kiln_pow_f64",
        "fn kiln_pow_f64(a: f64, b: f64) -> f64 {
  if (b == 0.0lf || a == 1.0lf) { return 1.0lf; }
  if (kiln_is_nan_f64(a) || kiln_is_nan_f64(b)) { return a + b; }
  let whole = trunc(b) == b;
  let odd = whole && abs(b) < 9007199254740992.0lf && (i64(b) & 1li) == 1li;
  let negative = kiln_is_negative_f64(a);
  let base = abs(a);
  let infinite = kiln_double(0x7ff0000000000000lu);
  if (negative && !whole && base > 0.0lf && base < infinite) { return kiln_double(0x7ff8000000000000lu); }
  var power = 0.0lf;
  if (base == 1.0lf) {
    power = 1.0lf;
  } else if (abs(b) == infinite) {
    power = select(0.0lf, infinite, (base > 1.0lf) == (b > 0.0lf));
  } else if (base == 0.0lf || base == infinite) {
    power = select(0.0lf, infinite, (base == 0.0lf) == (b < 0.0lf));
  } else {
    power = kiln_pow_of_f64(base, b);
  }
  return select(power, -power, negative && odd);
}
",
    ),
    (
        "kiln_rem_f64",
        "// Exact: long division of the significands, 11 bits at a time.
fn kiln_rem_f64(a: f64, b: f64) -> f64 {
  let infinite = kiln_double(0x7ff0000000000000lu);
  if (kiln_is_nan_f64(a) || kiln_is_nan_f64(b) || abs(a) == infinite || b == 0.0lf) {
    return kiln_double(0x7ff8000000000000lu);
  }
  if (abs(a) < abs(b)) { return a; }
  let x = bitcast<u64>(abs(a));
  let y = bitcast<u64>(abs(b));
  let x_power = max(i32(x >> 52u), 1);
  let y_power = max(i32(y >> 52u), 1);
  let divisor = (y & 0xffffffffffffflu) | select(0lu, 0x10000000000000lu, y >= 0x10000000000000lu);
  var rest = (x & 0xffffffffffffflu) | select(0lu, 0x10000000000000lu, x >= 0x10000000000000lu);
  rest = rest % divisor;
  for (var count = x_power - y_power; count > 0; count = count - 11) {
    rest = (rest << u32(min(count, 11))) % divisor;
  }
  return kiln_with_sign_f64(kiln_scale_f64(f64(rest), y_power - 1075), a);
}
",
    ),
    (
        "kiln_min_f64",
        "fn kiln_min_f64(a: f64, b: f64) -> f64 {
  if (kiln_is_nan_f64(a) || a < b) { return a; }
  return b;
}
",
    ),
    (
        "kiln_max_f64",
        "fn kiln_max_f64(a: f64, b: f64) -> f64 {
  if (kiln_is_nan_f64(a) || a > b) { return a; }
  return b;
}
",
    ),
];
