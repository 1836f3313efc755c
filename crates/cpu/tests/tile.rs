//! Fused regions on the tile machine, against the same programs run op by op on the reference engine.

mod indexed;
use crate::memory_layouts;
mod products;

use kiln_cpu::Cpu;
use kiln_ir::*;
use kiln_reference::Reference;
use memory_layouts::{MEMORY_LAYOUTS, MemoryLayout, below};

type Body = for<'e> fn(&[Var<'e>]) -> Vec<Var<'e>>;

/// A region and its operands.
struct Case {
    name: String,
    op: FusedOp,
    inputs: Vec<TensorData>,
    /// Tolerance of the results, relative to the maximum of each and 1.
    tolerance: f64,
}

fn ty(shape: &[usize], dtype: DType) -> TensorType {
    TensorType::new(shape, dtype)
}

/// Uniform numbers in -2..2; integers and bools for their dtypes.
fn data(seed: u64, ty: &TensorType) -> TensorData {
    let n = ty.num_elements();
    let choices = below(seed * 31 + n as u64 + 1, 4001, n);
    let number = |choice: usize| {
        if ty.dtype.is_bool() {
            (choice & 1) as f64
        } else if ty.dtype.is_float() {
            choice as f64 / 1000.0 - 2.0
        } else if ty.dtype.is_unsigned_int() {
            (choice % 9) as f64
        } else {
            (choice % 9) as f64 - 4.0
        }
    };
    let numbers: Vec<f64> = choices.into_iter().map(number).collect();
    TensorData::new(numbers, ty.shape).unwrap().convert(ty.dtype)
}

fn case(name: impl Into<String>, inputs: &[TensorType], body: Body) -> Case {
    let op = FusedOp::new(Recorder::trace(inputs, body));
    let known = [(DType::F64, 1e-11), (DType::F32, 1e-5), (DType::F16, 6e-3), (DType::BF16, 5e-2)];
    let tolerance =
        |dtype| known.iter().find(|(of, _)| *of == dtype).map_or(0.0, |(_, tolerance)| *tolerance);
    let tolerance = op.program().slot_types().iter().map(|ty| tolerance(ty.dtype)).fold(0.0, f64::max);
    let inputs = inputs.iter().enumerate().map(|(i, ty)| data(i as u64, ty)).collect();
    Case { name: name.into(), op, inputs, tolerance }
}

