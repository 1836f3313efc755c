//! Special functions: expressions of ops, the same on every engine, with closed-form gradients.
//!
//! Each is a [`CustomOp`]. The tape records one node for it. Its expansion defines its value, and its rule defines its
//! derivative, so that a NaN of a branch that was not selected does not reach a gradient. 16-bit floats are computed in
//! `f32`. `docs/accuracy.md` in the repository lists their accuracy.
//!
//! Names and definitions are those of [`torch.special`](https://docs.pytorch.org/docs/stable/special.html).

mod bessel;
mod binary;
mod bound;
mod coefficients;
mod error;
mod exponential;
mod float;
mod gamma;
mod gate;
mod incomplete;
mod match_precision;
mod polynomial;
mod trigonometric;
mod variance;
mod zeta;

pub(crate) use bound::{CLAMP_MAX, CLAMP_MIN};
pub(crate) use float::{bits, exponent, nextafter, powers_of_two};
pub(crate) use gate::{GELU, GELU_APPROXIMATE, Gate, MISH, SILU};
pub(crate) use table::{
    ACOS, ACOSH, ASIN, ASINH, ATANH, BESSEL_J0, BESSEL_J1, BESSEL_Y0, BESSEL_Y1, CBRT, COSH, DIGAMMA, ERFC,
    ERFINV, EXP2, GAMMAINC, GAMMAINCC, HYPOT, I0, I0E, I1, I1E, K0, K0E, K1, K1E, LGAMMA, LOG2, LOG10,
    LOGADDEXP, LOGADDEXP2, LOGIT, NDTRI, SIGMOID, SINC, SINH, SPHERICAL_BESSEL_J0, XLOG1PY, XLOGY, ZETA,
};

#[cfg(feature = "std")]
use crate::any::MatMulAsFloat8;
use crate::{AnyTensor, Result};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use float::widened;
use kiln_ir::{Custom, CustomOp, Op, OperandType, ResultTypes, Saved, Var};
use smallvec::smallvec;

/// A function of one float.
pub(crate) struct Unary {
    pub(crate) name: &'static str,
    value: for<'e> fn(&Var<'e>) -> Var<'e>,
    /// The derivative, from the argument and the value.
    slope: for<'e> fn(&Var<'e>, &Var<'e>) -> Var<'e>,
}

/// A function of two floats.
pub(crate) struct Binary {
    pub(crate) name: &'static str,
    value: for<'e> fn(&Var<'e>, &Var<'e>) -> Var<'e>,
    /// The derivatives for both, from the arguments and the value.
    slope: for<'e> fn(&Var<'e>, &Var<'e>, &Var<'e>) -> [Var<'e>; 2],
}

/// The derivative of that order of [`DIGAMMA`].
#[derive(Clone, Copy, Debug)]
struct Polygamma(u32);

