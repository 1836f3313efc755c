//! Custom ops, fused regions, collectives, poison.

use kiln_cpu::Cpu;
use kiln_ir::*;

/// A custom op that doubles its operand, by each enabled way.
#[derive(Debug)]
struct Twice {
    expands: bool,
    evaluates: bool,
}

impl CustomOp for Twice {
    fn name(&self) -> &str {
        "twice"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let ty = inputs[0].tensor().ok_or_else(|| Error::type_error("twice", "needs a tensor", inputs))?;
        Ok([*ty].into_iter().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        self.expands.then(|| vec![&inputs[0] + &inputs[0]])
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let twice = |data: &TensorData| {
            let elements: Vec<f32> = data.to_vec::<f32>().iter().map(|x| x * 2.0).collect();
            TensorData::new(elements, *data.shape())
        };
        self.evaluates.then(|| Ok(vec![twice(&inputs[0])?]))
    }
}

/// A custom op with the type of its first operand and this equivalent.
#[derive(Debug)]
struct Alike(Op);

impl CustomOp for Alike {
    fn name(&self) -> &str {
        "alike"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let ty = inputs[0].tensor().ok_or_else(|| Error::type_error("alike", "needs a tensor", inputs))?;
        Ok([*ty].into_iter().collect())
    }

    fn equivalent(&self) -> Option<Op> {
        Some(self.0.clone())
    }
}

fn run(cpu: &dyn Engine, op: &Op, inputs: &[Operand]) -> Result<Vec<f32>> {
    let types = infer(op, &OperandType::list(inputs))?;
    let value = cpu.execute(op, inputs.iter().cloned().collect(), &types).remove(0);
    block_on(cpu.read(value))?.into_vec()
}

fn vector(cpu: &dyn Engine) -> Operand {
    cpu.write(TensorData::from([1.0f32, 2.0, 3.0])).into()
}

#[test]
fn an_equivalent_op_runs_and_must_have_the_declared_type() {
    let cpu = Expand::new(Cpu::new());
    let alike = |op: Op| run(&cpu, &Op::Custom(Custom::new(Alike(op))), &[vector(&cpu)]);
    assert_eq!(alike(Op::Unary(Unary::Neg)).unwrap(), [-1.0, -2.0, -3.0]);
    let error = alike(Op::Cast(DType::F64)).unwrap_err().to_string();
    assert!(error.contains("`equivalent` returns f64[3] instead of f32[3]"), "{error}");
    assert!(alike(Op::MatMul).unwrap_err().to_string().contains("matmul"));
    // A custom op is not a valid equivalent.
    let custom = Op::Custom(Custom::new(Alike(Op::Copy)));
    assert!(alike(custom).unwrap_err().to_string().contains("has no kernel"));
}

#[test]
fn custom_ops_run_by_kernel_expansion_or_evaluation() {
    let cpu = Expand::new(Cpu::new());
    let op = |expands, evaluates| Op::Custom(Custom::new(Twice { expands, evaluates }));
    for op in [op(true, false), op(false, true), op(true, true)] {
        assert_eq!(run(&cpu, &op, &[vector(&cpu)]).unwrap(), [2.0, 4.0, 6.0]);
    }
    let error = run(&cpu, &op(false, false), &[vector(&cpu)]).unwrap_err().to_string();
    assert!(error.contains("register_kernel"), "{error}");
    cpu.register_kernel("twice", |_, inputs| Ok(inputs.to_vec()));
    assert_eq!(run(&cpu, &op(true, true), &[vector(&cpu)]).unwrap(), [1.0, 2.0, 3.0]);
    cpu.register_kernel("twice", |_, _| Ok(vec![TensorData::from([1i32])]));
    let error = run(&cpu, &op(true, true), &[vector(&cpu)]).unwrap_err().to_string();
    assert!(error.contains("i32[1]") && error.contains("f32[3]"), "{error}");
}

#[test]
fn fused_regions_execute_their_program() {
    let cpu = Cpu::new();
    let program = Recorder::trace(&[TensorType::new([3], DType::F32)], |x| vec![x[0].square() + 1.0]);
    let op = Op::Fused(FusedOp::new(program));
    assert_eq!(run(&cpu, &op, &[vector(&cpu)]).unwrap(), [2.0, 5.0, 10.0]);
}

#[test]
fn collectives_of_one_rank_are_identities() {
    let cpu = Expand::new(Cpu::new());
    let exchange = |kind, size| Op::Collective(Collective { kind, group: 0, rank: 0, size });
    for kind in [
        CollectiveKind::AllReduce(Reduction::Sum),
        CollectiveKind::AllGather { axis: 0 },
        CollectiveKind::ReduceScatter { reduction: Reduction::Max, axis: 0 },
        CollectiveKind::Broadcast { root: 0 },
        CollectiveKind::Send { to: 0, tag: 1 },
    ] {
        assert_eq!(run(&cpu, &exchange(kind, 1), &[vector(&cpu)]).unwrap(), [1.0, 2.0, 3.0]);
    }
    let op = exchange(CollectiveKind::AllReduce(Reduction::Sum), 2);
    assert!(run(&cpu, &op, &[vector(&cpu)]).unwrap_err().to_string().contains("2 members"));
}

#[test]
fn poison_propagates_through_every_op() {
    let cpu = Cpu::new();
    let error = Error::value("test", "gone wrong");
    let poison = || Operand::from(Value::poisoned(TensorType::new([3], DType::F32), error.clone()));
    let one = [
        Op::Unary(Unary::Exp),
        Op::Cast(DType::I32),
        Op::Reshape([3, 1].into()),
        Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(0) },
        Op::Sort { axis: 0, descending: false, index: DType::I32 },
        Op::Custom(Custom::new(Twice { expands: true, evaluates: false })),
    ];
    for op in one {
        assert_eq!(run(&cpu, &op, &[poison()]).unwrap_err(), error, "{op:?}");
    }
    for op in [Op::Binary(Binary::Add), Op::Compare(Comparison::Lt), Op::Concat { axis: 0 }] {
        assert_eq!(run(&cpu, &op, &[vector(&cpu), poison()]).unwrap_err(), error, "{op:?}");
    }
    let add = Op::Binary(Binary::Add);
    assert_eq!(run(&cpu, &add, &[poison(), Scalar::Int(1).into()]).unwrap_err(), error);
}

