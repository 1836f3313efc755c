//! Incomplete gamma functions, both regularised: `P(a, x)` below and `Q(a, x)` above `x`.
//!
//! Up to `a = 20`, `P` is computed by a series in `x` left of the bulk, and `Q` by Legendre's continued fraction right
//! of it. Beyond, both are computed by Gauss-Legendre quadrature of the density from `x` into the nearer tail
//! ([Numerical Recipes, third edition, 6.2](https://numerical.recipes)). Each method computes the derivative by `a`
//! too.

use super::float::{at_least, at_most, below, is, is_wide, override_with};
use super::polynomial::horner;
use super::{DIGAMMA, LGAMMA};
use core::f64::consts::TAU;
use kiln_ir::Var;

/// From here on quadrature is used.
const FAR: f64 = 20.0;

/// `P(a, x)`, `Q(a, x)`, and if requested their derivatives by `a`. One of each pair is 1 or 0 less the other.
struct Parts<'e> {
    lower: Var<'e>,
    upper: Var<'e>,
    /// The derivative of `lower` by `a`.
    slope: Option<Var<'e>>,
}

/// Computes `P(a, x)`, the cumulative distribution function of the gamma distribution of shape `a`.
pub(super) fn gammainc<'e>(a: &Var<'e>, x: &Var<'e>) -> Var<'e> {
    let limits = [0.0, 1.0];
    at_limits(a, x, &parts(a, x, false).lower, limits)
}

/// Computes `Q(a, x) = 1 - P(a, x)`, without cancellation.
pub(super) fn gammaincc<'e>(a: &Var<'e>, x: &Var<'e>) -> Var<'e> {
    let limits = [1.0, 0.0];
    at_limits(a, x, &parts(a, x, false).upper, limits)
}

/// Computes the derivatives of [`gammainc`] by `a` and by `x`.
pub(super) fn slopes<'e>(a: &Var<'e>, x: &Var<'e>) -> [Var<'e>; 2] {
    let density = ((a - 1.0) * x.ln() - x - LGAMMA.of(a)).exp();
    let slope = parts(a, x, true).slope.expect("it was asked for");
    let slope = override_with(&slope, &is(x, 0.0), 0.0);
    [override_with(&slope, &is(x, f64::INFINITY), 0.0), density]
}

/// Sets the values at 0 and infinity: `[start, end]` as `x` rises.
fn at_limits<'e>(a: &Var<'e>, x: &Var<'e>, y: &Var<'e>, [start, end]: [f64; 2]) -> Var<'e> {
    let (no_shape, no_x) = (is(a, 0.0), is(x, 0.0));
    let (all_shape, all_x) = (is(a, f64::INFINITY), is(x, f64::INFINITY));
    let y = override_with(y, &no_x.or(&all_shape), start);
    let y = override_with(&y, &no_shape.or(&all_x), end);
    let undefined = no_shape.and(&no_x).or(&all_shape.and(&all_x));
    let undefined = undefined.or(&below(a, 0.0)).or(&below(x, 0.0));
    let has_nan = a.equal(a).and(&x.equal(x)).not();
    override_with(&y, &undefined.or(&has_nan), f64::NAN)
}

fn parts<'e>(a: &Var<'e>, x: &Var<'e>, with_slope: bool) -> Parts<'e> {
    let near = near(&at_most(a, FAR), x, with_slope);
    let far = far(&at_least(a, FAR), x, with_slope);
    let is_near = below(a, FAR);
    Parts {
        lower: is_near.select(&near.lower, &far.lower),
        upper: is_near.select(&near.upper, &far.upper),
        slope: near.slope.zip(far.slope).map(|(near, far)| is_near.select(&near, &far)),
    }
}

