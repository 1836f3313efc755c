//! Every op except contractions and composites against the reference engine, on every dtype that inference accepts and
//! on operands of every layout: empty, of one element, repeated, permuted, sliced, flipped, large.

use kiln_cpu::Cpu;
use kiln_ir::*;
use kiln_reference::Reference;

/// The layout of an operand: a base shape and views.
struct Form {
    name: &'static str,
    base: &'static [usize],
    views: fn(&dyn Engine, Value) -> Value,
}

fn run(engine: &dyn Engine, op: &Op, inputs: Vec<Operand>) -> Vec<Value> {
    let inputs: Operands = inputs.into_iter().collect();
    let types = infer(op, &OperandType::list(&inputs)).unwrap_or_else(|error| panic!("{error}"));
    engine.execute(op, inputs, &types).into_vec()
}

fn one(engine: &dyn Engine, op: Op, value: Value) -> Value {
    run(engine, &op, vec![value.into()]).remove(0)
}

fn flipped(engine: &dyn Engine, value: Value) -> Value {
    let last = |&length: &usize| SliceAxis { start: length.saturating_sub(1), len: length, step: -1 };
    let slices = value.shape().iter().map(last).collect();
    one(engine, Op::Slice(slices), value)
}

/// Forms of shape `[]`, `[1]`, `[0, 3]`, `[6, 5]` and `[130, 300]`.
fn forms() -> Vec<Form> {
    vec![
        Form { name: "scalar", base: &[], views: |_, x| x },
        Form { name: "one element", base: &[1], views: |_, x| x },
        Form { name: "empty", base: &[0, 3], views: |_, x| x },
        Form { name: "contiguous", base: &[6, 5], views: |_, x| x },
        Form { name: "repeated rows", base: &[1, 5], views: |e, x| one(e, Op::Broadcast([6, 5].into()), x) },
        Form { name: "repeated", base: &[], views: |e, x| one(e, Op::Broadcast([6, 5].into()), x) },
        Form { name: "permuted", base: &[5, 6], views: |e, x| one(e, Op::Permute(Axes::new(&[1, 0])), x) },
        Form {
            name: "sliced",
            base: &[13, 9],
            views: |e, x| {
                let slices =
                    vec![SliceAxis { start: 1, len: 6, step: 2 }, SliceAxis { start: 3, len: 5, step: 1 }];
                one(e, Op::Slice(slices), x)
            },
        },
        Form { name: "flipped", base: &[6, 5], views: flipped },
        Form {
            name: "windows",
            base: &[11],
            views: |e, x| one(e, Op::Windows { axis: 0, size: 5, step: 1, dilation: 1 }, x),
        },
        Form { name: "large", base: &[130, 300], views: |_, x| x },
        Form {
            name: "large permuted",
            base: &[300, 130],
            views: |e, x| one(e, Op::Permute(Axes::new(&[1, 0])), x),
        },
        Form { name: "large flipped", base: &[130, 300], views: flipped },
    ]
}

/// Numbers of a dtype: small numbers of both signs, and some special values.
fn numbers(ty: TensorType, seed: u64) -> TensorData {
    let n = ty.num_elements();
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e30, -1e-30, 3.5];
    let real = |i: usize| {
        let word = philox::block(seed, i as u64)[0];
        match word % 16 {
            0 if n > 20 => special[(word >> 8) as usize % special.len()],
            _ => f64::from(word >> 8) / f64::from(1 << 20) - 8.0,
        }
    };
    let whole = |i: usize| {
        let [a, b, c, _] = philox::block(seed, i as u64);
        match a % 4 {
            0 => i64::from(b) << 32 | i64::from(c),
            1 => 0,
            _ => i64::from(b % 21) - 10,
        }
    };
    if ty.dtype.is_float() {
        let data = TensorData::new((0..n).map(real).collect::<Vec<f64>>(), ty.shape).unwrap();
        data.convert(ty.dtype)
    } else if ty.dtype.is_bool() {
        TensorData::new((0..n).map(|i| whole(i) & 1 == 1).collect::<Vec<bool>>(), ty.shape).unwrap()
    } else {
        TensorData::new((0..n).map(whole).collect::<Vec<i64>>(), ty.shape).unwrap().convert(ty.dtype)
    }
}

