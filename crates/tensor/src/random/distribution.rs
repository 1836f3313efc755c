//! Distributions and their parameters.

use super::{Key, numbers, range, sample};
use crate::{AnyTensor, Error, Result, Stack, TensorType};
use alloc::format;
use kiln_ir::{Binary, Comparison, RandomKind, Unary, Var};

/// The distribution that [`Tensor::random`](crate::Tensor::random) samples. Integer tensors round samples down, except
/// for [`Uniform`](Distribution::Uniform); `bool` tensors are true where a sample differs from 0.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Distribution, Tensor};
///
/// let x = Tensor::<Flex, 1>::random([1000], Distribution::Exponential(2.0), &Default::default());
/// let mean = x.mean().into_data().to_vec::<f32>()[0];
/// assert!((mean - 0.5).abs() < 0.1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Uniform in `[0, 1)` for floats, all integers of the dtype for integers, fair coins for `bool`.
    #[default]
    Default,
    /// True (1) with this probability, in steps of 2⁻²⁴ (2⁻⁵³ for `f64`), rounded up. 16-bit floats have the samples of
    /// `f32`.
    Bernoulli(f64),
    /// Uniform in `[low, high)`: below `high` in every dtype.
    ///
    /// Floats are drawn in steps of 2⁻²⁴ of the range (2⁻⁵³ for `f64`) and rounded to the dtype, within the range.
    /// Integers are those from `low` on and below `high`, computed from 64 or 128 random bits: two of them differ in
    /// probability by less than 2⁻³² of it.
    Uniform(f64, f64),
    /// Normal with this mean and standard deviation.
    Normal(f64, f64),
    /// Normal with this mean and standard deviation, truncated to `[low, high)`. Sampled by the inverse error function:
    /// in `f32`, intervals beyond five standard deviations have few distinct values.
    TruncatedNormal {
        /// The mean before truncation.
        mean: f64,
        /// The standard deviation before truncation.
        deviation: f64,
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// Log-normal: the exponential of a normal sample with this mean and standard deviation.
    LogNormal(f64, f64),
    /// Exponential with this rate; the mean is its reciprocal.
    Exponential(f64),
    /// Gamma with this shape and scale; the mean is their product. Sampled by the method of [Marsaglia and Tsang
    /// 2000](https://doi.org/10.1145/358407.358414) with 12 rounds. All rounds reject with a probability below 1e-15;
    /// the sample is the mode then.
    Gamma(f64, f64),
    /// Beta with these two shape parameters.
    Beta(f64, f64),
    /// Poisson with this rate. Sampled by inversion for rates below 10, and above by the method of [Hörmann
    /// 1993](https://doi.org/10.1016/0167-6687(93)90997-4) with 24 rounds. All rounds reject with a probability below
    /// 1e-15; the sample is the rate rounded down then.
    Poisson(f64),
    /// Gumbel with this location and scale.
    Gumbel(f64, f64),
    /// Laplace with this location and scale.
    Laplace(f64, f64),
}

impl Distribution {
    /// Checks the parameters.
    ///
    /// # Errors
    /// When a probability is outside 0 to 1, or a scale, shape or rate is not positive. When a standard deviation is
    /// negative, a lower bound is not below the upper bound, or a parameter is not finite.
    pub fn check(self) -> Result<()> {
        let problem = match self {
            Distribution::Default => None,
            Distribution::Bernoulli(p) => {
                (!(0.0..=1.0).contains(&p)).then(|| format!("{p} is not a probability between 0 and 1"))
            }
            Distribution::Uniform(low, high) => ordered(low, high),
            Distribution::Normal(mean, deviation) | Distribution::LogNormal(mean, deviation) => {
                finite(mean).or_else(|| not_negative("standard deviation", deviation))
            }
            Distribution::TruncatedNormal { mean, deviation, low, high } => finite(mean)
                .or_else(|| positive("standard deviation", deviation))
                .or_else(|| ordered(low, high))
                .or_else(|| reachable([(low - mean) / deviation, (high - mean) / deviation])),
            Distribution::Exponential(rate) => positive("rate", rate),
            Distribution::Gamma(shape, scale) => {
                positive("shape", shape).or_else(|| positive("scale", scale))
            }
            Distribution::Beta(a, b) => positive("first shape", a).or_else(|| positive("second shape", b)),
            Distribution::Poisson(rate) => not_negative("rate", rate),
            Distribution::Gumbel(location, scale) | Distribution::Laplace(location, scale) => {
                finite(location).or_else(|| positive("scale", scale))
            }
        };
        match problem {
            None => Ok(()),
            Some(problem) => {
                Err(Error::value("random", problem).hint(format!("check the parameters of {self:?}")))
            }
        }
    }

