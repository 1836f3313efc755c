//! Steps on poisoned gradients change nothing, and their errors name the op, the step and the line.

use kiln_backends::{Device, Dyn};
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln_optim::{
    AdamWConfig, GradientClipping, LossScalerConfig, OptimError, Optimizer, OptimizerState, SgdConfig,
};
use kiln_reference::Reference;
use kiln_tensor::{Backend, Int, Tensor, TensorData, loss};
use std::sync::{Arc, Mutex};

const CLASSES: usize = 10;

#[derive(Debug, Module)]
struct Net {
    first: Linear<Dyn>,
    second: Linear<Dyn>,
}

/// Devices that no other tests use: the draws of those would change the weights.
fn devices() -> Vec<(&'static str, Device)> {
    let reference = Device::from_engine(Arc::new(Reference::new()), "reference");
    vec![
        ("cpu", Device::cpu_with_threads(2)),
        ("flex", Device::flex_with_threads(2)),
        ("reference", reference),
    ]
}

fn net(device: &Device) -> Net {
    // Tests of this file share them.
    static SEEDED: Mutex<()> = Mutex::new(());
    let _seeded = SEEDED.lock();
    let device = device.autodiff();
    Dyn::seed(&device, 7);
    Net { first: LinearConfig::new(4, 8).init(&device), second: LinearConfig::new(8, CLASSES).init(&device) }
}

/// Gradients of a loss that is never read.
fn gradients(net: &Net, device: &Device, labels: [i64; 4]) -> GradientsParams {
    match loss(net, device, labels).try_backward() {
        Ok(gradients) => GradientsParams::from_grads(gradients, net),
        // An eager engine returns the error here; instead, one gradient is multiplied by the poisoned loss.
        Err(_) => {
            let mut gradients = gradients(net, device, GOOD);
            let error = loss(net, device, labels).into_any().inner();
            let id = net.first.bias.as_ref().unwrap().id();
            let gradient = gradients.remove(id).unwrap();
            gradients.insert(id, gradient.mul(error).unwrap());
            gradients
        }
    }
}

fn loss(net: &Net, device: &Device, labels: [i64; 4]) -> Tensor<Dyn, 1> {
    let device = device.autodiff();
    let x = Tensor::<Dyn, 2>::from_floats(
        [[1.0, 2.0, 3.0, 4.0], [0.5, -1.0, 2.0, 0.0], [-1.0, 0.0, 1.0, 2.0], [0.1, 0.2, 0.3, 0.4]],
        &device,
    );
    let labels = Tensor::<Dyn, 1, Int>::from_data(TensorData::from(labels), &device);
    let logits = net.second.forward(net.first.forward(x).tanh());
    loss::cross_entropy(logits, labels, &Default::default())
}

const GOOD: [i64; 4] = [1, 2, 3, 9];
const BAD: [i64; 4] = [1, 2, 3, 10];

fn numbers(net: &Net) -> Vec<Vec<f32>> {
    let parameters = net.named_parameters();
    parameters.into_iter().map(|(_, parameter)| parameter.value.into_data().unwrap().to_vec()).collect()
}

