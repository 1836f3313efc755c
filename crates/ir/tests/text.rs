//! The text form: printed text parses to the same program, and invalid text is an error.

use kiln_ir::text::{MAX_NESTING, MAX_TEXT};
use kiln_ir::*;
use std::collections::BTreeSet;

/// A custom op with a text attribute.
#[derive(Debug)]
struct Note(String);

impl CustomOp for Note {
    fn name(&self) -> &str {
        "test::note"
    }

    fn attributes(&self) -> String {
        self.0.clone()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(inputs.iter().filter_map(|input| input.tensor().copied()).collect())
    }
}

fn note(text: &str) -> Op {
    Op::Custom(Custom::new(Note(text.into())))
}

fn register() {
    Custom::register("test::note", |attributes| Ok(Custom::new(Note(attributes.into()))));
}

/// A loop that carries one value, scans one tensor and reads a constant.
fn looped(steps: usize, reverse: bool) -> LoopOp {
    let ty = TensorType::new([2, 3], DType::F32);
    let body = Recorder::trace(&[ty, ty, ty], |x| vec![&x[0] * &x[2] + &x[1], x[1].exp()]);
    LoopOp::new(body, LoopAttributes { carried: 1, scanned: 1, steps, reverse }).unwrap()
}

/// Every variant of [`Op`], with every variant of its attributes.
fn every_op() -> Vec<Op> {
    let ty = TensorType::new([2, 3], DType::F32);
    let other = TensorType::new([], DType::BF16);
    let index = DType::I64;
    let axis = 1;
    let slice = vec![SliceAxis { start: 3, len: 2, step: -2 }, SliceAxis::all(4)];
    let conv =
        ConvSpec { stride: vec![1, 2], padding: vec![(0, 1), (2, 3)], dilation: vec![4, 5], groups: 6 };
    let average = PoolKind::Average { include_padding: true };
    let spec = AttentionSpec { scale: Real(0.125), causal: None };
    let causal = AttentionSpec { scale: Real(f64::INFINITY), causal: Some(i64::MIN) };
    let region = Recorder::trace(&[ty], |x| vec![x[0].exp() + 1.0]);
    let nested = Recorder::trace(&[ty], |x| vec![x[0].apply(Op::Fused(FusedOp::new(region.clone())), &[])]);
    let mut ops = vec![
        Op::Full(ty),
        Op::Full(other),
        Op::Iota { ty, axis },
        Op::Iota { ty: other, axis },
        Op::Select,
        Op::Cast(DType::F32),
        Op::Cast(DType::Bool),
        Op::Bitcast(DType::I32),
        Op::Reshape([2, 3].into()),
        Op::Reshape([].into()),
        Op::Broadcast([7, 8].into()),
        Op::Permute(Axes::new(&[1, 0])),
        Op::Slice(slice.clone()),
        Op::Slice(vec![SliceAxis::all(4)]),
        Op::Slice(vec![]),
        Op::Pad(vec![PadAxis::new(1, 2), PadAxis { low: 0, high: 0, interior: 5 }]),
        Op::Pad(vec![]),
        Op::Concat { axis },
        Op::Windows { axis, size: 2, step: 3, dilation: 4 },
        Op::Copy,
        Op::Take { axis },
        Op::Gather { axis },
        Op::NonZero { index },
        Op::CheckIndex { length: 7, user: IndexUser::CrossEntropy },
        Op::CheckIndex { length: 0, user: IndexUser::Embedding },
        Op::Recover { watched: 3 },
        Op::MatMul,
        Op::MatMulFloat8 { formats: [Float8::E4M3, Float8::E5M2], dtype: DType::BF16 },
        Op::MatMulBlocks { format: BlockFormat::Q4_K },
        Op::DequantizeBlocks { format: BlockFormat::IQ4_NL, dtype: DType::BF16 },
        Op::Conv { spec: conv.clone(), pass: ConvPass::Forward },
        Op::Conv { spec: conv.clone(), pass: ConvPass::Input { size: vec![5, 6] } },
        Op::Conv { spec: conv, pass: ConvPass::Weight { size: vec![7, usize::MAX] } },
        Op::Attention(spec),
        Op::Attention(causal),
        Op::AttentionGrad(spec),
        Op::AttentionGrad(causal),
        Op::Quantize { dtype: DType::I8 },
        Op::Dequantize,
        note(""),
        note("a \"quoted\" \\ line\nand\ta tab, \u{7f} and é"),
        Op::Fused(FusedOp::new(region)),
        Op::Fused(FusedOp::new(nested)),
        Op::Loop(looped(0, false)),
        Op::Loop(looped(usize::MAX, true)),
    ];
    ops.extend(patterned().map(Op::Fused));
    for kind in [PoolKind::Max, average, PoolKind::Average { include_padding: false }] {
        let spec = PoolSpec { padding: vec![(1, 2)], overhang: vec![3], ..PoolSpec::new(kind, &[4]) };
        ops.push(Op::Pool(spec.clone()));
        ops.push(Op::PoolGrad { spec, size: vec![9] });
    }
    ops.extend(Unary::ALL.iter().map(|&function| Op::Unary(function)));
    ops.extend(Binary::ALL.iter().map(|&function| Op::Binary(function)));
    ops.extend(Comparison::ALL.iter().map(|&comparison| Op::Compare(comparison)));
    ops.extend(RandomKind::ALL.iter().map(|&distribution| Op::Random { ty, distribution }));
    ops.extend(Reduction::ALL.iter().map(|&reduction| Op::Reduce { reduction, axes: Axes::new(&[0, 2]) }));
    ops.extend(Extremum::ALL.iter().map(|&extremum| Op::ArgReduce { extremum, axis, index }));
    for yes in [false, true] {
        ops.push(Op::Sort { axis, descending: yes, index });
        ops.push(Op::TopK { axis, k: 3, largest: yes, index });
        ops.push(Op::Softmax { axis, log: yes });
        for kind in [FftKind::Complex, FftKind::FromReal, FftKind::ToReal { points: 5 }] {
            ops.push(Op::Fft { kind, axis, inverse: yes });
        }
        let scan = |&reduction| Op::Scan { reduction, axis, reverse: yes, exclusive: !yes };
        ops.extend(Reduction::ALL.iter().map(scan));
        let resize = |&mode| Op::Resize { mode, size: vec![1, 2], align_corners: yes };
        ops.extend(ResizeMode::ALL.iter().map(resize));
    }
    ops.push(Op::LogSumExp { axis });
    for &mode in UpdateMode::ALL {
        ops.push(Op::Put { axis, mode });
        ops.push(Op::Scatter { axis, mode });
        ops.push(Op::SliceUpdate { slices: slice.clone(), mode });
    }
    for epsilon in [1e-5, 0.0, -0.0, 1.0, 1e300, f64::NAN, -f64::NAN] {
        ops.extend(NormKind::ALL.iter().map(|&kind| Op::Norm { kind, axes: 1, epsilon: Real(epsilon) }));
    }
    let kinds = [
        CollectiveKind::AllReduce(Reduction::Max),
        CollectiveKind::AllGather { axis },
        CollectiveKind::ReduceScatter { reduction: Reduction::Prod, axis },
        CollectiveKind::Broadcast { root: 2 },
        CollectiveKind::Send { to: 1, tag: u32::MAX },
        CollectiveKind::Recv { from: 1, tag: 0, ty },
        CollectiveKind::Recv { from: 1, tag: 0, ty: other },
    ];
    ops.extend(kinds.map(|kind| Op::Collective(Collective { kind, group: u64::MAX, rank: 1, size: 3 })));
    ops
}

