//! Elementary functions of vectors of `f32`, for units with FMA.
//!
//! Like those of [`math`](mod@crate::math), which other units run, they have no branches; errors are below 1.5 ulp (4.5
//! for `erfcx`). All units return the same results.

use super::ERFCX;
use super::table::{ERF, TANH};
use super::vector::{Single, Vector};
use core::f32::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LOG2_E, PI};

/// ln 2 in two parts; this one is above 0.
const LN_2_HIGH: f32 = f32::from_bits(0x3f31_7217);
const LN_2_LOW: f32 = 5.769_999e-8;

/// Adding and subtracting this rounds to an integer: 1.5 · 2²³.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
fn clamp<V: Single>(x: V, low: f32, high: f32) -> V {
    // A NaN propagates.
    V::splat(high).min(V::splat(low).max(x))
}

/// `(n, r)` with `x = n ln 2 + r`.
#[inline(always)]
fn reduce_exponent<V: Single>(x: V) -> (V, V) {
    let n = (x * V::splat(LOG2_E)).round();
    (n, n.neg_mul_add(V::splat(LN_2_LOW), n.neg_mul_add(V::splat(LN_2_HIGH), x)))
}

#[inline(always)]
pub(crate) fn exp<V: Single>(x: V) -> V {
    // Beyond these bounds, the result is 0 or infinite anyway.
    let (n, r) = reduce_exponent(clamp(x, -104.0, 89.0));
    let c = [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_29, 0.008_368_704, 0.001_381_893_9];
    r.polynomial(c).scale(n)
}

#[inline(always)]
pub(crate) fn expm1<V: Single>(x: V) -> V {
    let (n, r) = reduce_exponent(clamp(x, -18.0, 89.0));
    let c = [0.5, 0.166_666_66, 0.041_666_348, 0.008_333_391_5, 0.001_394_165_2, 0.000_198_459_67];
    let fraction = (r * r).mul_add(r.polynomial(c), r);
    let one = V::splat(1.0);
    let whole = one - one.scale(V::splat(0.0) - n);
    // Preserves -0.
    (fraction + whole).scale(n).with_sign_of(x)
}

#[inline(always)]
pub(crate) fn ln<V: Single>(x: V) -> V {
    let (m, e) = x.split();
    let f = m - V::splat(1.0);
    let c = [
        -0.5,
        0.333_334_5,
        -0.250_001_04,
        0.199_908_2,
        -0.166_469_99,
        0.144_783_21,
        -0.131_638_74,
        0.104_688_786,
        -0.045_112_055,
    ];
    let tail = (f * f).mul_add(f.polynomial(c), e * V::splat(LN_2_LOW));
    e.mul_add(V::splat(LN_2_HIGH), f + tail)
}

#[inline(always)]
pub(crate) fn log1p<V: Single>(x: V) -> V {
    let one = V::splat(1.0);
    let u = one + x;
    // The rounding error of `u`.
    let lost = (x - (u - one)) / u;
    let y = ln(u);
    // `lost` is NaN if `u` is infinite or 0; `ln(u)` is exact there. Copying the sign of `x` preserves -0.
    V::select(lost.is_nan(), y, y + lost).with_sign_of(x)
}

/// The function at the middle of the magnitude's interval, the distance from the middle, and the polynomial of the
/// slope. `stretch` contains the interval index in its lowest bits.
#[inline(always)]
fn look_up<V: Single>(magnitude: V, stretch: V, table: &[[f32; 16]; 8]) -> (V, V, V) {
    let t = magnitude - stretch.lookup(&table[0]);
    let mut slope = stretch.lookup(&table[7]);
    let mut power = 7;
    while power > 2 {
        power -= 1;
        slope = slope.mul_add(t, stretch.lookup(&table[power]));
    }
    (stretch.lookup(&table[1]), t, slope)
}

#[inline(always)]
pub(crate) fn erfcx<V: Single>(x: V) -> V {
    let magnitude = x.abs();
    let near = clamp(magnitude, 0.0, 1e18);
    let half = V::splat(0.5);
    let t = (near + near) / (near + V::splat(3.0)) - V::splat(1.0);
    let positive = t.polynomial(ERFCX) * (half / (magnitude + half));
    // For negative arguments the result is 2 exp(x²) minus this. The rounding error of the square scales the
    // exponential.
    let bounded = clamp(magnitude, 0.0, 9.5);
    let square = bounded * bounded;
    let rest = bounded.mul_add(bounded, V::splat(0.0) - square);
    let e = exp(square);
    let scaled = V::select(e.eq(V::splat(f32::INFINITY)), e, rest.mul_add(e, e));
    let negative = scaled + (scaled - positive);
    V::select(x.lt(V::splat(0.0)), negative, positive)
}

