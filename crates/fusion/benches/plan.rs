//! The time that fusion takes for each op of a program, for programs of 10² to 10⁵ ops: `cargo bench -p kiln-fusion --bench plan`.
//! A word after `--` keeps the programs whose name contains it.
//!
//! `plan` is [`Plan::of_program`] alone. `run` is all of it on tensors of few elements: recording, planning, compiling the regions
//! for the CPU, and running them, with nothing cached. Fails where the time for each op grows with the number of ops.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode, Plan};
use kiln_ir::{
    Binary, DType, Engine, Instruction, Op, PadAxis, Program, ProgramOperand, Recorder, Reduction, Scalar,
    Shape, SliceAxis, TensorData, TensorType, Unary, Values, Var, block_on, gradient_program,
};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

/// The limit on the growth of the time for each op, from 10³ ops on: regions have their full size by then. Graphs of
/// 10⁵ ops do not fit the caches, which takes up to 3 times as long; a pass of quadratic time takes 100 times as long.
const MAX_GROWTH: f64 = 5.0;

/// A growth that is measured is measured again: another process may have had the processor.
const TRIES: usize = 3;

/// Elements of each tensor.
const LENGTH: usize = 4;

type Build = fn(&mut Builder, usize);

const PROGRAMS: [(&str, Build); 9] = [
    ("multilayer perceptron", perceptron),
    ("chain", chain),
    ("diamonds", diamonds),
    ("ladder", ladder),
    ("fan", fan),
    ("random, one kernel's ops", random_maps),
    ("random, half of them alone", random_mixed),
    ("views", views),
    ("slices, summed", slices),
];

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let sizes: Vec<String> = SIZES.iter().map(|size| format!("{size:>9}")).collect();
    println!("{:<34}{}   growth", "ns for each op of programs of", sizes.concat());
    let mut grows = false;
    for (name, build) in PROGRAMS.iter().filter(|(name, _)| name.contains(&wanted)) {
        for (kind, measure) in [("plan", plan as fn(&Program)), ("run", run)] {
            let (times, growth) = measured(*build, measure);
            let times: Vec<String> = times.iter().map(|time| format!("{time:>9.0}")).collect();
            let verdict = if growth > MAX_GROWTH { "  grows" } else { "" };
            println!("{:<34}{}{growth:>9.2}{verdict}", format!("{name}, {kind}"), times.concat());
            grows |= growth > MAX_GROWTH;
        }
    }
    if grows {
        println!("the time for each op must not grow by more than {MAX_GROWTH} from 1000 ops on");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The time for each op at each size in nanoseconds, and its growth from the second size on: the least of several
/// tries.
fn measured(build: Build, measure: fn(&Program)) -> (Vec<f64>, f64) {
    let programs: Vec<Program> = SIZES.iter().map(|&size| program(build, size)).collect();
    let mut best: Option<(Vec<f64>, f64)> = None;
    for _ in 0..TRIES {
        let times: Vec<f64> = programs.iter().map(|program| time(program, measure)).collect();
        let growth = times[2..].iter().fold(1.0, |most: f64, time| most.max(time / times[1]));
        if best.as_ref().is_none_or(|(_, least)| growth < *least) {
            best = Some((times, growth));
        }
        if growth <= MAX_GROWTH {
            break;
        }
    }
    best.expect("there is at least one try")
}

/// Nanoseconds for each op: the median of several repeats, of fewer for large programs.
fn time(program: &Program, measure: fn(&Program)) -> f64 {
    let ops = program.instructions.len();
    let repeats = (20_000 / ops).clamp(1, 21);
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let started = Instant::now();
            measure(program);
            started.elapsed().as_nanos() as f64 / ops as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn plan(program: &Program) {
    std::hint::black_box(Plan::of_program(program));
}

fn run(program: &Program) {
    let engine = Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::On);
    let input =
        |ty: &TensorType| engine.write(TensorData::new(vec![0.5f32; ty.num_elements()], ty.shape).unwrap());
    let inputs: Values = program.inputs.iter().map(input).collect();
    for value in program.run(&engine, inputs) {
        std::hint::black_box(block_on(engine.read(value)).unwrap());
    }
}

/// A program while it is written: values are numbered as operands name them.
struct Builder {
    program: Program,
    types: Vec<TensorType>,
    random: u64,
}

fn program(build: Build, size: usize) -> Program {
    let ty = TensorType::new([LENGTH], DType::F32);
    let program = Program { inputs: vec![ty; 2], ..Program::default() };
    let mut builder = Builder { program, types: vec![ty; 2], random: 1 };
    build(&mut builder, size);
    builder.program
}

impl Builder {
    fn push(&mut self, op: Op, operands: &[ProgramOperand], ty: TensorType) -> usize {
        let operands = operands.to_vec();
        self.program.instructions.push(Instruction { op, operands, results: vec![ty] });
        self.types.push(ty);
        self.types.len() - 1
    }

    fn unary(&mut self, function: Unary, x: usize) -> usize {
        self.push(Op::Unary(function), &[ProgramOperand::Slot(x)], self.types[x])
    }

    fn binary(&mut self, function: Binary, a: usize, b: usize) -> usize {
        let operands = [a, b].map(ProgramOperand::Slot);
        self.push(Op::Binary(function), &operands, self.types[a])
    }

    fn times(&mut self, x: usize, number: f64) -> usize {
        let operands = [ProgramOperand::Slot(x), ProgramOperand::Scalar(Scalar::Float(number))];
        self.push(Op::Binary(Binary::Mul), &operands, self.types[x])
    }

    fn view(&mut self, op: Op, x: usize, shape: &[usize]) -> usize {
        self.push(op, &[ProgramOperand::Slot(x)], TensorType::new(shape, DType::F32))
    }

    fn outputs(&mut self, values: impl IntoIterator<Item = usize>) {
        self.program.outputs = values.into_iter().map(ProgramOperand::Slot).collect();
    }

    /// All values that nothing uses.
    fn output_unused(&mut self) {
        let mut used = vec![false; self.types.len()];
        let operands = self.program.instructions.iter().flat_map(|instruction| &instruction.operands);
        for operand in operands {
            if let ProgramOperand::Slot(slot) = operand {
                used[*slot] = true;
            }
        }
        self.outputs((0..used.len()).filter(|&slot| !used[slot]));
    }

    /// A number below that one. The generator is [Knuth's](https://en.wikipedia.org/wiki/Linear_congruential_generator).
    fn below(&mut self, count: usize) -> usize {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) as usize % count
    }
}

