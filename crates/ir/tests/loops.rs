//! Structured loops: the checks of their body and operands, and the residuals of their gradient.

use kiln_ir::*;

const STEPS: usize = 5;

fn row() -> TensorType {
    TensorType::new([3], DType::F32)
}

/// `h = tanh(h w + x)`, with the output `h`.
fn body() -> Program {
    Recorder::trace(&[row(); 3], |inputs| {
        let new = (&inputs[0] * &inputs[2] + &inputs[1]).tanh();
        vec![new.clone(), new]
    })
}

fn attributes() -> LoopAttributes {
    LoopAttributes { carried: 1, scanned: 1, steps: STEPS, reverse: false }
}

fn looped() -> LoopOp {
    LoopOp::new(body(), attributes()).unwrap()
}

fn problem(body: Program, attributes: LoopAttributes) -> String {
    LoopOp::new(body, attributes).unwrap_err().to_string()
}

#[test]
fn the_interface_of_a_body_is_checked() {
    let many = LoopAttributes { carried: 2, scanned: 2, ..attributes() };
    let found = problem(body(), many);
    assert_eq!(
        found,
        "[program] the body of `loop`: 2 carried and 2 scanned values are more than its 3 inputs"
    );
    assert!(LoopOp::new(body(), LoopAttributes { carried: usize::MAX, ..attributes() }).is_err());
    let few = LoopAttributes { carried: 3, scanned: 0, ..attributes() };
    assert!(problem(body(), few).ends_with("3 carried values are more than its 2 outputs"));

    let wide = Recorder::trace(&[row(); 3], |inputs| vec![inputs[0].cast(DType::F64)]);
    let found = problem(wide, attributes());
    assert!(found.ends_with("the carried value 0 is f32[3] before a step and f64[3] after it"), "{found}");
    let shape = Shape::new([1; MAX_RANK]);
    let full = Recorder::trace(&[TensorType::new(shape, DType::F32)], |inputs| inputs.to_vec());
    let found = problem(full, LoopAttributes { scanned: 0, ..attributes() });
    assert!(found.ends_with("leaves no axis for the steps"), "{found}");
    let places =
        Recorder::trace(&[row()], |inputs| vec![inputs[0].apply(Op::NonZero { index: DType::I32 }, &[])]);
    assert!(problem(places, LoopAttributes { carried: 0, ..attributes() }).contains("`nonzero`"));
    let missing = Program { outputs: vec![ProgramOperand::Slot(9)], ..body() };
    assert!(problem(missing, attributes()).ends_with("its output %9 does not exist"));
}

#[test]
fn operands_are_checked() {
    let rows = TensorType::new([STEPS, 3], DType::F32);
    let types = |list: &[TensorType]| {
        let operands: Vec<OperandType<'_>> = list.iter().map(OperandType::Tensor).collect();
        infer(&Op::Loop(looped()), &operands).map(|types| types.to_vec()).map_err(|error| error.to_string())
    };
    assert_eq!(types(&[row(), rows, row()]).unwrap(), [row(), rows]);
    let found = types(&[row(), rows]).unwrap_err();
    assert!(found.starts_with("[loop] expects 3 operands, got 2"), "{found}");
    let found = types(&[rows, rows, row()]).unwrap_err();
    assert!(found.starts_with("[loop] the carried operand 0 must be f32[3]"), "{found}");
    let found = types(&[row(), row(), row()]).unwrap_err();
    assert!(found.starts_with("[loop] the scanned operand 1 must be f32[5, 3]"), "{found}");
    let found = types(&[row(), rows, rows]).unwrap_err();
    assert!(found.starts_with("[loop] the constant operand 2 must be f32[3]"), "{found}");
    let first = row();
    let number = OperandType::Scalar(Scalar::Float(1.0));
    let scalar = [OperandType::Tensor(&first), OperandType::Tensor(&rows), number];
    assert!(infer(&Op::Loop(looped()), &scalar).is_err());
}

#[test]
fn serialized_loops_are_checked() {
    let message = serde_json::to_value(Op::Loop(looped())).unwrap();
    assert_eq!(serde_json::from_value::<Op>(message.clone()).unwrap(), Op::Loop(looped()));
    for (key, wrong) in [("carried", 3), ("carried", 9), ("scanned", 3), ("scanned", usize::MAX)] {
        let mut message = message.clone();
        message["Loop"]["attributes"][key] = wrong.into();
        assert!(serde_json::from_value::<Op>(message).is_err(), "{key} = {wrong}");
    }
}

#[test]
fn the_body_of_a_loop_is_verified() {
    let mut body = body();
    body.instructions[0].operands[0] = ProgramOperand::Slot(7);
    let rows = TensorType::new([STEPS, 3], DType::F32);
    let instruction = Instruction {
        op: Op::Loop(LoopOp::new(body, attributes()).unwrap()),
        operands: (0..3).map(ProgramOperand::Slot).collect(),
        results: vec![row(), rows],
    };
    let program =
        Program { inputs: vec![row(), rows, row()], instructions: vec![instruction], outputs: vec![] };
    let found = verify(&program).unwrap_err().to_string();
    assert!(found.contains("%7 is used before it is defined"), "{found}");
}

/// The gradient reads the value after `tanh`, which is an output, and the state before the step, which is not.
#[test]
fn residuals_are_added_once_and_only_where_no_output_has_them() {
    let all = [true; 3];
    let extended = looped().with_residuals(&all).expect("the state before the step is missing");
    assert_eq!(extended.body().outputs.len(), 3);
    assert_eq!(extended.body().outputs[2], ProgramOperand::Slot(0));
    assert_eq!(extended.with_residuals(&all), None);
    assert_eq!(looped().with_residuals(&[true, true, false]), None, "without the gradient of `w`");

    let operands: Vec<Operand> = [row(), TensorType::new([STEPS, 3], DType::F32), row()]
        .map(|ty| Operand::Value(Value::absent(ty)))
        .to_vec();
    let kept = saved(&Op::Loop(extended), &operands, &all);
    assert_eq!(kept, Saved { inputs: 0b100, outputs: 0b110 });
}

#[test]
fn a_loop_costs_its_body_once_for_each_step() {
    let rows = TensorType::new([STEPS, 3], DType::F32);
    let operands = [row(), rows, row()];
    let operands: Vec<OperandType<'_>> = operands.iter().map(OperandType::Tensor).collect();
    let found = cost(&Op::Loop(looped()), &operands, &[row(), rows]);
    assert_eq!(found, Cost { flops: 3 * 3 * STEPS as u64, bytes: 4 * (3 + 15 + 3 + 3 + 15) });
}
