//! Speed of convolution and pooling, in milliseconds and as a fraction of the processor's peak: `cargo bench -p
//! kiln-cpu --bench convolution`. A word after `--` selects the lines that contain it; `limit=N` sets the peak GFLOP/s
//! of one core (default: 112), `threads=N` the number of threads.

use kiln_cpu::Cpu;
use kiln_ir::{
    ConvPass, ConvSpec, DType, Engine, Op, Operand, OperandType, Operands, PoolKind, PoolSpec, TensorData,
    TensorType, Value, infer,
};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let number = |name: &str| arguments.iter().find_map(|word| word.strip_prefix(name)?.parse::<f64>().ok());
    let cpu = number("threads=").map_or_else(Cpu::new, |n| Cpu::with_threads(n as usize));
    let limit = number("limit=").unwrap_or(112.0) * cpu.threads() as f64;
    let wanted = arguments.into_iter().find(|word| !word.contains('=')).unwrap_or_default();
    let bench = Bench { cpu, limit, wanted };
    println!("{} threads, {limit} GFLOP/s at most", bench.cpu.threads());
    CONVS.iter().for_each(|conv| conv.run(&bench));
    POOLS.iter().for_each(|pool| pool.run(&bench));
}

struct Conv {
    name: &'static str,
    x: &'static [usize],
    w: &'static [usize],
    stride: usize,
    padding: usize,
    groups: usize,
}

const fn conv(
    name: &'static str,
    x: &'static [usize],
    w: &'static [usize],
    [stride, padding, groups]: [usize; 3],
) -> Conv {
    Conv { name, x, w, stride, padding, groups }
}

const CONVS: &[Conv] = &[
    conv("conv3x3", &[8, 64, 56, 56], &[64, 64, 3, 3], [1, 1, 1]),
    conv("conv7x7s2", &[1, 3, 224, 224], &[64, 3, 7, 7], [2, 3, 1]),
    conv("conv1x1", &[8, 256, 56, 56], &[64, 256, 1, 1], [1, 0, 1]),
    conv("convdw3x3", &[8, 128, 56, 56], &[128, 1, 3, 3], [1, 1, 128]),
    conv("convdw3x3s2", &[8, 128, 56, 56], &[128, 1, 3, 3], [2, 1, 128]),
    conv("mnist 1-8", &[64, 1, 28, 28], &[8, 1, 3, 3], [1, 1, 1]),
    conv("mnist 8-16", &[64, 8, 28, 28], &[16, 8, 3, 3], [1, 1, 1]),
    conv("mnist 32-64", &[64, 32, 14, 14], &[64, 32, 3, 3], [1, 1, 1]),
    conv("resnet 56", &[1, 64, 56, 56], &[64, 64, 3, 3], [1, 1, 1]),
    conv("resnet 28", &[1, 128, 28, 28], &[128, 128, 3, 3], [1, 1, 1]),
    conv("resnet 14", &[1, 256, 14, 14], &[256, 256, 3, 3], [1, 1, 1]),
    conv("resnet 7", &[1, 512, 7, 7], &[512, 512, 3, 3], [1, 1, 1]),
    conv("resnet 56 s2", &[1, 64, 56, 56], &[128, 64, 3, 3], [2, 1, 1]),
    conv("resnet 28 s2", &[1, 128, 28, 28], &[256, 128, 3, 3], [2, 1, 1]),
    conv("resnet 14 s2", &[1, 256, 14, 14], &[512, 256, 3, 3], [2, 1, 1]),
    conv("resnet 56 k1 s2", &[1, 64, 56, 56], &[128, 64, 1, 1], [2, 0, 1]),
    conv("grouped", &[4, 128, 28, 28], &[128, 4, 3, 3], [1, 1, 32]),
    conv("one axis", &[4, 64, 4096], &[64, 64, 5], [1, 2, 1]),
    conv("three axes", &[1, 16, 16, 32, 32], &[32, 16, 3, 3, 3], [1, 1, 1]),
];