mod table {
    use super::{
        Binary, Polygamma, Unary, bessel, binary, error, exponential, gamma, incomplete, trigonometric, zeta,
    };
    use core::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10};

    /// `√2π`.
    const SQRT_TAU: f64 = 2.506_628_274_631_000_7;

    macro_rules! functions {
        ($register:ident $kind:ident: $($constant:ident $name:literal $value:path, $slope:expr;)*) => {
            $(pub(crate) static $constant: $kind = $kind { name: $name, value: $value, slope: $slope };)*

            #[cfg(feature = "std")]
            pub(super) fn $register() {
                $(kiln_ir::Custom::register($name, |_| Ok(super::Function::custom(&$constant)));)*
            }
        };
    }

    functions! {
        register_unary Unary:
        ASIN "asin" trigonometric::asin, |x, _| trigonometric::complement(x).recip();
        ACOS "acos" trigonometric::acos, |x, _| -trigonometric::complement(x).recip();
        SINC "sinc" trigonometric::sinc, trigonometric::sinc_slope;
        SINH "sinh" exponential::sinh, |x, _| COSH.of(x);
        COSH "cosh" exponential::cosh, |x, _| SINH.of(x);
        ASINH "asinh" exponential::asinh, |x, _| exponential::asinh_slope(x);
        ACOSH "acosh" exponential::acosh, |x, _| ((x - 1.0).sqrt() * (x + 1.0).sqrt()).recip();
        ATANH "atanh" exponential::atanh, |x, _| ((1.0 - x) * (x + 1.0)).recip();
        EXP2 "exp2" exponential::exp2, |_, y| y * LN_2;
        LOG2 "log2" exponential::log2, |x, _| (x * LN_2).recip();
        LOG10 "log10" exponential::log10, |x, _| (x * LN_10).recip();
        CBRT "cbrt" exponential::cbrt, |_, y| (y.square() * 3.0).recip();
        SIGMOID "sigmoid" exponential::sigmoid, |x, y| y * SIGMOID.of(&-x);
        LOGIT "logit" exponential::logit, |x, _| exponential::logit_slope(x);
        ERFC "erfc" error::erfc, |x, _| (-x.square()).exp() * -FRAC_2_SQRT_PI;
        ERFINV "erfinv" error::erfinv, |_, y| y.square().exp() / FRAC_2_SQRT_PI;
        LGAMMA "lgamma" gamma::lgamma, |x, _| DIGAMMA.of(x);
        DIGAMMA "digamma" gamma::digamma, |x, _| Polygamma(1).of(x);
        I0 "i0" bessel::i0, |x, _| I1.of(x);
        I0E "i0e" bessel::i0e, |x, y| I1E.of(x) - x.sign() * y;
        I1 "i1" bessel::i1, |x, y| I0.of(x) - bessel::divided(y, x);
        NDTRI "ndtri" error::ndtri, |_, y| (y.square() * 0.5).exp() * SQRT_TAU;
        BESSEL_J0 "bessel_j0" bessel::j0, |x, _| -BESSEL_J1.of(x);
        BESSEL_J1 "bessel_j1" bessel::j1, |x, y| BESSEL_J0.of(x) - bessel::divided(y, x);
        BESSEL_Y0 "bessel_y0" bessel::y0, |x, _| -BESSEL_Y1.of(x);
        BESSEL_Y1 "bessel_y1" bessel::y1, |x, y| BESSEL_Y0.of(x) - y / x;
        K0 "modified_bessel_k0" bessel::k0, |x, _| -K1.of(x);
        K1 "modified_bessel_k1" bessel::k1, |x, y| -K0.of(x) - y / x;
        K0E "scaled_modified_bessel_k0" bessel::k0e, |x, y| y - K1E.of(x);
        K1E "scaled_modified_bessel_k1" bessel::k1e, |x, y| y - K0E.of(x) - y / x;
        SPHERICAL_BESSEL_J0 "spherical_bessel_j0" bessel::spherical_j0, bessel::spherical_j0_slope;
        I1E "i1e" bessel::i1e, |x, y| I0E.of(x) - bessel::divided(y, x) - x.sign() * y;
    }

    functions! {
        register_binary Binary:
        HYPOT "hypot" binary::hypot, |a, b, y| [binary::hypot_slope(a, y), binary::hypot_slope(b, y)];
        LOGADDEXP "logaddexp" binary::logaddexp,
            |a, b, _| [SIGMOID.of(&binary::gap(a, b, 1.0)), SIGMOID.of(&binary::gap(b, a, 1.0))];
        LOGADDEXP2 "logaddexp2" binary::logaddexp2,
            |a, b, _| [SIGMOID.of(&binary::gap(a, b, LN_2)), SIGMOID.of(&binary::gap(b, a, LN_2))];
        XLOGY "xlogy" binary::xlogy,
            |x, y, _| [binary::logarithm(x, y, &y.ln()), binary::zero_with(x, y, &(x / y))];
        GAMMAINC "gammainc" incomplete::gammainc, |a, x, _| incomplete::slopes(a, x);
        GAMMAINCC "gammaincc" incomplete::gammaincc, |a, x, _| incomplete::slopes(a, x).map(|slope| -slope);
        ZETA "zeta" zeta::zeta, |s, q, _| [zeta::slope_of_order(s, q), -(s * ZETA.of(&(s + 1.0), q))];
        XLOG1PY "xlog1py" binary::xlog1py, |x, y, _| {
            let argument = y + 1.0;
            [binary::logarithm(x, &argument, &y.log1p()), binary::zero_with(x, y, &(x / &argument))]
        };
    }
}

