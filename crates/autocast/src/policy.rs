//! The precision of each op.

use alloc::borrow::Cow;
pub use kiln_ir::Precision;
use kiln_ir::{DType, Op};

/// Returns the precision of an op, by its row of [`OPS`](kiln_ir::OPS) and its attributes. The [crate
/// documentation](crate) has the table.
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
    op.info().precision.of(op)
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
