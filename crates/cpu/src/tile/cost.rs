//! What functions cost, for deciding what is worth a thread.

use kiln_ir::{Binary, DType, Unary};

/// What a function costs, in additions.
pub(super) fn unary_cost(function: Unary, dtype: DType) -> usize {
    match function {
        Unary::Neg
        | Unary::Abs
        | Unary::Sign
        | Unary::Floor
        | Unary::Ceil
        | Unary::Round
        | Unary::Trunc
        | Unary::Not => 1,
        Unary::Recip | Unary::Sqrt | Unary::Rsqrt => 3,
        Unary::Exp
        | Unary::Expm1
        | Unary::Ln
        | Unary::Log1p
        | Unary::Sin
        | Unary::Cos
        | Unary::Tan
        | Unary::Tanh
        | Unary::Atan
        | Unary::Erf => {
            if dtype == DType::F64 {
                60
            } else {
                12
            }
        }
    }
}

pub(super) fn binary_cost(function: Binary) -> usize {
    match function {
        Binary::Add
        | Binary::Sub
        | Binary::Mul
        | Binary::Min
        | Binary::Max
        | Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::Shl
        | Binary::Shr => 1,
        Binary::Div => 3,
        Binary::Atan2 => 16,
        Binary::Rem | Binary::Pow => 60,
    }
}
