//! The layer's behaviour: ownership of the tape, threads, memory, errors.

mod counting;
mod custom;
mod kinks;
mod memory;
mod parts;

use counting::Counting;
use kiln_autodiff::{Autodiff, Checkpointing, Gradients};
use kiln_ir::{DType, Engine, ErrorKind, Op, Operand, TensorData, TensorType, Value, Var, block_on};
use std::sync::Arc;

pub(crate) fn layer() -> Autodiff {
    Autodiff::new(kiln_ir::expanding(Counting::new()), Checkpointing::None)
}

pub(crate) fn leaf<'e>(layer: &'e Autodiff, elements: &[f64]) -> Var<'e> {
    let data = TensorData::new(elements.to_vec(), [elements.len()]).expect("a vector");
    Var::new(layer, layer.require_grad(layer.write(data)))
}

pub(crate) fn value(var: &Var<'_>) -> Value {
    var.clone().into_value()
}

pub(crate) fn numbers(engine: &dyn Engine, value: Value) -> Vec<f64> {
    block_on(engine.read(value)).expect("readable").to_vec()
}

pub(crate) fn gradient(layer: &Autodiff, gradients: &Gradients, leaf: &Var<'_>) -> Vec<f64> {
    numbers(&**layer.inner(), gradients.get(&value(leaf)).expect("a gradient"))
}

#[test]
fn gradients_of_an_expression() {
    let layer = layer();
    let (a, b) = (leaf(&layer, &[1.0, 2.0]), leaf(&layer, &[3.0, -1.0]));
    let y = (&a * &b + &a).sum(&[0]);
    let gradients = layer.backward(&value(&y), None).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [4.0, 0.0]);
    assert_eq!(gradient(&layer, &gradients, &b), [1.0, 2.0]);
    assert_eq!(gradients.len(), 2);
    assert!(gradients.get(&value(&y)).is_none(), "only leaves have gradients");
}

#[test]
fn repeated_and_owned_backward_passes_agree() {
    let layer = layer();
    let a = leaf(&layer, &[0.5, 2.0]);
    let y = value(&(a.exp() * &a));
    let first = layer.backward(&y, None).unwrap();
    let second = layer.backward(&y, None).unwrap();
    let owned = layer.backward_owned(y, None).unwrap();
    let expected = gradient(&layer, &first, &a);
    assert_eq!(gradient(&layer, &second, &a), expected);
    assert_eq!(gradient(&layer, &owned, &a), expected);
}

#[test]
fn the_seed_is_the_gradient_of_the_root() {
    let layer = layer();
    let a = leaf(&layer, &[1.0, 2.0]);
    let y = value(&a.square());
    let seed = layer.inner().write([10.0f64, 100.0].into());
    let gradients = layer.backward(&y, Some(seed)).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [20.0, 400.0]);
    let wrong = layer.inner().write([1.0f32, 1.0].into());
    let error = layer.backward(&y, Some(wrong)).unwrap_err().to_string();
    assert!(error.starts_with("[backward] a seed of f32[2] for a root of f64[2]"), "{error}");
}

#[test]
fn backward_of_a_leaf_returns_ones() {
    let layer = layer();
    let a = leaf(&layer, &[1.0, 2.0]);
    let gradients = layer.backward(&value(&a), None).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [1.0, 1.0]);
    assert_eq!(layer.leaf_id(&value(&a)), gradients.ids().next());
    assert_eq!(layer.leaf_id(&value(&a.exp())), None);
}

#[test]
fn untracked_values_are_the_inner_engines_values() {
    let layer = layer();
    let x = layer.write([1.0f64, 2.0].into());
    let y = value(&Var::new(&layer, x).exp());
    assert!(!layer.is_tracked(&y));
    assert!(layer.inner_value(&y).same(&y));
    let error = layer.backward(&y, None).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Gradient { .. }));
    assert!(error.to_string().contains("hint: call `require_grad`"), "{error}");
}

#[test]
fn detaching_stops_the_gradient() {
    let layer = layer();
    let a = leaf(&layer, &[2.0]);
    let stopped = Var::new(&layer, layer.detach(value(&a.square())));
    let gradients = layer.backward(&value(&(&a * stopped)), None).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [4.0]);
}

#[test]
fn integers_and_comparisons_are_untracked() {
    let layer = layer();
    let a = leaf(&layer, &[2.0, -1.0]);
    assert!(!layer.is_tracked(&value(&a.less(&a.scalar(0.0)))));
    assert!(!layer.is_tracked(&value(&a.cast(DType::I32))));
    let int = layer.require_grad(layer.write([1i32].into()));
    assert!(int.error().expect("poisoned").to_string().contains("cast it to a float dtype"));
}

#[test]
fn an_undefined_gradient_is_an_error_of_backward() {
    let layer = layer();
    let a = leaf(&layer, &[2.0]);
    let bits = a.apply(Op::Bitcast(DType::I64), &[]).apply(Op::Bitcast(DType::F64), &[]);
    assert!(!layer.is_tracked(&value(&bits)), "an integer in between has no gradient to begin with");
    let y = a.apply(Op::Bitcast(DType::F64), &[]);
    let error = layer.backward(&value(&y), None).unwrap_err().to_string();
    assert!(error.starts_with("[bitcast] has no gradient\n  hint: "), "{error}");
}

#[test]
fn poison_propagates_to_backward() {
    let layer = layer();
    let a = leaf(&layer, &[2.0, 3.0]);
    let index = Var::new(&layer, layer.write([7i32].into()));
    let bad = value(&a.take(0, &index).exp());
    let error = block_on(layer.read(bad.clone())).unwrap_err();
    assert_eq!(layer.backward(&bad, None).unwrap_err(), error);
}

