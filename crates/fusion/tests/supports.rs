//! Fused regions for engines that support only some ops.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{DType, Engine, Expand, Float8, Op, OpKind, OperandType, TensorData, Var, block_on};
use kiln_reference::Limited;
use std::sync::Arc;

/// The CPU engine without some ops, some of which it supports conditionally.
fn partial(without: &[OpKind], when_asked: bool) -> Arc<Limited> {
    let cpu = Arc::new(Cpu::with_threads(1));
    let native = cpu.caps().native.without(without);
    let asked = cpu.clone();
    let runs = move |op: &Op, operands: &[OperandType<'_>]| {
        when_asked && op.kind() != OpKind::Fused && asked.supports(op, operands)
    };
    Arc::new(Limited::new(cpu, native).with_condition(runs))
}

fn data() -> TensorData {
    TensorData::new((0..32u8).map(|i| f32::from(i) / 16.0 - 1.0).collect(), [4, 8]).unwrap()
}

/// Runs `exp(2x)`, its softmax, and the softmax plus 1, squared; returns the ops that reach the engine.
fn ran(engine: &Arc<Limited>) -> Vec<String> {
    let run = |engine: &dyn Engine| {
        let x = Var::new(engine, engine.write(data()));
        let y = ((&x * 2.0).exp().apply(Op::Softmax { axis: 1, log: false }, &[]) + 1.0).square();
        block_on(engine.read(y.into_value())).unwrap().to_vec::<f64>()
    };
    let expected = run(&Cpu::with_threads(1));
    let found = run(&Fusion::with_mode(Arc::new(Expand::around(engine.clone())), Mode::On));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
    assert!(expected.iter().zip(&found).all(near), "{found:?} instead of {expected:?}");
    engine.take_ran()
}

#[test]
fn regions_contain_only_unconditionally_supported_ops() {
    assert_eq!(ran(&partial(&[], false)).len(), 1);
    // A conditionally supported op is not part of a region.
    let ran_when_asked = ran(&partial(&[OpKind::Softmax], true));
    assert_eq!(ran_when_asked.len(), 3, "{ran_when_asked:?}");
    assert_eq!(ran_when_asked[1], "softmax");
    // An unsupported op is expanded, and its expansion fuses.
    let expanded = ran(&partial(&[OpKind::Softmax], false));
    assert!(expanded.len() == 1 && expanded[0].contains("reduce_max"), "{expanded:?}");
}

#[test]
fn an_engine_without_regions_gets_ops_one_by_one() {
    for kinds in [&[OpKind::Fused][..], &[OpKind::Fused, OpKind::Softmax, OpKind::MatMul, OpKind::Random]] {
        let ran = ran(&partial(kinds, false));
        assert!(ran.len() >= 5 && ran.iter().all(|op| !op.contains('+')), "{ran:?}");
    }
}

/// The expand layer supports every op, but fusion checks the ops of the inner engine.
#[test]
fn float8_matmuls_are_recorded_as_their_expansion() {
    let engine = partial(&[], false);
    let fusion = Fusion::with_mode(Arc::new(Expand::around(engine.clone())), Mode::On);
    let bytes = |shape: [usize; 2]| {
        let data = TensorData::new(vec![0x38u8; 64], shape).unwrap();
        Var::new(&fusion, fusion.write(data))
    };
    let one = Var::new(&fusion, fusion.write(TensorData::scalar(1.0f32)));
    let op = Op::MatMulFloat8 { formats: [Float8::E4M3; 2], dtype: DType::F32 };
    let y = bytes([4, 16]).apply(op, &[&bytes([16, 4]), &one, &one]);
    assert_eq!(block_on(fusion.read(y.into_value())).unwrap().to_vec::<f32>(), [16.0; 16]);
    assert!(fusion.statistics().ops_recorded > 1 && !engine.take_ran().contains(&"matmul_float8".to_owned()));
}