fn run(engine: &dyn Engine, op: &FusedOp, operands: Operands) -> Vec<TensorData> {
    let op = Op::Fused(op.clone());
    let types = infer(&op, &OperandType::list(&operands)).unwrap_or_else(|error| panic!("{error}"));
    let values = engine.execute(&op, operands, &types);
    let read = |(value, ty): (Value, &TensorType)| {
        let data = block_on(engine.read(value)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(data.ty(), *ty);
        data
    };
    values.into_iter().zip(&types).map(read).collect()
}

impl Case {
    /// The reason why the region has no kernel.
    fn refusal(&self) -> String {
        let program = self.op.program();
        match kiln_kernel::Nest::of_program_exactly(program, &vec![false; program.inputs.len()]) {
            Err((number, refusal)) => format!("instruction {number}: {refusal}"),
            Ok((nest, outputs)) => {
                let strides = |ty: &TensorType| ty.shape.row_major_strides()[..ty.rank()].to_vec();
                let layout = |ty| kiln_kernel::Layout(strides(ty).into_iter().map(|x| x as isize).collect());
                let layouts: Vec<_> = program.inputs.iter().map(layout).collect();
                match nest.lower(&outputs, &layouts) {
                    Err(problem) => problem.to_string(),
                    Ok(lowered) => format!("{:?}", lowered.kernel),
                }
            }
        }
    }

    fn with_inputs(mut self, inputs: Vec<TensorData>) -> Case {
        self.inputs = inputs;
        self
    }

    fn expected(&self, inputs: &[TensorData]) -> Vec<TensorData> {
        let reference = Reference::new();
        let operands = inputs.iter().map(|data| reference.write(data.clone()).into()).collect();
        run(&reference, &self.op, operands)
    }

    /// The results of the region's ops, run one by one on contiguous operands.
    fn op_by_op(&self, cpu: &Cpu, inputs: &[TensorData]) -> Vec<TensorData> {
        let operands = inputs.iter().map(|data| cpu.write(data.clone()).into()).collect();
        let values = self.op.program().run_region(cpu, operands);
        values.into_iter().map(|value| block_on(cpu.read(value)).unwrap()).collect()
    }

    /// Compares all bits, except those of NaN.
    #[track_caller]
    fn compare_bits(&self, found: &[TensorData], expected: &[TensorData], context: &str) {
        for (output, (found, expected)) in found.iter().zip(expected).enumerate() {
            let (found, expected) = (found.to_vec::<f64>(), expected.to_vec::<f64>());
            for (i, (&y, &x)) in found.iter().zip(&expected).enumerate() {
                let same = y.to_bits() == x.to_bits() || (y.is_nan() && x.is_nan());
                let name = &self.name;
                assert!(same, "{name} {context}: output {output}, element {i}: {y} instead of {x} op by op");
            }
        }
    }

    #[track_caller]
    fn compare(&self, found: &[TensorData], expected: &[TensorData], context: &str) {
        assert_eq!(found.len(), expected.len());
        for (output, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found.ty(), expected.ty());
            let (found, expected) = (found.to_vec::<f64>(), expected.to_vec::<f64>());
            let finite = expected.iter().copied().filter(|x| x.is_finite());
            let scale = finite.fold(1.0f64, |scale, x| scale.max(x.abs()));
            for (i, (&y, &x)) in found.iter().zip(&expected).enumerate() {
                let near = y == x || (y.is_nan() && x.is_nan()) || (y - x).abs() <= self.tolerance * scale;
                assert!(near, "{} {context}: output {output}, element {i}: {y} instead of {x}", self.name);
            }
        }
    }

    /// Checks one memory layout on one engine.
    #[track_caller]
    fn check_in(&self, cpu: &Cpu, place: MemoryLayout, context: &str) {
        let seen: Vec<TensorData> = if place == MemoryLayout::Repeated {
            self.inputs.iter().map(memory_layouts::repeated).collect()
        } else {
            self.inputs.clone()
        };
        let values: Vec<Value> = seen.iter().map(|data| memory_layouts::value(cpu, place, data)).collect();
        let kept = if place == MemoryLayout::Owned { Vec::new() } else { values.clone() };
        let found = run(cpu, &self.op, values.into_iter().map(Operand::from).collect());
        self.compare(&found, &self.expected(&seen), &format!("{place:?} {context}"));
        // A library pattern is one product, which adds in its own order.
        if *self.op.pattern() == Pattern::Loop {
            self.compare_bits(&found, &self.op_by_op(cpu, &seen), &format!("{place:?} {context}"));
        }
        for (value, data) in kept.into_iter().zip(&seen) {
            assert!(
                block_on(cpu.read(value)).unwrap().bytes() == data.bytes(),
                "{}: wrote over {place:?}",
                self.name
            );
        }
    }

    /// Checks all memory layouts, with 1 and 3 threads and on all instruction sets, as a compiled region.
    #[track_caller]
    fn check(&self) {
        for threads in [1, 3] {
            let cpu = Cpu::with_threads(threads);
            for place in MEMORY_LAYOUTS {
                self.check_in(&cpu, place, &format!("{threads} threads"));
            }
            assert!(cpu.compiled_regions() > 0, "{} was not compiled: {}", self.name, self.refusal());
        }
        for set in ["scalar", "avx2", "avx512"] {
            if let Some(cpu) = Cpu::with_threads(1).with_instructions(set) {
                self.check_in(&cpu, MemoryLayout::Owned, set);
            }
        }
    }

    /// Checks few memory layouts, for large operands; results must be independent of thread count.
    #[track_caller]
    fn check_large(&self) {
        let results = [1, 3].map(|threads| {
            let cpu = Cpu::with_threads(threads);
            for place in [MemoryLayout::Shared, MemoryLayout::Permuted] {
                self.check_in(&cpu, place, &format!("{threads} threads"));
            }
            assert!(cpu.compiled_regions() > 0, "{} was not compiled", self.name);
            let operands = self.inputs.iter().map(|data| cpu.write(data.clone()).into()).collect();
            run(&cpu, &self.op, operands)
        });
        for (one, three) in results[0].iter().zip(&results[1]) {
            assert!(one.bytes() == three.bytes(), "{}: depends on the number of threads", self.name);
        }
    }
}