/// Registers the custom ops of this crate by name ([`Custom::register`]), so that programs that contain them can be
/// parsed from text and received from the network. Repeated calls have no effect.
///
/// ```
/// use kiln_tensor::Custom;
///
/// kiln_tensor::register_special_functions();
/// assert_eq!(Custom::from_parts("erfinv", "")?.name(), "erfinv");
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[cfg(feature = "std")]
pub fn register_special_functions() {
    table::register_unary();
    table::register_binary();
    gate::register();
    bound::register();
    crate::functions::module::register_gradient_reversal();
    Custom::register("polygamma", |attributes| {
        let order = attributes.parse().map_err(|_| {
            kiln_ir::Error::value("polygamma", alloc::format!("the order `{attributes}` is not an integer"))
        })?;
        Ok(Polygamma(order).custom())
    });
    Custom::register(MatMulAsFloat8::NAME, |_| Ok(Custom::new(MatMulAsFloat8)));
    Custom::register(match_precision::NAME, |_| Ok(match_precision::MatchPrecision.custom()));
    Custom::register(variance::NAME, |_| Ok(variance::VarianceAbout.custom()));
}

/// A custom op with one result and a batched form that is the op itself.
pub(crate) trait Function: fmt::Debug + Copy + Send + Sync + 'static {
    /// [`CustomOp::is_expression`].
    const IS_EXPRESSION: bool = false;
    /// [`CustomOp::is_cheap`].
    const IS_CHEAP: bool = false;
    /// [`CustomOp::saved`].
    const SAVED: Saved = Saved::ALL;
    /// [`CustomOp::match_precision`].
    const MATCH_PRECISION: Option<usize> = None;

    fn name(&self) -> &str;

    fn attributes(&self) -> String {
        String::new()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes>;

    /// Decomposes the op into simpler ops.
    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e>;

    /// [`CustomOp::equivalent`].
    fn equivalent(&self) -> Option<Op> {
        None
    }

    /// Computes the gradients of the operands from that of the result.
    fn gradients<'e>(&self, inputs: &[Var<'e>], output: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>>;

    /// Returns the custom op.
    fn custom(self) -> Custom {
        Custom::new(Special(self))
    }

    /// Returns the op.
    fn op(self) -> Op {
        Op::Custom(self.custom())
    }
}

/// A [`Function`] as a custom op.
#[derive(Clone, Copy)]
pub(crate) struct Special<F>(pub(crate) F);

impl<F: fmt::Debug> fmt::Debug for Special<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<F: Function> CustomOp for Special<F> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn attributes(&self) -> String {
        self.0.attributes()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        self.0.infer(inputs)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(alloc::vec![self.0.expand(inputs)])
    }

    fn equivalent(&self) -> Option<Op> {
        self.0.equivalent()
    }

    fn is_expression(&self) -> bool {
        F::IS_EXPRESSION
    }

    fn match_precision(&self) -> Option<usize> {
        F::MATCH_PRECISION
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        Some(Ok(match &gradients[0] {
            Some(g) => self.0.gradients(inputs, &outputs[0], g),
            None => inputs.iter().map(|_| None).collect(),
        }))
    }

    fn saved(&self) -> Saved {
        F::SAVED
    }

    fn is_cheap(&self) -> bool {
        F::IS_CHEAP
    }

    fn batched(&self) -> Option<Custom> {
        Some(Custom::new(*self))
    }
}

