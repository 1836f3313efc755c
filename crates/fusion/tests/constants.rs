//! Reductions of a filled tensor: results match the plain engine, and the tensor is not stored unless its sum rounds.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{DType, Engine, Machine, Reduction, Scalar, TensorType, Value, Var, block_on};
use std::sync::Arc;

fn read(engine: &dyn Engine, value: Value) -> Vec<f64> {
    block_on(engine.read(value)).unwrap().to_vec::<f64>()
}

/// A sum over all, one over rows of a view, the minimum of columns and the maximum of a part, and ops on them.
fn reduced(engine: &dyn Engine, dtype: DType, number: Scalar) -> Vec<Vec<f64>> {
    let x = Var::full(engine, TensorType::new([300, 7], dtype), number);
    let turned = x.permute(&[1, 0]).reshape([7, 30, 10]);
    let part = x.slice_axis(0, kiln_ir::SliceAxis { start: 5, len: 100, step: 1 });
    let mut results = vec![x.reduce(Reduction::Min, &[0]), part.reduce(Reduction::Max, &[0, 1])];
    if !dtype.is_bool() {
        results.extend([
            x.sum(&[0, 1]),
            turned.sum(&[2]),
            &x.sum(&[1]) + &part.sum(&[0, 1]).broadcast([300, 1]),
        ]);
    }
    results.into_iter().map(|y| read(engine, y.into_value())).collect()
}

#[test]
fn values_match_the_unfused_engine() {
    let rounds_once = Machine { exact_regions: false, ..Machine::processor() };
    values_match(&Changed::new(Cpu::with_threads(1)).with_machine(rounds_once).fused(), 1e-5);
}

#[test]
fn exact_values_equal_those_of_the_unfused_engine() {
    values_match(&layer(), 0.0);
}

/// Checks the values of all dtypes, within a tolerance of 32-bit floats.
fn values_match(layer: &Fusion, tolerance: f64) {
    let engine = Cpu::with_threads(1);
    for dtype in DType::ALL.iter().copied() {
        let numbers: &[Scalar] = match dtype.is_float() {
            true => {
                &[Scalar::Float(0.1), Scalar::Float(-3.0), Scalar::Float(f64::INFINITY), Scalar::Float(0.0)]
            }
            false if dtype.is_bool() => &[Scalar::Bool(true), Scalar::Bool(false)],
            false => &[Scalar::Int(3), Scalar::Int(0), Scalar::Int(101)],
        };
        for &number in numbers {
            let (found, expected) = (reduced(layer, dtype, number), reduced(&engine, dtype, number));
            let relative = if dtype.size() == 2 { 1e3 * tolerance } else { tolerance };
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                let close = found == expected
                    || dtype.is_float() && (found - expected).abs() <= relative * expected.abs();
                assert!(close, "{dtype} {number}: {found} {expected}");
            }
        }
    }
    let nan = reduced(layer, DType::F32, Scalar::Float(f64::NAN));
    assert!(nan.iter().flatten().all(|x| x.is_nan()));
}

fn layer() -> Fusion {
    Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::On)
}

#[test]
fn summed_integer_constants_are_not_stored() {
    let engine: Arc<dyn Engine> = Arc::new(Cpu::with_threads(1));
    let layer = Fusion::with_mode(engine.clone(), Mode::On);
    let memory = engine.memory().unwrap();
    let sum = |dtype: DType| {
        memory.reset_peak();
        let before = memory.usage().live_bytes;
        let ones = Var::full(&layer, TensorType::new([1 << 12, 1 << 10], dtype), Scalar::Int(1));
        let total = ones.sum(&[0, 1]);
        drop(ones);
        let total = read(&layer, total.into_value())[0];
        (total, memory.usage().peak_live_bytes - before)
    };
    for dtype in [DType::F32, DType::BF16, DType::I64] {
        let (total, bytes) = sum(dtype);
        let is_small = dtype.is_float() || bytes < 1 << 16;
        assert!(total == f64::from(1 << 22) && is_small, "{dtype}: {total}, {bytes} bytes");
    }
}

/// Sums over empty axes are 0, and products are not folded.
#[test]
fn other_reductions_of_constants_are_not_folded() {
    let layer = layer();
    let empty = Var::full(&layer, TensorType::new([0, 3], DType::F32), Scalar::Float(2.0));
    assert_eq!(read(&layer, empty.sum(&[0]).into_value()), [0.0; 3]);
    let twos = Var::full(&layer, TensorType::new([10, 3], DType::F32), Scalar::Float(2.0));
    assert_eq!(read(&layer, twos.reduce(Reduction::Prod, &[0]).into_value()), [1024.0; 3]);
}