#[inline(always)]
pub(crate) fn tanh<V: Single>(x: V) -> V {
    // Beyond this, the result is 1 anyway.
    let magnitude = V::splat(9.015).min(x.abs());
    let stretch = (magnitude + V::splat(0.625)).bits_right::<21>();
    let (middle, t, slope) = look_up(magnitude, stretch, &TANH);
    slope.mul_add(t, middle).bits_or(x.sign())
}

#[inline(always)]
pub(crate) fn erf<V: Single>(x: V) -> V {
    // Beyond this, the result is 1 anyway.
    let magnitude = V::splat(3.925).min(x.abs());
    let stretch = magnitude.mul_add(V::splat(3.945), V::splat(ROUND));
    let (middle, t, slope) = look_up(magnitude, stretch, &ERF);
    let middle = V::select(magnitude.lt(V::splat(0.126_742_72)), magnitude, middle);
    slope.mul_add(t, middle).bits_or(x.sign())
}

/// π/2 in three parts.
const QUARTER: [f32; 3] = [FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15];

/// The nearest multiple of π/2 to an angle, in the lowest bits, and the remainder. Accurate to rounding up to
/// [`MAX_ANGLE`](super::MAX_ANGLE).
#[inline(always)]
fn reduce_angle<V: Single>(x: V) -> (V, V) {
    let shifted = x.mul_add(V::splat(FRAC_2_PI), V::splat(ROUND));
    let n = shifted - V::splat(ROUND);
    let r = QUARTER.iter().fold(x, |r, &part| n.neg_mul_add(V::splat(part), r));
    (shifted, r)
}

/// Sine and cosine of `|r| <= π/4`.
#[inline(always)]
fn sin_cos_reduced<V: Single>(r: V) -> (V, V) {
    let square = r * r;
    let s = [-0.166_666_67, 0.008_333_329, -0.000_198_393_11, 2.718_112e-6];
    let c = [1.0, -0.5, 0.041_666_668, -0.001_388_888_3, 2.479_946e-5, -2.720_566_4e-7];
    ((r * square).mul_add(square.polynomial(s), r), square.polynomial(c))
}

/// Whether the lowest bit is set.
#[inline(always)]
fn is_odd<V: Single>(bits: V) -> V::Mask {
    bits.bits_left::<31>().bits_or(V::splat(1.0)).lt(V::splat(0.0))
}

/// Accurate up to [`MAX_ANGLE`](super::MAX_ANGLE).
#[inline(always)]
pub(crate) fn sin<V: Single>(x: V) -> V {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let y = V::select(is_odd(n), cos, sin).bits_xor(n.bits_right::<1>().bits_left::<31>());
    V::select(x.eq(V::splat(0.0)), x, y)
}

/// Accurate up to [`MAX_ANGLE`](super::MAX_ANGLE).
#[inline(always)]
pub(crate) fn cos<V: Single>(x: V) -> V {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let next = n.bits_add(V::splat(f32::from_bits(1)));
    V::select(is_odd(n), sin, cos).bits_xor(next.bits_right::<1>().bits_left::<31>())
}

/// Accurate up to [`MAX_ANGLE`](super::MAX_ANGLE).
#[inline(always)]
pub(crate) fn tan<V: Single>(x: V) -> V {
    let (n, r) = reduce_angle(x);
    let (sin, cos) = sin_cos_reduced(r);
    let odd = is_odd(n);
    let y = V::select(odd, cos, sin) / V::select(odd, sin, cos);
    V::select(x.eq(V::splat(0.0)), x, y.bits_xor(n.bits_left::<31>()))
}

/// The arc tangent of `0 <= t <= 1`.
#[inline(always)]
fn atan_reduced<V: Single>(t: V) -> V {
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
    let square = t * t;
    (t * square).mul_add(square.polynomial(c), t)
}

/// The rounding error of `f32`'s π.
const PI_LOW: f32 = -8.742_278e-8;

