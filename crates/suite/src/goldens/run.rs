//! Runs the cases on devices by the public API, or by ops where the API lacks the method. Gradients run under automatic
//! differentiation.

use super::call::{Call, Outputs};
use super::{Golden, read_family};
use super::{
    activation, attention, average, contraction, fft, index, layer, loss, loss_module, math, methods, module,
    norm, optimizer, pool, recurrent, reduce, reparametrize, resize, transformer,
};
use crate::check::Outcome;
use crate::engines::{Mode, Subject};
use crate::run::{Summary, may_lack, shard};
use kiln_backends::Device;
use kiln_tensor::{AnyTensor, Tensor};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a case. Returns the outputs in the golden's order, or the reason for skipping it.
type Runner = fn(&Call<'_>) -> Outputs;

/// Runs a family on every device, and prints the comparisons and the skipped cases.
///
/// # Panics
/// When there is no such family, or with the list of failures.
#[track_caller]
pub fn run_family(name: &str, devices: &[(&'static str, Device)]) {
    let run = runner(name).unwrap_or_else(|| panic!("no family is called {name}"));
    let mut skipped: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut checks = 0;
    let goldens = read_family(name);
    for golden in &goldens {
        for (device_name, device) in devices {
            let place = format!("{name}/{} on {device_name}", golden.name);
            match check(golden, device, run) {
                Ok(Checked { count, problems: found }) => {
                    checks += count;
                    problems.extend(found.into_iter().map(|problem| format!("{place}: {problem}")));
                }
                Err(reason) => skipped.entry(reason).or_default().push(golden.name.clone()),
            }
        }
    }
    let number: usize = skipped.values().map(|names| names.len() / devices.len()).sum();
    println!("goldens {name}: {} cases, {checks} comparisons, {number} skipped", goldens.len());
    for (reason, mut names) in skipped {
        names.dedup();
        println!("  skipped, {reason}: {}", names.join(", "));
    }
    assert!(checks > 0, "no case of {name} ran");
    assert!(problems.is_empty(), "{} problems:\n  {}", problems.len(), problems.join("\n  "));
}

/// Runs the cases of a family on an engine, by `KILN_SUITE_PART` a part of them. Skipped are the cases on the engine's
/// ignore list, which must fail, and those of a dtype that the engine lacks.
///
/// # Panics
/// When there is no such family.
pub fn family_on(subject: &Subject, name: &str) -> Summary {
    let run = runner(name).unwrap_or_else(|| panic!("no family is called {name}"));
    let mut summary = Summary::new(format!("goldens {name} on {}", subject.name));
    let engine = (subject.open)();
    let device = Device::from_engine(engine.clone(), subject.name);
    for golden in shard(read_family(name)) {
        let mut needed = [Some(golden.dtype), methods::intermediate_dtype(&golden.op)].into_iter().flatten();
        if let Some(dtype) = needed.find(|dtype| may_lack(&*engine, *dtype)) {
            summary.cases += 1;
            *summary.lacking.entry(dtype).or_default() += 1;
            continue;
        }
        // A case without a method in Kiln is no case of any engine.
        let Ok(Checked { count, problems }) = check(&golden, &device, run) else { continue };
        let place = format!("{name}/{}", golden.name);
        let problems = problems.into_iter().map(|problem| format!("{place}: {problem}")).collect();
        summary.add_of(
            subject,
            Mode::Golden,
            &place,
            Outcome { checks: count, problems, ..Outcome::default() },
        );
    }
    summary
}

/// The runner of a family's cases.
fn runner(family: &str) -> Option<Runner> {
    match family {
        "activation" => Some(activation::run),
        "attention" => Some(attention::run),
        "average" => Some(average::run),
        "conv" => Some(contraction::conv),
        "fft" => Some(fft::run),
        "index" => Some(index::run),
        "loss" => Some(loss::run),
        "loss_module" => Some(loss_module::run),
        "math" => Some(math::run),
        "matmul" => Some(contraction::matmul),
        "module" => Some(module::run),
        "nn_layer" => Some(layer::run),
        "norm" => Some(norm::run),
        "optimizer" | "optimizer2" => Some(optimizer::run),
        "pool" => Some(pool::run),
        "recurrent" => Some(recurrent::run),
        "reduce" => Some(reduce::run),
        "reparametrize" => Some(reparametrize::run),
        "resize" => Some(resize::run),
        "transformer" => Some(transformer::run),
        _ => family.starts_with("method_").then_some(methods::run as Runner),
    }
}

struct Checked {
    count: usize,
    problems: Vec<String>,
}

/// Values on the plain device, then values and gradients under automatic differentiation, for each way to compute them.
fn check(golden: &Golden, device: &Device, run: Runner) -> Result<Checked, &'static str> {
    let mut checked = Checked { count: 0, problems: Vec::new() };
    for device in [device.clone(), device.autodiff()] {
        for way in 0..transformer::ways(&golden.op) {
            check_way(&mut checked, golden, &device, run, way)?;
        }
    }
    Ok(checked)
}

fn check_way(
    checked: &mut Checked,
    golden: &Golden,
    device: &Device,
    run: Runner,
    way: usize,
) -> Result<(), &'static str> {
    let with_gradients = device.is_autodiff() && !golden.gradients.is_empty();
    let call = Call::new(golden, device, with_gradients, way);
    let outputs = match catch_unwind(AssertUnwindSafe(|| run(&call))) {
        Ok(outputs) => outputs?,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "panicked".into());
            checked.problems.push(text);
            return Ok(());
        }
    };
    // A golden may leave out the last outputs, such as the index of a NaN.
    if outputs.len() < golden.outputs.len() {
        checked.problems.push(format!("{} outputs instead of {}", outputs.len(), golden.outputs.len()));
    }
    for (name, output) in golden.outputs.iter().zip(&outputs) {
        if let Some(output) = output {
            compare(checked, golden, name, output);
        }
    }
    if with_gradients {
        gradients(checked, golden, &call, outputs);
    }
    Ok(())
}