fn near<'e>(a: &Var<'e>, x: &Var<'e>, with_slope: bool) -> Parts<'e> {
    // x^a e^-x / Γ(a).
    let scale = (a * x.ln() - x - LGAMMA.of(a)).exp();
    let border = at_least(&(a + 1.0), 1.5);
    let (sum, sum_slope) = series(a, &x.min(&border), with_slope);
    let (fraction, fraction_slope) = fraction(a, &x.max(&border), with_slope);
    let (lower, upper) = (&scale * &sum / a, &scale * &fraction);
    let is_left = x.less(&border);
    let slope = sum_slope.zip(fraction_slope).map(|(sum_slope, fraction_slope)| {
        let logarithm = x.ln() - DIGAMMA.of(a);
        let left = &scale / a * (&sum * (&logarithm - a.recip()) + sum_slope);
        let right = -(&scale * (&fraction * &logarithm + fraction_slope));
        is_left.select(&left, &right)
    });
    Parts {
        lower: is_left.select(&lower, &(1.0 - &upper)),
        upper: is_left.select(&(1.0 - &lower), &upper),
        slope,
    }
}

/// Computes `Σ x^n / ((a + 1) .. (a + n))` over `n >= 0`, and its derivative by `a`.
fn series<'e>(a: &Var<'e>, x: &Var<'e>, with_slope: bool) -> (Var<'e>, Option<Var<'e>>) {
    let terms = if is_wide(x) { 60 } else { 34 };
    let one = Var::full(x.engine(), x.ty(), 1.0);
    let (mut term, mut sum) = (one.clone(), one);
    let zero = || Var::zeros(x.engine(), x.ty());
    // The sum of 1 / (a + k) over the factors of the term, and of its products with the terms.
    let mut slopes = with_slope.then(|| (zero(), zero()));
    for n in 1..=terms {
        let inverse = (a + f64::from(n)).recip();
        term = term * x * &inverse;
        sum = sum + &term;
        slopes = slopes.map(|(factors, slope)| {
            let factors = factors + inverse;
            let slope = slope - &term * &factors;
            (factors, slope)
        });
    }
    (sum, slopes.map(|(_, slope)| slope))
}

/// Computes `1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ..))` from its end, and its derivative by `a`.
fn fraction<'e>(a: &Var<'e>, x: &Var<'e>, with_slope: bool) -> (Var<'e>, Option<Var<'e>>) {
    let depth = if is_wide(x) { 60 } else { 18 };
    let start = x - a;
    let mut value = &start + f64::from(2 * depth + 1);
    let mut slope = with_slope.then(|| Var::full(x.engine(), x.ty(), -1.0));
    for k in (1..=depth).rev() {
        let k = f64::from(k);
        let numerator = (a - k) * k;
        let inverse = value.recip();
        // d (numerator / value) = k / value - numerator / value² dvalue.
        slope = slope.map(|slope| (&inverse * k) - &numerator * inverse.square() * slope - 1.0);
        value = &start + (2.0 * k - 1.0) + numerator * inverse;
    }
    let inverse = value.recip();
    let slope = slope.map(|slope| -(inverse.square() * slope));
    (inverse, slope)
}

fn far<'e>(a: &Var<'e>, x: &Var<'e>, with_slope: bool) -> Parts<'e> {
    // The density has its mode at `mode`, and a width of its root.
    let mode = a - 1.0;
    let width = mode.sqrt();
    let is_upper = mode.less(x);
    let above = (&mode + &width * 16.0).max(&(x + &width * 6.0));
    let below_mode = at_least(&(&mode - &width * 7.5).min(&(x - &width * 5.0)), 0.0);
    let end = is_upper.select(&above, &below_mode);
    // Γ(a) by Stirling's series, scaled by the density's value at the mode.
    let inverse = mode.recip();
    let square = inverse.square();
    let stirling = &inverse * horner(&square, &[1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0]);
    let scale = (-stirling).exp() * (&mode * TAU).rsqrt() * (&end - x);
    // ln(mode) - ψ(a).
    let logarithm = -(&inverse * 0.5) + &square * horner(&square, &[1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0]);
    let zero = || Var::zeros(x.engine(), x.ty());
    let mut sum = zero();
    let mut slope = with_slope.then(zero);
    let nodes = if is_wide(x) { NODES_DOUBLE } else { NODES_SINGLE };
    for &[node, weight] in nodes {
        let distance = (x - &mode + (&end - x) * node) * &inverse;
        let offset = distance.log1p();
        let term = ((&offset - &distance) * &mode).exp() * weight;
        slope = slope.map(|slope| slope + &term * (&offset + &logarithm));
        sum = sum + term;
    }
    // Towards the lower tail the interval is negative, and so is the probability.
    let share = sum * &scale;
    Parts {
        lower: is_upper.select(&(1.0 - &share), &-&share),
        upper: is_upper.select(&share, &(&share + 1.0)),
        slope: slope.map(|slope| -(slope * scale)),
    }
}

