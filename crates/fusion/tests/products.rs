//! Epilogues of matmuls and convolutions, and dequantization of weights, as one region. Values match the inner engine.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode, Plan};
use kiln_ir::{
    Binary, ConvPass, ConvSpec, DType, Engine, Machine, Op, Pattern, Products, QuantizedMatMul, Recorder,
    TensorData, TensorType, Value, Var, block_on,
};
use std::sync::Arc;

fn numbers(shape: &[usize], seed: u32) -> TensorData {
    let element =
        |i: usize| ((i as u32).wrapping_mul(2654435761).wrapping_add(seed * 977) % 1000) as f32 / 500.0 - 1.0;
    TensorData::new((0..shape.iter().product()).map(element).collect(), shape).unwrap()
}

fn write<'e>(engine: &'e dyn Engine, shape: &[usize], seed: u32) -> Var<'e> {
    Var::new(engine, engine.write(numbers(shape, seed)))
}

fn read(engine: &dyn Engine, value: Value) -> Vec<f32> {
    block_on(engine.read(value)).unwrap().convert(DType::F32).into_vec().unwrap()
}

/// Runs a body on the plain engine and through the layer, with each instruction set, and compares.
fn same(body: impl for<'e> Fn(&'e dyn Engine) -> Vec<Var<'e>>) {
    same_within(2e-4, body);
}

fn same_within(tolerance: f32, body: impl for<'e> Fn(&'e dyn Engine) -> Vec<Var<'e>>) {
    let plain = Cpu::with_threads(1);
    let expected: Vec<Vec<f32>> = body(&plain).into_iter().map(|y| read(&plain, y.into_value())).collect();
    for name in ["scalar", "avx2", "avx512"] {
        let Some(cpu) = Cpu::with_threads(2).with_instructions(name) else { continue };
        let layer = Fusion::with_mode(Arc::new(cpu), Mode::On);
        let values: Vec<Value> = body(&layer).into_iter().map(Var::into_value).collect();
        for (value, expected) in values.into_iter().zip(&expected) {
            let found = read(&layer, value);
            assert_eq!(found.len(), expected.len());
            for (i, (a, b)) in found.iter().zip(expected).enumerate() {
                let close =
                    (a - b).abs() <= tolerance * (1.0 + b.abs()) || a == b || (a.is_nan() && b.is_nan());
                assert!(close, "{name}, element {i}: {a} != {b}");
            }
        }
    }
}

/// `tanh(y + bias) * y + residual`, and a cast of an intermediate.
fn rest<'e>(engine: &'e dyn Engine, y: &Var<'e>, bias: &[usize]) -> Vec<Var<'e>> {
    let shape = y.shape();
    let bias = write(engine, bias, 5).cast(y.dtype()).broadcast(shape);
    let shifted = y + &bias;
    let residual = write(engine, &shape, 6).cast(y.dtype());
    vec![shifted.tanh() * y + residual, shifted.cast(DType::F64)]
}

#[test]
fn epilogues_of_matmuls_are_fused() {
    for [m, k, n] in
        [[1, 1, 1], [1, 300, 500], [5, 70, 1000], [30, 40, 33], [130, 64, 300], [200, 700, 16], [300, 9, 1]]
    {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            // Sums in another order may differ in the last place.
            let tolerance = if dtype == DType::BF16 { 0.02 } else { 2e-4 };
            same_within(tolerance, |engine| {
                let (a, b) = (write(engine, &[m, k], 1).cast(dtype), write(engine, &[k, n], 2).cast(dtype));
                rest(engine, &a.matmul(&b), &[1, n])
            });
        }
        // A bias for each row, and one for all.
        same(|engine| {
            let y = write(engine, &[k, m], 1).transpose().matmul(&write(engine, &[k, n], 2));
            [rest(engine, &y, &[m, 1]), rest(engine, &y, &[1, 1])].concat()
        });
    }
}

/// Larger than the caches, so that the second pass streams.
#[test]
fn epilogues_of_large_matmuls_are_fused() {
    for ([m, n], dtype) in
        [([2100, 1030], DType::F32), ([1, 2_100_000], DType::F32), ([4200, 1030], DType::BF16)]
    {
        let tolerance = if dtype == DType::BF16 { 0.02 } else { 2e-4 };
        same_within(tolerance, |engine| {
            let (a, b) = (write(engine, &[m, 7], 1).cast(dtype), write(engine, &[7, n], 2).cast(dtype));
            let bias = write(engine, &[1, n], 3).cast(dtype).broadcast([m, n]);
            let y = &a.matmul(&b) + &bias;
            vec![y.apply(Op::Binary(Binary::Max), &[&bias])]
        });
    }
    // A batch, and a bias for each row.
    same(|engine| {
        let y = write(engine, &[3, 700, 20], 1).matmul(&write(engine, &[3, 20, 1030], 2));
        vec![&y + &write(engine, &[1, 700, 1], 3).broadcast(y.shape())]
    });
}