/// Regions with every pattern.
fn patterned() -> [FusedOp; 5] {
    let types = [[4, 3], [3, 5], [4, 5]].map(|shape| TensorType::new(shape, DType::BF16));
    let [x, w, bias] = types;
    let types = [x, w, bias, TensorType::new([], DType::BF16)];
    let biased = Recorder::trace(&types[..3], |v| vec![v[0].matmul(&v[1]) + &v[2]]);
    let sum = Epilogue { product: 3, factors: [0, 1], bias: Some(2), activation: None, numbers: vec![] };
    let relu = Recorder::trace(&types, |v| {
        let y = v[0].matmul(&v[1]) + &v[2];
        vec![y.max(&v[3].broadcast(y.shape()))]
    });
    let of_relu = Epilogue {
        product: 4,
        activation: Some(Activation::Relu),
        numbers: vec![(3, Scalar::Float(-0.0)), (3, Scalar::Int(0))],
        ..sum.clone()
    };
    let gelu = Recorder::trace(&types, |v| {
        let y = v[0].matmul(&v[1]);
        let y = y.max(&v[3].broadcast(y.shape()));
        vec![((&y + y.square() * &y * 0.044715).tanh() + 1.0) * y]
    });
    let of_gelu = Epilogue { bias: None, activation: Some(Activation::Gelu), ..of_relu.clone() };
    let [quantized, asymmetric] = [false, true].map(quantized);
    [
        FusedOp::with_pattern(biased, Pattern::Epilogue(sum)).unwrap(),
        FusedOp::with_pattern(relu.clone(), Pattern::Epilogue(of_relu)).unwrap(),
        FusedOp::with_pattern(gelu, Pattern::Epilogue(of_gelu)).unwrap(),
        quantized,
        asymmetric,
    ]
}

