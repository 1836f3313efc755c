//! Device transfers of tensors with their derivatives and errors.

use kiln_autodiff::no_grad;
use kiln_backends::{Device, Dyn, LowPrecision};
use kiln_ir::Engine;
use kiln_reference::Reference;
use kiln_tensor::transform::{grad, hessian, jacobian, jacobian_forward, jvp, vjp, vmap};
use kiln_tensor::{AnyTensor, Checkpointing, DType, Result, Stack, Tensor, TensorData, checkpoint};
use std::sync::Arc;

type X = Tensor<Dyn, 1>;

/// Devices of three engines: fused, eager, and the reference.
fn devices() -> [Device; 3] {
    [Device::cpu(), Device::flex(), Device::from_engine(Arc::new(Reference::new()), "reference")]
}

fn floats(numbers: &[f64], device: &Device) -> X {
    let data = TensorData::new(numbers.to_vec(), [numbers.len()]).expect("lengths agree");
    X::from_data_dtype(data, DType::F64, device)
}

fn numbers(data: impl Into<TensorData>) -> Vec<f64> {
    data.into().to_vec()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{found} instead of {expected}");
    }
}

/// The device with the layers of another.
fn layered(device: &Device, like: &X) -> Device {
    let stack: &Stack = device.as_ref();
    fn around(stack: &Stack, like: &Stack) -> Stack {
        let Some(below) = like.below() else { return stack.clone() };
        if like.outermost::<kiln_autodiff::Autodiff>().is_some() {
            return around(stack, below).with_autodiff(Checkpointing::None);
        }
        if like.outermost::<kiln_autodiff::Forward>().is_some() {
            return around(stack, below).with_forward();
        }
        if like.outermost::<kiln_vmap::Vmap>().is_some() {
            return around(stack, below).with_vmap();
        }
        around(stack, below)
    }
    Device::from(around(stack, like.engine_stack()))
}

/// A function that runs partly on other devices, if there are any.
fn wandering(x: X, others: &[Device]) -> X {
    let home = x.device();
    let mut y = x.clone().sin() * &x;
    for other in others {
        let moved = y.clone().to_device(&layered(other, &x));
        y = (moved.clone() * moved.exp()).to_device(&home) + &x;
    }
    let count = 2 - others.len();
    for _ in 0..count {
        y = y.clone() * y.exp() + &x;
    }
    y
}

const POINT: [f64; 3] = [0.3, -0.7, 1.1];

/// Each device, with the others.
fn tours() -> Vec<(Device, Vec<Device>)> {
    let [cpu, flex, reference] = devices();
    vec![
        (cpu.clone(), vec![flex.clone(), reference.clone()]),
        (flex.clone(), vec![reference.clone()]),
        (reference, vec![cpu, flex]),
    ]
}

#[test]
fn gradients_pass_through_device_transfers_and_back() {
    for (home, others) in tours() {
        let home = home.autodiff();
        let x = floats(&POINT, &home).require_grad();
        let plain = wandering(x.clone(), &[]).sum().backward();
        let expected = numbers(x.grad(&plain).expect("x takes part").into_data());
        let y = wandering(x.clone(), &others);
        assert!(y.is_tracked() && y.device() == home);
        let gradients = y.clone().sum().backward();
        let gradient = x.grad(&gradients).expect("x takes part");
        assert_eq!(gradient.device(), home.inner());
        close(&numbers(gradient.into_data()), &expected);
        // The tape is kept for another backward pass.
        let again = y.sum().backward();
        close(&numbers(x.grad(&again).expect("x takes part").into_data()), &expected);
    }
}