impl Unary {
    /// Applies the function as one op, so that it is differentiated by its own rule.
    pub(crate) fn of<'e>(&'static self, x: &Var<'e>) -> Var<'e> {
        x.apply(self.op(), &[])
    }
}

impl Binary {
    /// Applies the function as one op, so that it is differentiated by its own rule.
    fn of<'e>(&'static self, a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
        a.apply(self.op(), &[b])
    }
}

impl Polygamma {
    fn of<'e>(self, x: &Var<'e>) -> Var<'e> {
        x.apply(self.op(), &[])
    }
}

impl AnyTensor {
    pub(crate) fn special(self, function: &'static Unary) -> Result<AnyTensor> {
        self.apply(&function.op())
    }

    pub(crate) fn special_pair(self, function: &'static Binary, other: AnyTensor) -> Result<AnyTensor> {
        self.in_same_domain(function.name, &other)?;
        let op = function.op();
        let (a, b) = AnyTensor::matched(&op, self, other)?;
        a.apply_with(&op, [b.into_value().into()])
    }

    pub(crate) fn polygamma_of_order(self, order: u32) -> Result<AnyTensor> {
        self.apply(&Polygamma(order).op())
    }
}

macro_rules! shown_by_name {
    ($($kind:ident)*) => {$(
        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name)
            }
        }
    )*};
}

shown_by_name! { Unary Binary Gate }

impl Function for &'static Unary {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        floats(self.name, inputs, 1)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        let x = &inputs[0];
        (self.value)(&widened(x)).cast(x.dtype())
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], output: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let slope = (self.slope)(&widened(&inputs[0]), &widened(output));
        alloc::vec![Some((widened(g) * slope).cast(g.dtype()))]
    }
}

impl Function for &'static Binary {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        floats(self.name, inputs, 2)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        let (a, b) = (&inputs[0], &inputs[1]);
        (self.value)(&widened(a), &widened(b)).cast(a.dtype())
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], output: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let slopes = (self.slope)(&widened(&inputs[0]), &widened(&inputs[1]), &widened(output));
        let wide = widened(g);
        slopes.map(|slope| Some((&wide * slope).cast(g.dtype()))).into()
    }
}

impl Function for Polygamma {
    fn name(&self) -> &str {
        "polygamma"
    }

    fn attributes(&self) -> String {
        self.0.to_string()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        floats("polygamma", inputs, 1)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Var<'e> {
        let x = &inputs[0];
        gamma::polygamma(self.0, &widened(x)).cast(x.dtype())
    }

    fn gradients<'e>(&self, inputs: &[Var<'e>], _: &Var<'e>, g: &Var<'e>) -> Vec<Option<Var<'e>>> {
        let slope = Polygamma(self.0 + 1).of(&widened(&inputs[0]));
        alloc::vec![Some((widened(g) * slope).cast(g.dtype()))]
    }
}

/// Checks that the operands are `count` tensors of one float type, which is that of the result.
fn floats(name: &str, inputs: &[OperandType<'_>], count: usize) -> Result<ResultTypes> {
    let problem = |problem: &str| kiln_ir::Error::type_error(name, problem, inputs);
    let types: Vec<_> = inputs.iter().filter_map(|input| input.tensor()).collect();
    if types.len() != count || inputs.len() != count {
        return Err(problem("expects tensors only"));
    }
    if !types[0].dtype.is_float() {
        return Err(problem("needs a float dtype").hint("cast the tensor to a float dtype first"));
    }
    if types.iter().any(|ty| *ty != types[0]) {
        return Err(problem("operands differ in type").hint("broadcast and cast them to one type first"));
    }
    Ok(smallvec![*types[0]])
}
