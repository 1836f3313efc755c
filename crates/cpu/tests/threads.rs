//! Results are independent of the number of threads.

use kiln_cpu::Cpu;
use kiln_ir::{DType, Engine, Reduction, TensorData, TensorType, UpdateMode, Value, Var, block_on};

/// A function of a matrix `[600, 500]`.
type Function = for<'e> fn(&Var<'e>) -> Var<'e>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("sum", |x| x.sum(&[0, 1])),
    ("sum of rows", |x| x.sum(&[1])),
    ("sum of columns", |x| x.sum(&[0])),
    ("product", |x| (x * 1e-4 + 1.0).reduce(Reduction::Prod, &[0, 1])),
    ("running sum", |x| x.scan(Reduction::Sum, 0, false, false)),
    ("matmul", |x| x.transpose().matmul(x)),
    ("exp", |x| x.exp()),
    ("put", |x| {
        let index = Var::iota(x.engine(), TensorType::new([600], DType::I32), 0) * 0.0;
        let base = Var::zeros(x.engine(), TensorType::new([3, 500], DType::F32));
        base.put(0, UpdateMode::Add, &index, x)
    }),
];

#[test]
fn results_are_independent_of_thread_count() {
    let bits = |function: Function, threads: usize| {
        let cpu = Cpu::with_threads(threads);
        let elements: Vec<f32> = (0..300_000).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
        let value: Value = cpu.write(TensorData::new(elements, [600, 500]).expect("a matrix"));
        let result = function(&Var::new(&cpu, value)).into_value();
        let data = block_on(cpu.read(result)).expect("readable");
        data.to_vec::<f32>().into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    for &(name, function) in FUNCTIONS {
        let alone = bits(function, 1);
        for threads in [2, 3, 7] {
            assert!(bits(function, threads) == alone, "{name} on {threads} threads");
        }
    }
}
