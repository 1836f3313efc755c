//! Samplers: expressions of ops that compute samples from a key and parameters. Rejection samplers run a fixed number
//! of rounds over all elements and keep each element's first accepted sample.

use super::Key;
use core::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};
use kiln_ir::{Comparison, Op, RandomKind, Scalar, Unary, Var};
use smallvec::smallvec;

/// Rounds of [`log_gamma`]; each rejects fewer than 5 of 100.
const GAMMA_ROUNDS: u64 = 12;

/// Rounds of [`poisson`] for large rates; each rejects fewer than 22 of 100.
const POISSON_ROUNDS: u64 = 24;

/// Up to this rate Poisson samples are computed by inversion.
const SMALL_RATE: f64 = 10.0;

/// Steps of the inversion: the tail beyond has probability 1e-14.
const SMALL_STEPS: u32 = 42;

fn draw<'e>(like: &Var<'e>, distribution: RandomKind, key: Key) -> Var<'e> {
    let op = Op::Random { ty: like.ty(), distribution };
    Var::emit(like.engine(), &op, smallvec![Scalar::UInt(key.bits()).into()]).remove(0)
}

/// Samples uniformly from `[0, 1)`, with the type of another tensor.
pub(crate) fn uniform<'e>(like: &Var<'e>, key: Key) -> Var<'e> {
    draw(like, RandomKind::Uniform, key)
}

fn normal<'e>(like: &Var<'e>, key: Key) -> Var<'e> {
    draw(like, RandomKind::Normal, key)
}

/// Returns the logarithm of a uniform number in `(0, 1]`.
fn log_uniform<'e>(like: &Var<'e>, key: Key) -> Var<'e> {
    (-uniform(like, key)).log1p()
}

/// Computes `a < b`, where both are tensors.
fn less<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    a.compare(Comparison::Lt, b)
}

/// Samples with rate 1.
pub(crate) fn exponential<'e>(like: &Var<'e>, key: Key) -> Var<'e> {
    -log_uniform(like, key)
}

/// Samples with location 0 and scale 1. A uniform 0 is replaced by the least normal number.
pub(crate) fn gumbel<'e>(like: &Var<'e>, key: Key) -> Var<'e> {
    let u = uniform(like, key);
    let u = u.max(&u.scalar(f64::from(f32::MIN_POSITIVE)));
    -(-u.ln()).ln()
}

/// Samples with location 0 and scale 1.
pub(crate) fn laplace<'e>(like: &Var<'e>, key: Key) -> Var<'e> {
    let sign = (uniform(like, key.fold_in(1)) - 0.5).unary(Unary::Sign);
    // One of 2²⁴ uniform values is one half, of sign 0: the result is 0 then, which is as likely as its neighbours.
    exponential(like, key.fold_in(0)) * sign
}

/// Samples the standard normal distribution between two bounds.
pub(crate) fn truncated_normal<'e>(like: &Var<'e>, bounds: [f64; 2], key: Key) -> Var<'e> {
    let [low, high] = bounds.map(|x| libm::erf(x * FRAC_1_SQRT_2));
    let u = uniform(like, key) * (high - low) + low;
    let x = crate::special::ERFINV.of(&u) * SQRT_2;
    x.max(&x.scalar(bounds[0])).min(&x.scalar(bounds[1]))
}

/// Samples with scale 1, for shape parameters of any size; NaN where they are not positive.
pub(crate) fn gamma<'e>(shape: &Var<'e>, key: Key) -> Var<'e> {
    log_gamma(shape, key).exp()
}

/// Returns the logarithm of [`gamma`], which does not underflow for small shapes.
pub(crate) fn log_gamma<'e>(shape: &Var<'e>, key: Key) -> Var<'e> {
    // For shapes below 1: a sample of shape + 1, times a power of a uniform sample.
    let is_small = less(shape, &shape.scalar(1.0));
    let d = is_small.select(&(shape + 1.0), shape) - 1.0 / 3.0;
    let c = (&d * 9.0).rsqrt();
    let mut log_v = Var::zeros(d.engine(), d.ty());
    let mut is_done = less(&d, &d.scalar(f64::NEG_INFINITY));
    for round in 0..GAMMA_ROUNDS {
        let x = normal(&d, key.fold_in(2 * round));
        let log_u = log_uniform(&d, key.fold_in(2 * round + 1));
        let root = &c * &x + 1.0;
        let log = root.ln() * 3.0;
        let v = root.square() * &root;
        // NaN where the root is negative: not accepted.
        let accepts = less(&log_u, &(x.square() * 0.5 + &d * (1.0 - v + &log)));
        log_v = accepts.and(&is_done.not()).select(&log, &log_v);
        is_done = is_done.or(&accepts);
    }
    let power = log_uniform(&d, key.fold_in(2 * GAMMA_ROUNDS)) / shape;
    let power = is_small.select(&power, &power.scalar(0.0));
    let y = d.ln() + log_v + power;
    less(&y.scalar(0.0), shape).select(&y, &y.scalar(f64::NAN))
}