/// The sum of the outputs of a multilayer perceptron; the operands are an input, and a weight and a bias for each
/// layer.
fn loss<'e>(given: &[Var<'e>]) -> Var<'e> {
    let shape = given[0].ty().shape;
    let layer = |x: Var<'e>, parameters: &[Var<'e>]| {
        (x.matmul(&parameters[0]) + parameters[1].broadcast(shape)).tanh()
    };
    given[1..].chunks_exact(2).fold(given[0].clone(), layer).sum(&[0, 1])
}

/// The gradient of a multilayer perceptron, with plain gradient descent.
fn perceptron(builder: &mut Builder, size: usize) {
    /// Ops of a layer: forward, backward and the update.
    const OPS: usize = 20;
    const WIDTH: usize = 8;
    let layers = size.div_ceil(OPS);
    let [square, row] = [[WIDTH, WIDTH], [1, WIDTH]].map(|shape| TensorType::new(shape, DType::F32));
    let types: Vec<TensorType> = [square].into_iter().chain([square, row].repeat(layers)).collect();
    let gradients = gradient_program(&Recorder::trace(&types, |given| vec![loss(given)])).unwrap();
    builder.program = gradients;
    builder.types = builder.program.inputs.clone();
    let results = builder.program.instructions.iter().flat_map(|instruction| instruction.results.clone());
    builder.types.extend(results.collect::<Vec<_>>());
    let gradients: Vec<ProgramOperand> = builder.program.outputs.clone();
    let mut outputs = Vec::new();
    for (parameter, gradient) in gradients.into_iter().enumerate() {
        if let ProgramOperand::Slot(gradient) = gradient {
            let step = builder.times(gradient, 0.01);
            outputs.push(builder.binary(Binary::Sub, parameter, step));
        }
    }
    builder.outputs(outputs);
}

