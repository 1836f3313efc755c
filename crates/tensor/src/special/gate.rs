//! Smooth gates: `x f(x)` for an `f` that rises from 0 to 1.

use super::error::erfc;
use super::{Function, floats, widened};
use crate::Result;
use crate::any::formula::{sigmoid, softplus};
use alloc::vec::Vec;
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use kiln_ir::{DType, OperandType, ResultTypes, Saved, Var};

/// A function `x f(x)`. Its gradient reads only the argument, so a tape saves nothing else.
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// The magnitude from which `f` is 0 or 1 in every dtype. Factors no further from 0 are finite, so that neither an
    /// infinite argument nor its gradient becomes NaN.
    far: f64,
    /// `f`, also of an infinity.
    share: for<'e> fn(&Var<'e>) -> Var<'e>,
    /// `f` and its derivative, where `x` is not far.
    share_and_slope: for<'e> fn(&Var<'e>) -> [Var<'e>; 2],
}

/// The magnitude from which `Φ` is 0 or 1 in every dtype; its cube is finite in 16 bits.
const FAR_OF_GAUSS: f64 = 30.0;

/// The magnitude from which `sigmoid` is 0 or 1 in every dtype.
const FAR_OF_SIGMOID: f64 = 1000.0;

/// `x Φ(x)`, the Gaussian error linear unit ([Hendrycks and Gimpel, 2016](https://arxiv.org/abs/1606.08415)).
pub(crate) static GELU: Gate = Gate {
    name: "gelu",
    far: FAR_OF_GAUSS,
    share: |x| gauss(x, &bell(x)),
    share_and_slope: |x| {
        let bell = bell(x);
        [gauss(x, &bell), bell * (SCALE * 0.5)]
    },
};

/// GELU with `Φ` approximated by `tanh`.
pub(crate) static GELU_APPROXIMATE: Gate = Gate {
    name: "gelu_approximate",
    far: FAR_OF_GAUSS,
    share: |x| (bend(x).tanh() + 1.0) * 0.5,
    // With t = 2 f - 1, the derivative of tanh is 1 - t² = 4 f (1 - f).
    share_and_slope: |x| {
        let f = (bend(x).tanh() + 1.0) * 0.5;
        let slope = &f * (1.0 - &f) * (x.square() * (6.0 * CUBIC * SCALE) + 2.0 * SCALE);
        [f, slope]
    },
};

/// `x sigmoid(x)`.
pub(crate) static SILU: Gate = Gate {
    name: "silu",
    far: FAR_OF_SIGMOID,
    share: sigmoid,
    share_and_slope: |x| {
        let f = sigmoid(x);
        let slope = &f * (1.0 - &f);
        [f, slope]
    },
};

/// `x tanh(softplus(x))` ([Misra, 2019](https://arxiv.org/abs/1908.08681)).
pub(crate) static MISH: Gate = Gate {
    name: "mish",
    far: FAR_OF_SIGMOID,
    share: |x| softplus(x).tanh(),
    share_and_slope: |x| {
        let f = softplus(x).tanh();
        let slope = (1.0 - f.square()) * sigmoid(x);
        [f, slope]
    },
};

/// Registers the gates by name.
#[cfg(feature = "std")]
pub(super) fn register() {
    // A maker is a function pointer, which captures nothing: each name needs a separate one.
    kiln_ir::Custom::register(GELU.name, |_| Ok(GELU.custom()));
    kiln_ir::Custom::register(GELU_APPROXIMATE.name, |_| Ok(GELU_APPROXIMATE.custom()));
    kiln_ir::Custom::register(SILU.name, |_| Ok(SILU.custom()));
    kiln_ir::Custom::register(MISH.name, |_| Ok(MISH.custom()));
    kiln_ir::Custom::register(NormalCdf::NAME, |_| Ok(NormalCdf.custom()));
}

/// The coefficient of the cube in [`bend`].
const CUBIC: f64 = 0.044715;

/// `√(2/π)`.
const SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// Computes the argument of `tanh` in the GELU approximation: `tanh` of it is about `2 Φ(x) - 1`.
fn bend<'e>(x: &Var<'e>) -> Var<'e> {
    (x + x.square() * x * CUBIC) * SCALE
}

