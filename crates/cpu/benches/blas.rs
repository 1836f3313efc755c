//! Matmuls by the vendor's BLAS beside those of Kiln's kernels, in turns: the median of the ratios of times.
//! `cargo bench -p kiln-cpu --features blas --bench blas`; `KILN_BLAS` chooses the library.

use kiln_cpu::Cpu;
use kiln_ir::{DType, Engine, Op, Operand, OperandType, Operands, TensorData, TensorType, Value, infer};
use std::time::Instant;

const ROUNDS: usize = 15;

const SIZES: [[usize; 3]; 6] = [
    [128, 128, 128],
    [256, 256, 256],
    [512, 512, 512],
    [1024, 1024, 1024],
    [64, 1024, 1024],
    [2048, 64, 2048],
];

fn main() {
    match kiln_cpu::blas() {
        Ok(Some(name)) => println!("{}, against {name}", kiln_cpu::processor()),
        Ok(None) => return println!("no BLAS was found"),
        Err(error) => return println!("{error}"),
    }
    for cpu in [Cpu::with_threads(1), Cpu::new()] {
        println!("-- {} threads: Kiln's time divided by the library's", cpu.threads());
        for dtype in [DType::F32, DType::F64] {
            for sizes in SIZES {
                println!("{dtype:?} {sizes:?}: {:.2}", ratio(&cpu, dtype, sizes));
            }
        }
    }
}

/// Above 1 where the library is faster.
fn ratio(cpu: &Cpu, dtype: DType, [m, k, n]: [usize; 3]) -> f64 {
    let inputs = [matrix(cpu, dtype, [m, k]), matrix(cpu, dtype, [k, n])];
    let repeats = (20_000_000 / (m * k * n)).max(1);
    let time = |is_vendor: bool| {
        kiln_cpu::set_blas(is_vendor);
        product(cpu, &inputs);
        let start = Instant::now();
        for _ in 0..repeats {
            product(cpu, &inputs);
        }
        start.elapsed().as_secs_f64()
    };
    let mut ratios: Vec<f64> = (0..ROUNDS).map(|_| time(false) / time(true)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

fn product(cpu: &Cpu, inputs: &[Value]) {
    let operands = || inputs.iter().map(Operand::from).collect::<Operands>();
    let op = Op::MatMul;
    let types = infer(&op, &OperandType::list(&operands())).unwrap();
    let values = cpu.execute(&op, operands(), &types);
    assert!(values[0].error().is_none(), "{:?}", values[0].error());
}

fn matrix(cpu: &Cpu, dtype: DType, shape: [usize; 2]) -> Value {
    let ty = TensorType::new(shape, DType::F32);
    let elements: Vec<f32> =
        (0..ty.num_elements()).map(|i| (i * 7919 % 1009) as f32 / 1009.0 - 0.5).collect();
    cpu.write(TensorData::new(elements, shape).unwrap().convert(dtype))
}