/// Nodes and weights of Gauss-Legendre quadrature on 0 to 1.
const NODES_SINGLE: &[[f64; 2]] = &[
    [0.005_299_532_504_175_031, 0.013_576_229_705_877_088],
    [0.027_712_488_463_383_7, 0.031_126_761_969_323_728],
    [0.067_184_398_806_084_12, 0.047_579_255_841_246_3],
    [0.122_297_795_822_498_5, 0.062_314_485_627_767_036],
    [0.191_061_877_798_678_11, 0.074_797_994_408_288_35],
    [0.270_991_611_171_386_3, 0.084_578_259_697_501_32],
    [0.359_198_224_610_370_54, 0.091_301_707_522_461_82],
    [0.452_493_745_081_181_3, 0.094_725_305_227_534_32],
    [0.547_506_254_918_818_8, 0.094_725_305_227_534_32],
    [0.640_801_775_389_629_5, 0.091_301_707_522_461_82],
    [0.729_008_388_828_613_6, 0.084_578_259_697_501_32],
    [0.808_938_122_201_321_9, 0.074_797_994_408_288_35],
    [0.877_702_204_177_501_6, 0.062_314_485_627_767_036],
    [0.932_815_601_193_915_9, 0.047_579_255_841_246_3],
    [0.972_287_511_536_616_3, 0.031_126_761_969_323_728],
    [0.994_700_467_495_825, 0.013_576_229_705_877_088],
];

/// Nodes and weights for `f64`.
const NODES_DOUBLE: &[[f64; 2]] = &[
    [0.002_057_149_427_191_540_3, 0.005_275_686_308_671_688],
    [0.010_807_277_021_764_539, 0.012_208_925_546_315_922],
    [0.026_420_466_669_142_884, 0.018_981_191_647_181_497],
    [0.048_681_069_007_846_47, 0.025_487_912_648_573_897],
    [0.077_277_028_605_751_03, 0.031_637_023_164_787_524],
    [0.111_807_025_589_660_55, 0.037_342_074_882_829_784],
    [0.151_786_369_790_021_36, 0.042_522_947_156_742_59],
    [0.196_653_853_491_190_97, 0.047_106_900_177_957_05],
    [0.245_779_642_587_747_15, 0.051_029_580_547_212_704],
    [0.298_474_122_438_256_83, 0.054_235_920_264_288_244],
    [0.353_997_580_257_021_55, 0.056_680_908_273_159_82],
    [0.411_570_589_821_554_9, 0.058_330_221_742_648_26],
    [0.470_384_953_285_343_4, 0.059_160_707_639_631_1],
    [0.529_615_046_714_656_6, 0.059_160_707_639_631_1],
    [0.588_429_410_178_445_1, 0.058_330_221_742_648_26],
    [0.646_002_419_742_978_5, 0.056_680_908_273_159_82],
    [0.701_525_877_561_743_2, 0.054_235_920_264_288_244],
    [0.754_220_357_412_252_8, 0.051_029_580_547_212_704],
    [0.803_346_146_508_809, 0.047_106_900_177_957_05],
    [0.848_213_630_209_978_6, 0.042_522_947_156_742_59],
    [0.888_192_974_410_339_4, 0.037_342_074_882_829_784],
    [0.922_722_971_394_249, 0.031_637_023_164_787_524],
    [0.951_318_930_992_153_5, 0.025_487_912_648_573_897],
    [0.973_579_533_330_857_1, 0.018_981_191_647_181_497],
    [0.989_192_722_978_235_5, 0.012_208_925_546_315_922],
    [0.997_942_850_572_808_5, 0.005_275_686_308_671_688],
];
