//! A device of an engine with few ops: stacks expand the others.

use kiln_backends::{Device, Dyn, with_fusion};
use kiln_ir::{Collective, CollectiveKind, Expand, MINIMAL, Op, OpKind, Reduction, TensorData};
use kiln_reference::{Limited, Reference};
use kiln_tensor::{Int, Stack, Tensor, loss};
use std::sync::Arc;

/// The reference engine restricted to ops without an expansion, without collectives.
fn few() -> Arc<Limited> {
    let native = MINIMAL.without(&[OpKind::Collective]);
    Arc::new(Limited::new(Arc::new(Reference::new()), native).with_name("few"))
}

#[test]
fn a_device_of_an_engine_with_few_ops_trains() {
    let few = Device::from_engine(few(), "few");
    let fused = Device::from(with_fusion(few.as_ref()));
    let step = |device: &Device| {
        let x = Tensor::<Dyn, 2>::from_floats([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]], device);
        let w = Tensor::<Dyn, 2>::from_floats([[0.1, 0.2], [0.3, -0.4], [-0.5, 0.6]], device).require_grad();
        let labels = Tensor::<Dyn, 1, Int>::from_ints([1, 0], device);
        let loss = loss::cross_entropy(x.clone().matmul(w.clone()), labels, &Default::default());
        let gradient = w.grad(&loss.clone().backward()).expect("the loss depends on it");
        // A custom op, without a kernel here.
        let special = x.lgamma().into_data().to_vec::<f32>();
        (loss.into_scalar::<f32>(), gradient.into_data().to_vec::<f32>(), special)
    };
    let (expected, gradient, special) = step(&Device::cpu().autodiff());
    for device in [few, fused] {
        let found = step(&device.autodiff());
        assert!((found.0 - expected).abs() < 1e-5, "{} {expected}", found.0);
        let near = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4 || a == b || (a.is_nan() && b.is_nan()))
        };
        assert!(near(&found.1, &gradient) && near(&found.2, &special), "{found:?} {gradient:?} {special:?}");
    }
}

#[test]
fn stacks_find_the_engine_below_the_expand_layer() {
    let device = Device::from_engine(few(), "few");
    let stack: &Stack = device.as_ref();
    assert!(stack.outermost::<Limited>().is_some() && stack.find::<Limited>().is_some());
    assert!(stack.find::<Expand>().is_some() && stack.below().is_none());
    let fused = with_fusion(stack);
    assert!(fused.outermost::<Limited>().is_none() && fused.find::<Limited>().is_some());
    assert!(Device::flex().as_ref().outermost::<kiln_cpu::Cpu>().is_some());
    // A group of one rank needs no communication.
    let kind = CollectiveKind::AllReduce(Reduction::Sum);
    let op = |size| Op::Collective(Collective { kind, group: 0, rank: 0, size });
    for stack in [stack, &fused] {
        let x = stack.engine().write(TensorData::from([1.0f32, 2.0]));
        let run = |size| {
            let ty = [*x.ty()];
            let y = stack.engine().execute(&op(size), [x.clone().into()].into_iter().collect(), &ty);
            kiln_ir::block_on(stack.engine().read(y[0].clone()))
        };
        assert_eq!(run(1).unwrap(), TensorData::from([1.0f32, 2.0]));
        let error = run(2).unwrap_err().to_string();
        assert!(error.starts_with("[few] does not run `all_reduce`: the engine does not connect"), "{error}");
    }
}