impl Conv {
    fn run(&self, bench: &Bench) {
        let axes = self.x.len() - 2;
        let spec = ConvSpec {
            stride: vec![self.stride; axes],
            padding: vec![(self.padding, self.padding); axes],
            dilation: vec![1; axes],
            groups: self.groups,
        };
        let out = |axis: usize| (self.x[axis] + 2 * self.padding - self.w[axis]) / self.stride + 1;
        let mut y = vec![self.x[0], self.w[0]];
        y.extend((2..self.x.len()).map(out));
        let flops = 2.0 * (y.iter().chain(&self.w[1..]).product::<usize>()) as f64;
        let op = |pass| Op::Conv { spec: spec.clone(), pass };
        let input = ConvPass::Input { size: self.x[2..].to_vec() };
        let weight = ConvPass::Weight { size: self.w[2..].to_vec() };
        bench.run(&format!("{} forward", self.name), &op(ConvPass::Forward), &[self.x, self.w], flops);
        bench.run(&format!("{} input", self.name), &op(input), &[&y, self.w], flops);
        bench.run(&format!("{} weight", self.name), &op(weight), &[self.x, &y], flops);
    }
}

struct Pool {
    name: &'static str,
    x: [usize; 4],
    window: usize,
    stride: usize,
    padding: usize,
}

const POOLS: &[Pool] = &[
    Pool { name: "pool 112 k3s2", x: [8, 64, 112, 112], window: 3, stride: 2, padding: 1 },
    Pool { name: "pool 112 k2s2", x: [8, 64, 112, 112], window: 2, stride: 2, padding: 0 },
    Pool { name: "pool 28 k2s2", x: [64, 16, 28, 28], window: 2, stride: 2, padding: 0 },
    Pool { name: "pool 28 k3s2", x: [64, 16, 28, 28], window: 3, stride: 2, padding: 1 },
    Pool { name: "pool 56 k3s1", x: [8, 64, 56, 56], window: 3, stride: 1, padding: 1 },
    Pool { name: "pool 7 k7", x: [8, 512, 7, 7], window: 7, stride: 7, padding: 0 },
];

impl Pool {
    fn run(&self, bench: &Bench) {
        for (label, kind) in [("max", PoolKind::Max), ("mean", PoolKind::Average { include_padding: true })] {
            let spec = PoolSpec {
                stride: vec![self.stride; 2],
                padding: vec![(self.padding, self.padding); 2],
                ..PoolSpec::new(kind, &[self.window; 2])
            };
            let out = |axis: usize| (self.x[axis] + 2 * self.padding - self.window) / self.stride + 1;
            let y = [self.x[0], self.x[1], out(2), out(3)];
            let backward = Op::PoolGrad { spec: spec.clone(), size: self.x[2..].to_vec() };
            let operands: &[&[usize]] = if kind == PoolKind::Max { &[&y, &self.x] } else { &[&y] };
            bench.run(&format!("{} {label}", self.name), &Op::Pool(spec), &[&self.x], 0.0);
            bench.run(&format!("{} {label} grad", self.name), &backward, operands, 0.0);
        }
    }
}

struct Bench {
    cpu: Cpu,
    limit: f64,
    wanted: String,
}

impl Bench {
    /// Prints the least and the median of many runs; `flops` of one, 0 where multiplications do not matter.
    fn run(&self, name: &str, op: &Op, shapes: &[&[usize]], flops: f64) {
        if !name.contains(&self.wanted) {
            return;
        }
        let inputs: Vec<Value> = shapes.iter().enumerate().map(|(i, shape)| self.random(i, shape)).collect();
        let operands = || inputs.iter().map(Operand::from).collect::<Operands>();
        let types = infer(op, &OperandType::list(&operands())).unwrap();
        let once = || {
            let start = Instant::now();
            let values = self.cpu.execute(op, operands(), &types);
            let seconds = start.elapsed().as_secs_f64();
            assert!(values[0].error().is_none(), "{:?}", values[0].error());
            seconds
        };
        let begin = Instant::now();
        once();
        let mut times = Vec::new();
        while times.len() < 7 || begin.elapsed().as_secs_f64() < 0.2 {
            times.push(once());
        }
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[times.len() / 2]);
        let speed = flops / least / 1e9;
        print!("{name:32} {:9.3} ms, median {:9.3} ms", least * 1e3, median * 1e3);
        if flops > 0.0 {
            print!(", {speed:6.1} GFLOP/s, {:5.1} %", 100.0 * speed / self.limit);
        }
        println!();
    }

    fn random(&self, seed: usize, shape: &[usize]) -> Value {
        let ty = TensorType::new(shape, DType::F32);
        let mut state = 0x9E37_79B9u32.wrapping_mul(seed as u32 + 1);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let elements: Vec<f32> = (0..ty.num_elements()).map(|_| next()).collect();
        self.cpu.write(TensorData::new(elements, shape).unwrap())
    }
}