const SIZES: [usize; 8] = [1, 3, 17, 255, 256, 1025, 2048, 5000];

#[test]
fn maps_of_any_length() {
    for n in SIZES {
        let x = ty(&[n], DType::F32);
        case(format!("gelu of {n}"), &[x], |v| {
            let half = &(&(&v[0] / std::f64::consts::SQRT_2).erf() + 1.0) / 2.0;
            vec![&v[0] * &half]
        })
        .check();
        case(format!("chain of {n}"), &[x; 4], |v| {
            vec![(&(&(&(&v[0] * &v[1]) + &v[2]).tanh() * &v[3]) - &v[0]).exp()]
        })
        .check();
    }
}

#[test]
fn maps_with_several_results() {
    for n in [5, 300, 3000] {
        let x = ty(&[n], DType::F32);
        case(format!("adam of {n}"), &[x, x, x, x, ty(&[], DType::F32)], |v| {
            let m = &(&v[2] * 0.9) + &(&v[1] * 0.1);
            let s = &(&v[3].abs() * 0.999) + &(&v[1].square() * 0.001);
            let p = &v[0] - &(&(&m / &(&s.sqrt() + 1e-3)) * &v[4].broadcast(m.shape()));
            vec![p, m, s]
        })
        .check();
        case(format!("copies of {n}"), &[x, x], |v| {
            let y = &v[0] + &v[1];
            vec![y.clone(), y.exp(), v[0].apply(Op::Copy, &[]), y]
        })
        .check();
    }
}

#[test]
fn maps_with_broadcast_operands() {
    for [a, b, c] in [[2, 3, 5], [7, 64, 33], [3, 5, 300], [2, 2, 4100], [1, 40, 1]] {
        let x = ty(&[a, b, c], DType::F32);
        let inputs = [
            x,
            ty(&[c], DType::F32),
            ty(&[b, 1], DType::F32),
            ty(&[a, 1, 1], DType::F32),
            ty(&[], DType::F32),
        ];
        case(format!("{a}x{b}x{c}"), &inputs, |v| {
            let shape = v[0].shape();
            let y = &(&v[0] + &v[1].broadcast(shape)) * &v[2].broadcast(shape).exp();
            let y = &y - &v[3].broadcast(shape).max(&v[4].broadcast(shape));
            vec![y.clone(), y.less(&v[0]).select(&y, &v[4].broadcast(shape))]
        })
        .check();
    }
}

#[test]
fn maps_of_every_dtype() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        for n in [9, 700] {
            case(format!("{dtype} {n}"), &[ty(&[n, 3], dtype), ty(&[n, 3], dtype), ty(&[3], dtype)], |v| {
                let y = &(&(&v[0] * &v[1]).sin() + &v[2].broadcast(v[0].shape())) * 0.5;
                vec![y.clone(), y.cast(DType::F32).exp(), y.less(&v[1])]
            })
            .check();
        }
    }
    for dtype in memory_layouts::INTEGERS {
        for n in [9, 700] {
            case(format!("{dtype} {n}"), &[ty(&[n, 3], dtype), ty(&[n, 3], dtype), ty(&[3], dtype)], |v| {
                let y = &(&(&v[0] * &v[1]) + &v[2].broadcast(v[0].shape())) * 3.0;
                let z = y.max(&v[1]).and(&v[0]);
                vec![y.clone(), z.cast(DType::F32).sqrt().cast(DType::I64), y.less(&v[1])]
            })
            .check();
        }
    }
    case("bool", &[ty(&[70, 5], DType::Bool), ty(&[5], DType::Bool)], |v| {
        let y = v[0].and(&v[1].broadcast(v[0].shape()).unary(Unary::Not));
        vec![y.clone(), y.cast(DType::F16), y.equal(&v[0])]
    })
    .check();
}

#[test]
fn casts_between_all_dtypes() {
    for from in DType::ALL {
        for to in DType::ALL {
            let program =
                Recorder::trace(&[ty(&[300], from)], |v| vec![v[0].cast(to), v[0].cast(to).cast(DType::F64)]);
            let mut of = case(format!("{from} to {to}"), &[ty(&[300], from)], |v| vec![v[0].clone()]);
            of.op = FusedOp::new(program);
            let cpu = Cpu::with_threads(1);
            of.tolerance = if to.size() == 2 && to.is_float() { 1e-2 } else { 1e-6 };
            of.check_in(&cpu, MemoryLayout::Shared, "");
            of.check_in(&cpu, MemoryLayout::Strided, "");
        }
    }
}

