//! Gradient rules of elementwise ops.

use super::{Gradients, Rule};
use crate::{Binary, Comparison, Operand, Scalar, Shape, Unary, Var};
use core::f64::consts::FRAC_2_SQRT_PI;

impl<'e> Rule<'_, 'e> {
    pub(super) fn unary(&self, function: Unary) -> Gradients<'e> {
        let y = self.y();
        match function {
            Unary::Neg => self.linear(|g, _| -g),
            Unary::Abs => self.linear(|g, x| g * x.sign()),
            Unary::Recip => self.linear(|g, _| -(g * y.square())),
            Unary::Sqrt => self.linear(|g, _| g * 0.5 / y),
            Unary::Rsqrt => self.linear(|g, _| g * -0.5 * (y.square() * y)),
            Unary::Exp => self.linear(|g, _| g * y),
            Unary::Expm1 => self.linear(|g, _| g * (y + 1.0)),
            Unary::Ln => self.linear(|g, x| g / x),
            Unary::Log1p => self.linear(|g, x| g / (x + 1.0)),
            Unary::Sin => self.linear(|g, x| g * x.cos()),
            Unary::Cos => self.linear(|g, x| -(g * x.sin())),
            Unary::Tan => self.linear(|g, _| g * (y.square() + 1.0)),
            Unary::Tanh => self.linear(|g, _| g * (1.0 - y.square())),
            Unary::Atan => self.linear(|g, x| g / (x.square() + 1.0)),
            Unary::Erf => self.linear(|g, x| g * (-x.square()).exp() * FRAC_2_SQRT_PI),
            Unary::Erfcx => self.linear(|g, x| g * (x * y * 2.0 - FRAC_2_SQRT_PI)),
            Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Not => {
                self.zero()
            }
        }
    }

    pub(super) fn binary(&self, function: Binary) -> Gradients<'e> {
        let (g, a, b, y) = (self.g(), self.x(0), self.x(1), self.y());
        match function {
            Binary::Add => self.two(|| g.clone(), || g.clone()),
            Binary::Sub => self.two(|| g.clone(), || -g),
            Binary::Mul => self.two(|| g * b, || g * a),
            Binary::Div => self.two(|| g / b, || -(g / b * y)),
            // The exact quotient although `a / b` is rounded: `y` is the remainder.
            Binary::Rem => self.two(|| g.clone(), || -(g * ((a - y) / b).round())),
            Binary::Pow => self.two(|| g * base_slope(a, b), || g * exponent_slope(a, b, y)),
            Binary::Min => self.two(|| self.extreme(b, a, b), || self.extreme(a, b, a)),
            Binary::Max => self.two(|| self.extreme(a, b, b), || self.extreme(b, a, a)),
            Binary::Atan2 => self.two(|| g * angle_slope(a, b, b, g), || -(g * angle_slope(a, b, a, g))),
            Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => self.zero(),
        }
    }

    /// The share of one operand of a minimum or maximum: zero if `high <= low` strictly against it, half at a tie of
    /// two tensors. NaN passes the gradient. `other` is the operand that the gradient is not for.
    fn extreme(&self, high: &Var<'e>, low: &Var<'e>, other: &Var<'e>) -> Var<'e> {
        let (g, zero) = (self.g(), self.g().scalar(0.0));
        if other.is_scalar() {
            // The result is beyond the number exactly where the operand is, and is often saved anyway.
            let beyond = |var: &Var<'e>| if var.is_scalar() { var.clone() } else { self.y().clone() };
            return beyond(high).compare(Comparison::Le, &beyond(low)).select(&zero, g);
        }
        high.less(low).select(&zero, &high.equal(low).select(&(g * 0.5), g))
    }

    pub(super) fn select(&self) -> Gradients<'e> {
        let (g, condition) = (self.g(), self.x(0));
        let zero = g.scalar(0.0);
        let a = || condition.select(g, &zero);
        let b = || condition.select(&zero, g);
        alloc::vec![None, self.wanted[1].then(a), self.wanted[2].then(b)]
    }
}

/// `b * a^(b - 1)`, also for a zero base, and for a negative base with an integer exponent.
fn base_slope<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    if let Some(exponent) = b.operand().scalar() {
        let n = exponent.to_f64();
        return match n {
            0.0 => Var::zeros(a.engine(), a.ty()),
            1.0 => Var::full(a.engine(), a.ty(), 1.0),
            2.0 => a * 2.0,
            _ => a.pow(&a.scalar(n - 1.0)) * n,
        };
    }
    // 0^0 is 1 for every small change of the base: an exponent of 1 makes the slope 0 there, not 0 * inf.
    let zero = a.scalar(0.0);
    let both = a.equal(&zero).and(&b.equal(&zero));
    b * a.pow(&both.select(&a.scalar(1.0), &(b - 1.0)))
}

/// `a^b * ln(a)`: 0 for a zero base with a nonnegative exponent, NaN for a negative base.
fn exponent_slope<'e>(a: &Var<'e>, b: &Var<'e>, y: &Var<'e>) -> Var<'e> {
    let base = match a.operand() {
        Operand::Value(_) => a.clone(),
        Operand::Scalar(number) => one_element(y, *number),
    };
    match a.operand().scalar() {
        Some(number) if number.to_f64() != 0.0 => y * base.ln(),
        Some(_) | None => {
            let zero = base.scalar(0.0);
            let flat = base.equal(&zero).and(&zero.compare(Comparison::Le, b));
            y * flat.select(&base.scalar(1.0), &base).ln()
        }
    }
}

/// A plain number as a one-element tensor that broadcasts to `like`.
fn one_element<'e>(like: &Var<'e>, number: Scalar) -> Var<'e> {
    let ones: Shape = (0..like.rank()).map(|_| 1).collect();
    Var::full(like.engine(), like.ty().with_shape(ones), number)
}

/// `part / (a² + b²)` for a `part` that is `a` or `b`, one of them a tensor like `g`; 0 at the origin. The operands are
/// divided by the greater one first, so that no square overflows or underflows.
fn angle_slope<'e>(a: &Var<'e>, b: &Var<'e>, part: &Var<'e>, g: &Var<'e>) -> Var<'e> {
    let greater = magnitude(a).max(&magnitude(b));
    let is_origin = greater.equal(&greater.scalar(0.0));
    let scale = is_origin.select(&g.scalar(1.0), &greater);
    let norm = (a / &scale).square() + (b / &scale).square();
    let norm = is_origin.select(&g.scalar(1.0), &norm);
    part / &scale / norm / scale
}

fn magnitude<'e>(var: &Var<'e>) -> Var<'e> {
    match var.operand().scalar() {
        Some(number) => var.scalar(number.to_f64().abs()),
        None => var.abs(),
    }
}