#[track_caller]
fn is_the_error(error: &OptimError, step: u64, line: u32) {
    let text = error.to_string();
    let place = format!("{}:{line}:", file!());
    for part in [
        &*format!("step {step} at "),
        &place,
        "[cross_entropy] label 10 at position [3]",
        "10 classes",
        "0 to 9",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(!text.contains("gather"), "{text}");
}

#[test]
fn a_label_out_of_range_leaves_parameters_and_moments_unchanged() {
    for (name, device) in devices() {
        let mut net = net(&device);
        let mut optimizer = AdamWConfig::new().init();
        for _ in 0..2 {
            let gradients = gradients(&net, &device, GOOD);
            optimizer.update(0.1, &mut net, gradients).unwrap();
        }
        let before = numbers(&net);
        let state: OptimizerState = optimizer.state(&net).unwrap();
        let bad = gradients(&net, &device, BAD);
        let (result, line) = (optimizer.update(0.1, &mut net, bad), line!());
        // Eager engines return the error here, others later.
        let error = result.and_then(|_| optimizer.finish()).unwrap_err();
        is_the_error(&error, 3, line);
        assert_eq!(numbers(&net), before, "{name}");
        assert_eq!(optimizer.state(&net).unwrap(), state, "{name}");

        // Training continues as if the batch had been skipped.
        let mut straight = self::net(&device);
        let mut other = AdamWConfig::new().init();
        for _ in 0..4 {
            let gradients = gradients(&straight, &device, GOOD);
            other.update(0.1, &mut straight, gradients).unwrap();
        }
        for _ in 0..2 {
            let gradients = gradients(&net, &device, GOOD);
            optimizer.update(0.1, &mut net, gradients).unwrap();
        }
        optimizer.finish().unwrap();
        assert_eq!(numbers(&net), numbers(&straight), "{name}");
    }
}

#[test]
fn a_loop_without_reads_gets_the_error_at_a_later_step_and_loses_no_other() {
    for (name, device) in devices() {
        let mut net = net(&device);
        let mut optimizer = SgdConfig::new().with_momentum(0.9).init();
        let mut errors = Vec::new();
        let mut line = 0;
        for step in 1..=8 {
            let gradients = gradients(&net, &device, if step == 4 { BAD } else { GOOD });
            line = line!() + 1;
            if let Err(error) = optimizer.update(0.1, &mut net, gradients) {
                errors.push((step, error));
            }
        }
        optimizer.finish().unwrap();
        let [(found, error)] = &*errors else { panic!("{name}: {errors:?}") };
        is_the_error(error, 4, line);
        assert!((4..=6).contains(found), "{name}: step {found}");
        // The call that reports the error does its own step: only the bad one is missing.
        assert_eq!(numbers(&net), after_good_steps(&device, 7, 1), "{name}");
        assert_eq!(optimizer.last_report().unwrap().step, 8, "{name}");
    }
}

/// The parameters after good steps of `passes` passes each.
fn after_good_steps(device: &Device, steps: u64, passes: u64) -> Vec<Vec<f32>> {
    let mut net = net(device);
    let mut optimizer = SgdConfig::new().with_momentum(0.9).init().with_accumulation(passes).unwrap();
    for _ in 0..steps * passes {
        let gradients = gradients(&net, device, GOOD);
        optimizer.update(0.1, &mut net, gradients).unwrap();
    }
    optimizer.finish().unwrap();
    numbers(&net)
}

#[test]
fn each_refused_step_is_reported_once_and_in_order() {
    for (name, device) in devices() {
        for bad in [vec![1, 2], vec![3, 4, 5], vec![2, 4, 8], vec![8]] {
            let mut net = net(&device);
            let mut optimizer = SgdConfig::new().with_momentum(0.9).init();
            let mut found = Vec::new();
            for step in 1..=8 {
                let gradients = gradients(&net, &device, if bad.contains(&step) { BAD } else { GOOD });
                match optimizer.update(0.1, &mut net, gradients) {
                    Ok(report) => assert_eq!(report.step, step, "{name}"),
                    Err(error) => found.push(error.refused_step().unwrap()),
                }
            }
            while let Err(error) = optimizer.finish() {
                found.push(error.refused_step().unwrap());
            }
            assert_eq!(found, bad, "{name}");
            assert_eq!(numbers(&net), after_good_steps(&device, 8 - bad.len() as u64, 1), "{name} {bad:?}");
        }
    }
}

/// A step is the mean of all its passes.
#[test]
fn a_bad_pass_refuses_its_step_alone_and_is_named() {
    for (name, device) in devices() {
        for bad in 1..=9 {
            let mut net = net(&device);
            let mut optimizer = SgdConfig::new().with_momentum(0.9).init().with_accumulation(3).unwrap();
            let mut errors = Vec::new();
            for pass in 1..=9 {
                let gradients = gradients(&net, &device, if pass == bad { BAD } else { GOOD });
                errors.extend(optimizer.update(0.1, &mut net, gradients).err());
            }
            errors.extend(optimizer.finish().err());
            let [OptimError::StepRefused { step, pass: Some(pass), .. }] = errors[..] else {
                panic!("{name}, pass {bad}: {errors:?}")
            };
            assert_eq!(((step - 1) * 3 + pass), bad, "{name}");
            assert!(
                errors[0].to_string().contains(&format!("step {step} (pass {pass}) at ")),
                "{}",
                errors[0]
            );
            assert_eq!(numbers(&net), after_good_steps(&device, 2, 3), "{name}, pass {bad}");
        }
    }
}

#[test]
fn the_first_step_may_fail() {
    for (name, device) in devices() {
        for with_momentum in [false, true] {
            let mut net = net(&device);
            let momentum = if with_momentum { 0.9 } else { 0.0 };
            let mut optimizer = SgdConfig::new().with_momentum(momentum).init();
            let before = numbers(&net);
            let bad = gradients(&net, &device, BAD);
            let result = optimizer.update(0.1, &mut net, bad);
            let error = result.and_then(|_| optimizer.finish()).unwrap_err();
            assert!(matches!(error, OptimError::StepRefused { step: 1, .. }), "{name}: {error}");
            assert_eq!(numbers(&net), before, "{name}");
            assert_eq!(optimizer.state(&net).unwrap().into_tensors().unwrap().len(), 0, "{name}");
        }
    }
}

#[test]
fn saving_a_state_reports_the_failed_step() {
    for (name, device) in devices() {
        let mut net = net(&device);
        let mut optimizer = AdamWConfig::new().init();
        let bad = gradients(&net, &device, BAD);
        let early = optimizer.update(0.1, &mut net, bad);
        let error = early.and_then(|_| optimizer.state(&net).map(drop)).unwrap_err();
        assert!(error.to_string().contains("step 1 at "), "{name}: {error}");
    }
}

#[test]
fn typed_steps_panic_with_the_callers_line() {
    for (name, device) in devices() {
        let mut optimizer = SgdConfig::new().init();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut net = net(&device);
            for _ in 0..4 {
                let bad = gradients(&net, &device, BAD);
                net = optimizer.step(0.1, net, bad);
            }
        }));
        let message = caught.expect_err("a label is out of range").downcast::<String>().unwrap();
        assert!(message.contains("step 1 at ") && message.contains(file!()), "{name}: {message}");
    }
}