#[test]
fn transposes() {
    for [a, b] in [[3, 4], [33, 65], [300, 200]] {
        case(format!("{a}x{b}"), &[ty(&[a, b], DType::F32), ty(&[b, a], DType::F32)], |v| {
            vec![&v[0] + &v[1].transpose().exp()]
        })
        .check();
        case(format!("2x{a}x{b}"), &[ty(&[2, a, b], DType::F16), ty(&[b, 2, a], DType::F16)], |v| {
            vec![&v[0] * &v[1].permute(&[1, 2, 0])]
        })
        .check();
    }
}

#[test]
fn indices() {
    for [a, b] in [[3, 4], [40, 600], [2, 3000]] {
        case(format!("{a}x{b}"), &[ty(&[a, b], DType::I32)], |v| {
            let rows = Var::iota(v[0].engine(), ty(&v[0].shape(), DType::I32), 0);
            let columns = Var::iota(v[0].engine(), ty(&v[0].shape(), DType::I32), 1);
            vec![&(&rows * 1000.0) + &(&columns - &v[0]), columns.less(&rows).cast(DType::F32)]
        })
        .check();
    }
}

/// Row lengths near tile boundaries, many short rows and few long rows.
const ROWS: [[usize; 2]; 9] =
    [[1, 1], [5, 1], [300, 10], [70, 64], [9, 257], [6, 1024], [3, 2049], [20, 5000], [2, 40_000]];

#[test]
fn softmax_and_norms() {
    for [rows, length] in ROWS {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            if dtype != DType::F32 && rows * length > 10_000 {
                continue;
            }
            let x = ty(&[rows, length], dtype);
            let name = format!("{dtype} {rows}x{length}");
            case(format!("softmax {name}"), &[x], |v| {
                vec![v[0].apply(Op::Softmax { axis: 1, log: false }, &[])]
            })
            .check();
            case(format!("log-softmax {name}"), &[x], |v| {
                vec![v[0].apply(Op::Softmax { axis: 1, log: true }, &[])]
            })
            .check();
            let row = ty(&[length], dtype);
            case(format!("layer norm {name}"), &[x, row, row], |v| {
                let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(1e-3) };
                vec![(&v[0] * 2.0).apply(op, &[&v[1], &v[2]]).tanh()]
            })
            .check();
            case(format!("rms norm {name}"), &[x, row], |v| {
                let op = Op::Norm { kind: NormKind::Rms, axes: 1, epsilon: Real(1e-3) };
                vec![v[0].apply(op, &[&v[1]])]
            })
            .check();
        }
    }
}

#[test]
fn gradients_of_row_ops() {
    for [rows, length] in ROWS {
        let x = ty(&[rows, length], DType::F32);
        case(format!("softmax gradient {rows}x{length}"), &[x, x], |v| {
            let y = v[0].apply(Op::Softmax { axis: 1, log: false }, &[]);
            let dot = (&y * &v[1]).sum(&[1]);
            vec![&y * &(&v[1] - &dot.broadcast(v[0].shape())), dot]
        })
        .check();
        case(format!("cross-entropy {rows}x{length}"), &[x, ty(&[rows, 1], DType::I32)], |v| {
            let shape = v[0].shape();
            let log = v[0].apply(Op::Softmax { axis: 1, log: true }, &[]);
            let columns = Var::iota(v[0].engine(), ty(&shape, DType::I32), 1);
            let hit = columns.equal(&v[1].broadcast(shape)).cast(DType::F32);
            vec![(&log * &hit).sum(&[1]).neg(), &log.exp() - &hit]
        })
        .check();
    }
}

