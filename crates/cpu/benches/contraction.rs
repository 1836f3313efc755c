//! How fast matrix products, convolution, pooling and the composites are: `cargo bench -p kiln-cpu --bench contraction`.
//! A word after `--` keeps the lines that contain it.

use kiln_cpu::Cpu;
use kiln_ir::{
    AttentionSpec, ConvPass, ConvSpec, DType, Engine, FftKind, NormKind, Op, Operand, OperandType, Operands,
    PoolKind, PoolSpec, Real, TensorData, TensorType, Value, infer,
};
use std::time::Instant;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for cpu in [Cpu::with_threads(1), Cpu::new()] {
        let bench = Bench { cpu, wanted: wanted.clone() };
        println!("-- {} threads", bench.cpu.threads());
        matmuls(&bench);
        convs(&bench);
        pools(&bench);
        composites(&bench);
    }
}

struct Bench {
    cpu: Cpu,
    wanted: String,
}

impl Bench {
    /// Prints the best of many runs; `flops` of one.
    fn run(&self, name: &str, op: &Op, shapes: &[&[usize]], flops: f64) {
        if !name.contains(&self.wanted) {
            return;
        }
        let inputs: Vec<Value> = shapes.iter().enumerate().map(|(i, shape)| self.random(i, shape)).collect();
        self.time(name, op, &inputs, flops);
    }

    fn random(&self, seed: usize, shape: &[usize]) -> Value {
        self.random_of(DType::F32, seed, shape)
    }

    /// Floats in -1..1, integers in the range of 8 bits.
    fn random_of(&self, dtype: DType, seed: usize, shape: &[usize]) -> Value {
        let ty = TensorType::new(shape, DType::F32);
        let factor = if dtype.is_float() { 1.0 } else { 127.0 };
        let mut state = 0x9E37_79B9u32.wrapping_mul(seed as u32 + 1);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * factor
        };
        let elements: Vec<f32> = (0..ty.num_elements()).map(|_| next()).collect();
        self.cpu.write(TensorData::new(elements, shape).unwrap().convert(dtype))
    }

    fn time(&self, name: &str, op: &Op, inputs: &[Value], flops: f64) {
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
        let mut best = once();
        while begin.elapsed().as_secs_f64() < 0.25 {
            best = best.min(once());
        }
        println!("{name:44} {:10.1} us {:8.1} GFLOP/s", best * 1e6, flops / best / 1e9);
    }
}

fn matmuls(bench: &Bench) {
    for [m, k, n] in [
        [64, 64, 64],
        [256, 256, 256],
        [512, 512, 512],
        [1024, 1024, 1024],
        [2048, 2048, 2048],
        [64, 3136, 128],
        [64, 128, 10],
        [8192, 64, 512],
        [1, 1024, 1024],
        [1024, 1024, 1],
        [8, 1024, 1024],
        [1, 4096, 4096],
        [8, 4096, 4096],
    ] {
        let flops = 2.0 * (m * k * n) as f64;
        bench.run(&format!("matmul {m}x{k}x{n}"), &Op::MatMul, &[&[m, k], &[k, n]], flops);
        let name = format!("matmul {m}x{k}x{n} right transposed");
        if name.contains(&bench.wanted) {
            let right = bench.random(1, &[n, k]);
            let op = Op::Permute(kiln_ir::Axes::new(&[1, 0]));
            let types = infer(&op, &[OperandType::Tensor(right.ty())]).unwrap();
            let right =
                bench.cpu.execute(&op, [Operand::Value(right)].into_iter().collect(), &types).swap_remove(0);
            bench.time(&name, &Op::MatMul, &[bench.random(0, &[m, k]), right], flops);
        }
    }
    for (count, side) in [(64usize, 32usize), (32, 128)] {
        let shape = [count, side, side];
        let flops = 2.0 * (count * side * side * side) as f64;
        let name = format!("matmul batch {count} of {side}x{side}x{side}");
        bench.run(&name, &Op::MatMul, &[&shape, &shape], flops);
    }
    for dtype in [DType::BF16, DType::F16, DType::F64, DType::I8, DType::U8] {
        for [m, k, n] in [[1024, 1024, 1024], [1, 4096, 4096]] {
            let name = format!("matmul {m}x{k}x{n} {dtype}");
            if name.contains(&bench.wanted) {
                let inputs = [bench.random_of(dtype, 0, &[m, k]), bench.random_of(dtype, 1, &[k, n])];
                bench.time(&name, &Op::MatMul, &inputs, 2.0 * (m * k * n) as f64);
            }
        }
    }
}