/// A matmul with dequantized, transposed weights.
fn quantized(has_zero: bool) -> FusedOp {
    let types = [
        TensorType::new([2, 6], DType::F32),
        TensorType::new([4, 6], DType::I8),
        TensorType::new([4, 1], DType::F32),
        TensorType::new([4, 1], DType::I8),
    ];
    let program = Recorder::trace(&types[..3 + usize::from(has_zero)], |v| {
        let parts: Vec<&Var<'_>> = v[2..].iter().collect();
        let y = v[0].matmul(&v[1].apply(Op::Dequantize, &parts).transpose());
        vec![y.tanh()]
    });
    let first = program.inputs.len();
    let zero = has_zero.then_some(3);
    let pattern = QuantizedMatMul { product: first + 2, x: 0, dequantized: first, values: 1, scale: 2, zero };
    FusedOp::with_pattern(program, Pattern::QuantizedMatMul(pattern)).unwrap()
}

/// A program of all ops, for printing; it need not be valid.
fn every_program() -> Program {
    let ty = TensorType::new([2, 3], DType::F32);
    let scalars = [
        Scalar::Float(1.0),
        Scalar::Float(-0.0),
        Scalar::Float(1e-5),
        Scalar::Float(1.5e300),
        Scalar::Float(5e-324),
        Scalar::Float(f64::INFINITY),
        Scalar::Float(f64::NEG_INFINITY),
        Scalar::Float(f64::NAN),
        Scalar::Float(-f64::NAN),
        Scalar::Int(0),
        Scalar::Int(i64::MIN),
        Scalar::UInt(5),
        Scalar::UInt(u64::MAX),
        Scalar::Bool(true),
        Scalar::Bool(false),
    ];
    let results = [vec![], vec![ty], vec![ty, TensorType::new([], DType::U8)]];
    let mut program = Program { inputs: vec![ty, ty], ..Program::default() };
    for (i, op) in every_op().into_iter().enumerate() {
        let operands = [
            ProgramOperand::Slot(i % program.num_slots()),
            ProgramOperand::Scalar(scalars[i % scalars.len()]),
            ProgramOperand::Slot(0),
        ];
        let operands = operands[..i % 4].to_vec();
        let results = results[(i / 4) % 3].clone();
        program.instructions.push(Instruction { op, operands, results });
    }
    program.outputs = scalars.map(ProgramOperand::Scalar).to_vec();
    program.outputs.push(ProgramOperand::Slot(program.num_slots() - 1));
    program
}