/// Runs an op on both engines and compares. Operands: tensors in their layout, then the rest. `tolerance` is
/// relative, for `f32`; each operand is passed as its last clone or as a shared one.
struct Case<'a> {
    cpu: &'a Cpu,
    reference: &'a Reference,
    op: Op,
    tolerance: f64,
}

impl Case<'_> {
    fn check(&self, tensors: &[(&Form, TensorData)], rest: &[Operand]) {
        for shared in [false, true] {
            let mut kept = Vec::new();
            let mut operands = |engine: &dyn Engine| {
                let mut inputs: Vec<Operand> = Vec::new();
                for (form, data) in tensors {
                    let value = (form.views)(engine, engine.write(data.clone()));
                    if shared {
                        kept.push(value.clone());
                    }
                    inputs.push(value.into());
                }
                inputs.extend(rest.iter().cloned());
                inputs
            };
            let (here, there) = (operands(self.cpu), operands(self.reference));
            let types: Vec<String> = here.iter().map(|x| x.ty().to_string()).collect();
            let results = run(self.cpu, &self.op, here);
            let expected = run(self.reference, &self.op, there);
            assert_eq!(results.len(), expected.len());
            for (y, e) in results.into_iter().zip(expected) {
                let (y, e) = (block_on(self.cpu.read(y)), block_on(self.reference.read(e)));
                let what = || {
                    let forms: Vec<&str> = tensors.iter().map(|(form, _)| form.name).collect();
                    format!("{:?} of {types:?} ({forms:?}, shared {shared})", self.op)
                };
                match (y, e) {
                    (Ok(y), Ok(e)) => self.compare(&y, &e, &what),
                    (Err(y), Err(e)) => assert_eq!(y.to_string(), e.to_string(), "{}", what()),
                    (y, e) => panic!("{}: {y:?} is not {e:?}", what()),
                }
            }
        }
    }

    fn compare(&self, y: &TensorData, e: &TensorData, what: &dyn Fn() -> String) {
        assert_eq!(y.ty(), e.ty(), "{}", what());
        let epsilon = match y.dtype() {
            DType::F64 => 1e-12,
            DType::F32 => self.tolerance,
            DType::F16 => self.tolerance.max(1e-3),
            DType::BF16 => self.tolerance.max(8e-3),
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => 0.0,
        };
        if epsilon == 0.0 || self.tolerance == 0.0 {
            let same = y.bytes() == e.bytes()
                || y.to_vec::<f64>()
                    .iter()
                    .zip(e.to_vec::<f64>())
                    .all(|(a, b)| *a == b || a.is_nan() && b.is_nan());
            assert!(same, "{}:\n{y:?}\nis not\n{e:?}", what());
            return;
        }
        // Underflow may return 0 or the dtype's smallest number.
        let least = if y.dtype() == DType::F16 { 1e-7 } else { 2e-38 };
        for (i, (a, b)) in y.to_vec::<f64>().iter().zip(e.to_vec::<f64>()).enumerate() {
            let near = *a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= epsilon * b.abs() + least;
            assert!(near, "{}: element {i} is {a}, not {b}", what());
        }
    }
}

