use super::{outcome, run_on, shaped, t};
use kiln_ir::{
    Binary, Collective, CollectiveKind, Custom, CustomOp, DType, Engine, Error, Expand, FusedOp, Instruction,
    Op, OperandType, Operands, Program, ProgramOperand, Reduction, Result, ResultTypes, TensorData,
    TensorType, Unary, Value, Var, block_on,
};
use kiln_reference::Reference;

/// A custom op that doubles its operand, by one of several ways.
#[derive(Debug)]
struct Double {
    by: Way,
}

#[derive(Debug, PartialEq)]
enum Way {
    Expansion,
    Evaluation,
    WrongType,
    None,
}

impl CustomOp for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(inputs.iter().filter_map(|ty| ty.tensor()).copied().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        (self.by == Way::Expansion).then(|| vec![&inputs[0] * 2.0])
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let doubled = inputs[0].to_vec::<f32>().iter().map(|x| x * 2.0).collect::<Vec<_>>();
        match self.by {
            Way::Evaluation => Some(Ok(vec![doubled.into()])),
            Way::WrongType => Some(Ok(vec![TensorData::scalar(1u8)])),
            Way::Expansion | Way::None => None,
        }
    }
}

fn double(by: Way) -> Op {
    Op::Custom(Custom::new(Double { by }))
}

#[test]
fn custom_ops() {
    let x = [t([1.0f32, 2.0])];
    for way in [Way::Expansion, Way::Evaluation] {
        assert_eq!(outcome(&double(way), &x).unwrap()[0].as_slice::<f32>().unwrap(), [2.0, 4.0]);
    }
    let error = outcome(&double(Way::None), &x).unwrap_err().to_string();
    assert!(error.contains("`double`: it has no kernel"), "{error}");
    let error = outcome(&double(Way::WrongType), &x).unwrap_err().to_string();
    assert_eq!(
        error,
        "[double] `evaluate` returns u8[] instead of f32[2]\n  hint: `evaluate` and `infer` of the op must agree"
    );
}

#[test]
fn registered_kernels_take_precedence() {
    let engine = Expand::new(Reference::new());
    engine.register_kernel("double", |op, inputs| {
        assert!(op.downcast::<Double>().is_some());
        Ok(vec![inputs[0].clone()])
    });
    let y = run_on(&engine, &double(Way::Expansion), &[t([1.0f32])]).unwrap();
    assert_eq!(y[0].as_slice::<f32>().unwrap(), [1.0]);
}

#[test]
fn poison_propagates() {
    let engine = Reference::new();
    let ty = TensorType::new([1], DType::F32);
    let poisoned = Value::poisoned(ty, Error::value("take", "index 3 is out of range"));
    let sort = Op::Sort { axis: 0, descending: false, index: DType::I32 };
    let results =
        engine.execute(&sort, [poisoned.into()].into_iter().collect(), &[ty, ty.with_dtype(DType::I32)]);
    assert_eq!(results.len(), 2);
    for result in results {
        let error = block_on(engine.read(result)).unwrap_err();
        assert_eq!(error.to_string(), "[take] index 3 is out of range");
    }
}

#[test]
fn values_of_other_engines_are_refused() {
    let error = outcome(&Op::Copy, &[Value::new(TensorType::new([1], DType::F32), 5u8).into()]).unwrap_err();
    assert!(error.to_string().contains("to another engine"), "{error}");
}

#[test]
fn ill_formed_ops_poison() {
    let (a, b) = (t([1.0f32]), t([1.0f32, 2.0]));
    let operands: Operands = [a, b].into_iter().collect();
    let ty = TensorType::new([1], DType::F32);
    let results = Reference::new().execute(&Op::Binary(Binary::Add), operands, &[ty]);
    assert!(results[0].error().is_some());
}

#[test]
fn fused_regions_execute_their_program() {
    let ty = TensorType::new([2], DType::F32);
    let slot = ProgramOperand::Slot;
    let step = |op, operands| Instruction { op, operands, results: vec![ty] };
    let program = Program {
        inputs: vec![ty],
        instructions: vec![
            step(Op::Unary(Unary::Neg), vec![slot(0)]),
            step(Op::Binary(Binary::Mul), vec![slot(1), slot(0)]),
        ],
        outputs: vec![slot(2), slot(1)],
    };
    let y = outcome(&Op::Fused(FusedOp::new(program)), &[t([2.0f32, 3.0])]).unwrap();
    assert_eq!(y[0].as_slice::<f32>().unwrap(), [-4.0, -9.0]);
    assert_eq!(y[1].as_slice::<f32>().unwrap(), [-2.0, -3.0]);
}

/// A recorded program has an upper bound of the count; later ops use the actual count.
#[test]
fn ops_after_nonzero_use_its_actual_shape() {
    let (x, found) = (TensorType::new([3], DType::Bool), TensorType::new([3, 1], DType::I32));
    let program = Program {
        inputs: vec![x],
        instructions: vec![
            Instruction {
                op: Op::NonZero { index: DType::I32 },
                operands: vec![ProgramOperand::Slot(0)],
                results: vec![found],
            },
            Instruction {
                op: Op::Unary(Unary::Neg),
                operands: vec![ProgramOperand::Slot(1)],
                results: vec![found],
            },
        ],
        outputs: vec![ProgramOperand::Slot(2)],
    };
    let y = outcome(&Op::Fused(FusedOp::new(program)), &[t([false, true, true])]).unwrap();
    assert_eq!((y[0].shape()[..].to_vec(), y[0].to_vec::<i32>()), (vec![2, 1], vec![-1, -2]));
}

#[test]
fn collectives() {
    let op = |kind, size| Op::Collective(Collective { kind, group: 0, rank: 0, size });
    let x = [shaped(&[1.0f32, 2.0], &[2])];
    for kind in [
        CollectiveKind::AllReduce(Reduction::Sum),
        CollectiveKind::AllGather { axis: 0 },
        CollectiveKind::ReduceScatter { reduction: Reduction::Max, axis: 0 },
        CollectiveKind::Broadcast { root: 0 },
        CollectiveKind::Send { to: 0, tag: 0 },
    ] {
        assert_eq!(outcome(&op(kind, 1), &x).unwrap()[0].as_slice::<f32>().unwrap(), [1.0, 2.0]);
        assert!(
            outcome(&op(kind, 2), &x)
                .unwrap_err()
                .to_string()
                .contains("does not connect a group of 2 members")
        );
    }
    let receive = CollectiveKind::Recv { from: 0, tag: 0, ty: TensorType::new([1], DType::F32) };
    assert!(outcome(&op(receive, 1), &[]).is_err());
}