/// Returns the ratio of the first of two gamma samples to their sum.
pub(crate) fn beta<'e>(a: &Var<'e>, b: &Var<'e>, key: Key) -> Var<'e> {
    let odds = log_gamma(a, key.fold_in(0)) - log_gamma(b, key.fold_in(1));
    crate::special::SIGMOID.of(&odds)
}

/// Divides gamma samples by their sum along the last axis.
pub(crate) fn dirichlet<'e>(concentration: &Var<'e>, key: Key) -> Var<'e> {
    let axis = concentration.rank() - 1;
    log_gamma(concentration, key).apply(Op::Softmax { axis, log: false }, &[])
}

/// Samples numbers of events; NaN for negative rates.
pub(crate) fn poisson<'e>(rate: &Var<'e>, key: Key) -> Var<'e> {
    let is_small = less(rate, &rate.scalar(SMALL_RATE));
    let y = is_small
        .select(&poisson_by_inversion(rate, key.fold_in(0)), &poisson_by_rejection(rate, key.fold_in(1)));
    less(rate, &rate.scalar(0.0)).select(&y.scalar(f64::NAN), &y)
}

/// Counts the partial sums of the probabilities below a uniform number.
fn poisson_by_inversion<'e>(rate: &Var<'e>, key: Key) -> Var<'e> {
    let rate = rate.min(&rate.scalar(SMALL_RATE));
    let u = uniform(&rate, key);
    let mut probability = (-&rate).exp();
    let mut sum = probability.clone();
    let mut count = Var::zeros(rate.engine(), rate.ty());
    for step in 1..=SMALL_STEPS {
        count = count + sum.compare(Comparison::Le, &u).cast(rate.dtype());
        probability = probability * &rate / f64::from(step);
        sum = sum + &probability;
    }
    count
}

/// Samples by the transformed rejection of Hörmann, for rates from 10 on.
fn poisson_by_rejection<'e>(rate: &Var<'e>, key: Key) -> Var<'e> {
    let rate = rate.max(&rate.scalar(SMALL_RATE));
    let b = rate.sqrt() * 2.53 + 0.931;
    let a = &b * 0.02483 - 0.059;
    let inverse_alpha = 1.1328 / (&b - 3.4) + 1.1239;
    let surely = 0.9277 - 3.6224 / (&b - 2.0);
    let mut count = rate.floor();
    let mut is_done = less(&rate, &rate.scalar(0.0));
    for round in 0..POISSON_ROUNDS {
        let u = uniform(&rate, key.fold_in(2 * round)) - 0.5;
        let v = uniform(&rate, key.fold_in(2 * round + 1));
        let distance = 0.5 - u.abs();
        let k = ((&a * 2.0 / &distance + &b) * &u + &rate + 0.43).floor();
        let inside =
            distance.scalar(0.07).compare(Comparison::Le, &distance).and(&v.compare(Comparison::Le, &surely));
        let outside =
            less(&k, &k.scalar(0.0)).or(&less(&distance, &distance.scalar(0.013)).and(&less(&distance, &v)));
        let bound = (&v * &inverse_alpha / (&a / distance.square() + &b)).ln();
        let below = bound.compare(Comparison::Le, &log_probability(&k, &rate));
        let accepts = inside.or(&outside.not().and(&below));
        count = accepts.and(&is_done.not()).select(&k, &count);
        is_done = is_done.or(&accepts);
    }
    count
}

/// Computes `k ln λ - λ - ln k!` without subtraction of large terms: with `δ = k / λ - 1` it is
/// `-λ ((1 + δ) ln(1 + δ) - δ)` less Stirling's correction.
fn log_probability<'e>(k: &Var<'e>, rate: &Var<'e>) -> Var<'e> {
    let count = k.max(&k.scalar(1.0));
    let delta = (&count - rate) / rate;
    let excess = &count * delta.log1p() - (&count - rate);
    let inverse = count.recip();
    let correction = (&count * (2.0 * PI)).ln() * 0.5 + &inverse * (1.0 / 12.0 - inverse.square() / 360.0);
    let is_zero = less(k, &k.scalar(0.5));
    is_zero.select(&-rate, &-(excess + correction))
}

/// Adds Gumbel noise to the logarithms of weights: the argmax along an axis is a draw by the weights.
pub(crate) fn noisy_logits<'e>(weights: &Var<'e>, key: Key) -> Var<'e> {
    weights.ln() + gumbel(weights, key)
}