#[test]
fn loss_scaler_and_boxed_errors_name_step_and_line() {
    for (name, device) in devices() {
        let mut net = net(&device);
        let mut optimizer: Box<dyn Optimizer> = Box::new(AdamWConfig::new().init());
        let mut scaler = LossScalerConfig::new().init();
        let good = gradients(&net, &device, GOOD);
        scaler.step(&mut *optimizer, 0.1, &mut net, good).unwrap();
        let before = numbers(&net);
        let bad = gradients(&net, &device, BAD);
        let (result, line) = (scaler.step(&mut *optimizer, 0.1, &mut net, bad), line!());
        is_the_error(&result.unwrap_err(), 2, line);
        assert_eq!(numbers(&net), before, "{name}");
        let good = gradients(&net, &device, GOOD);
        assert!(scaler.step(&mut *optimizer, 0.1, &mut net, good).unwrap(), "{name}");
    }
}

/// The parameters of each device change atomically.
#[test]
fn a_failed_step_leaves_parameters_on_several_devices_unchanged() {
    let (one, other) = (Device::cpu(), Device::flex());
    let (mut here, mut there) = (net(&one), net(&other));
    let mut optimizer = AdamWConfig::new().init();
    #[derive(Debug, Module)]
    struct Both {
        here: Net,
        there: Net,
    }
    let all = |here: &Net, there: &Net, labels: [i64; 4]| -> GradientsParams {
        gradients(here, &one, labels).into_iter().chain(gradients(there, &other, labels)).collect()
    };
    let good = all(&here, &there, GOOD);
    let mut both = Both { here, there };
    optimizer.update(0.1, &mut both, good).unwrap();
    Both { here, there } = both;
    let before = (numbers(&here), numbers(&there));
    let bad = all(&here, &there, BAD);
    let mut both = Both { here, there };
    let result = optimizer.update(0.1, &mut both, bad);
    assert!(result.and_then(|_| optimizer.finish()).is_err());
    assert_eq!((numbers(&both.here), numbers(&both.there)), before);
}

#[test]
fn clipping_by_the_global_norm_does_not_spread_errors() {
    for (name, device) in devices() {
        let mut net = net(&device);
        let config = AdamWConfig::new().with_grad_clipping(GradientClipping::GlobalNorm(1.0));
        let mut optimizer = config.init().with_grad_clipping(GradientClipping::Value(0.5)).unwrap();
        let before = numbers(&net);
        let bad = gradients(&net, &device, BAD);
        let result = optimizer.update(0.1, &mut net, bad);
        assert!(result.and_then(|_| optimizer.finish()).is_err(), "{name}");
        assert_eq!(numbers(&net), before, "{name}");
    }
}
