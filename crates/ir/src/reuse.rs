//! In-place execution: the operands that a result may overwrite.

use crate::{CollectiveKind, Op, OperandType, Reuse, TensorType};

/// Returns whether an engine may write the first result over an operand without aliases, element by element or row by
/// row. No element may be read after a result that depends on it has overwritten it.
///
/// Elementwise ops may overwrite any operand of the result's type. Softmax and norms (which hold at least a row) may
/// overwrite their first operand, scans theirs in scan direction, and indexed writes their base. If the result is a
/// view of the operand there is nothing to write, so the answer is no. It is also no for fused and custom ops, for
/// which the engine decides.
pub fn reuse(op: &Op, operand: usize, inputs: &[OperandType<'_>], results: &[TensorType]) -> bool {
    let same_type = match (inputs.get(operand).and_then(|input| input.tensor()), results.first()) {
        (Some(ty), Some(result)) => ty == result,
        (None, _) | (_, None) => false,
    };
    same_type && may_overwrite(op, operand)
}

fn may_overwrite(op: &Op, operand: usize) -> bool {
    match op.info().reuse.of(op) {
        Reuse::Never => false,
        Reuse::First => operand == 0,
        Reuse::Any => true,
    }
}

pub(crate) fn collective(op: &Op) -> Reuse {
    let Op::Collective(collective) = op else { return Reuse::Never };
    match collective.kind {
        CollectiveKind::AllReduce(_) | CollectiveKind::Broadcast { .. } | CollectiveKind::Send { .. } => {
            Reuse::Any
        }
        CollectiveKind::AllGather { .. }
        | CollectiveKind::ReduceScatter { .. }
        | CollectiveKind::Recv { .. } => Reuse::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binary, Comparison, DType, Scalar, UpdateMode};

    #[test]
    fn only_operands_of_the_same_type_are_reused() {
        let x = TensorType::new([2, 3], DType::F32);
        let condition = x.with_dtype(DType::Bool);
        let inputs = [OperandType::Tensor(&x), OperandType::Scalar(Scalar::Float(1.0))];
        assert!(reuse(&Op::Binary(Binary::Add), 0, &inputs, &[x]));
        assert!(!reuse(&Op::Binary(Binary::Add), 1, &inputs, &[x]));
        assert!(!reuse(&Op::Binary(Binary::Add), 2, &inputs, &[x]));
        assert!(!reuse(&Op::Compare(Comparison::Lt), 0, &inputs, &[condition]));
        let select = [OperandType::Tensor(&condition), OperandType::Tensor(&x), OperandType::Tensor(&x)];
        assert_eq!([0, 1, 2].map(|place| reuse(&Op::Select, place, &select, &[x])), [false, true, true]);
    }

    #[test]
    fn indexed_writes_reuse_only_their_base() {
        let x = TensorType::new([3], DType::I32);
        let inputs = [OperandType::Tensor(&x); 3];
        let op = Op::Scatter { axis: 0, mode: UpdateMode::Add };
        assert_eq!([0, 1, 2].map(|place| reuse(&op, place, &inputs, &[x])), [true, false, false]);
    }
}
