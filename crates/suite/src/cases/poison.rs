//! Invalid data: results are poisoned, and the error of a read names the op, the invalid element and its position.

use crate::case::{Fill, Input, number, tensor};
use kiln_ir::{Collective, CollectiveKind, DType, IndexUser, Op, TensorType, UpdateMode};

/// An op on operands with invalid contents.
#[derive(Clone, Debug)]
pub struct PoisonCase {
    /// Unique among these cases.
    pub name: String,
    /// The op.
    pub op: Op,
    /// How the operands are made.
    pub inputs: Vec<Input>,
    /// Texts that the error must contain.
    pub error: Vec<String>,
}

/// Returns every case of invalid data.
pub fn cases() -> Vec<PoisonCase> {
    let mut cases = Vec::new();
    for (index, bad) in
        [(DType::I32, 5.0), (DType::I64, -1.0), (DType::U8, 200.0), (DType::I32, -2147483648.0)]
    {
        cases.extend(out_of_range(index, bad));
    }
    cases.extend(lonely());
    cases
}

fn out_of_range(index: DType, bad: f64) -> Vec<PoisonCase> {
    let numbers: &'static [f64] = Vec::leak(vec![bad]);
    let x = || tensor([5, 3], DType::F32, Fill::Normal);
    let line = || tensor([4], index, Fill::Among(numbers));
    let grid = || tensor([4, 3], index, Fill::Among(numbers));
    let source = || tensor([4, 3], DType::F32, Fill::Normal);
    let case = |op: Op, label: &str, inputs: Vec<Input>| PoisonCase {
        name: format!("{}{label}/{bad}_{index}", op.name()),
        error: vec![format!("[{}]", op.name()), format!("{}", bad as i64), "5".into()],
        op,
        inputs,
    };
    let named = |user: IndexUser| PoisonCase {
        name: format!("check_index_{}/{bad}_{index}", user.name()),
        op: Op::CheckIndex { length: 5, user },
        inputs: vec![line()],
        error: match user {
            // Its index only marks the invalid rows.
            IndexUser::Multinomial => vec![format!("[{}]", user.name()), "weights of row".into()],
            IndexUser::CrossEntropy | IndexUser::Nll | IndexUser::Embedding | IndexUser::OneHot => {
                vec![format!("[{}]", user.name()), format!("{}", bad as i64), "5".into()]
            }
        },
    };
    let mut cases: Vec<PoisonCase> = IndexUser::ALL.iter().map(|&user| named(user)).collect();
    cases.extend([
        case(Op::Take { axis: 0 }, "", vec![x(), line()]),
        case(Op::Gather { axis: 0 }, "", vec![x(), grid()]),
    ]);
    for &mode in UpdateMode::ALL {
        cases.push(case(Op::Put { axis: 0, mode }, mode.name(), vec![x(), line(), source()]));
        cases.push(case(Op::Scatter { axis: 0, mode }, mode.name(), vec![x(), grid(), source()]));
    }
    cases
}

/// Collectives with ranks that no engine of the suite has.
fn lonely() -> Vec<PoisonCase> {
    let ty = TensorType::new([2], DType::F32);
    let kinds = [
        (CollectiveKind::Recv { from: 0, tag: 1, ty }, 1, vec![]),
        (CollectiveKind::Broadcast { root: 1 }, 2, vec![tensor([2], DType::F32, Fill::Normal)]),
    ];
    let case = |(kind, size, inputs): (CollectiveKind, usize, Vec<Input>)| {
        let op = Op::Collective(Collective { kind, group: 1, rank: 0, size });
        PoisonCase { name: op.name().into(), error: vec!["group".into()], op, inputs }
    };
    kinds.map(case).into()
}

/// Ops on a poisoned operand, whose results must be poisoned.
pub fn passing_on() -> Vec<(Op, Vec<Input>)> {
    let ty = TensorType::new([4], DType::F32);
    vec![
        (Op::Unary(kiln_ir::Unary::Exp), vec![Input::Tensor(ty, Fill::Normal)]),
        (Op::Binary(kiln_ir::Binary::Add), vec![Input::Tensor(ty, Fill::Normal), number(1.0)]),
        (Op::Reshape([2, 2].into()), vec![Input::Tensor(ty, Fill::Normal)]),
        (Op::Softmax { axis: 0, log: false }, vec![Input::Tensor(ty, Fill::Normal)]),
        (Op::Sort { axis: 0, descending: false, index: DType::I32 }, vec![Input::Tensor(ty, Fill::Normal)]),
        (Op::Concat { axis: 0 }, vec![Input::Tensor(ty, Fill::Normal), Input::Tensor(ty, Fill::Normal)]),
    ]
}