#[test]
fn leaves_have_gradients_on_their_own_devices() {
    let [cpu, flex] = [Device::cpu(), Device::flex()].map(|device| device.autodiff());
    let a = floats(&[1.0, 2.0], &cpu).require_grad();
    let b = floats(&[10.0, 20.0], &flex).require_grad();
    let there = a.clone().to_device(&flex);
    assert!(there.is_tracked() && !there.is_require_grad());
    let loss = (there * &b).sum();
    let mut gradients = loss.backward();
    for (leaf, expected) in [(&a, [10.0, 20.0]), (&b, [1.0, 2.0])] {
        let gradient = leaf.grad(&gradients).expect("it takes part");
        assert_eq!(gradient.device(), leaf.device().inner());
        assert_eq!(numbers((gradient * 1).into_data()), expected);
    }
    // Gradients are replaced and removed by leaf.
    let replaced = a.grad(&gradients).expect("it is there") * 2;
    a.grad_replace(&mut gradients, replaced);
    assert_eq!(numbers(a.grad_remove(&mut gradients).expect("it is there").into_data()), [20.0, 40.0]);
    assert!(a.grad(&gradients).is_none() && b.grad(&gradients).is_some());
}

#[test]
fn gradients_of_uses_on_two_devices_accumulate() {
    let [cpu, flex] = [Device::cpu(), Device::flex()].map(|device| device.autodiff());
    let x = floats(&[3.0], &cpu).require_grad();
    let there = x.clone().to_device(&flex);
    let y = (&x * &x) + (there.clone() * &there * &there).to_device(&cpu) + x.clone().to_device(&cpu);
    let gradients = y.sum().backward();
    assert_eq!(numbers(x.grad(&gradients).expect("it takes part").into_data()), [6.0 + 27.0 + 1.0]);
}

#[test]
fn second_derivatives_pass_through_transfers() {
    for (home, others) in tours() {
        let x = floats(&POINT, &home.autodiff().autodiff()).require_grad();
        // Also a leaf of the inner layer.
        let inner = x.clone().inner().require_grad();
        let x = X::from_inner(inner.clone()).require_grad();
        let second = |others: &[Device]| {
            let first = wandering(x.clone(), others).sum().backward();
            let first = x.grad(&first).expect("x takes part");
            let second = (&first * &first).sum().backward();
            numbers(inner.grad(&second).expect("x takes part").into_data())
        };
        close(&second(&others), &second(&[]));
        let plain = floats(&POINT, &home);
        let h = |others: Vec<Device>| -> Vec<f64> {
            let h: Tensor<Dyn, 2> = hessian(move |x: X| wandering(x, &others).sum())(plain.clone());
            numbers(h.into_data())
        };
        close(&h(others), &h(Vec::new()));
    }
}

#[test]
fn transforms_work_through_transfers() {
    for (home, others) in tours() {
        let x = floats(&POINT, &home);
        let direction = floats(&[1.0, -2.0, 0.5], &home);
        let both = |run: &dyn Fn(&[Device]) -> Vec<f64>| close(&run(&others), &run(&[]));
        both(&|others| numbers(grad(|x: X| wandering(x, others).sum())(x.clone()).into_data()));
        both(&|others| {
            let (y, change) = jvp(|x: X| wandering(x, others), x.clone(), direction.clone());
            [numbers(y.into_data()), numbers(change.into_data())].concat()
        });
        both(&|others| {
            let (_, pull) = vjp(|x: X| wandering(x, others), x.clone());
            numbers(pull(direction.clone()).into_data())
        });
        both(&|others| {
            let j: Tensor<Dyn, 2> = jacobian(|x: X| wandering(x, others))(x.clone());
            numbers(j.into_data())
        });
        both(&|others| {
            let j: Tensor<Dyn, 2> = jacobian_forward(|x: X| wandering(x, others))(x.clone());
            numbers(j.into_data())
        });
        both(&|others| {
            let rows: Tensor<Dyn, 2> = vmap(|x: X| wandering(x, others))(Tensor::<Dyn, 1>::stack::<2>(
                vec![x.clone(), direction.clone()],
                0,
            ));
            numbers(rows.into_data())
        });
        both(&|others| {
            let each = |x: X| grad(|x: X| wandering(x, others).sum())(x);
            let rows: Tensor<Dyn, 2> =
                vmap(each)(Tensor::<Dyn, 1>::stack::<2>(vec![x.clone(), direction.clone()], 0));
            numbers(rows.into_data())
        });
    }
}

