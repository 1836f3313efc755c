//! FFTs by shared-memory kernels and by cuFFT, one by one and in graphs.

use crate::alone;
use kiln_ir::{
    DType, Engine, FftKind, Op, Operand, OperandType, Operands, TensorData, Value, block_on, infer,
};

/// Numbers between -1 and 2.
fn numbers(count: usize, salt: u64) -> Vec<f64> {
    let number = |i: usize| {
        let mixed = (i as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (mixed % 97) as f64 / 32.0 - 1.0
    };
    (0..count).map(number).collect()
}

fn run(engine: &dyn Engine, op: &Op, inputs: &[Value]) -> Vec<Value> {
    let operands: Operands = inputs.iter().map(Operand::from).collect();
    let types = infer(op, &OperandType::list(&operands)).unwrap_or_else(|error| panic!("{error}"));
    engine.execute(op, operands, &types).into_iter().collect()
}

fn read(engine: &dyn Engine, values: Vec<Value>) -> Vec<Vec<f64>> {
    let read = |value| block_on(engine.read(value)).unwrap_or_else(|error| panic!("{error}")).to_vec::<f64>();
    values.into_iter().map(read).collect()
}

/// A real FFT and its inverse return the input times its length, and the spectrum matches the CPU, which is tested
/// against the definition.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn ffts_match_the_cpu() {
    let _alone = alone();
    let gpu = kiln_cuda::open(0).unwrap_or_else(|error| panic!("{error}"));
    let cpu = (kiln_suite::engines::CPU_MANY.open)();
    let cpu: &dyn Engine = &*cpu;
    for (lines, points) in
        [(7, 1000), (64, 4096), (3, 37), (5, 1 << 15), (1, 1 << 20), (2, 99_991), (9, 8191)]
    {
        for dtype in [DType::F32, DType::F64] {
            let write = |engine: &dyn Engine, salt: u64| {
                let data = TensorData::new(numbers(lines * points, salt), [lines, points]);
                engine.write(data.unwrap_or_else(|error| panic!("{error}")).convert(dtype))
            };
            let step = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
            let near = |name: &str, found: &[Vec<f64>], expected: &[Vec<f64>]| {
                for (found, expected) in found.iter().zip(expected) {
                    let most = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
                    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(
                        worst <= 32.0 * step * most,
                        "{name} {dtype} {lines} x {points}: {worst:e} of {most}"
                    );
                }
            };
            let op = |kind, inverse| Op::Fft { kind, axis: 1, inverse };
            let (here, there) = (write(cpu, 1), write(&gpu, 1));
            // Repeats until steps run as graphs.
            for _ in 0..4 {
                let spectrum = run(&gpu, &op(FftKind::FromReal, false), std::slice::from_ref(&there));
                let expected = run(cpu, &op(FftKind::FromReal, false), std::slice::from_ref(&here));
                let back = run(&gpu, &op(FftKind::ToReal { points }, true), &spectrum);
                near("from real", &read(&gpu, spectrum), &read(cpu, expected));
                let scaled = numbers(lines * points, 1).into_iter().map(|x| x * points as f64).collect();
                near("to real", &read(&gpu, back), &[scaled]);
            }
            for inverse in [false, true] {
                let found = run(&gpu, &op(FftKind::Complex, inverse), &[there.clone(), write(&gpu, 2)]);
                let expected = run(cpu, &op(FftKind::Complex, inverse), &[here.clone(), write(cpu, 2)]);
                near("complex", &read(&gpu, found), &read(cpu, expected));
            }
        }
    }
}