fn convs(bench: &Bench) {
    for (name, x, w, stride, padding, groups) in [
        ("mnist 1->32 28 k3", [64, 1, 28, 28], [32, 1, 3, 3], 1, 1, 1),
        ("mnist 32->64 14 k3", [64, 32, 14, 14], [64, 32, 3, 3], 1, 1, 1),
        ("mnist 32->64 28 k3", [64, 32, 28, 28], [64, 32, 3, 3], 1, 0, 1),
        ("mnist 1->32 28 k5", [64, 1, 28, 28], [32, 1, 5, 5], 1, 2, 1),
        ("mnist 32->64 14 k5", [64, 32, 14, 14], [64, 32, 5, 5], 1, 2, 1),
        ("64->64 56 k3", [8, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1),
        ("64->128 56 k3 s2", [8, 64, 56, 56], [128, 64, 3, 3], 2, 1, 1),
        ("512->512 7 k3", [8, 512, 7, 7], [512, 512, 3, 3], 1, 1, 1),
        ("256->64 56 k1", [8, 256, 56, 56], [64, 256, 1, 1], 1, 0, 1),
        ("3->64 224 k7 s2", [4, 3, 224, 224], [64, 3, 7, 7], 2, 3, 1),
        ("depthwise 64 56 k3", [8, 64, 56, 56], [64, 1, 3, 3], 1, 1, 64),
    ] {
        let spec = ConvSpec {
            stride: vec![stride; 2],
            padding: vec![(padding, padding); 2],
            dilation: vec![1; 2],
            groups,
        };
        let out = |axis: usize| (x[axis] + 2 * padding - w[axis]) / stride + 1;
        let y = [x[0], w[0], out(2), out(3)];
        let flops = 2.0 * (y.iter().product::<usize>() * w[1] * w[2] * w[3]) as f64;
        let op = |pass| Op::Conv { spec: spec.clone(), pass };
        bench.run(&format!("conv {name} forward"), &op(ConvPass::Forward), &[&x, &w], flops);
        bench.run(
            &format!("conv {name} input"),
            &op(ConvPass::Input { size: x[2..].to_vec() }),
            &[&y, &w],
            flops,
        );
        bench.run(
            &format!("conv {name} weight"),
            &op(ConvPass::Weight { size: w[2..].to_vec() }),
            &[&x, &y],
            flops,
        );
    }
}

fn pools(bench: &Bench) {
    for (window, stride, x) in [(2, 2, [64, 64, 28, 28]), (3, 2, [8, 64, 56, 56])] {
        for kind in [PoolKind::Max, PoolKind::Average { include_padding: true }] {
            let spec = PoolSpec { stride: vec![stride; 2], ..PoolSpec::new(kind, &[window; 2]) };
            let out = (x[2] - window) / stride + 1;
            let y = [x[0], x[1], out, out];
            let flops = (y.iter().product::<usize>() * window * window) as f64;
            let name = format!("pool {kind:?} k{window} s{stride}");
            bench.run(&name, &Op::Pool(spec.clone()), &[&x], flops);
            let operands: &[&[usize]] = if kind == PoolKind::Max { &[&y, &x] } else { &[&y] };
            bench.run(
                &format!("{name} grad"),
                &Op::PoolGrad { spec, size: x[2..].to_vec() },
                operands,
                flops,
            );
        }
    }
}

fn composites(bench: &Bench) {
    let rows = [1024usize, 1024];
    let elements = (rows[0] * rows[1]) as f64;
    bench.run("softmax 1024x1024", &Op::Softmax { axis: 1, log: false }, &[&rows], 5.0 * elements);
    bench.run("softmax 1024x1024 columns", &Op::Softmax { axis: 0, log: false }, &[&rows], 5.0 * elements);
    bench.run("log-softmax 64x10", &Op::Softmax { axis: 1, log: true }, &[&[64, 10]], 5.0 * 640.0);
    let norm = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(1e-5) };
    bench.run("layer norm 1024x1024", &norm, &[&rows, &[1024], &[1024]], 8.0 * elements);
    let (heads, length, dim) = (8, 512, 64);
    let qkv = [4, heads, length, dim];
    let spec = AttentionSpec { scale: Real(0.125), causal: None };
    let flops = 4.0 * (4 * heads * length * length * dim) as f64;
    bench.run("attention 4x8x512x64", &Op::Attention(spec), &[&qkv, &qkv, &qkv], flops);
    let causal = AttentionSpec { causal: Some(0), ..spec };
    bench.run("attention 4x8x512x64 causal", &Op::Attention(causal), &[&qkv, &qkv, &qkv], flops / 2.0);
    let lse = [4, heads, length];
    let operands: [&[usize]; 6] = [&qkv, &qkv, &qkv, &qkv, &qkv, &lse];
    bench.run("attention grad 4x8x512x64", &Op::AttentionGrad(spec), &operands, 2.5 * flops);
    let fft = |length: usize| 5.0 * 64.0 * length as f64 * (length as f64).log2();
    for length in [1024, 1000, 1021] {
        let op = Op::Fft { kind: FftKind::Complex, axis: 1, inverse: false };
        bench.run(&format!("fft 64x{length}"), &op, &[&[64, length], &[64, length]], fft(length));
    }
    let halves = 2.5 * 4096.0 * 4096.0 * 12.0;
    let real = |kind, axis| Op::Fft { kind, axis, inverse: false };
    bench.run("fft real 4096x4096", &real(FftKind::FromReal, 1), &[&[4096, 4096]], halves);
    bench.run("fft real 4096x4096 columns", &real(FftKind::FromReal, 0), &[&[4096, 4096]], halves);
    let half = [4096, 2049];
    bench.run("fft to real 4096x4096", &real(FftKind::ToReal { points: 4096 }, 1), &[&half, &half], halves);
    let long = 1 << 20;
    bench.run(
        "fft 1x1048576",
        &real(FftKind::Complex, 1),
        &[&[1, long], &[1, long]],
        5.0 * 20.0 * long as f64,
    );
}