#[test]
fn row_reductions() {
    for [rows, length] in ROWS {
        case(
            format!("{rows}x{length}"),
            &[ty(&[rows, length], DType::F32), ty(&[rows, 1], DType::F32)],
            |v| {
                let y = &v[0] * &v[1].broadcast(v[0].shape());
                let small = &(&y * 0.01) + 1.0;
                vec![
                    y.sum(&[1]),
                    y.reduce(Reduction::Max, &[1]),
                    (&y.reduce(Reduction::Min, &[1]) + 1.0).exp(),
                    small.reduce(Reduction::Prod, &[1]).ln(),
                ]
            },
        )
        .check();
        for dtype in [DType::I32, DType::U8, DType::F16, DType::I64] {
            if rows * length < 20_000 {
                case(format!("{dtype} {rows}x{length}"), &[ty(&[rows, length], dtype)], |v| {
                    let y = &v[0] + 1.0;
                    vec![y.sum(&[1]), y.reduce(Reduction::Max, &[1]), y.reduce(Reduction::Min, &[1])]
                })
                .check();
            }
        }
    }
}

#[test]
fn reductions_over_several_axes() {
    for [a, b, c] in [[3, 4, 5], [8, 16, 300], [20, 7, 1], [5, 3, 2100]] {
        let x = ty(&[a, b, c], DType::F32);
        case(format!("batch norm {a}x{b}x{c}"), &[x, ty(&[1, b, 1], DType::F32)], |v| {
            let shape = v[0].shape();
            let mean = v[0].mean(&[0, 2]);
            let centred = &v[0] - &mean.broadcast(shape);
            let variance = centred.square().mean(&[0, 2]);
            let scale = &(&variance + 0.1).rsqrt() * &v[1];
            vec![&centred * &scale.broadcast(shape), mean, variance]
        })
        .check();
        case(format!("outer and inner {a}x{b}x{c}"), &[x], |v| vec![v[0].exp().sum(&[0, 2])]).check();
        case(format!("middle {a}x{b}x{c}"), &[x, x], |v| vec![(&v[0] * &v[1]).sum(&[1]), &v[0] * &v[1]])
            .check();
    }
}

#[test]
fn column_reductions() {
    for [rows, columns] in [[1, 1], [300, 10], [40, 64], [33, 257], [1000, 3], [70, 5000], [5000, 40]] {
        let x = ty(&[rows, columns], DType::F32);
        case(format!("bias gradient {rows}x{columns}"), &[x, x, ty(&[columns], DType::F32)], |v| {
            let inner = (&v[0] + &v[2].broadcast(v[0].shape())).tanh();
            let y = &v[1] * &(&inner.square() * -1.0 + 1.0);
            vec![y.clone(), y.sum(&[0]), y.reduce(Reduction::Max, &[0])]
        })
        .check();
        case(
            format!("f16 {rows}x{columns}"),
            &[ty(&[rows, columns], DType::F16), ty(&[columns], DType::F16)],
            |v| vec![&v[0].mean(&[0]) + &v[1].reshape([1, v[1].shape()[0]])],
        )
        .check();
        case(format!("i64 {rows}x{columns}"), &[ty(&[rows, columns], DType::I64)], |v| {
            vec![(&v[0] * 2.0).sum(&[0])]
        })
        .check();
    }
    for [a, b, c] in [[3, 50, 7], [2, 3, 2500], [40, 30, 20]] {
        case(format!("{a}x{b}x{c}"), &[ty(&[a, b, c], DType::F32), ty(&[a, 1, 1], DType::F32)], |v| {
            let y = &v[0] * &v[1].broadcast(v[0].shape()).sin();
            vec![
                y.sum(&[1]),
                &y.reduce(Reduction::Min, &[1]) * &v[1].broadcast([v[0].shape()[0], 1, v[0].shape()[2]]),
            ]
        })
        .check();
    }
}

#[test]
fn full_reductions() {
    for shape in [&[1][..], &[7], &[2000], &[70_001], &[300, 41], &[5, 6, 7]] {
        let all: Vec<usize> = (0..shape.len()).collect();
        let types = [ty(shape, DType::F32), ty(shape, DType::F32)];
        let program = Recorder::trace(&types, |v| {
            let error = &v[0] - &v[1];
            vec![error.square().mean(&all), error.abs().reduce(Reduction::Max, &all)]
        });
        let mut case = case(format!("mean square of {shape:?}"), &types, |v| vec![v[0].clone()]);
        case.op = FusedOp::new(program);
        case.check();
    }
}

