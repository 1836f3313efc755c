//! Elementary functions of `f32`, without branches and calls, so that loops over them are vectorised.
//!
//! Each reduces its argument to a short interval and evaluates a polynomial there, fitted by the Remez algorithm
//! for the least relative error of the result. Errors are below 1.5 units in the last place (3 for `tan`). No step is fused:
//! these run where the target always has vectors. Where the processor has AVX2 with FMA or AVX-512, [`loops`] run those of
//! [`single`] instead, which may differ in the last place.

pub(crate) mod loops;
pub(crate) mod single;
mod table;
pub(crate) mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use core::f32::consts::{FRAC_PI_2, FRAC_PI_4, LOG2_E, PI, SQRT_2};

/// Adding and subtracting this rounds to a whole number: 1.5 · 2²³.
const ROUND: f32 = 12_582_912.0;

/// ln 2 in two parts; the first has so few bits that its product with a small whole number is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Above this magnitude [`reduce_angle`] is not exact enough.
pub(crate) const GREATEST_ANGLE: f32 = 524_288.0;

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `c[0] + c[1] x + c[2] x² + ..`
#[inline(always)]
fn polynomial<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut sum = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = sum * x + c[i];
    }
    sum
}

#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    // A NaN passes.
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// `(n, e^r - 1)` with `x = n ln 2 + r`.
#[inline(always)]
fn exp_parts(x: f32) -> (i32, f32) {
    let shifted = x * LOG2_E + ROUND;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let whole = shifted - ROUND;
    let r = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    let c = [0.5, 0.166_666_66, 0.041_666_348, 0.008_333_391_5, 0.001_394_165_2, 0.000_198_459_67];
    (n, r + r * r * polynomial(r, c))
}

#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Beyond, the result is 0 or infinite all the same.
    let (n, fraction) = exp_parts(clamp(x, -104.0, 89.0));
    let half = n >> 1;
    (1.0 + fraction) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let clamped = clamp(x, -104.0, 89.0);
    let (n, fraction) = exp_parts(clamped);
    let scale = power_of_two(n.clamp(-126, 127));
    let near = fraction * scale + (scale - 1.0);
    let result = if clamped > 40.0 { exp(clamped) } else { near };
    // Keeps the sign of zero, and what is too small to have a square.
    if x.abs() < 1e-20 { x } else { result }
}

/// `ln x` for finite `x > 0`.
#[inline(always)]
fn ln_finite(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let x = if tiny { x * 8_388_608.0 } else { x };
    let lowered = if tiny { 23 } else { 0 };
    // The exponent that leaves a mantissa between √½ and √2.
    let bits = x.to_bits().wrapping_add(0x3f80_0000 - (SQRT_2 * 0.5).to_bits());
    let e = (bits >> 23) as i32 - 127 - lowered;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add((SQRT_2 * 0.5).to_bits()));
    let f = m - 1.0;
    let e = e as f32;
    let c = [
        0.333_333_1,
        -0.250_000_1,
        0.200_021_68,
        -0.166_680_63,
        0.142_184_93,
        -0.124_035_43,
        0.118_945,
        -0.116_919_19,
        0.067_522_235,
    ];
    let square = f * f;
    let tail = f * square * polynomial(f, c) + e * LN_2_LOW;
    (f + (tail - 0.5 * square)) + e * LN_2_HIGH
}

#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let y = ln_finite(x);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    // Negative or NaN.
    if x >= 0.0 { y } else { f32::NAN }
}

#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let u = 1.0 + x;
    // What rounding took from `u`.
    let lost = (x - (u - 1.0)) / u;
    let y = ln_finite(u) + lost;
    let y = if x == f32::INFINITY { x } else { y };
    let y = if u == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x.abs() < 1e-20 { x } else { y };
    if u >= 0.0 { y } else { f32::NAN }
}

#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let c = [-0.333_333_3, 0.133_332_04, -0.053_946_517, 0.021_699_317, -0.008_173_85, 0.002_139_613];
    let small = x + x * square * polynomial(square, c);
    let large = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
    // The series loses the sign of zero.
    (if magnitude < 0.625 { small } else { large }).copysign(x)
}

