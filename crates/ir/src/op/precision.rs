//! The precision of ops under mixed precision, where attributes decide.

use super::{Op, Precision, Reduction, UpdateMode};

pub(super) fn function(op: &Op) -> Precision {
    op.function().map_or(Precision::Widest, |function| function.precision)
}

/// Minimum and maximum are elements themselves, so nothing is rounded.
pub(super) fn reduction(op: &Op) -> Precision {
    match op.reduction() {
        Some(Reduction::Sum | Reduction::Prod) => Precision::Full,
        Some(Reduction::Min | Reduction::Max) | None => Precision::Widest,
    }
}

/// Indices may repeat, so writes with `Add` and `Mul` accumulate.
pub(super) fn update(op: &Op) -> Precision {
    match op.update_mode() {
        Some(UpdateMode::Add | UpdateMode::Mul) => Precision::Full,
        Some(UpdateMode::Set | UpdateMode::Min | UpdateMode::Max) | None => Precision::Widest,
    }
}

pub(super) fn custom(op: &Op) -> Precision {
    let is_expression = matches!(op, Op::Custom(custom) if custom.is_expression());
    if is_expression { Precision::Inside } else { Precision::Full }
}