#[test]
fn scans() {
    for [rows, length] in [[1, 1], [30, 7], [5, 600], [2, 5000]] {
        case(format!("{rows}x{length}"), &[ty(&[rows, length], DType::F32)], |v| {
            let y = v[0].exp().scan(Reduction::Sum, 1, false, false);
            vec![&y * 2.0]
        })
        .check();
        let x = [ty(&[rows, length], DType::I32)];
        case(format!("i32 {rows}x{length}"), &x, |v| {
            vec![(&v[0] + 1.0).scan(Reduction::Sum, 1, false, true)]
        })
        .check();
        case(format!("back {rows}x{length}"), &x, |v| vec![v[0].scan(Reduction::Max, 1, true, false)])
            .check();
    }
}

#[test]
fn large_regions() {
    case("gelu", &[ty(&[200_000], DType::F32)], |v| {
        vec![&v[0] * &(&(&v[0] / std::f64::consts::SQRT_2).erf() + 1.0)]
    })
    .check_large();
    case("softmax", &[ty(&[300, 1000], DType::F32)], |v| {
        vec![v[0].apply(Op::Softmax { axis: 1, log: false }, &[])]
    })
    .check_large();
    case("softmax of few long rows", &[ty(&[2, 150_000], DType::F32)], |v| {
        vec![v[0].apply(Op::Softmax { axis: 1, log: false }, &[])]
    })
    .check_large();
    case("sum", &[ty(&[500, 700], DType::F32)], |v| vec![v[0].square().sum(&[0, 1])]).check_large();
    case("columns", &[ty(&[900, 500], DType::F32)], |v| vec![v[0].square().sum(&[0]), v[0].exp()])
        .check_large();
    case("long columns", &[ty(&[30_000, 12], DType::F64)], |v| vec![v[0].square().sum(&[0])]).check_large();
}

/// A scalar operand does not change the program, and is converted to the input's dtype.
#[test]
fn scalar_operands_do_not_recompile_a_region() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32] {
        let types = [ty(&[600], dtype), ty(&[], dtype)];
        let op = FusedOp::new(Recorder::trace(&types, |v| vec![&v[0] * &v[1].broadcast(v[0].shape())]));
        let cpu = Cpu::with_threads(1);
        let x = data(1, &types[0]);
        for number in [2i64, -1, 0] {
            let operand = |engine: &dyn Engine| -> Operands {
                [engine.write(x.clone()).into(), Operand::Scalar(Scalar::Int(number))].into_iter().collect()
            };
            let reference = Reference::new();
            let found = run(&cpu, &op, operand(&cpu));
            assert!(found[0].bytes() == run(&reference, &op, operand(&reference))[0].bytes(), "{dtype}");
        }
        assert_eq!(cpu.compiled_regions(), 1);
    }
}

#[test]
fn results_reuse_the_memory_of_unshared_operands() {
    let types = [ty(&[5000], DType::F32), ty(&[5000], DType::F32)];
    let op = FusedOp::new(Recorder::trace(&types, |v| vec![v[0].exp(), &v[0] * &v[1], &v[0] + 1.0]));
    let cpu = Cpu::with_threads(2);
    let inputs: Vec<TensorData> = types.iter().enumerate().map(|(i, ty)| data(i as u64, ty)).collect();
    let operands = |engine: &dyn Engine| -> Operands {
        inputs.iter().map(|data| engine.write(data.clone()).into()).collect()
    };
    let reference = Reference::new();
    let expected = run(&reference, &op, operands(&reference));
    // The second run reuses the compiled code.
    for _ in 0..2 {
        let given = operands(&cpu);
        let addresses: Vec<usize> = given.iter().map(|x| x.value().unwrap().address()).collect();
        let op = Op::Fused(op.clone());
        let types = infer(&op, &OperandType::list(&given)).unwrap();
        let results = cpu.execute(&op, given, &types);
        let kept = results.iter().filter(|y| addresses.contains(&y.address())).count();
        assert_eq!(kept, 2);
        for (y, expected) in results.into_iter().zip(&expected) {
            let y = block_on(cpu.read(y)).unwrap().to_vec::<f64>();
            assert!(y.iter().zip(expected.to_vec::<f64>()).all(|(y, x)| (y - x).abs() < 1e-5));
        }
    }
}