#[test]
fn no_grad_applies_to_its_scope_and_layer() {
    let layer = layer();
    let a = leaf(&layer, &[2.0]);
    let y = layer.no_grad(|| value(&a.square()));
    assert!(!layer.is_tracked(&y));
    assert!(layer.is_tracked(&value(&a.square())));
    let unwound =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| layer.no_grad(|| panic!("left early"))));
    assert!(unwound.is_err());
    assert!(layer.is_tracked(&value(&a.square())), "the scope closes when it is left by a panic");
}

#[test]
fn gradients_are_sent_between_threads_and_merged() {
    let layer = layer();
    let a = leaf(&layer, &[2.0]);
    let pass = |layer: &Autodiff| layer.backward(&value(&a.square()), None).unwrap();
    let (mut total, other) = (pass(&layer), pass(&layer));
    let other = std::thread::spawn(move || other).join().unwrap();
    total.merge(&**layer.inner(), other);
    assert_eq!(gradient(&layer, &total, &a), [8.0]);
    let id = layer.leaf_id(&value(&a)).unwrap();
    let taken = total.take(&value(&a)).unwrap();
    assert!(total.is_empty() && total.remove(id).is_none());
    assert!(total.insert(id, taken).is_none());
    assert_eq!(total.iter().count(), 1);
}

#[test]
fn independent_graphs_are_differentiated_on_many_threads() {
    let layer = layer();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let layer = &layer;
            scope.spawn(move || {
                for step in 0..50 {
                    let x = f64::from(thread * 50 + step);
                    let a = leaf(layer, &[x]);
                    let y = (a.square() * &a).sum(&[0]);
                    let gradients = layer.backward_owned(y.into_value(), None).unwrap();
                    assert_eq!(gradient(layer, &gradients, &a), [3.0 * x * x]);
                }
            });
        }
    });
}

#[test]
fn one_graph_is_differentiated_on_many_threads() {
    let layer = layer();
    let a = leaf(&layer, &[0.5, 1.5]);
    let shared = a.exp();
    let expected: Vec<f64> = [0.5f64, 1.5].iter().map(|x| 2.0 * (2.0 * x).exp()).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let gradients = layer.backward_owned(value(&shared.square()), None).unwrap();
                    for (found, expected) in gradient(&layer, &gradients, &a).iter().zip(&expected) {
                        assert!((found - expected).abs() < 1e-12);
                    }
                }
            });
        }
    });
}

#[test]
fn stacked_layers_compute_third_derivatives() {
    let base: Arc<dyn Engine> = Counting::new();
    let layers: Vec<Arc<Autodiff>> = (0..3).fold(Vec::new(), |mut layers: Vec<Arc<Autodiff>>, _| {
        let below = layers.last().map_or(base.clone(), |layer| layer.clone() as Arc<dyn Engine>);
        layers.push(Arc::new(Autodiff::new(below, Checkpointing::None)));
        layers
    });
    let leaves = layers.iter().fold(vec![base.write([0.7f64].into())], |mut leaves, layer| {
        leaves.push(layer.require_grad(leaves.last().expect("one").clone()));
        leaves
    });
    let x = Var::new(&*layers[2], leaves[3].clone());
    let mut y = (x.square().square() + x.sin()).into_value();
    let mut found = Vec::new();
    for order in (0..3).rev() {
        y = layers[order].backward(&y, None).unwrap().get(&leaves[order + 1]).unwrap();
        let data = if order == 0 { base.read(y.clone()) } else { layers[order - 1].read(y.clone()) };
        found.push(block_on(data).unwrap().to_vec::<f64>()[0]);
    }
    let x = 0.7f64;
    let expected = [4.0 * x.powi(3) + x.cos(), 12.0 * x.powi(2) - x.sin(), 24.0 * x - x.cos()];
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-10, "{found} instead of {expected}");
    }
}

#[test]
fn operands_without_other_owners_reach_the_inner_engine_unshared() {
    struct Sole(std::sync::atomic::AtomicUsize, kiln_reference::Reference);
    impl Engine for Sole {
        fn caps(&self) -> &kiln_ir::Caps {
            self.1.caps()
        }
        fn execute(&self, op: &Op, inputs: kiln_ir::Operands, results: &[TensorType]) -> kiln_ir::Values {
            let alone = inputs.iter().filter_map(Operand::value).filter(|value| value.is_unique()).count();
            self.0.fetch_add(alone, std::sync::atomic::Ordering::SeqCst);
            self.1.execute(op, inputs, results)
        }
        fn write(&self, data: TensorData) -> Value {
            self.1.write(data)
        }
        fn read(&self, value: Value) -> kiln_ir::BoxFuture<'_, kiln_ir::Result<TensorData>> {
            self.1.read(value)
        }
        fn below(&self) -> Option<&dyn Engine> {
            Some(&self.1)
        }
    }
    let engine = Arc::new(Sole(0.into(), kiln_reference::Reference::new()));
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let a = leaf(&layer, &[1.0]);
    let held = &a + &a;
    let before = engine.0.load(std::sync::atomic::Ordering::SeqCst);
    let _moved = held + 1.0;
    assert_eq!(engine.0.load(std::sync::atomic::Ordering::SeqCst) - before, 1);
    let squared = &a * 2.0;
    let before = engine.0.load(std::sync::atomic::Ordering::SeqCst);
    let _kept = squared.clone() * squared;
    assert_eq!(engine.0.load(std::sync::atomic::Ordering::SeqCst) - before, 0, "the tape holds them");
}
