//! Which operand a result may overwrite.

use crate::{CollectiveKind, Op, OperandType, Reuse, TensorType};

/// Whether an engine that owns the operand alone may write the first result over it, element by element or row by
/// row, because no element is read after one that depends on it has been written at its place.
///
/// Ops per element may overwrite any operand of the result's type, softmax and norms (which hold at least a row) their
/// first, scans theirs in the direction in which they run, and writes by index their base. Where the result is a view of
/// the operand there is nothing to write, and the answer is no. So it is for fused and custom ops, of which an
/// engine knows more.
pub fn reuse(op: &Op, operand: usize, inputs: &[OperandType<'_>], results: &[TensorType]) -> bool {
    let same_type = match (inputs.get(operand).and_then(|input| input.tensor()), results.first()) {
        (Some(ty), Some(result)) => ty == result,
        (None, _) | (_, None) => false,
    };
    same_type && may_overwrite(op, operand)
}

fn may_overwrite(op: &Op, operand: usize) -> bool {
    let exchanged = |kind: CollectiveKind| match kind {
        CollectiveKind::AllReduce(_) | CollectiveKind::Broadcast { .. } | CollectiveKind::Send { .. } => {
            Reuse::Any
        }
        CollectiveKind::AllGather { .. }
        | CollectiveKind::ReduceScatter { .. }
        | CollectiveKind::Recv { .. } => Reuse::Never,
    };
    let reuse = if let Op::Collective(collective) = op {
        exchanged(collective.kind)
    } else {
        op.row(|row| row.reuse)
    };
    match reuse {
        Reuse::Never => false,
        Reuse::First => operand == 0,
        Reuse::Any => true,
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
    fn writes_by_index_reuse_their_base_alone() {
        let x = TensorType::new([3], DType::I32);
        let inputs = [OperandType::Tensor(&x); 3];
        let op = Op::Scatter { axis: 0, mode: UpdateMode::Add };
        assert_eq!([0, 1, 2].map(|place| reuse(&op, place, &inputs, &[x])), [true, false, false]);
    }
}