impl Gate {
    /// Applies the function as one op, so that it is differentiated by its own rule.
    pub(crate) fn of<'e>(&'static self, x: &Var<'e>) -> Var<'e> {
        x.apply(self.op(), &[])
    }
}

/// `(x, exp(-x² / 2)) -> Φ(x)`: the standard normal cumulative distribution function, accurate in its lower
/// tail too. The second operand is an argument because the gradient computes it anyway; it depends on the first, whose
/// derivative is that of both.
#[derive(Clone, Copy, Debug)]
struct NormalCdf;

/// `erfc(z / √2) / 2 = exp(-z² / 2) t p(t)` with `t = 1 / (1 + 0.3 z)` for every `z` from 0 on: the form of
/// [Hastings 1955](https://doi.org/10.1515/9781400875597) with a polynomial of least relative error, 1.5e-7.
const TAIL: [f64; 8] = [
    0.119_629_298_946_947,
    0.120_753_954_558_489_1,
    0.099_913_499_142_128_1,
    0.128_561_610_749_991_7,
    -0.053_683_628_104_662_8,
    0.206_353_503_441_398_1,
    -0.157_203_089_080_887_6,
    0.035_674_777_458_520_6,
];

/// The factor of `z` in [`TAIL`]'s argument.
const TAIL_STRETCH: f64 = 0.3;

impl NormalCdf {
    const NAME: &str = "normal_cdf";

    /// Applies the function as one op, so that it is differentiated by its own rule.
    fn of<'e>(x: &Var<'e>, bell: &Var<'e>) -> Var<'e> {
        x.apply(NormalCdf.op(), &[bell])
    }
}

/// Computes `Φ(x)`, beside `exp(-x² / 2)`. `1 + erf` loses all digits of a small result; 16 bits have too few for that
/// to matter.
fn gauss<'e>(x: &Var<'e>, bell: &Var<'e>) -> Var<'e> {
    if x.dtype().size() < 4 { ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5 } else { NormalCdf::of(x, bell) }
}

/// Computes `exp(-x² / 2)`.
fn bell<'e>(x: &Var<'e>) -> Var<'e> {
    (x.square() * -0.5).exp()
}

impl Function for NormalCdf {
    const IS_EXPRESSION: bool = true;
    const IS_CHEAP: bool = true;
    const SAVED: Saved = Saved { inputs: 1, outputs: 0 };

    fn name(&self) -> &str {
        NormalCdf::NAME
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        floats(NormalCdf::NAME, inputs, 2)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        let (x, bell) = (&inputs[0], &inputs[1]);
        if x.dtype() == DType::F64 {
            return erfc(&(x * -FRAC_1_SQRT_2)) * 0.5;
        }
        let t = (x.abs() * TAIL_STRETCH + 1.0).recip();
        let [first @ .., last] = TAIL;
        let polynomial = first.iter().rev().fold(x.scalar(last), |sum, &factor| sum * &t + factor);
        let tail = polynomial * t * bell;
        x.less(&x.scalar(0.0)).select(&tail, &(1.0 - &tail))
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let slope = bell(&widened(&inputs[0])) * (SCALE * 0.5);
        alloc::vec![Some((widened(g) * slope).cast(g.dtype())), None]
    }
}

impl Function for &'static Gate {
    const IS_EXPRESSION: bool = true;
    const IS_CHEAP: bool = true;
    const SAVED: Saved = Saved { inputs: 1, outputs: 0 };

    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        floats(self.name, inputs, 1)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        let x = &inputs[0];
        let near = x.max(&x.scalar(-self.far));
        &near * (self.share)(&near)
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let x = widened(&inputs[0]);
        let near = x.max(&x.scalar(-self.far)).min(&x.scalar(self.far));
        let g = widened(g);
        // In this order, no intermediate depends on the argument alone, which a fusing layer would store rather than
        // recompute.
        let [share, slope] = (self.share_and_slope)(&near);
        alloc::vec![Some((&g * share + g * near * slope).cast(inputs[0].dtype()))]
    }
}