#[test]
fn ops_without_a_kernel_are_errors_that_name_the_expand_layer() {
    let cpu = Cpu::new();
    let op = Op::Custom(Custom::new(Twice { expands: true, evaluates: true }));
    assert!(!cpu.supports(&op, &[OperandType::Tensor(&TensorType::new([3], DType::F32))]));
    let error = run(&cpu, &op, &[vector(&cpu)]).unwrap_err().to_string();
    assert!(error.starts_with("[cpu] does not run `twice`") && error.contains("Expand"), "{error}");
}

/// Results without elements return at once, whatever the other lengths are, and allocations that fail are errors.
#[test]
fn empty_results_and_failed_allocations() {
    let cpu = Cpu::with_threads(1);
    let iota = |shape: [usize; 2]| Op::Iota { ty: TensorType::new(shape, DType::F32), axis: 0 };
    assert_eq!(run(&cpu, &iota([1 << 40, 0]), &[]).unwrap(), []);
    let error = run(&cpu, &iota([1 << 40, 1 << 10]), &[]).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let text = error.to_string();
    assert!(text.contains("iota") && text.contains("f32[1099511627776, 1024]"), "{text}");

    let x = Operand::Value(cpu.write(TensorData::zeros(TensorType::new([1, 1, 5, 1], DType::F32))));
    let resize = |size: [usize; 2]| Op::Resize {
        mode: ResizeMode::Nearest,
        size: size.to_vec(),
        align_corners: false,
    };
    assert_eq!(run(&cpu, &resize([1 << 32, 0]), std::slice::from_ref(&x)).unwrap(), []);
    assert!(run(&cpu, &resize([1 << 50, 1]), &[x]).unwrap_err().is_out_of_memory());

    let empty = Operand::Value(cpu.write(TensorData::zeros(TensorType::new([1 << 40, 0], DType::F32))));
    let sum = Op::Reduce { reduction: Reduction::Sum, axes: Axes::all(2) };
    assert_eq!(run(&cpu, &sum, &[empty]).unwrap(), [0.0]);
}