#[test]
fn examples_of_a_batch_draw_different_randoms_after_a_transfer() {
    let draw = |x: X| {
        let there = x.clone().to_device(&layered(&Device::flex(), &x));
        let noise = X::random([3], kiln_tensor::Distribution::Default, &there.device());
        (there + noise).to_device(&x.device())
    };
    let rows: Tensor<Dyn, 2> = vmap(draw)(Tensor::<Dyn, 2>::zeros([2, 3], &Device::cpu()));
    let drawn = numbers(rows.into_data());
    assert_ne!(drawn[..3], drawn[3..]);
}

#[test]
fn checkpointed_blocks_with_transfers_are_recomputed() {
    for (home, others) in tours() {
        let x = floats(&POINT, &home.autodiff()).require_grad();
        let gradient = |others: Vec<Device>| {
            let y = checkpoint(move |x: X| wandering(x, &others), x.clone());
            numbers(x.grad(&y.sum().backward()).expect("x takes part").into_data())
        };
        close(&gradient(others), &gradient(Vec::new()));
        let frugal = Device::from(home.as_ref().with_autodiff(Checkpointing::Balanced));
        let x = floats(&POINT, &frugal).require_grad();
        let expected =
            numbers(x.grad(&wandering(x.clone(), &[]).sum().backward()).expect("it does").into_data());
        let found = wandering(x.clone(), &[Device::flex_with_threads(2)]).sum().backward();
        close(&numbers(x.grad(&found).expect("it does").into_data()), &expected);
    }
}

#[test]
fn transfers_between_mixed_and_full_precision() {
    let low = Device::flex().autocast(LowPrecision::BF16).autodiff();
    let full = Device::cpu().autodiff();
    let x = X::from_floats([1.5, -2.0], &full).require_grad();
    let w = Tensor::<Dyn, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &low).require_grad();
    let y = x.clone().to_device(&low).unsqueeze::<2>().matmul(w.clone()).to_device(&full);
    assert_eq!(numbers(y.to_data()), [-4.5, -5.0]);
    let gradients = y.sum().backward();
    assert_eq!(numbers(x.grad(&gradients).expect("it takes part").into_data()), [3.0, 7.0]);
    assert_eq!(numbers(w.grad(&gradients).expect("it takes part").into_data()), [1.5, 1.5, -2.0, -2.0]);
}

#[test]
fn transfers_inside_no_grad_are_untracked() {
    let [cpu, flex] = [Device::cpu(), Device::flex()].map(|device| device.autodiff());
    let x = floats(&[1.0, 2.0], &cpu).require_grad();
    let moved = no_grad(|| x.clone().to_device(&flex));
    assert!(!moved.is_tracked());
    assert_eq!(numbers(moved.into_data()), [1.0, 2.0]);
    assert!(!x.clone().detach().to_device(&flex).is_tracked());
    // An inner gradient has its own tape, also across a transfer.
    let cube = |x: X| {
        let home = x.device();
        let there = layered(&Device::flex(), &x);
        ((&x * &x).to_device(&there).to_device(&home) * &x).sum()
    };
    let slope = no_grad(|| grad(cube)(floats(&[2.0], &Device::cpu())));
    assert_eq!(numbers(slope.into_data()), [12.0]);
}

#[test]
fn an_error_is_transferred_as_poison() -> Result<()> {
    let [cpu, flex] = [Device::cpu(), Device::flex()].map(|device| device.autodiff());
    let x = floats(&[1.0, 2.0], &cpu).require_grad();
    let index = Tensor::<Dyn, 1, kiln_tensor::Int>::from_ints([5], &cpu);
    let broken = x.clone().select(0, index);
    let expected = broken.clone().try_into_data().expect_err("the index is out of range");
    let moved = broken.try_to_device(&flex)?;
    assert_eq!(moved.device(), flex);
    let back = (moved * 2).try_to_device(&cpu)?;
    assert_eq!(back.try_into_data().expect_err("the error came along").to_string(), expected.to_string());
    // The same for untracked tensors.
    let moved = x.inner().select(0, Tensor::from_ints([7], &Device::cpu())).to_device(&Device::flex());
    assert!(moved.try_into_data().expect_err("the index is out of range").to_string().contains('7'));
    Ok(())
}