#[test]
fn the_table_covers_every_kind() {
    let kinds: BTreeSet<OpKind> = every_op().iter().map(Op::kind).collect();
    let missing: Vec<OpKind> = OpKind::ALL.into_iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_op_round_trips_through_text() {
    register();
    let program = every_program();
    let text = program.to_string();
    let read: Program = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    for (a, b) in program.instructions.iter().zip(&read.instructions) {
        assert_eq!(a, b);
    }
    assert_eq!(program, read);
    assert_eq!(read.to_string(), text);
}

#[test]
fn patterns_are_printed_and_serialized() {
    let [biased, ..] = patterned();
    let text = Op::Fused(biased.clone()).to_string();
    assert!(text.ends_with("}, pattern = epilogue, product = 3, factors = [0, 1], bias = 2}"), "{text}");
    assert_ne!(biased, FusedOp::new(biased.program().clone()));
    let plain = Op::Fused(FusedOp::new(biased.program().clone())).to_string();
    assert!(plain.ends_with("}}"), "a loop prints no pattern: {plain}");
    for fused in patterned() {
        let message = serde_json::to_string(&Op::Fused(fused.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Op>(&message).unwrap(), Op::Fused(fused.clone()));
        let copied = FusedOp::with_pattern(fused.shared().clone(), fused.pattern().clone());
        assert_eq!(copied, Ok(fused));
    }
}

/// In serialized ops and text, a pattern that does not match the program is an error.
#[test]
fn invalid_patterns_are_errors() {
    for fused in patterned() {
        let message = serde_json::to_value(Op::Fused(fused.clone())).unwrap();
        let text = Program::default();
        let ty = fused.program().slot_types()[fused.program().num_slots() - 1];
        let instruction = Instruction { op: Op::Fused(fused.clone()), operands: vec![], results: vec![ty] };
        let text = Program { instructions: vec![instruction], ..text }.to_string();
        assert!(Program::parse(&text).is_ok(), "{text}");
        let pattern = &message["Fused"]["pattern"];
        let (name, parts) = pattern.as_object().unwrap().iter().next().unwrap();
        for key in parts.as_object().unwrap().keys() {
            for wrong in [0usize, 1, 2, 3, 4, 5, 6, 7, 1000, usize::MAX] {
                let mut message = message.clone();
                let part = &mut message["Fused"]["pattern"][name][key];
                let before = part.clone();
                match key.as_str() {
                    "activation" => {
                        *part = "Tanh".into();
                        assert!(serde_json::from_value::<Op>(message).is_err());
                        continue;
                    }
                    "factors" => part[0] = wrong.into(),
                    "numbers" if before[0].is_null() => continue,
                    "numbers" => part[0][0] = wrong.into(),
                    _ if before.is_null() && (wrong < 3 || key == "zero") => continue,
                    _ => *part = wrong.into(),
                }
                if message["Fused"]["pattern"][name][key] == before {
                    continue;
                }
                let error = serde_json::from_value::<Op>(message).unwrap_err().to_string();
                assert!(error.contains("does not fit the program"), "{key} = {wrong}: {error}");
                let (from, to) = (format!("{key} = {before}"), format!("{key} = {wrong}"));
                if text.contains(&from) && wrong <= 1000 {
                    let error = Program::parse(&text.replace(&from, &to)).unwrap_err().to_string();
                    assert!(error.contains("does not fit the program"), "{to}: {error}");
                }
            }
        }
    }
}

/// Programs of serialized ops are verified after patterns, so that pattern checks must not rely on valid programs.
#[test]
fn patterns_of_invalid_programs_never_panic() {
    for fused in patterned() {
        let slots = fused.program().num_slots() + 2;
        for number in 0..fused.program().instructions.len() {
            for place in 0..fused.program().instructions[number].operands.len() {
                for slot in (0..slots).chain([usize::MAX]) {
                    let mut program = fused.program().clone();
                    program.instructions[number].operands[place] = ProgramOperand::Slot(slot);
                    let _ = fused.pattern().check(&program);
                }
            }
            for change in 0..4 {
                let mut program = fused.program().clone();
                let instruction = &mut program.instructions[number];
                match change {
                    0 => instruction.operands.clear(),
                    1 => instruction.results.clear(),
                    2 => instruction.results[0].shape = [usize::MAX, usize::MAX].into(),
                    _ => instruction.op = Op::Copy,
                }
                let _ = fused.pattern().check(&program);
            }
        }
        for inputs in 0..fused.program().inputs.len() {
            let mut program = fused.program().clone();
            program.inputs.truncate(inputs);
            assert!(fused.pattern().check(&program).is_err());
        }
        let program = Program { outputs: vec![], ..fused.program().clone() };
        let is_epilogue = matches!(fused.pattern(), Pattern::Epilogue(_));
        assert_eq!(fused.pattern().check(&program).is_err(), is_epilogue);
    }
}

#[test]
fn a_single_op_prints_all_attributes() {
    assert_eq!(Op::Softmax { axis: 1, log: true }.to_string(), "log_softmax {axis = 1}");
    assert_eq!(Op::Cast(DType::U8).to_string(), "cast {dtype = u8}");
    assert_eq!(Op::Full(TensorType::new([2], DType::F16)).to_string(), "full {type = f16[2]}");
    assert_eq!(Op::MatMul.to_string(), "matmul");
}

#[test]
fn damaged_text_never_panics() {
    register();
    let text = every_program().to_string();
    let bytes = text.as_bytes();
    let junk = b"%(){}[],:=;\"\\-.0123456789eu_ \n\xc3\xa9";
    let step = 23;
    for place in (0..bytes.len()).step_by(step) {
        let word = philox::block(1, place as u64);
        let from = place.saturating_sub(400);
        // A part of the text keeps each attempt short.
        let mut part = b"program(%0: f32[2, 3], %1: f32[2, 3]) {\n".to_vec();
        part.extend_from_slice(&bytes[from..(place + 200).min(bytes.len())]);
        let at = word[0] as usize % part.len();
        match word[1] % 3 {
            0 => part[at] = junk[word[2] as usize % junk.len()],
            1 => drop(part.remove(at)),
            _ => part.truncate(at),
        }
        let _ = Program::parse(&String::from_utf8_lossy(&part));
        let _ = Program::parse(&String::from_utf8_lossy(&bytes[..place]));
    }
}

fn problem(text: &str) -> String {
    match Program::parse(text) {
        Ok(program) => panic!("{text} reads as {program}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn errors_have_line_and_column() {
    for (text, expected) in [
        ("", "line 1, column 1: expected `program`, found the end of the text"),
        ("program() { return } x", "line 1, column 22: expected the end of the text, found `x`"),
        ("program() { return %0 }", "line 1, column 20: %0 is not defined above"),
        ("program() {\n  é\n}", "line 2, column 3: 'é' has no meaning here"),
        (
            "program(%0: f31[]) { return }",
            "line 1, column 13: expected a type such as `f32[2, 3]`, found `f31`",
        ),
        ("program() { return 1.5u }", "line 1, column 20: `1.5u` is not a number, or is out of range"),
        ("program() { return 1e999 }", "line 1, column 20: `1e999` is not a number, or is out of range"),
        (
            "program() { return 9223372036854775808 }",
            "line 1, column 20: `9223372036854775808` is not a number, or is out of range",
        ),
        (
            "program() { %0: f32[] = full 1.0 {type = 3} return }",
            "line 1, column 35: `type` must be a type such as `f32[2, 3]`",
        ),
        (
            "program() { %0: f32[] = custom {name = \"none\"} return }",
            "line 1, column 25: [none] no custom op is registered under this name\n  hint: call `Custom::register` with the name before reading programs or messages that contain it",
        ),
        ("program() { = custom {name = \"a} return }", "line 1, column 30: the text in quotes does not end"),
        (
            "program() { = permute {axes = [0, 12]} return }",
            "line 1, column 24: `axes` must be a list of at most 12 axes below it",
        ),
        (
            "program() { = slice {start = [0], len = []} return }",
            "line 1, column 15: start, len and step must have one entry per axis each",
        ),
        ("program() { = exp {a = 1, a = 1} return }", "line 1, column 27: duplicate attribute `a`"),
        ("program() { = full 1.0 return }", "line 1, column 15: needs a result or the attribute `type`"),
    ] {
        assert_eq!(problem(text), expected, "{text}");
    }
}

#[test]
fn nesting_lists_and_length_are_bounded() {
    let deep = "[".repeat(100_000);
    let text = format!("program() {{ = concat {{axis = {deep}}} return }}");
    assert!(problem(&text).ends_with(&format!("nested more than {MAX_NESTING} deep")));
    let long = "1, ".repeat(1000);
    assert!(
        problem(&format!("program() {{ = concat {{axis = [{long}]}} return }}"))
            .contains("more than 64 entries")
    );
    let many = "1, ".repeat(100_000);
    assert!(problem(&format!("program() {{ return {many} 1 }}")).contains("more than 65536 operands"));
    assert!(problem(&";".repeat(MAX_TEXT + 1)).contains("bytes"));
    let nested = (0..20).fold(String::from("program() { return }"), |inner, _| {
        format!("program() {{ = fused {{program = {inner}}} return }}")
    });
    assert!(problem(&nested).contains("nested more than"));
}
