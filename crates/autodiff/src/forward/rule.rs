//! The JVP rule of each op.

use kiln_ir::{CollectiveKind, Gradient, Linearity, Op, PoolKind, Reduction, UpdateMode, gradient_of};

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

/// All operands.
const ALL: Linearity = Linearity::Linear(u32::MAX);
const FIRST: Linearity = Linearity::Linear(0b1);

pub(super) fn rule_of(op: &Op) -> Rule {
    let gradient = gradient_of(op);
    match gradient {
        Gradient::Constant => return Rule::Constant,
        Gradient::Undefined(hint) => return Rule::Undefined(hint),
        Gradient::Rule | Gradient::Expansion => {}
    }
    match linearity(op) {
        Linearity::Constant => Rule::Constant,
        Linearity::Sum => Rule::Sum,
        Linearity::Linear(places) => Rule::Linear(places),
        Linearity::Bilinear => Rule::Bilinear,
        Linearity::Nonlinear if gradient == Gradient::Expansion => Rule::Expansion,
        Linearity::Nonlinear => Rule::Transposed,
    }
}

fn linearity(op: &Op) -> Linearity {
    match op {
        Op::Unary(function) => function.info().linearity,
        Op::Binary(function) => function.info().linearity,
        Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } => reduced(*reduction),
        Op::Put { mode, .. } | Op::Scatter { mode, .. } => update(*mode, Linearity::Linear(0b101)),
        Op::SliceUpdate { mode, .. } => update(*mode, ALL),
        Op::Pool(spec) => match spec.kind {
            PoolKind::Average { .. } => FIRST,
            PoolKind::Max => Linearity::Nonlinear,
        },
        Op::Collective(collective) => match collective.kind {
            CollectiveKind::AllReduce(reduction) | CollectiveKind::ReduceScatter { reduction, .. } => {
                reduced(reduction)
            }
            CollectiveKind::AllGather { .. } | CollectiveKind::Broadcast { .. } => FIRST,
            CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => Linearity::Constant,
        },
        Op::Full(_)
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Broadcast(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Concat { .. }
        | Op::Windows { .. }
        | Op::Copy
        | Op::ArgReduce { .. }
        | Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Take { .. }
        | Op::Gather { .. }
        | Op::NonZero { .. }
        | Op::CheckIndex { .. }
        | Op::Recover { .. }
        | Op::MatMul
        | Op::MatMulFloat8 { .. }
        | Op::MatMulBlocks { .. }
        | Op::Conv { .. }
        | Op::PoolGrad { .. }
        | Op::Softmax { .. }
        | Op::LogSumExp { .. }
        | Op::Norm { .. }
        | Op::Attention(_)
        | Op::AttentionGrad(_)
        | Op::Resize { .. }
        | Op::Fft { .. }
        | Op::Quantize { .. }
        | Op::Dequantize
        | Op::DequantizeBlocks { .. }
        | Op::Custom(_)
        | Op::Fused(_)
        | Op::Loop(_) => op.row(|row| row.linearity),
    }
}

fn reduced(reduction: Reduction) -> Linearity {
    match reduction {
        Reduction::Sum => FIRST,
        Reduction::Prod | Reduction::Min | Reduction::Max => Linearity::Nonlinear,
    }
}

/// `Set` and `Add` are linear: the winning entry of a position does not depend on the values.
fn update(mode: UpdateMode, linear: Linearity) -> Linearity {
    match mode {
        UpdateMode::Set | UpdateMode::Add => linear,
        UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => Linearity::Nonlinear,
    }
}