#[test]
fn epilogues_of_batched_matmuls_are_fused() {
    for [batch, m, k, n] in [[3, 5, 6, 7], [40, 12, 64, 30], [2, 150, 80, 70]] {
        same(|engine| {
            let (a, b) = (write(engine, &[batch, m, k], 1), write(engine, &[batch, k, n], 2));
            rest(engine, &a.matmul(&b), &[1, 1, n])
        });
        // Shared weights, and heads that are split after the matmul.
        same(|engine| {
            let b = write(engine, &[1, k, n], 2).broadcast([batch, k, n]);
            let y = write(engine, &[batch, m, k], 1).matmul(&b);
            let y = rest(engine, &y, &[1, m, 1]).remove(0);
            vec![y.reshape([batch * m, n]).permute(&[1, 0]).exp(), y]
        });
    }
}

#[test]
fn the_epilogue_of_a_convolution_is_one_kernel() {
    /// Lengths of operand and weights; stride, padding, groups.
    type Sizes = (&'static [usize], &'static [usize], usize, usize, usize);
    let cases: [Sizes; 8] = [
        (&[2, 16, 20, 19], &[24, 16, 3, 3], 1, 1, 1),
        (&[1, 3, 40, 41], &[20, 3, 7, 7], 2, 3, 1),
        (&[2, 40, 12, 13], &[33, 40, 1, 1], 1, 0, 1),
        (&[2, 24, 19, 18], &[24, 1, 3, 3], 1, 1, 24),
        (&[1, 20, 30, 40], &[20, 1, 3, 3], 1, 1, 20),
        (&[3, 16, 10, 11], &[32, 1, 5, 5], 1, 2, 16),
        (&[9, 20, 1, 1], &[40, 20, 1, 1], 1, 0, 1),
        (&[1, 6, 7, 112], &[9, 6, 3, 3], 1, 1, 1),
    ];
    for (x, w, stride, padding, groups) in cases {
        let spec = ConvSpec {
            stride: vec![stride; 2],
            padding: vec![(padding, padding); 2],
            dilation: vec![1; 2],
            groups,
        };
        let op = Op::Conv { spec, pass: ConvPass::Forward };
        let channels = [1, w[0], 1, 1];
        same(|engine| {
            let y = write(engine, x, 1).apply(op.clone(), &[&write(engine, w, 2)]);
            rest(engine, &y, &channels)
        });
        // A nonfinite element makes the fast algorithms restart.
        same(|engine| {
            let x = (write(engine, x, 1) * 100_000.0 - 98_000.0).exp();
            let y = x.apply(op.clone(), &[&write(engine, w, 2)]);
            vec![
                (&y + &write(engine, &channels, 3).broadcast(y.shape()))
                    .apply(Op::Binary(Binary::Max), &[&y]),
            ]
        });
    }
}

/// `[k, n]` weights of an integer dtype, with blocks of a size.
fn weights<'e>(
    engine: &'e dyn Engine,
    [k, n]: [usize; 2],
    block: [usize; 2],
    dtype: DType,
    zero: bool,
) -> Var<'e> {
    let q = (write(engine, &[k, n], 1) * 100.0 + if dtype == DType::U8 { 120.0 } else { 0.0 }).cast(dtype);
    let shape = [k / block[0], n / block[1]];
    let scale = write(engine, &shape, 2) * 0.01 + 0.02;
    if zero {
        let zero = (write(engine, &shape, 3) * 4.0 + 5.0).cast(dtype);
        return q.apply(Op::Dequantize, &[&scale, &zero]);
    }
    q.apply(Op::Dequantize, &[&scale])
}

#[test]
fn quantized_weights_are_multiplied_as_integers() {
    for dtype in [DType::I8, DType::U8] {
        for (m, [k, n], block) in [
            (1, [64, 48], [64, 48]),
            (1, [130, 1100], [130, 1]),
            (2, [96, 70], [32, 1]),
            (3, [96, 70], [1, 70]),
            (40, [96, 66], [16, 2]),
            (1, [7, 5], [7, 1]),
        ] {
            for zero in [false, true] {
                same(|engine| {
                    let w = weights(engine, [k, n], block, dtype, zero);
                    let y = write(engine, &[m, k], 4).matmul(&w);
                    rest(engine, &y, &[1, n])
                });
                // Weights `[n, k]`, without an epilogue.
                same(|engine| {
                    let w = weights(engine, [n, k], [block[1], block[0]], dtype, zero).transpose();
                    vec![write(engine, &[m, k], 4).matmul(&w)]
                });
                // A batch that shares them.
                same(|engine| {
                    let w =
                        weights(engine, [k, n], block, dtype, zero).reshape([1, k, n]).broadcast([3, k, n]);
                    vec![write(engine, &[3, m, k], 4).matmul(&w)]
                });
            }
        }
    }
}

