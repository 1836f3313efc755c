//! Tensors that the tape saves, and when it frees them.

use crate::layer::counting::Counting;
use crate::layer::{gradient, layer, leaf, numbers, value};
use kiln_autodiff::{Autodiff, BlockFn, Checkpointing};
use kiln_ir::{Engine, Value, Var};
use std::sync::Arc;

#[test]
fn dropping_a_loss_frees_its_tape() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let a = leaf(&layer, &[1.0, 2.0]);
    let before = engine.live();
    let y = (a.exp() * a.sin()).tanh().square();
    assert!(engine.live() > before);
    drop(y);
    assert_eq!(engine.live(), before);
}

#[test]
fn backward_owned_frees_all_but_the_gradients() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let a = leaf(&layer, &[1.0, 2.0]);
    let before = engine.live();
    let y = (a.exp() * a.sin()).tanh().square().into_value();
    let gradients = layer.backward_owned(y, None).unwrap();
    assert_eq!(engine.live(), before + 16);
    drop(gradients);
    assert_eq!(engine.live(), before);
}

#[test]
fn memory_of_training_steps_is_constant() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let mut weight = layer.inner().write([0.3f64, -0.2].into());
    let before = engine.live();
    for _ in 0..1000 {
        let leaf = layer.require_grad(weight.clone());
        let loss = Var::new(&layer, leaf.clone()).square().sum(&[0]).into_value();
        let gradients = layer.backward(&loss, None).unwrap();
        let step = Var::new(&**layer.inner(), gradients.get(&leaf).unwrap()) * 0.01;
        weight = (Var::new(&**layer.inner(), weight) - step).into_value();
    }
    assert_eq!(engine.live(), before);
}

#[test]
fn long_tapes_are_freed_without_recursion() {
    let layer = layer();
    let a = leaf(&layer, &[1.0]);
    let mut y = a.clone();
    for _ in 0..200_000 {
        y = y + 1e-6;
    }
    let gradients = layer.backward(&value(&y), None).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [1.0]);
    drop(y);
    let mut y = a.clone();
    for _ in 0..200_000 {
        y = &y * 1.0;
    }
    assert!(layer.backward_owned(y.into_value(), None).is_ok());
}

/// Two matmuls with chains of cheap ops between them.
fn chain<'e>(a: &Var<'e>, b: &Var<'e>) -> Var<'e> {
    let hidden = a.matmul(b);
    let wave = (&hidden * 1.702).tanh().exp().sin() * &hidden;
    let mixed = (wave + 1.0).sqrt().cos();
    mixed.matmul(&mixed.exp()).sum(&[0, 1])
}

#[test]
fn balanced_checkpointing_saves_less_memory_with_the_same_gradients() {
    let run = |checkpointing| {
        let engine = Counting::new();
        let layer = Autodiff::new(engine.clone(), checkpointing);
        let [a, b] = [leaf(&layer, &[0.1, 0.2, 0.3, 0.4]), leaf(&layer, &[0.5, 0.1, -0.2, 0.3])];
        let before = engine.live();
        let y = chain(&a.reshape([2, 2]), &b.reshape([2, 2])).into_value();
        let kept = engine.live() - before;
        let gradients = layer.backward_owned(y, None).unwrap();
        let found = [gradient(&layer, &gradients, &a), gradient(&layer, &gradients, &b)];
        drop(gradients);
        assert_eq!(engine.live(), before, "nothing computed again stays");
        (kept, found)
    };
    let (all, expected) = run(Checkpointing::None);
    let (fewer, found) = run(Checkpointing::Balanced);
    assert_eq!(found, expected);
    assert!(fewer * 2 < all, "{fewer} bytes instead of {all}");
}

#[test]
fn balanced_checkpointing_of_long_chains() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::Balanced);
    let a = leaf(&layer, &[0.3]);
    let mut y = a.clone();
    for _ in 0..1000 {
        y = y.sin() + 0.1;
    }
    let kept = engine.live();
    let gradients = layer.backward(&value(&y), None).unwrap();
    assert!(kept < 1000 * 8 / 4, "{kept} bytes of 1000 elements");
    assert!(gradient(&layer, &gradients, &a)[0].is_finite());
}