#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let near = [
        0.128_379_17,
        -0.376_126_26,
        0.112_835_854,
        -0.026_853_811,
        0.005_188_327_7,
        -0.000_801_019_25,
        7.853_858e-5,
    ];
    let small = x + x * polynomial(square, near);
    // The logarithm of the complement.
    let far = [
        0.000_201_521_15,
        -1.129_646_7,
        -0.633_071_66,
        -0.108_599_37,
        0.025_343_534,
        -0.004_268_109_3,
        0.000_459_631_96,
        -2.463_741_3e-5,
        2.040_229_1e-7,
    ];
    let large = 1.0 - exp(polynomial(clamp(magnitude, 0.0, 4.0), far));
    let result = if magnitude < 1.0 { small } else { large.copysign(x) };
    if x.is_nan() { x } else { result }
}

/// The multiple of π/2 next to an angle, and the rest. Exact to rounding up to [`GREATEST_ANGLE`].
#[inline(always)]
fn reduce_angle(x: f32) -> (u32, f32) {
    /// 1.5 · 2⁵².
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // π/2 in two parts; products of the first with numbers of up to 20 bits are exact.
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let wide = f64::from(x);
    let shifted = wide * core::f64::consts::FRAC_2_PI + ROUND;
    let n = shifted.to_bits() as u32;
    let whole = shifted - ROUND;
    (n, ((wide - whole * HIGH) - whole * LOW) as f32)
}

/// Sine and cosine of `|r| <= π/4`.
#[inline(always)]
fn sin_cos_reduced(r: f32) -> (f32, f32) {
    let square = r * r;
    let s = [-0.166_666_67, 0.008_333_329, -0.000_198_393_11, 2.718_112e-6];
    let c = [0.041_666_668, -0.001_388_888_3, 2.479_946e-5, -2.720_566_4e-7];
    let sin = r + r * square * polynomial(square, s);
    let cos = 1.0 - (0.5 * square - square * square * polynomial(square, c));
    (sin, cos)
}

/// Up to [`GREATEST_ANGLE`].
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let y = if n & 1 == 0 { sin } else { cos };
    let y = f32::from_bits(y.to_bits() ^ ((n & 2) << 30));
    if x == 0.0 { x } else { y }
}

/// Up to [`GREATEST_ANGLE`].
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let y = if n & 1 == 0 { cos } else { sin };
    f32::from_bits(y.to_bits() ^ ((n.wrapping_add(1) & 2) << 30))
}

/// Up to [`GREATEST_ANGLE`].
#[inline(always)]
pub(crate) fn tan(x: f32) -> f32 {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let y = if n & 1 == 0 { sin / cos } else { -(cos / sin) };
    if x == 0.0 { x } else { y }
}

/// The arc tangent of `0 <= t <= 1`.
#[inline(always)]
fn atan_reduced(t: f32) -> f32 {
    let square = t * t;
    let c = [
        -0.333_333_28,
        0.199_996_71,
        -0.142_798_33,
        0.110_582_24,
        -0.088_110_93,
        0.067_416_01,
        -0.044_689_998,
        0.022_539_92,
        -0.007_317_982,
        0.001_113_794,
    ];
    t + t * square * polynomial(square, c)
}

/// What `f32` leaves out of π.
const PI_LOW: f32 = -8.742_278e-8;

/// `π/2 - angle`.
#[inline(always)]
fn quarter_less(angle: f32) -> f32 {
    (FRAC_PI_2 - angle) + 0.5 * PI_LOW
}

#[inline(always)]
pub(crate) fn atan(x: f32) -> f32 {
    let magnitude = x.abs();
    let inverted = magnitude > 1.0;
    let angle = atan_reduced(if inverted { 1.0 / magnitude } else { magnitude });
    let angle = if inverted { quarter_less(angle) } else { angle };
    angle.copysign(x)
}

/// The angle of the point `(x, y)`.
#[inline(always)]
pub(crate) fn atan2(y: f32, x: f32) -> f32 {
    let (a, b) = (y.abs(), x.abs());
    let steep = a > b;
    let (low, high) = if steep { (b, a) } else { (a, b) };
    let t = if low == high { 1.0 } else { low / high };
    let t = if high == 0.0 { 0.0 } else { t };
    let angle = if low == f32::INFINITY { FRAC_PI_4 } else { atan_reduced(t) };
    let angle = if steep { quarter_less(angle) } else { angle };
    let angle = if x.is_sign_negative() { (PI - angle) + PI_LOW } else { angle };
    let angle = angle.copysign(y);
    if x.is_nan() || y.is_nan() { f32::NAN } else { angle }
}
