//! The kinds of gradients.

use crate::{CollectiveKind, Op};

/// The kind of an op's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// A rule of [`vjp`](super::vjp). It may return that a gradient is zero everywhere, as for `floor`.
    Rule,
    /// By differentiating the op's expansion; its forward values are recomputed where needed.
    Expansion,
    /// Constant: results are integers or booleans, or depend on no tensor.
    Constant,
    /// Not differentiable; the text suggests an alternative.
    Undefined(&'static str),
}

/// Returns the kind of an op's gradient. A custom op has a rule or an expansion; [`vjp`](super::vjp) decides which.
#[inline]
pub fn gradient_of(op: &Op) -> Gradient {
    op.info().gradient.of(op)
}

pub(crate) fn function(op: &Op) -> Gradient {
    op.function().map_or(Gradient::Constant, |function| function.gradient)
}

pub(crate) fn cast(op: &Op) -> Gradient {
    let is_float = matches!(op, Op::Cast(dtype) if dtype.is_float());
    if is_float { Gradient::Rule } else { Gradient::Constant }
}

pub(crate) fn bitcast(op: &Op) -> Gradient {
    let is_float = matches!(op, Op::Bitcast(dtype) if dtype.is_float());
    if is_float {
        Gradient::Undefined("bits do not change smoothly: use `cast`, or detach the operand first")
    } else {
        Gradient::Constant
    }
}

pub(crate) fn collective(op: &Op) -> Gradient {
    let Op::Collective(collective) = op else { return Gradient::Constant };
    match collective.kind {
        CollectiveKind::AllReduce(_)
        | CollectiveKind::AllGather { .. }
        | CollectiveKind::ReduceScatter { .. }
        | CollectiveKind::Broadcast { .. } => Gradient::Rule,
        CollectiveKind::Send { .. } => Gradient::Undefined(
            "gradients do not travel back between members: send the gradient itself in the other direction",
        ),
        CollectiveKind::Recv { .. } => Gradient::Constant,
    }
}