fn block(
    layer: &Autodiff,
    body: impl for<'e> Fn(&'e Autodiff, Vec<Var<'e>>) -> Vec<Var<'e>> + Send + Sync + 'static,
) -> BlockFn {
    let layer = layer.clone();
    Arc::new(move |inputs: Vec<Value>| {
        let inputs = inputs.into_iter().map(|value| Var::new(&layer as &dyn Engine, value)).collect();
        body(&layer, inputs).into_iter().map(Var::into_value).collect()
    })
}

#[test]
fn a_checkpointed_block_saves_only_its_inputs() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let a = leaf(&layer, &[0.3, 0.4]);
    let body = block(&layer, |_, x| vec![x[0].exp().sin().tanh().cos()]);
    let before = engine.live();
    let y = layer.checkpoint(vec![value(&a)], body).remove(0);
    assert_eq!(engine.live() - before, 16, "the output alone");
    let gradients = layer.backward_owned(y, None).unwrap();
    let plain = layer.backward(&value(&a.exp().sin().tanh().cos()), None).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), gradient(&layer, &plain, &a));
}

#[test]
fn checkpointed_blocks_nest_capture_parameters_and_have_several_outputs() {
    let layer = layer();
    let (a, w) = (leaf(&layer, &[0.3, 0.4]), leaf(&layer, &[2.0, -1.0]));
    let captured = value(&w.square());
    let inner = {
        let captured = captured.clone();
        block(&layer, move |layer, x| vec![x[0].sin() * Var::new(layer, captured.clone())])
    };
    let outer = block(&layer, move |layer, x| {
        let nested = layer.checkpoint(vec![x[0].exp().into_value()], inner.clone()).remove(0);
        let nested = Var::new(layer, nested);
        vec![&nested + &x[1], x[0].clone(), nested.less(&x[1]), nested * 3.0]
    });
    let constant = layer.write([1.0f64, 1.0].into());
    let outputs = layer.checkpoint(vec![value(&a), constant.clone()], outer);
    assert!(!layer.is_tracked(&outputs[2]));
    let vars: Vec<Var<'_>> = outputs.into_iter().map(|value| Var::new(&layer, value)).collect();
    let y = value(&(&vars[0] * &vars[1] + &vars[3]));

    let nested = a.exp().sin() * w.square();
    let plain = (&nested + Var::new(&layer, constant)) * &a + &nested * 3.0;
    let expected = layer.backward(&value(&plain), None).unwrap();
    for _ in 0..2 {
        let found = layer.backward(&y, None).unwrap();
        for leaf in [&a, &w] {
            let pairs = gradient(&layer, &found, leaf).into_iter().zip(gradient(&layer, &expected, leaf));
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12));
        }
    }
}

#[test]
fn a_checkpointed_block_of_untracked_values_is_not_recorded() {
    let layer = layer();
    let x = layer.write([1.0f64].into());
    let y = layer.checkpoint(vec![x], block(&layer, |_, x| vec![x[0].exp()])).remove(0);
    assert!(!layer.is_tracked(&y));
    assert_eq!(numbers(&layer, y).len(), 1);
}

#[test]
fn a_checkpointed_block_is_recomputed_inside_no_grad() {
    let layer = layer();
    let a = leaf(&layer, &[0.3]);
    let y = layer.checkpoint(vec![value(&a)], block(&layer, |_, x| vec![x[0].exp()])).remove(0);
    let gradients = layer.no_grad(|| layer.backward(&y, None)).unwrap();
    assert_eq!(gradient(&layer, &gradients, &a), [0.3f64.exp()]);
}

#[test]
fn a_checkpointed_block_with_another_result_type_is_an_error() {
    let layer = layer();
    let a = leaf(&layer, &[0.3]);
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let body = block(&layer, move |_, x| {
        let again = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0;
        if again { vec![x[0].reshape([1, 1])] } else { vec![x[0].exp()] }
    });
    let y = layer.checkpoint(vec![value(&a)], body).remove(0);
    let error = layer.backward(&y, None).unwrap_err().to_string();
    assert!(error.starts_with("[checkpoint] returned"), "{error}");
}

#[test]
fn only_gradients_of_leaves_are_computed() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let a = leaf(&layer, &[0.3]);
    let x = Var::new(&layer, layer.write([2.0f64].into()));
    let y = value(&(&x * &a));
    let before = engine.executed();
    layer.backward(&y, None).unwrap();
    assert_eq!(engine.executed() - before, 2, "the seed and one product");
}
