//! The JVP rule of each op.

use kiln_ir::{Gradient, Linearity, Op, gradient_of};

/// The JVP rule of an op: the tangents of its results from those of its operands.
///
/// Linear and bilinear ops are their own derivative. For every other op the [gradient rule](kiln_ir::vjp) multiplies by
/// the transposed derivative; transposing that program returns the derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The results are constant.
    Constant,
    /// There is no derivative; the text suggests an alternative.
    Undefined(&'static str),
    /// `a + b` and `a - b`: a missing tangent is skipped.
    Sum,
    /// The op is linear in the operands at these places jointly (one bit each from the least significant, [`u32::MAX`]
    /// for all). It is applied to their tangents; the other operands are unchanged.
    Linear(u32),
    /// The op is linear in each of its two operands: the product rule.
    Bilinear,
    /// By transposing the op's gradient rule.
    Transposed,
    /// By running the op's expansion.
    Expansion,
}

pub(super) fn rule_of(op: &Op) -> Rule {
    let gradient = gradient_of(op);
    match gradient {
        Gradient::Constant => return Rule::Constant,
        Gradient::Undefined(hint) => return Rule::Undefined(hint),
        Gradient::Rule | Gradient::Expansion => {}
    }
    match op.info().linearity.of(op) {
        Linearity::Constant => Rule::Constant,
        Linearity::Sum => Rule::Sum,
        Linearity::Linear(places) => Rule::Linear(places),
        Linearity::Bilinear => Rule::Bilinear,
        Linearity::Nonlinear if gradient == Gradient::Expansion => Rule::Expansion,
        Linearity::Nonlinear => Rule::Transposed,
    }
}
