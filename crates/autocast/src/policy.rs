//! Which op runs in which precision.

use alloc::borrow::Cow;
use kiln_ir::{Binary, DType, Op, Reduction, Unary, UpdateMode};

/// In which precision an op runs, of its operands and results that the program sees as `f32`. Others do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// In 16 bits: operands are cast, and results are held in 16 bits. Contractions, which are the work of a model and
    /// accumulate in `f32` whatever their operands are.
    Low,
    /// In `f32`: what adds up many rounding errors, has a range that 16 bits do not, or is seen by others.
    Full,
    /// In 16 bits if all operands are held so; in `f32` if one is held in `f32`, or there is none.
    Widest,
    /// Each op that it stands for by its own rule: regions, and custom ops that are
    /// [names](kiln_ir::CustomOp::is_expression) for others.
    Inside,
}

/// The precision of an op: the one table of the layer. The [crate](crate) has it as text.
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
        Op::MatMul | Op::MatMulFloat8 { .. } | Op::Conv { .. } | Op::Attention(_) | Op::AttentionGrad(_) => {
            Precision::Low
        }
        Op::Unary(function) => unary(*function),
        Op::Binary(function) => binary(*function),
        Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } => reduced(*reduction),
        Op::Put { mode, .. } | Op::Scatter { mode, .. } => written(*mode),
        Op::Softmax { .. }
        | Op::Norm { .. }
        | Op::Fft { .. }
        | Op::Quantize { .. }
        | Op::Bitcast(_)
        | Op::Collective(_)
        | Op::Custom(_) => Precision::Full,
        Op::Full(_)
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Compare(_)
        | Op::Select
        | Op::Cast(_)
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
        | Op::Pool(_)
        | Op::PoolGrad { .. }
        | Op::Resize { .. }
        | Op::Dequantize => Precision::Widest,
        Op::Fused(_) => Precision::Inside,
    }
}

/// What grows without bounds, or is steep where numbers are small, needs `f32`.
fn unary(function: Unary) -> Precision {
    match function {
        Unary::Exp | Unary::Expm1 | Unary::Ln | Unary::Log1p | Unary::Recip | Unary::Rsqrt | Unary::Tan => {
            Precision::Full
        }
        Unary::Neg
        | Unary::Abs
        | Unary::Sign
        | Unary::Sqrt
        | Unary::Sin
        | Unary::Cos
        | Unary::Tanh
        | Unary::Atan
        | Unary::Erf
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc
        | Unary::Not => Precision::Widest,
    }
}

fn binary(function: Binary) -> Precision {
    match function {
        Binary::Pow => Precision::Full,
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Div
        | Binary::Rem
        | Binary::Min
        | Binary::Max
        | Binary::Atan2
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr => Precision::Widest,
    }
}

/// The least and the greatest are elements themselves, so that nothing is rounded.
fn reduced(reduction: Reduction) -> Precision {
    match reduction {
        Reduction::Sum | Reduction::Prod => Precision::Full,
        Reduction::Min | Reduction::Max => Precision::Widest,
    }
}

/// An index may come many times, and what it writes then adds up.
fn written(mode: UpdateMode) -> Precision {
    match mode {
        UpdateMode::Add | UpdateMode::Mul => Precision::Full,
        UpdateMode::Set | UpdateMode::Min | UpdateMode::Max => Precision::Widest,
    }
}

/// Whether an op of [`Precision::Low`] reads this operand in 16 bits. The log-sum-exp of attention is one of
/// the accumulators, which stay `f32`, and so do scales of 8-bit floats.
pub(crate) fn narrows(op: &Op, place: usize) -> bool {
    const LOG_SUM_EXP: usize = 5;
    let is_sum = matches!(op, Op::AttentionGrad(_)) && place == LOG_SUM_EXP;
    !is_sum && !matches!(op, Op::MatMulFloat8 { .. })
}

/// An op of [`Precision::Low`] as it runs in 16 bits: one that names the dtype of its result names another.
pub(crate) fn lowered(op: &Op, dtype: DType) -> Cow<'_, Op> {
    if let &Op::MatMulFloat8 { formats, dtype: DType::F32 } = op {
        Cow::Owned(Op::MatMulFloat8 { formats, dtype })
    } else {
        Cow::Borrowed(op)
    }
}
