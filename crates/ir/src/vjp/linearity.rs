//! The operands in which results are linear, where attributes decide.

use crate::{CollectiveKind, Linearity, Op, PoolKind, Reduction, UpdateMode};

const FIRST: Linearity = Linearity::Linear(0b1);

pub(crate) fn function(op: &Op) -> Linearity {
    op.function().map_or(Linearity::Nonlinear, |function| function.linearity)
}

pub(crate) fn reduction(op: &Op) -> Linearity {
    op.reduction().map_or(Linearity::Nonlinear, reduced)
}

/// `Set` and `Add` are linear: the winning entry of a position does not depend on the values.
pub(crate) fn update(op: &Op) -> Linearity {
    let base_and_source = if let Op::SliceUpdate { .. } = op { u32::MAX } else { 0b101 };
    match op.update_mode() {
        Some(UpdateMode::Set | UpdateMode::Add) => Linearity::Linear(base_and_source),
        Some(UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max) | None => Linearity::Nonlinear,
    }
}

pub(crate) fn pool(op: &Op) -> Linearity {
    match op.pooling().map(|spec| spec.kind) {
        Some(PoolKind::Average { .. }) => FIRST,
        Some(PoolKind::Max) | None => Linearity::Nonlinear,
    }
}

pub(crate) fn collective(op: &Op) -> Linearity {
    let Op::Collective(collective) = op else { return Linearity::Nonlinear };
    match collective.kind {
        CollectiveKind::AllReduce(reduction) | CollectiveKind::ReduceScatter { reduction, .. } => {
            reduced(reduction)
        }
        CollectiveKind::AllGather { .. } | CollectiveKind::Broadcast { .. } => FIRST,
        CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => Linearity::Constant,
    }
}

fn reduced(reduction: Reduction) -> Linearity {
    match reduction {
        Reduction::Sum => FIRST,
        Reduction::Prod | Reduction::Min | Reduction::Max => Linearity::Nonlinear,
    }
}