#[test]
fn an_operand_that_another_element_reads_is_not_overwritten() {
    let types = [ty(&[64, 64], DType::F32)];
    let case = case("x + xT", &types, |v| vec![&v[0] + &v[0].transpose()]);
    let cpu = Cpu::with_threads(1);
    let operands = [cpu.write(case.inputs[0].clone()).into()].into_iter().collect();
    case.compare(&run(&cpu, &case.op, operands), &case.expected(&case.inputs), "");
}

#[test]
fn each_memory_layout_has_its_own_plan() {
    let types = [ty(&[40, 50], DType::F32)];
    let case = case("exp", &types, |v| vec![v[0].exp()]);
    let cpu = Cpu::with_threads(1);
    for _ in 0..2 {
        case.check_in(&cpu, MemoryLayout::Shared, "");
        case.check_in(&cpu, MemoryLayout::Permuted, "");
    }
    assert_eq!(cpu.compiled_regions(), 2);
}

#[test]
fn plans_are_shared_between_threads() {
    let types = [ty(&[1000], DType::F32)];
    let case = case("exp", &types, |v| vec![&v[0].exp() * 2.0]);
    let cpu = Cpu::with_threads(2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    case.check_in(&cpu, MemoryLayout::Owned, "");
                }
            });
        }
    });
    assert_eq!(cpu.compiled_regions(), 1);
}

/// Regions without a kernel run op by op, with the same results.
#[test]
fn regions_without_a_kernel_run_op_by_op() {
    let types = [ty(&[6, 8], DType::F32)];
    let case = case("sorted", &types, |v| {
        let sorted = Var::emit(
            v[0].engine(),
            &Op::Sort { axis: 1, descending: false, index: DType::I32 },
            [v[0].operand().clone()].into_iter().collect(),
        );
        vec![&sorted[0] * 2.0]
    });
    let cpu = Cpu::with_threads(1);
    case.check_in(&cpu, MemoryLayout::Owned, "");
    assert_eq!(cpu.compiled_regions(), 0);
}

#[test]
fn large_transposed_operands() {
    case("x + exp yT", &[ty(&[300, 500], DType::F32), ty(&[500, 300], DType::F32)], |v| {
        vec![&v[0] + &v[1].transpose().exp()]
    })
    .check_large();
    case("softmax down columns", &[ty(&[400, 100], DType::F32)], |v| {
        vec![&v[0].apply(Op::Softmax { axis: 0, log: false }, &[]) * 2.0]
    })
    .check_large();
}

#[test]
fn special_float_values() {
    let x = memory_layouts::specials(DType::F32, &[40, 50]);
    let y = memory_layouts::specials(DType::F32, &[40, 1]);
    let types = [x.ty(), y.ty()];
    case("special", &types, |v| {
        let z = v[1].broadcast(v[0].shape());
        vec![v[0].max(&z), v[0].min(&z), v[0].less(&z), v[0].reduce(Reduction::Max, &[1])]
    })
    .with_inputs(vec![x, y])
    .check();
}

#[test]
fn sixteen_bit_floats_are_rounded_before_comparison() {
    let cpu = Cpu::with_threads(2);
    for dtype in [DType::F16, DType::BF16] {
        let ty = ty(&[6, 70], dtype);
        // The row maximum is loaded, and the row is recomputed.
        let greatest =
            FusedOp::new(Recorder::trace(&[ty], |x| vec![x[0].tanh().reduce(Reduction::Max, &[1])]));
        let ties = |x: &[Var<'_>]| -> Vec<Operand> {
            let is_greatest = x[0].tanh().compare(Comparison::Eq, &x[1]);
            vec![is_greatest.cast(DType::F32).sum(&[1]).into_operand()]
        };
        let x = data(3, &ty);
        let stored = run(&cpu, &greatest, [cpu.write(x.clone()).into()].into_iter().collect()).remove(0);
        let recorder = Recorder::new(&[ty, stored.ty()]);
        let inputs: Vec<Var<'_>> =
            recorder.inputs().into_iter().map(|value| Var::new(&recorder, value)).collect();
        let outputs = ties(&inputs);
        let count = FusedOp::new(recorder.finish(&outputs));
        let operands = [cpu.write(x).into(), cpu.write(stored).into()].into_iter().collect();
        let counts: Vec<f64> = run(&cpu, &count, operands).remove(0).to_vec();
        assert!(counts.iter().all(|&count| count >= 1.0), "{dtype}: {counts:?}");
    }
}
