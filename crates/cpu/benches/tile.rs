//! Fused regions against the same ops one by one, interleaved: `cargo bench -p kiln-cpu --bench tile`. A word after `--`
//! keeps the lines that contain it.

use kiln_cpu::Cpu;
use kiln_ir::*;
use std::time::Instant;

type Body = for<'e> fn(&[Var<'e>]) -> Vec<Var<'e>>;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for cpu in [Cpu::with_threads(1), Cpu::new()] {
        println!("-- {} threads: fused, op by op (best, ms)", cpu.threads());
        let bench = Bench { cpu, wanted: wanted.clone() };
        maps(&bench);
        rows(&bench);
        columns(&bench);
        products(&bench);
        small(&bench);
    }
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(shape, DType::F32)
}

const MILLIONS: usize = 4 << 20;

fn maps(bench: &Bench) {
    let x = f32s(&[MILLIONS]);
    bench.run("copy", &[x], |v| vec![v[0].apply(Op::Copy, &[])]);
    bench.run("mul add", &[x, x], |v| vec![&(&v[0] * &v[1]) + 1.0]);
    bench.run("gelu chain", &[x], |v| {
        vec![&(&v[0] * &(&(&v[0] / std::f64::consts::SQRT_2).erf() + 1.0)) / 2.0]
    });
    bench
        .run("fused chain", &[x; 4], |v| vec![(&(&(&(&v[0] * &v[1]) + &v[2]).tanh() * &v[3]) - &v[0]).exp()]);
    bench.run("adam", &[x; 4], |v| {
        let m = &(&v[2] * 0.9) + &(&v[1] * 0.1);
        let s = &(&v[3] * 0.999) + &(&v[1].square() * 0.001);
        vec![&v[0] - &(&(&m * 0.01) / &(&s.sqrt() + 1e-8)), m, s]
    });
    for (name, function) in [
        ("exp", Unary::Exp),
        ("ln", Unary::Ln),
        ("tanh", Unary::Tanh),
        ("erf", Unary::Erf),
        ("sin", Unary::Sin),
    ] {
        let program = Recorder::trace(&[f32s(&[1 << 16])], |v| vec![v[0].unary(function)]);
        bench.program(&format!("{name} 64 k"), program);
    }
    bench.run("pow 64 k", &[f32s(&[1 << 16]), f32s(&[1 << 16])], |v| vec![v[0].abs().pow(&v[1])]);
    bench.run("transposed sum", &[f32s(&[2048, 2048]), f32s(&[2048, 2048])], |v| {
        vec![&v[0] + &v[1].transpose()]
    });
}

fn rows(bench: &Bench) {
    for shape in [[4096, 1024], [65536, 64], [400_000, 10], [512, 8192]] {
        let x = f32s(&shape);
        let row = f32s(&shape[1..]);
        let name = |what: &str| format!("{what} {shape:?}");
        bench.run(&name("softmax"), &[x], |v| vec![v[0].apply(Op::Softmax { axis: 1, log: false }, &[])]);
        bench.run(&name("layernorm"), &[x, row, row], |v| {
            let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(1e-5) };
            vec![v[0].apply(op, &[&v[1], &v[2]])]
        });
        bench.run(&name("softmax gradient"), &[x, x], |v| {
            let dot = (&v[0] * &v[1]).sum(&[1]);
            vec![&v[0] * &(&v[1] - &dot.broadcast(v[0].shape()))]
        });
    }
}

fn columns(bench: &Bench) {
    let x = f32s(&[4096, 4096]);
    bench.run("sum_all", &[x], |v| vec![v[0].sum(&[0, 1])]);
    bench.run("sum_dim0", &[x], |v| vec![v[0].sum(&[0])]);
    bench.run("sum_dim1", &[x], |v| vec![v[0].sum(&[1])]);
    let x = f32s(&[2048, 1024]);
    bench.run("relu gradient and bias", &[x, x], |v| {
        let zero = v[0].scalar(0.0);
        let y = zero.less(&v[0]).select(&v[1], &zero);
        vec![y.clone(), y.sum(&[0])]
    });
}

fn products(bench: &Bench) {
    for [m, k, n] in [[2048, 256, 1024], [64, 784, 512]] {
        bench.run(&format!("gelu of linear {m}x{k}x{n}"), &[f32s(&[m, k]), f32s(&[k, n]), f32s(&[n])], |v| {
            let y = v[0].matmul(&v[1]);
            let y = &y + &v[2].broadcast(y.shape());
            vec![&y * &(&(&y * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)]
        });
    }
}

fn small(bench: &Bench) {
    for n in [1, 64, 4096] {
        bench.run(&format!("small {n}"), &[f32s(&[n]), f32s(&[n])], |v| vec![&(&v[0] * &v[1]) + &v[0]]);
    }
}

struct Bench {
    cpu: Cpu,
    wanted: String,
}

impl Bench {
    fn run(&self, name: &str, inputs: &[TensorType], body: Body) {
        if name.contains(&self.wanted) {
            self.program(name, Recorder::trace(inputs, body));
        }
    }

    fn program(&self, name: &str, program: Program) {
        if !name.contains(&self.wanted) {
            return;
        }
        let inputs: Vec<Value> =
            program.inputs.iter().enumerate().map(|(i, ty)| self.random(i, ty)).collect();
        let fused = Op::Fused(FusedOp::new(program.clone()));
        let operands = || inputs.iter().map(Operand::from).collect::<Operands>();
        let types = infer(&fused, &OperandType::list(&operands())).unwrap();
        let mut best = [f64::INFINITY; 2];
        let mut repeats = 1;
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < 0.4 {
            let times = [
                time(repeats, || self.cpu.execute(&fused, operands(), &types)),
                time(repeats, || program.run(&self.cpu, inputs.iter().cloned().collect())),
            ];
            best = [best[0].min(times[0]), best[1].min(times[1])];
            if times[0] * (repeats as f64) < 1e-4 {
                repeats *= 2;
            }
        }
        println!("{name:32} {:10.4} {:10.4}", best[0] * 1e3, best[1] * 1e3);
    }

    fn random(&self, seed: usize, ty: &TensorType) -> Value {
        let mut state = 0x9E37_79B9u32.wrapping_mul(seed as u32 + 1);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let elements: Vec<f32> = (0..ty.num_elements()).map(|_| next()).collect();
        self.cpu.write(TensorData::new(elements, ty.shape).unwrap())
    }
}

/// Seconds of one of `repeats` runs.
fn time(repeats: usize, run: impl Fn() -> Values) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        let values = run();
        assert!(values[0].error().is_none(), "{:?}", values[0].error());
    }
    start.elapsed().as_secs_f64() / repeats as f64
}
