//! The precision of each op.

use alloc::borrow::Cow;
pub use kiln_ir::Precision;
use kiln_ir::{DType, Op, Reduction, UpdateMode};

/// The precision of an op, by its row of [`OPS`](kiln_ir::OPS) and its attributes. The [crate documentation](crate) has
/// the table.
///
/// ```
/// use kiln_autocast::{Precision, precision};
/// use kiln_ir::{Binary, Op, Unary};
///
/// assert_eq!(precision(&Op::MatMul), Precision::Low);
/// assert_eq!(precision(&Op::Unary(Unary::Exp)), Precision::Full);
/// assert_eq!(precision(&Op::Binary(Binary::Add)), Precision::Widest);
/// ```
pub fn precision(op: &Op) -> Precision {
    match op {
        Op::Custom(custom) if custom.is_expression() => Precision::Inside,
        Op::Custom(_) => Precision::Full,
        Op::Unary(function) => function.info().precision,
        Op::Binary(function) => function.info().precision,
        Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } => reduced(*reduction),
        Op::Put { mode, .. } | Op::Scatter { mode, .. } => written(*mode),
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
        | Op::SliceUpdate { .. }
        | Op::NonZero { .. }
        | Op::CheckIndex { .. }
        | Op::Recover { .. }
        | Op::MatMul
        | Op::MatMulFloat8 { .. }
        | Op::MatMulBlocks { .. }
        | Op::Conv { .. }
        | Op::Pool(_)
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
        | Op::Collective(_)
        | Op::Fused(_)
        | Op::Loop(_) => op.row(|row| row.precision),
    }
}

/// Minimum and maximum are elements themselves, so nothing is rounded.
fn reduced(reduction: Reduction) -> Precision {
    match reduction {
        Reduction::Sum | Reduction::Prod => Precision::Full,
        Reduction::Min | Reduction::Max => Precision::Widest,
    }
}

/// Indices may repeat, so writes with `Add` and `Mul` accumulate.
fn written(mode: UpdateMode) -> Precision {
    match mode {
        UpdateMode::Add | UpdateMode::Mul => Precision::Full,
        UpdateMode::Set | UpdateMode::Min | UpdateMode::Max => Precision::Widest,
    }
}

/// Whether an op of [`Precision::Low`] reads this operand in 16 bits. The log-sum-exp of attention and the scales of
/// 8-bit floats stay `f32`, like accumulators.
pub(crate) fn narrows(op: &Op, place: usize) -> bool {
    const LOG_SUM_EXP: usize = 5;
    let is_sum = matches!(op, Op::AttentionGrad(_)) && place == LOG_SUM_EXP;
    !is_sum && !matches!(op, Op::MatMulFloat8 { .. })
}

/// An op of [`Precision::Low`] in its 16-bit form: a result dtype among its attributes becomes `dtype`.
pub(crate) fn lowered(op: &Op, dtype: DType) -> Cow<'_, Op> {
    if let &Op::MatMulFloat8 { formats, dtype: DType::F32 } = op {
        Cow::Owned(Op::MatMulFloat8 { formats, dtype })
    } else {
        Cow::Borrowed(op)
    }
}