#[test]
fn transfers_within_one_engine_do_not_copy() -> Result<()> {
    let plain = Device::flex();
    let x = floats(&[1.0, 2.0], &plain).into_any();
    let there = x.clone().to_stack(plain.autodiff().as_ref())?;
    assert!(there.value().same(x.value()), "the same value");
    let leaf = there.require_grad()?;
    // Back to the inner stack, without a tape.
    let back = leaf.detach().to_stack(plain.as_ref())?;
    assert!(back.value().same(x.value()));
    // With fusion, pending ops stay pending between stacks of one layer.
    let fused = Device::cpu();
    let waits = floats(&[1.0, 2.0], &fused).mul_scalar(2).into_any();
    let there = waits.clone().to_stack(fused.autodiff().as_ref())?;
    assert!(there.value().same(waits.value()));
    assert_eq!(numbers(there.into_data()?), [2.0, 4.0]);
    // Two layers of one kind around one engine are one layer.
    let balanced: &Stack = &plain.as_ref().with_autodiff(Checkpointing::Balanced);
    let x = floats(&[3.0], &plain.autodiff()).require_grad();
    let there = x.as_any().clone().to_stack(balanced)?;
    assert!(there.value().same(x.as_any().value()));
    Ok(())
}

#[test]
fn a_transfer_that_would_drop_a_derivative_is_an_error() {
    let error = |tensor: AnyTensor, device: &Device| {
        tensor.to_device(device).expect_err("it has no place").to_string()
    };
    let flex = Device::flex();
    let x = floats(&[1.0], &Device::cpu().autodiff()).require_grad();
    let message = error(x.clone().into_any(), &flex);
    assert!(message.starts_with("[to_device] the gradient would not follow f64[1] to flex"), "{message}");
    // One autodiff layer cannot receive gradients of two.
    let twice = floats(&[1.0], &Device::cpu().autodiff().autodiff());
    let lower = X::from_inner(twice.inner().require_grad());
    assert!(error(lower.into_any(), &flex.autodiff()).contains("the gradient would not follow"));
    let moving = jvp(
        |x: X| {
            assert!(error(x.clone().into_any(), &flex).contains("the tangent would not follow"));
            x
        },
        floats(&[1.0], &Device::cpu()),
        floats(&[1.0], &Device::cpu()),
    );
    drop(moving);
    let one = |x: X| {
        assert!(error(x.clone().into_any(), &flex).contains("the batch of examples would not follow"));
        x
    };
    let _: Tensor<Dyn, 2> = vmap(one)(floats(&[1.0], &Device::cpu()).unsqueeze::<2>());
}

#[test]
fn batched_gradients_that_cannot_be_transferred_are_an_error() {
    let [a, b] = [0, 1].map(|_| {
        let engine: Arc<dyn Engine> = Arc::new(Reference::new());
        kiln_autodiff::Autodiff::new(engine, Checkpointing::None)
    });
    let leaf = a.require_grad(a.write([1.0f64, 2.0].into()));
    let there = b.import(&a, leaf.clone());
    assert!(b.is_tracked(&there) && b.leaf_id(&there).is_none());
    let batch = kiln_vmap::Vmap::new(b.inner().clone());
    let seeds = || batch.batch(b.inner().write([[1.0f64, 0.0], [0.0, 1.0]].into()), 0);
    let error = b.pull_back(&batch, vec![(there.clone(), seeds())]).expect_err("it cannot cross").to_string();
    assert!(error.contains("a layer around `reference` cannot flow to `reference`"), "{error}");
    let around =
        |engine: &Arc<dyn Engine>| -> Arc<dyn Engine> { Arc::new(kiln_vmap::Vmap::new(engine.clone())) };
    let found = b.pull_back_around(&around, vec![(there, seeds())]).expect("it crosses");
    let gradient = found.get(&leaf).expect("it takes part");
    let rows = kiln_vmap::Vmap::new(a.inner().clone()).unbatch(&gradient, 2, 0);
    let data = kiln_ir::block_on(a.inner().read(rows)).expect("it is there");
    assert_eq!(numbers(data), [1.0, 0.0, 0.0, 1.0]);
}