/// `π/2 - angle`.
#[inline(always)]
fn quarter_less<V: Single>(angle: V) -> V {
    (V::splat(FRAC_PI_2) - angle) + V::splat(0.5 * PI_LOW)
}

#[inline(always)]
pub(crate) fn atan<V: Single>(x: V) -> V {
    let magnitude = x.abs();
    let inverted = V::splat(1.0).lt(magnitude);
    let angle = atan_reduced(V::select(inverted, V::splat(1.0) / magnitude, magnitude));
    V::select(inverted, quarter_less(angle), angle).with_sign_of(x)
}

/// The angle of the point `(x, y)`.
#[inline(always)]
pub(crate) fn atan2<V: Single>(y: V, x: V) -> V {
    let (a, b) = (y.abs(), x.abs());
    let zero = V::splat(0.0);
    let steep = b.lt(a);
    let (low, high) = (V::select(steep, b, a), V::select(steep, a, b));
    let t = V::select(low.eq(high), V::splat(1.0), low / high);
    let t = V::select(high.eq(zero), zero, t);
    let angle = V::select(low.eq(V::splat(f32::INFINITY)), V::splat(FRAC_PI_4), atan_reduced(t));
    let angle = V::select(steep, quarter_less(angle), angle);
    let left = x.sign().bits_or(V::splat(1.0)).lt(zero);
    let angle = V::select(left, (V::splat(PI) - angle) + V::splat(PI_LOW), angle);
    let angle = angle.with_sign_of(y);
    let angle = V::select(y.is_nan(), y, angle);
    V::select(x.is_nan(), x, angle)
}

/// `base^exponent`, like IEEE 754's `pow`.
#[inline(always)]
pub(crate) fn pow<V: Single>(base: V, exponent: V) -> V {
    let (zero, one) = (V::splat(0.0), V::splat(1.0));
    let magnitude = base.abs();
    let [low, high] = magnitude.widen();
    let [y_low, y_high] = exponent.widen();
    let power = V::narrow([power_of::<V::Double>(low, y_low), power_of::<V::Double>(high, y_high)]);
    // A negative base needs an integer exponent; odd ones make the result negative.
    let halved = exponent * V::splat(0.5);
    let is_whole = exponent.round().eq(exponent);
    let odd = V::select(halved.round().eq(halved), zero, one);
    let odd = V::select(is_whole, odd, zero);
    let sign = V::select(odd.eq(one), base.sign(), zero);
    let negative = V::both(base.lt(zero), base.abs().lt(V::splat(f32::INFINITY)));
    let refused = V::select(negative, V::select(is_whole, zero, one), zero);
    let power = V::select(refused.eq(one), V::splat(f32::NAN), power.bits_or(sign));
    // -1 to an infinite power.
    let unit = V::both(magnitude.eq(one), exponent.abs().eq(V::splat(f32::INFINITY)));
    let power = V::select(unit, one, power);
    let power = V::select(base.eq(one), one, power);
    V::select(exponent.eq(zero), one, power)
}

/// `x^y` for `x >= 0`, to about 34 bits.
#[inline(always)]
fn power_of<D: Vector<Element = f64>>(x: D, y: D) -> D {
    let (m, e) = x.split();
    let f = m - D::splat(1.0);
    let log2 = [
        1.442_695_040_910_644_7,
        -0.721_347_520_831_529_8,
        0.480_898_332_640_989_25,
        -0.360_673_653_471_735_6,
        0.288_540_428_054_834_5,
        -0.240_458_417_362_761_7,
        0.206_056_856_534_615_33,
        -0.180_003_650_564_722_95,
        0.160_503_098_002_060_9,
        -0.149_208_133_990_108_13,
        0.138_792_947_931_425_4,
        -0.102_040_449_594_318_89,
        0.037_989_485_054_350_805,
    ];
    let t = y * f.mul_add(f.polynomial(log2), e);
    // Beyond these bounds, the result is 0 or infinite anyway.
    let t = D::splat(300.0).min(D::splat(-300.0).max(t));
    let n = t.round();
    let exp2 = [
        1.0,
        0.693_147_180_704_537_5,
        0.240_226_510_665_675_3,
        0.055_504_103_659_762_806,
        0.009_618_038_131_307_963,
        0.001_333_393_506_642_661_6,
        0.000_154_667_565_198_472_05,
        1.519_615_425_360_882e-5,
    ];
    (t - n).polynomial(exp2).scale(n)
}