fn chain(builder: &mut Builder, size: usize) {
    let mut x = 0;
    for step in 0..size {
        x = match step % 3 {
            0 => builder.times(x, 0.5),
            1 => builder.unary(Unary::Tanh, x),
            _ => builder.binary(Binary::Add, x, 1),
        };
    }
    builder.outputs([x]);
}

/// `x = x + x`.
fn diamonds(builder: &mut Builder, size: usize) {
    let mut x = 0;
    for _ in 0..size {
        x = builder.binary(Binary::Add, x, x);
    }
    builder.outputs([x]);
}

/// `a, b = a + b, a * b`.
fn ladder(builder: &mut Builder, size: usize) {
    let (mut a, mut b) = (0, 1);
    for _ in 0..size / 2 {
        (a, b) = (builder.binary(Binary::Add, a, b), builder.binary(Binary::Mul, a, b));
    }
    builder.outputs([a, b]);
}

/// Many functions of one value, and their sum.
fn fan(builder: &mut Builder, size: usize) {
    const FUNCTIONS: [Unary; 5] = [Unary::Neg, Unary::Abs, Unary::Tanh, Unary::Sin, Unary::Cos];
    let x = builder.unary(Unary::Exp, 0);
    let all: Vec<usize> = (0..size / 4)
        .map(|number| {
            let y = builder.unary(FUNCTIONS[number % 5], x);
            let y = if number / 5 % 2 == 0 { builder.unary(Unary::Neg, y) } else { builder.times(y, 0.5) };
            builder.binary(Binary::Mul, y, x)
        })
        .collect();
    let sum = all.into_iter().reduce(|sum, y| builder.binary(Binary::Add, sum, y));
    builder.outputs(sum);
}

/// Each op uses two values of any age.
fn random_maps(builder: &mut Builder, size: usize) {
    for _ in 0..size {
        let (a, b) = (builder.below(builder.types.len()), builder.below(builder.types.len()));
        match builder.below(4) {
            0 => builder.unary(Unary::Tanh, a),
            1 => builder.binary(Binary::Mul, a, b),
            2 => builder.binary(Binary::Max, a, b),
            _ => builder.binary(Binary::Add, a, b),
        };
    }
    builder.output_unused();
}

/// The same where every other op has its own kernel, which lies between others.
fn random_mixed(builder: &mut Builder, size: usize) {
    for _ in 0..size {
        let (a, b) = (builder.below(builder.types.len()), builder.below(builder.types.len()));
        if builder.below(2) == 0 {
            let op = Op::Scan { reduction: Reduction::Max, axis: 0, reverse: false, exclusive: false };
            builder.view(op, a, &[LENGTH]);
        } else {
            builder.binary(Binary::Add, a, b);
        }
    }
    builder.output_unused();
}

/// A chain of views of a kernel's result, each of which is used in the end.
fn views(builder: &mut Builder, size: usize) {
    let x = builder.unary(Unary::Exp, 0);
    let mut view = x;
    for _ in 0..size / 4 {
        view = builder.view(Op::Reshape(Shape::new([2, LENGTH / 2])), view, &[2, LENGTH / 2]);
        view = builder.view(Op::Reshape(Shape::new([LENGTH])), view, &[LENGTH]);
    }
    let mut y = x;
    for _ in 0..size / 2 {
        y = builder.binary(Binary::Mul, y, view);
    }
    builder.outputs([y]);
}

/// The gradient of many slices of one tensor: each with zeros around it, and their sum.
fn slices(builder: &mut Builder, size: usize) {
    let x = builder.unary(Unary::Exp, 0);
    let mut sum = x;
    for number in 0..size / 4 {
        let at = number % LENGTH;
        let part = builder.view(Op::Slice(vec![SliceAxis::range(at..at + 1)]), x, &[1]);
        let part = builder.times(part, 0.5);
        let around = Op::Pad(vec![PadAxis::new(at, LENGTH - at - 1)]);
        let zero = ProgramOperand::Scalar(Scalar::Float(0.0));
        let part = builder.push(around, &[ProgramOperand::Slot(part), zero], builder.types[x]);
        sum = builder.binary(Binary::Add, sum, part);
    }
    builder.outputs([sum]);
}