fn compare(checked: &mut Checked, golden: &Golden, name: &str, output: &AnyTensor) {
    checked.count += 1;
    match output.to_data() {
        Ok(data) => checked.problems.extend(golden.difference(name, &data)),
        Err(error) => checked.problems.push(format!("{name}: {error}")),
    }
}

/// The gradients of `sum(first output * grad_output)`.
fn gradients(checked: &mut Checked, golden: &Golden, call: &Call<'_>, outputs: Vec<Option<AnyTensor>>) {
    let Some(Some(output)) = outputs.into_iter().next() else { return };
    let weights = call.place(golden.tensor("grad_output"));
    let sum = output.mul(weights).and_then(AnyTensor::sum).and_then(|sum| sum.reshape([1]));
    let backward = sum.and_then(|sum| sum.try_into_tensor::<kiln_backends::Dyn, 1, kiln_tensor::Float>());
    let found = match backward.and_then(|sum: Tensor<_, 1>| sum.try_backward()) {
        Ok(found) => found,
        Err(error) => return checked.problems.push(format!("backward: {error}")),
    };
    for (input, name) in &golden.gradients {
        match found.get(call.input(input)) {
            Some(gradient) => compare(checked, golden, name, &gradient),
            None if golden.tensor(name).to_vec::<f64>().iter().all(|&x| x == 0.0) => checked.count += 1,
            None => checked.problems.push(format!("{name}: there is no gradient")),
        }
    }
}

/// Generates a test for each family, on the devices that a function returns, with these attributes.
#[macro_export]
macro_rules! golden_families {
    (@test ($(#[$attribute:meta])*) $devices:path, $name:ident) => {
        #[test]
        $(#[$attribute])*
        fn $name() {
            $crate::goldens::run_family(stringify!($name), &$devices());
        }
    };
    (@tests $attributes:tt $devices:path, $($name:ident)*) => {
        mod family {
            use super::*;

            $($crate::golden_families! { @test $attributes $devices, $name })*

            #[test]
            fn every_family_has_a_test() {
                assert_eq!([$(stringify!($name)),*], *$crate::goldens::FAMILIES);
            }
        }
    };
    ($(#[$attribute:meta])* $devices:path) => {
        $crate::golden_families! {
            @tests ($(#[$attribute])*) $devices,
            activation
            attention
            average
            conv
            fft
            index
            loss
            loss_module
            math
            matmul
            method_activation
            method_core
            method_create
            method_elementwise
            method_einsum
            method_grid
            method_index
            method_linalg
            method_loss
            method_module
            method_order
            method_quantize
            method_reduce
            method_signal
            method_special
            method_stats
            method_view
            module
            nn_layer
            norm
            optimizer
            optimizer2
            pool
            recurrent
            reduce
            reparametrize
            resize
            transformer
        }
    };
}