fn accepts(op: &Op, inputs: &[OperandType<'_>]) -> bool {
    infer(op, inputs).is_ok()
}

fn with_engines(body: impl Fn(&Cpu, &Reference)) {
    body(&Cpu::with_threads(3), &Reference::new());
}

fn form_data(form: &Form, dtype: DType, seed: u64) -> TensorData {
    numbers(TensorType::new(form.base, dtype), seed)
}

fn form_type(form: &Form, dtype: DType) -> TensorType {
    let engine = Reference::new();
    *(form.views)(&engine, engine.write(TensorData::zeros(TensorType::new(form.base, dtype)))).ty()
}

/// Checks ops of one tensor on every form and dtype.
fn check_single(ops: &[(Op, f64)]) {
    with_engines(|cpu, reference| {
        for form in forms() {
            for dtype in DType::ALL {
                let ty = form_type(&form, dtype);
                for (op, tolerance) in ops.iter().filter(|(op, _)| accepts(op, &[(&ty).into()])) {
                    let case = Case { cpu, reference, op: op.clone(), tolerance: *tolerance };
                    case.check(&[(&form, form_data(&form, dtype, 7))], &[]);
                }
            }
        }
    });
}

#[test]
fn unary_functions() {
    let ops: Vec<(Op, f64)> = Unary::ALL.iter().map(|&function| (Op::Unary(function), 1e-6)).collect();
    check_single(&ops);
}

#[test]
fn conversions() {
    let mut ops: Vec<(Op, f64)> = DType::ALL.iter().map(|&dtype| (Op::Cast(dtype), 1e-6)).collect();
    ops.extend([DType::I32, DType::U16, DType::F64, DType::I8].map(|dtype| (Op::Bitcast(dtype), 0.0)));
    check_single(&ops);
}

#[test]
fn binary_functions() {
    with_engines(|cpu, reference| {
        let forms = forms();
        for a in &forms {
            let shape = form_type(a, DType::F32).shape;
            for b in forms.iter().filter(|b| form_type(b, DType::F32).shape == shape) {
                for dtype in DType::ALL {
                    pairs(cpu, reference, [a, b], dtype);
                }
            }
        }
    });
}

fn pairs(cpu: &Cpu, reference: &Reference, [a, b]: [&Form; 2], dtype: DType) {
    let ty = form_type(a, dtype);
    let functions = Binary::ALL.iter().map(|&function| Op::Binary(function));
    let comparisons = Comparison::ALL.iter().map(|&comparison| Op::Compare(comparison));
    for op in functions.chain(comparisons).filter(|op| accepts(op, &[(&ty).into(), (&ty).into()])) {
        // A remainder turns rounding errors into jumps: on floats, only exact quotients agree.
        let tolerance = if op == Op::Binary(Binary::Pow) { 2e-6 } else { 1e-6 };
        let case = Case { cpu, reference, op, tolerance };
        case.check(&[(a, form_data(a, dtype, 1)), (b, form_data(b, dtype, 2))], &[]);
        let number = if dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(3) };
        case.check(&[(a, form_data(a, dtype, 3))], &[number.into()]);
    }
}

#[test]
fn scalars_are_left_or_right_operands() {
    let cpu = Cpu::new();
    for (number, expected) in [(Scalar::Int(7), [6.0f32, 5.0]), (Scalar::Float(0.5), [-0.5, -1.5])] {
        let x = cpu.write(TensorData::from([1.0f32, 2.0]));
        let y = run(&cpu, &Op::Binary(Binary::Sub), vec![number.into(), x.into()]).remove(0);
        assert_eq!(block_on(cpu.read(y)).unwrap().into_vec::<f32>().unwrap(), expected);
    }
}

#[test]
fn select() {
    with_engines(|cpu, reference| {
        let forms = forms();
        for c in &forms {
            let shape = form_type(c, DType::F32).shape;
            for a in forms.iter().filter(|a| form_type(a, DType::F32).shape == shape) {
                for dtype in DType::ALL {
                    let case = Case { cpu, reference, op: Op::Select, tolerance: 0.0 };
                    let (condition, x) = (form_data(c, DType::Bool, 4), form_data(a, dtype, 5));
                    case.check(&[(c, condition.clone()), (a, x.clone()), (c, form_data(c, dtype, 6))], &[]);
                    let number = if dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(3) };
                    case.check(&[(c, condition), (a, x)], &[number.into()]);
                }
            }
        }
    });
}

