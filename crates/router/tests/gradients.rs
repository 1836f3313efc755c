//! Automatic differentiation over a router: gradients cross members and come back to their leaves.

use kiln_autodiff::{Autodiff, Checkpointing, Forward};
use kiln_cpu::Cpu;
use kiln_fusion::Fusion;
use kiln_ir::{DType, Engine, TensorData, Unary, Value, Var, block_on, expanding};
use kiln_router::{Member, Router, TransferPolicy, Transfers};
use std::sync::Arc;

fn router() -> Arc<Router> {
    let cpu = || expanding(Arc::new(Cpu::with_threads(1)));
    Arc::new(Router::new([Member::new("flex", cpu()), Member::new("cpu", Arc::new(Fusion::new(cpu())))]))
}

fn tape(engine: Arc<dyn Engine>) -> Autodiff {
    Autodiff::new(engine, Checkpointing::None)
}

fn on(engine: &dyn Engine, data: impl Into<TensorData>, member: usize) -> Value {
    engine.to_device(engine.write(data.into()), member)
}

fn numbers(engine: &dyn Engine, value: &Value) -> Vec<f64> {
    block_on(engine.read(value.clone())).unwrap().to_vec()
}

fn gradient(layer: &Autodiff, root: &Value, leaf: &Value) -> Value {
    let gradients = layer.backward(root, None).unwrap();
    gradients.get_id(layer.leaf_id(leaf).unwrap()).unwrap()
}

#[test]
fn each_gradient_is_on_the_member_of_its_leaf() {
    let router = router();
    let layer = tape(expanding(router.clone()));
    let x = layer.require_grad(on(&layer, [1.0f64, 2.0], 0));
    let y = layer.require_grad(on(&layer, [3.0f64, 4.0], 1));
    let product = Var::new(&layer, x.clone()) * Var::new(&layer, y.clone());
    let root = product.unary(Unary::Exp).into_value();
    for (leaf, other, member) in [(&x, [3.0, 4.0], 0), (&y, [1.0, 2.0], 1)] {
        let found = gradient(&layer, &root, leaf);
        assert_eq!(router.device_of(&found), Some(member));
        let expected: Vec<f64> = other.iter().zip([3f64, 8.0]).map(|(x, p)| x * p.exp()).collect();
        for (found, expected) in numbers(&*router, &found).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9 * expected);
        }
    }
}

#[test]
fn moves_are_on_the_tape() {
    let router = router();
    // Nothing moves by itself, in the backward pass neither.
    router.set_policy(TransferPolicy::Explicit);
    let layer = tape(expanding(router.clone()));
    let x = layer.require_grad(on(&layer, [1.0f64, 2.0], 0));
    let there = layer.to_device(x.clone(), 1);
    assert!(layer.is_tracked(&there) && layer.leaf_id(&there).is_none());
    let root = Var::new(&layer, there).unary(Unary::Exp).into_value();
    let root = layer.to_device(root, 0);
    let root = (Var::new(&layer, root) * Var::new(&layer, x.clone())).into_value();
    let found = gradient(&layer, &root, &x);
    assert_eq!(router.device_of(&found), Some(0));
    let expected = [1.0, 2.0].map(|x: f64| x.exp() * (1.0 + x));
    for (found, expected) in numbers(&*router, &found).iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9);
    }
    assert_eq!(router.statistics().automatic, Transfers::default());
    assert_eq!(router.statistics().explicit.transfers, 4);
}

#[test]
fn a_move_to_the_same_member_is_the_same_leaf() {
    let router = router();
    let layer = tape(expanding(router.clone()));
    let x = layer.require_grad(on(&layer, [1.0f64], 1));
    let same = layer.to_device(x.clone(), 1);
    assert_eq!(layer.leaf_id(&same), layer.leaf_id(&x));
}

#[test]
fn second_order_crosses_members() {
    let router = router();
    let first = Arc::new(tape(expanding(router.clone())));
    let second = tape(first.clone());
    // f(x) = x³ in parts on both members: the second derivative is 6 x.
    let x0 = first.require_grad(on(&*first, [2.0f64], 0));
    let x = second.require_grad(x0.clone());
    let moved = Var::new(&second, second.to_device(x.clone(), 1));
    let root = (&moved * &moved) * Var::new(&second, x.clone());
    let gradient = gradient(&second, &root.into_value(), &x);
    assert_eq!(router.device_of(&first.inner_value(&gradient)), Some(0));
    assert_eq!(numbers(&*first, &gradient), [12.0]);
    let found = first.backward(&gradient, None).unwrap();
    let found = found.get_id(first.leaf_id(&x0).unwrap()).unwrap();
    assert_eq!((router.device_of(&found), numbers(&*router, &found)), (Some(0), vec![12.0]));
}

#[test]
fn tangents_move_along() {
    let router = router();
    router.set_policy(TransferPolicy::Explicit);
    let layer = Forward::new(expanding(router.clone()));
    let x = layer.dual(on(&*router, [2.0f64], 0), on(&*router, [1.0f64], 0));
    let there = Var::new(&layer, layer.to_device(x, 1));
    let y = (&there * &there).into_value();
    assert_eq!(numbers(&*router, &layer.tangent(&y).unwrap()), [4.0]);
}

#[test]
fn errors_cross_a_move_in_both_passes() {
    let router = router();
    let layer = tape(expanding(router.clone()));
    let x = layer.require_grad(on(&layer, [1.0f64, 2.0], 0));
    let index = Var::new(&layer, on(&layer, [9i32], 0));
    let taken = Var::new(&layer, x).take(0, &index).into_value();
    let root = layer.to_device(taken, 1);
    assert!(layer.backward(&root, None).unwrap_err().to_string().contains('9'));
    assert_eq!(root.dtype(), DType::F64);
}