#[test]
fn dequantized_weights_with_other_users_are_stored() {
    same(|engine| {
        let w = weights(engine, [40, 30], [40, 1], DType::I8, false);
        vec![write(engine, &[2, 40], 4).matmul(&w), w * 2.0]
    });
    same(|engine| {
        let w = weights(engine, [30, 30], [30, 1], DType::I8, false);
        vec![w.matmul(&w)]
    });
}

#[test]
fn dequantization_is_fused_into_the_matmul() {
    let types = [
        TensorType::new([1, 64], DType::F32),
        TensorType::new([64, 32], DType::I8),
        TensorType::new([1, 32], DType::F32),
    ];
    let program = Recorder::trace(&types, |inputs| {
        let w = inputs[1].apply(Op::Dequantize, &[&inputs[2]]);
        vec![inputs[0].matmul(&w)]
    });
    let plan = Plan::of_program(&program);
    assert_eq!(plan.steps().len(), 1, "{plan:?}");
    let Op::Fused(region) = plan.steps()[0].op() else { panic!("{plan:?}") };
    let pattern = QuantizedMatMul { product: 4, x: 2, dequantized: 3, values: 0, scale: 1, zero: None };
    assert_eq!(*region.pattern(), Pattern::QuantizedMatMul(pattern));
}

/// The kernel reads integers, also for derived plans: executed op by op, the engine would compile no region.
#[test]
fn quantized_weights_are_not_materialized() {
    let cpu = Arc::new(Cpu::with_threads(1));
    let layer = Fusion::with_mode(cpu.clone(), Mode::On);
    for (count, m) in [(1, 50), (2, 51), (3, 52)] {
        let q = Var::new(&layer, layer.write(numbers(&[70, 96], 1).convert(DType::I8)));
        let w = q.apply(Op::Dequantize, &[&write(&layer, &[70, 3], 2)]).transpose();
        let y = write(&layer, &[m, 96], 4).matmul(&w).into_value();
        drop((q, w));
        drop(read(&layer, y));
        assert_eq!(cpu.compiled_regions(), count, "{m} rows");
        assert_eq!(layer.statistics().plans_derived, count as u64 - 1, "{m} rows");
    }
}

#[test]
fn batched_quantized_weights_have_shared_or_own_scales() {
    for scales in [[1, 1, 1], [1, 1, 5], [1, 4, 5], [2, 1, 5], [4, 1, 1], [4, 2, 5]] {
        for zero in [false, true] {
            same(|engine| {
                let q = (write(engine, &[4, 8, 5], 1) * 100.0).cast(DType::I8);
                let scale = write(engine, &scales, 2) * 0.01 + 0.02;
                let zero = zero.then(|| (write(engine, &scales, 3) * 4.0).cast(DType::I8));
                let parts: Vec<&Var<'_>> = [&scale].into_iter().chain(&zero).collect();
                vec![write(engine, &[4, 3, 8], 4).matmul(&q.apply(Op::Dequantize, &parts))]
            });
        }
    }
}

/// Fusion over an engine without fused epilogues.
fn apart() -> Fusion {
    let products = Products::Library { epilogues: false };
    let machine = Machine { products, row_elements: 1 << 14, ..Machine::processor() };
    Changed::new(Cpu::with_threads(1)).with_machine(machine).fused()
}

/// On such an engine, ops after a matmul fuse into other kernels: here, into the sum along its rows.
#[test]
fn matmuls_without_fused_epilogues_are_separate_steps() {
    let plain = Cpu::with_threads(1);
    let run = |engine: &dyn Engine| {
        let y = write(engine, &[40, 30], 1).matmul(&write(engine, &[30, 50], 2));
        let shifted = y + write(engine, &[50], 3).broadcast([40, 50]);
        read(engine, shifted.tanh().sum(&[1]).into_value())
    };
    let layer = apart();
    let (expected, found) = (run(&plain), run(&layer));
    assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-3), "{expected:?} {found:?}");
    let statistics = layer.statistics();
    assert_eq!((statistics.regions_run, statistics.ops_fused >= 3), (1, true), "{statistics:?}");
}

/// Few rows above the length limit are summed by one kernel, whose threads may share a row, and combined with the sums
/// by another; many rows are one kernel.
#[test]
fn long_rows_end_a_region_unless_rows_are_many() {
    let plain = Cpu::with_threads(1);
    let run = |engine: &dyn Engine, shape: [usize; 2]| {
        let x = write(engine, &shape, 1).tanh();
        let sum = x.clone().sum(&[1]).broadcast(shape);
        read(engine, (x - sum).into_value())
    };
    for (shape, regions) in [([30, 20_000], 2), ([64, 16_400], 1), ([63, 16_400], 2)] {
        let layer = apart();
        let (expected, found) = (run(&plain, shape), run(&layer, shape));
        assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-3), "{shape:?}");
        assert_eq!(layer.statistics().regions_run, regions, "{shape:?}");
    }
}