#[test]
fn reductions() {
    let mut ops = Vec::new();
    for reduction in Reduction::ALL.iter().copied() {
        for axes in [&[][..], &[0], &[1], &[0, 1]] {
            ops.push((Op::Reduce { reduction, axes: Axes::new(axes) }, 1e-5));
        }
    }
    check_single(&ops);
}

#[test]
fn reductions_over_several_axes() {
    with_engines(|cpu, reference| {
        let form = Form { name: "five axes", base: &[3, 40, 2, 5, 33], views: |_, x| x };
        let permuted = Form {
            name: "five axes permuted",
            base: &[3, 40, 2, 5, 33],
            views: |e, x| one(e, Op::Permute(Axes::new(&[3, 0, 4, 2, 1])), x),
        };
        for form in [&form, &permuted] {
            for axes in [&[0, 2, 4][..], &[1, 3], &[4], &[0], &[0, 1], &[2, 3, 4], &[0, 1, 2, 3, 4]] {
                for dtype in [DType::F32, DType::I32, DType::BF16] {
                    for reduction in Reduction::ALL.iter().copied() {
                        let op = Op::Reduce { reduction, axes: Axes::new(axes) };
                        let case = Case { cpu, reference, op, tolerance: 1e-5 };
                        // Without special values, which would dominate the sums.
                        let ty = TensorType::new(form.base, DType::F64);
                        let waves = |i: usize| 1.0 + (i % 13) as f64 / 1024.0;
                        let data = (0..ty.num_elements()).map(waves).collect::<Vec<_>>();
                        let data = TensorData::new(data, ty.shape).unwrap().convert(dtype);
                        case.check(&[(form, data)], &[]);
                    }
                }
            }
        }
    });
}

#[test]
fn full_and_iota() {
    with_engines(|cpu, reference| {
        for dtype in DType::ALL {
            for shape in [&[][..], &[0, 3], &[7, 1, 5], &[70_001]] {
                let ty = TensorType::new(shape, dtype);
                let mut cases = vec![
                    (Op::Full(ty), vec![Scalar::Int(3).into()]),
                    (Op::Full(ty), vec![Scalar::Bool(true).into()]),
                ];
                cases.extend((0..shape.len()).map(|axis| (Op::Iota { ty, axis }, vec![])));
                let key = Operand::Scalar(Scalar::UInt(0x1234_5678_9abc_def0));
                cases.extend(
                    RandomKind::ALL
                        .iter()
                        .map(|&distribution| (Op::Random { ty, distribution }, vec![key.clone()])),
                );
                for (op, inputs) in cases {
                    let types: Vec<OperandType<'_>> = inputs.iter().map(Operand::ty).collect();
                    if accepts(&op, &types) {
                        Case { cpu, reference, op, tolerance: 1e-6 }.check(&[], &inputs);
                    }
                }
            }
        }
    });
}

#[test]
fn results_are_independent_of_thread_count() {
    let ops = [
        Op::Reduce { reduction: Reduction::Sum, axes: Axes::new(&[0]) },
        Op::Reduce { reduction: Reduction::Sum, axes: Axes::new(&[1]) },
        Op::Reduce { reduction: Reduction::Sum, axes: Axes::new(&[0, 1]) },
        Op::Unary(Unary::Sin),
    ];
    let data = TensorData::new((0..600_000).map(|i| (i as f32).sin()).collect::<Vec<_>>(), [2000, 300]);
    let data = data.unwrap();
    for op in ops {
        let mut results = [1, 2, 5].map(|threads| {
            let cpu = Cpu::with_threads(threads);
            assert_eq!(cpu.threads(), threads);
            let x = cpu.write(data.clone());
            block_on(cpu.read(one(&cpu, op.clone(), x))).unwrap().bytes().to_vec()
        });
        results.sort();
        assert!(results[0] == results[2], "{op:?}");
    }
}