    pub(crate) fn draw(self, ty: TensorType, key: Key, stack: &Stack) -> Result<AnyTensor> {
        self.check()?;
        let drawn = match self {
            Distribution::Default if ty.dtype.is_int() => return numbers(ty, RandomKind::Bits, key, stack),
            Distribution::Default if ty.dtype.is_float() => {
                return numbers(ty, RandomKind::Uniform, key, stack);
            }
            Distribution::Default => coins(ty, 0.5, key, stack)?,
            Distribution::Bernoulli(p) => coins(ty, p, key, stack)?,
            Distribution::Uniform(low, high) if ty.dtype.is_int() => {
                return integers(ty, low, high, key, stack);
            }
            Distribution::Uniform(low, high) => range::floats(float(ty, stack), low, high, key, stack)?,
            Distribution::Normal(mean, deviation) => {
                shifted(numbers(float(ty, stack), RandomKind::Normal, key, stack)?, mean, deviation)?
            }
            Distribution::TruncatedNormal { mean, deviation, low, high } => {
                let bounds = [(low - mean) / deviation, (high - mean) / deviation];
                let x = formula(ty, stack, |like| sample::truncated_normal(like, bounds, key))?;
                let [least, greatest] = range::least_and_greatest(float(ty, stack).dtype, low, high)?;
                // Rounding must not leave the interval.
                shifted(x, mean, deviation)?.clamp(least, greatest)?
            }
            Distribution::LogNormal(mean, deviation) => {
                shifted(numbers(float(ty, stack), RandomKind::Normal, key, stack)?, mean, deviation)?.exp()?
            }
            Distribution::Exponential(rate) => {
                shifted(formula(ty, stack, |like| sample::exponential(like, key))?, 0.0, 1.0 / rate)?
            }
            Distribution::Gamma(shape, scale) => {
                shifted(formula(ty, stack, |like| sample::gamma(&(like + shape), key))?, 0.0, scale)?
            }
            Distribution::Beta(a, b) => {
                formula(ty, stack, |like| sample::beta(&(like + a), &(like + b), key))?
            }
            Distribution::Poisson(rate) => formula(ty, stack, |like| sample::poisson(&(like + rate), key))?,
            Distribution::Gumbel(location, scale) => {
                shifted(formula(ty, stack, |like| sample::gumbel(like, key))?, location, scale)?
            }
            Distribution::Laplace(location, scale) => {
                shifted(formula(ty, stack, |like| sample::laplace(like, key))?, location, scale)?
            }
        };
        let floors = ty.dtype.is_int() && drawn.dtype().is_float();
        let drawn = if floors { drawn.unary(Unary::Floor)? } else { drawn };
        drawn.cast(ty.dtype)
    }
}

/// Draws the integers that are at least `low` and below `high`.
fn integers(ty: TensorType, low: f64, high: f64, key: Key, stack: &Stack) -> Result<AnyTensor> {
    let bounds = [libm::ceil(low) as i128, libm::ceil(high) as i128 - 1];
    if bounds[0] > bounds[1] {
        return Err(Error::value("random", format!("no integer is from {low} to below {high}"))
            .hint("the upper bound is excluded"));
    }
    range::integers("random", ty, bounds, key, stack)
}

/// Returns the type of the floats from which a tensor is computed: for integers and `bool` at least `f32`.
fn float(ty: TensorType, stack: &Stack) -> TensorType {
    if ty.dtype.is_float() { ty } else { ty.with_dtype(stack.float_dtype().accumulator()) }
}

/// [`float`], and at least `f32`.
fn wide(ty: TensorType, stack: &Stack) -> TensorType {
    let float = float(ty, stack);
    float.with_dtype(float.dtype.accumulator())
}

/// Compares in at least `f32`: 16 bits have few numbers near 0.
fn coins(ty: TensorType, p: f64, key: Key, stack: &Stack) -> Result<AnyTensor> {
    numbers(wide(ty, stack), RandomKind::Uniform, key, stack)?.compare_scalar(Comparison::Lt, p)
}

fn shifted(x: AnyTensor, shift: f64, scale: f64) -> Result<AnyTensor> {
    x.binary_scalar(Binary::Mul, scale)?.binary_scalar(Binary::Add, shift)
}

/// Runs a sampler on zeros of the dtype in which it computes: at least `f32`.
fn formula(ty: TensorType, stack: &Stack, f: impl for<'e> FnOnce(&Var<'e>) -> Var<'e>) -> Result<AnyTensor> {
    Ok(AnyTensor::zeros(wide(ty, stack), stack)?.expression(|x| f(&x)))
}

type Problem = Option<alloc::string::String>;

fn finite(x: f64) -> Problem {
    (!x.is_finite()).then(|| format!("{x} is not finite"))
}

fn positive(name: &str, x: f64) -> Problem {
    (!(x > 0.0 && x.is_finite())).then(|| format!("the {name} must be positive, not {x}"))
}

fn not_negative(name: &str, x: f64) -> Problem {
    (!(x >= 0.0 && x.is_finite())).then(|| format!("the {name} must not be negative, but is {x}"))
}

fn ordered(low: f64, high: f64) -> Problem {
    let finite = low.is_finite() && high.is_finite();
    (!finite || low >= high).then(|| match finite {
        true => format!("the range from {low} to below {high} is empty"),
        false => format!("the bounds {low} and {high} are not finite"),
    })
}

/// Checks that the interval has enough probability mass of the normal distribution. The bounds are in deviations from
/// the mean.
fn reachable([low, high]: [f64; 2]) -> Problem {
    (libm::erf(high * core::f64::consts::FRAC_1_SQRT_2) - libm::erf(low * core::f64::consts::FRAC_1_SQRT_2)
        < 1e-6)
        .then(|| {
            format!(
                "the interval from {low} to {high} deviations from the mean has almost no probability mass"
            )
        })
}
