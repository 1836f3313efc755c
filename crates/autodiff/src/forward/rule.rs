//! How each op carries tangents.

use kiln_ir::{Binary, CollectiveKind, Gradient, Op, PoolKind, Reduction, Unary, UpdateMode, gradient_of};

/// How the tangents of an op's results follow from those of its operands.
///
/// Linear and bilinear ops are their own derivative. For every other op the derivative is known already: the
/// [gradient rule](kiln_ir::vjp) multiplies by its transpose, so transposing that program gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The results do not change with the operands.
    Constant,
    /// There is no derivative; the text says what to do instead.
    Undefined(&'static str),
    /// `a + b` and `a - b`: a missing tangent costs nothing.
    Sum,
    /// The op is linear in the operands at these places together (one bit for each from the least, [`u32::MAX`] for
    /// all): it is applied to their tangents, the others staying as they are.
    Linear(u32),
    /// The op is linear in each of its two operands: the product rule.
    Bilinear,
    /// By transposing the op's gradient rule.
    Transposed,
    /// By running the op's expansion.
    Expansion,
}

/// All operands.
const ALL: Rule = Rule::Linear(u32::MAX);
const FIRST: Rule = Rule::Linear(0b1);

pub(super) fn rule_of(op: &Op) -> Rule {
    match gradient_of(op) {
        Gradient::Constant => return Rule::Constant,
        Gradient::Undefined(hint) => return Rule::Undefined(hint),
        Gradient::Rule | Gradient::Expansion => {}
    }
    match op {
        Op::Full(_)
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Compare(_)
        | Op::Bitcast(_)
        | Op::ArgReduce { .. }
        | Op::NonZero { .. }
        | Op::CheckIndex { .. }
        | Op::Recover { .. }
        | Op::Quantize { .. } => Rule::Constant,
        Op::Unary(function) => unary(*function),
        Op::Binary(function) => binary(*function),
        Op::Cast(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Broadcast(_)
        | Op::Slice(_)
        | Op::Concat { .. }
        | Op::Windows { .. }
        | Op::Copy
        | Op::Resize { .. }
        | Op::Fft { .. }
        | Op::Pad(_) => ALL,
        Op::Select => Rule::Linear(0b110),
        Op::Reduce { reduction, .. } | Op::Scan { reduction, .. } => match reduction {
            Reduction::Sum => FIRST,
            Reduction::Prod | Reduction::Min | Reduction::Max => Rule::Transposed,
        },
        Op::Take { .. } | Op::Gather { .. } | Op::PoolGrad { .. } => FIRST,
        Op::Put { mode, .. } | Op::Scatter { mode, .. } => update(*mode, Rule::Linear(0b101)),
        Op::SliceUpdate { mode, .. } => update(*mode, ALL),
        Op::MatMul | Op::Conv { .. } => Rule::Bilinear,
        Op::Pool(spec) => match spec.kind {
            PoolKind::Average { .. } => FIRST,
            PoolKind::Max => Rule::Transposed,
        },
        Op::Dequantize => Rule::Linear(0b10),
        Op::Collective(collective) => match collective.kind {
            CollectiveKind::AllReduce(reduction) | CollectiveKind::ReduceScatter { reduction, .. } => {
                match reduction {
                    Reduction::Sum => FIRST,
                    Reduction::Prod | Reduction::Min | Reduction::Max => Rule::Transposed,
                }
            }
            CollectiveKind::AllGather { .. } | CollectiveKind::Broadcast { .. } => FIRST,
            CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => Rule::Constant,
        },
        Op::Sort { .. }
        | Op::TopK { .. }
        | Op::Softmax { .. }
        | Op::Norm { .. }
        | Op::Attention(_)
        | Op::Custom(_) => Rule::Transposed,
        Op::MatMulFloat8 { .. } | Op::AttentionGrad(_) | Op::Fused(_) => Rule::Expansion,
    }
}

fn unary(function: Unary) -> Rule {
    match function {
        Unary::Neg => ALL,
        Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Not => Rule::Constant,
        Unary::Abs
        | Unary::Recip
        | Unary::Sqrt
        | Unary::Rsqrt
        | Unary::Exp
        | Unary::Expm1
        | Unary::Ln
        | Unary::Log1p
        | Unary::Sin
        | Unary::Cos
        | Unary::Tan
        | Unary::Tanh
        | Unary::Atan
        | Unary::Erf => Rule::Transposed,
    }
}

fn binary(function: Binary) -> Rule {
    match function {
        Binary::Add | Binary::Sub => Rule::Sum,
        Binary::Mul => Rule::Bilinear,
        Binary::Div | Binary::Rem | Binary::Pow | Binary::Min | Binary::Max | Binary::Atan2 => {
            Rule::Transposed
        }
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => Rule::Constant,
    }
}

/// Which entry wins a place does not depend on the values where it is set.
fn update(mode: UpdateMode, linear: Rule) -> Rule {
    match mode {
        UpdateMode::Set | UpdateMode::Add => linear,
        UpdateMode::Mul | UpdateMode::Min | UpdateMode::Max => Rule::Transposed,
    }
}
