//! What PyTorch computes, on the CPU engine and on the reference, through the public API where it offers the method and
//! through ops where it does not yet; with gradients, under automatic differentiation.
//!
//! What cannot be run is printed with the reason: run with `--nocapture` to see the list.

mod activation;
mod attention;
mod call;
mod contraction;
mod fft;
mod index;
mod loss;
mod math;
mod methods;
mod module;
mod norm;
mod optimizer;
mod pool;
mod reduce;
mod resize;

use call::{Call, Outputs};
use kiln_reference::Reference;
use kiln_suite::goldens::{FAMILIES, Golden, read_family};
use kiln_tensor::{AnyTensor, Device, Tensor};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What runs a case: the outputs in the golden's order, or why not.
type Runner = fn(&Call<'_>) -> Outputs;

fn devices() -> [(&'static str, Device); 3] {
    let reference = Device::from_engine(Arc::new(Reference::new()), "reference");
    [("flex", Device::flex()), ("cpu", Device::cpu()), ("reference", reference)]
}

/// Runs a family on every device; fails with the list of what is wrong.
#[track_caller]
fn family(name: &str, run: Runner) {
    let mut skipped: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut checks = 0;
    let goldens = read_family(name);
    for golden in &goldens {
        for (device_name, device) in devices() {
            let place = format!("{name}/{} on {device_name}", golden.name);
            match check(golden, &device, run) {
                Ok(Checked { count, problems: found }) => {
                    checks += count;
                    problems.extend(found.into_iter().map(|problem| format!("{place}: {problem}")));
                }
                Err(reason) => skipped.entry(reason).or_default().push(golden.name.clone()),
            }
        }
    }
    let number: usize = skipped.values().map(|names| names.len() / devices().len()).sum();
    println!("goldens {name}: {} cases, {checks} comparisons, {number} skipped", goldens.len());
    for (reason, mut names) in skipped {
        names.dedup();
        println!("  skipped, {reason}: {}", names.join(", "));
    }
    assert!(checks > 0, "no case of {name} ran");
    assert!(problems.is_empty(), "{} problems:\n  {}", problems.len(), problems.join("\n  "));
}

struct Checked {
    count: usize,
    problems: Vec<String>,
}

/// Values on the plain device, then values and gradients under automatic differentiation.
fn check(golden: &Golden, device: &Device, run: Runner) -> Result<Checked, &'static str> {
    let mut checked = Checked { count: 0, problems: Vec::new() };
    for device in [device.clone(), device.autodiff()] {
        let with_gradients = device.is_autodiff() && !golden.gradients.is_empty();
        let call = Call::new(golden, &device, with_gradients);
        let result = catch_unwind(AssertUnwindSafe(|| run(&call)));
        let outputs = match result {
            Ok(outputs) => outputs?,
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "panicked".into());
                checked.problems.push(text);
                continue;
            }
        };
        for (name, output) in golden.outputs.iter().zip(&outputs) {
            if let Some(output) = output {
                compare(&mut checked, golden, name, output);
            }
        }
        if with_gradients {
            gradients(&mut checked, golden, &call, outputs);
        }
    }
    Ok(checked)
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
    let backward = sum.and_then(|sum| sum.try_into_tensor::<kiln_tensor::Dyn, 1, kiln_tensor::Float>());
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

macro_rules! families {
    ($($name:ident: $runner:path,)*) => {
        $(#[test]
        fn $name() {
            family(stringify!($name), $runner);
        })*

        #[test]
        fn every_family_has_a_test() {
            assert_eq!([$(stringify!($name)),*], *FAMILIES);
        }
    };
}

mod family {
    use super::*;

    families! {
        activation: activation::run,
        attention: attention::run,
        conv: contraction::conv,
        fft: fft::run,
        index: index::run,
        loss: loss::run,
        math: math::run,
        matmul: contraction::matmul,
        method_activation: methods::run,
        method_core: methods::run,
        method_create: methods::run,
        method_elementwise: methods::run,
        method_einsum: methods::run,
        method_grid: methods::run,
        method_index: methods::run,
        method_linalg: methods::run,
        method_loss: methods::run,
        method_module: methods::run,
        method_order: methods::run,
        method_quantize: methods::run,
        method_reduce: methods::run,
        method_signal: methods::run,
        method_special: methods::run,
        method_stats: methods::run,
        method_view: methods::run,
        module: module::run,
        norm: norm::run,
        optimizer: optimizer::run,
        pool: pool::run,
        reduce: reduce::run,
        resize: resize::run,
    }
}
