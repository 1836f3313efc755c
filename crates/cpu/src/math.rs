//! Elementary functions of `f32` without branches and calls, so that loops over them are vectorized.
//!
//! Each function reduces its argument to a short interval and evaluates a polynomial there, fitted by the Remez
//! algorithm for the least relative error of the result. Errors are below 1.5 ulp (3 for `tan`, 4.5 for `erfcx`). No
//! step uses FMA: these functions run where only the target's baseline vectors are available. On processors with AVX2
//! and FMA, or with AVX-512, [`loops`] run those of [`single`] instead, which may differ in the last place.

pub(crate) mod loops;
pub(crate) mod single;
mod table;
pub(crate) mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::functions::Elementary;
use core::f32::consts::{FRAC_PI_2, FRAC_PI_4, LOG2_E, PI, SQRT_2};

/// Adding and subtracting this rounds to an integer: 1.5 · 2²³.
const ROUND: f32 = 12_582_912.0;

/// ln 2 in two parts; the first has so few bits that its product with a small integer is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// The magnitude up to which [`reduce_angle`] is accurate.
pub(crate) const MAX_ANGLE: f32 = 524_288.0;

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
    // A NaN propagates.
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
    // Beyond these bounds, the result is 0 or infinite anyway.
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
    // Preserves the sign of zero, and numbers whose square underflows.
    if x.abs() < 1e-20 { x } else { result }
}

/// `ln x` for finite `x > 0`.
#[inline(always)]
fn ln_finite(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let x = if tiny { x * 8_388_608.0 } else { x };
    let lowered = if tiny { 23 } else { 0 };
    // The exponent whose mantissa is between √½ and √2.
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
    // The rounding error of `u`.
    let lost = (x - (u - 1.0)) / u;
    let y = ln_finite(u) + lost;
    let y = if x == f32::INFINITY { x } else { y };
    let y = if u == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x.abs() < 1e-20 { x } else { y };
    if u >= 0.0 { y } else { f32::NAN }
}

/// The coefficients of the polynomial of [`erfcx`], from the constant term on.
pub(crate) const ERFCX: [f32; 13] = [
    1.253_008,
    -0.135_621_07,
    -0.047_562_294,
    0.129_644_11,
    -0.119_273_69,
    0.068_316_57,
    -0.023_770_334,
    0.002_499_116_8,
    0.001_888_112_9,
    -0.000_726_453_67,
    -0.000_104_130_71,
    7.731_024e-5,
    3.861_849e-6,
];

/// `(1 + 2 a) erfcx(a)` for `a >= 0` is a polynomial in `(a - 3) / (a + 3)`; for negative arguments the result is
/// `2 exp(a²) - erfcx(a)`.
#[inline(always)]
pub(crate) fn erfcx(x: f32) -> f32 {
    let magnitude = x.abs();
    let near = clamp(magnitude, 0.0, 1e18);
    let positive = polynomial((near + near) / (near + 3.0) - 1.0, ERFCX) * (0.5 / (magnitude + 0.5));
    // The rounded square, and its rounding error.
    let exact = f64::from(clamp(magnitude, 0.0, 9.5)) * f64::from(clamp(magnitude, 0.0, 9.5));
    let square = exact as f32;
    let e = exp(square);
    let scaled = e + e * (exact - f64::from(square)) as f32;
    let negative = 2.0 * scaled - positive;
    let negative = if e == f32::INFINITY { e } else { negative };
    if x < 0.0 { negative } else { positive }
}

/// [`erfcx`] in `f64`.
pub(crate) fn erfcx_double(x: f64) -> f64 {
    const C: [f64; 26] = [
        1.253_008_058_269_729_6,
        -0.135_621_106_124_581_2,
        -0.047_562_294_353_449_2,
        0.129_645_158_702_764_75,
        -0.119_273_663_415_386_4,
        0.068_308_027_343_845_15,
        -0.023_770_514_917_171_34,
        0.002_529_391_818_047_466_8,
        0.001_888_690_344_999_171_8,
        -0.000_779_832_288_482_308_4,
        -0.000_105_159_719_584_480_65,
        0.000_125_099_435_571_281_2,
        4.949_196_649_968_345e-6,
        -2.010_084_309_484_472_5e-5,
        -7.308_281_468_783_614e-7,
        3.473_024_167_841_533e-6,
        3.557_608_668_408_059_5e-7,
        -6.175_617_678_992_323e-7,
        -1.404_765_431_542_846_2e-7,
        1.027_799_748_827_105_8e-7,
        4.106_401_366_794_035_5e-8,
        -1.390_614_579_173_099_4e-8,
        -8.217_595_058_711_455e-9,
        1.201_971_944_013_577_9e-9,
        8.393_734_858_690_877e-10,
        -3.451_497_487_664_328e-11,
    ];
    let magnitude = x.abs();
    let near = if magnitude > 1e18 { 1e18 } else { magnitude };
    let t = (near + near) / (near + 3.0) - 1.0;
    let scaled = C.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let positive = scaled * (0.5 / (magnitude + 0.5));
    if x < -27.0 {
        return f64::INFINITY;
    }
    if x < 0.0 {
        let high = f64::from_bits(magnitude.to_bits() & !0x07ff_ffff);
        let rest = (magnitude - high) * (magnitude + high);
        return 2.0 * Elementary::exp(high * high) * Elementary::exp(rest) - positive;
    }
    positive
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
    // The logarithm of the complement of the result.
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

/// The nearest multiple of π/2 to an angle, and the remainder. Accurate to rounding up to [`MAX_ANGLE`].
#[inline(always)]
fn reduce_angle(x: f32) -> (u32, f32) {
    /// 1.5 · 2⁵².
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // π/2 in two parts; products of the first with integers of up to 20 bits are exact.
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

/// Accurate up to [`MAX_ANGLE`].
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let y = if n & 1 == 0 { sin } else { cos };
    let y = f32::from_bits(y.to_bits() ^ ((n & 2) << 30));
    if x == 0.0 { x } else { y }
}

/// Accurate up to [`MAX_ANGLE`].
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let y = if n & 1 == 0 { cos } else { sin };
    f32::from_bits(y.to_bits() ^ ((n.wrapping_add(1) & 2) << 30))
}

/// Accurate up to [`MAX_ANGLE`].
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

/// The rounding error of `f32`'s π.
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
