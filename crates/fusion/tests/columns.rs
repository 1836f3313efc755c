//! Fusion of column reductions into kernels over the same rows, for engines that support it.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::Plan;
use kiln_ir::{
    DType, Engine, Machine, NormKind, Op, Real, Recorder, TensorData, TensorType, Var, block_on,
    gradient_program,
};

fn write<'e>(engine: &'e dyn Engine, shape: &[usize], seed: u32) -> Var<'e> {
    let element =
        |i: usize| ((i as u32).wrapping_mul(2654435761).wrapping_add(seed * 977) % 1000) as f32 / 500.0 - 1.0;
    let data = (0..shape.iter().product()).map(element).collect();
    Var::new(engine, engine.write(TensorData::new(data, shape).unwrap()))
}

/// A machine whose kernels combine values over rows as well as along them.
fn through() -> Machine {
    Machine { workgroup: 1024, subgroup: 32, exact_regions: false, ..Machine::processor() }
}

/// The number of executed regions. Checks that the values match the plain engine.
fn regions(body: impl for<'e> Fn(&'e dyn Engine) -> Vec<Var<'e>>) -> usize {
    let read = |engine: &dyn Engine, y: Var<'_>| -> Vec<f32> {
        block_on(engine.read(y.into_value())).unwrap().convert(DType::F32).into_vec().unwrap()
    };
    let plain = Cpu::with_threads(1);
    let expected: Vec<Vec<f32>> = body(&plain).into_iter().map(|y| read(&plain, y)).collect();
    let below = Changed::new(Cpu::with_threads(1)).with_machine(through());
    let layer = below.fused();
    let found: Vec<Vec<f32>> = body(&layer).into_iter().map(|y| read(&layer, y)).collect();
    for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
        assert_eq!(expected.len(), found.len());
        for (a, b) in expected.iter().zip(found) {
            assert!((a - b).abs() <= 1e-3 * (1.0 + b.abs()), "result {place}: {a} and {b}");
        }
    }
    layer.statistics().regions_run as usize
}

/// The gradients of a norm: gradients of weight and bias are column sums of values with row reductions.
#[test]
fn gradients_of_norms_are_one_kernel() {
    for (kind, operands) in [(NormKind::Layer, 3), (NormKind::Rms, 2)] {
        for shape in [&[4100, 24][..], &[4, 1025, 24], &[2, 300, 7, 5]] {
            let op = Op::Norm { kind, axes: 1, epsilon: Real(1e-5) };
            let row = &shape[shape.len() - 1..];
            let types = [shape, row, row].map(|shape| TensorType::new(shape, DType::F32));
            let norm = Recorder::trace(&types[..operands], |x| {
                vec![x[0].apply(op.clone(), &x[1..].iter().collect::<Vec<_>>())]
            });
            let program = gradient_program(&norm).unwrap();
            let count = regions(|engine| {
                let inputs = [write(engine, shape, 1), write(engine, row, 2), write(engine, row, 3)];
                let mut inputs: Vec<Var<'_>> = inputs.into_iter().take(operands).collect();
                inputs.extend(program.inputs[operands..].iter().map(|ty| write(engine, &ty.shape, 4)));
                let values = inputs.into_iter().map(Var::into_value).collect();
                program.run(engine, values).into_iter().map(|value| Var::new(engine, value)).collect()
            });
            assert_eq!(count, 1, "{shape:?}\n{program}");
        }
    }
}

/// Ops on the result of a column sum, such as an optimizer step, are part of its kernel.
#[test]
fn ops_after_a_column_sum_are_fused() {
    let count = regions(|engine| {
        let (g, x) = (write(engine, &[4096, 24], 1), write(engine, &[4096, 24], 2));
        let (old, moment) = (write(engine, &[24], 3), write(engine, &[24], 4));
        let y = &g * &x;
        let rows = &y - y.sum(&[1]).broadcast([4096, 24]);
        let bias = (&g * &g).sum(&[0]).reshape([24]);
        let moment = &moment + (bias - &moment) * 0.1;
        let new = old - &moment * 0.01;
        vec![rows, new, moment, x.sum(&[0])]
    });
    assert_eq!(count, 1);
}

/// A kernel cannot use a column sum that is complete only after all rows.
#[test]
fn column_sums_used_by_rows_are_a_separate_kernel() {
    let count = regions(|engine| {
        let x = write(engine, &[4096, 24], 1);
        let centred = &x - x.mean(&[0]).broadcast([4096, 24]);
        vec![&centred * centred.square().sum(&[1]).rsqrt().broadcast([4096, 24])]
    });
    assert_eq!(count, 2);
}

/// Few rows occupy few blocks, and long rows leave no registers.
#[test]
fn few_or_long_rows_have_a_separate_column_kernel() {
    for (shape, expected) in [([4095, 24], 2), ([5000, 40_000], 2), ([4096, 24], 1), ([5000, 4096], 1)] {
        let program = Recorder::trace(&[TensorType::new(shape, DType::F32)], |x| {
            let y = &x[0] * x[0].sum(&[1]).broadcast(shape);
            vec![y, (&x[0] * 2.0).sum(&[0])]
        });
        let plan = Plan::for_machine(&program, &through());
        assert_eq!(plan.steps().len(), expected, "{shape:?}\n{}", plan.describe_all());
    }
}
