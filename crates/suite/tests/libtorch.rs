//! The suite on LibTorch: values alone and under automatic differentiation, gradients, expansions, poison, methods.
//!
//! `cargo test -p kiln-suite --features libtorch --test libtorch` runs it; `KILN_SUITE_PART=2/8` in the environment leaves an eighth.

use kiln_backends::{Device, Dyn, LibTorch, LibTorchDevice};
use kiln_suite::cases::{Group, poison};
use kiln_suite::check::{check_passing_on, check_poison};
use kiln_suite::engines::LIBTORCH;
use kiln_suite::methods::{FAMILIES, check_gradient, check_value};
use kiln_suite::run::{Stack, Summary, expansions, finish, grads, values};
use kiln_tensor::Tensor;

/// Prints summaries.
///
/// # Panics
/// When there are problems, or more than one case of 20 is ignored.
#[track_caller]
fn finish_with_few_ignored(summaries: Vec<Summary>) {
    for Summary { title, cases, ignored, .. } in &summaries {
        assert!(ignored.len() * 20 <= *cases, "{title}: {} of {cases} cases are ignored", ignored.len());
    }
    finish(summaries);
}

/// Whether LibTorch is there. Prints why not.
fn has_libtorch() -> bool {
    match kiln_torch::version() {
        Ok(version) => println!("LibTorch {version}"),
        Err(ref error) => println!("skipped: {error}"),
    }
    kiln_torch::version().is_ok()
}

macro_rules! groups {
    ($($test:ident $group:ident,)*) => {
        mod value {
            use super::*;

            $(
                #[test]
                fn $test() {
                    if !has_libtorch() {
                        return;
                    }
                    let matrix = [(LIBTORCH, Stack::Plain), (LIBTORCH, Stack::Autodiff)];
                    finish_with_few_ignored(values(&matrix, Group::$group));
                }
            )*
        }

        mod grad {
            use super::*;

            $(
                #[test]
                fn $test() {
                    if !has_libtorch() {
                        return;
                    }
                    finish_with_few_ignored(vec![grads(&LIBTORCH, Group::$group)]);
                }
            )*
        }

        mod expand {
            use super::*;

            $(
                #[test]
                fn $test() {
                    if !has_libtorch() {
                        return;
                    }
                    finish_with_few_ignored(vec![expansions(&LIBTORCH, Group::$group)]);
                }
            )*
        }
    };
}

groups! {
    nothing Nothing,
    unary Unary,
    binary Binary,
    view View,
    reduce Reduce,
    index Index,
    contraction Contraction,
    composite Composite,
    edge Edge,
    loops Loop,
}

#[test]
fn bad_data_is_refused_and_poison_passes_on() {
    if !has_libtorch() {
        return;
    }
    let mut summary = Summary::new("poison on libtorch");
    let engine = (LIBTORCH.open)();
    for case in poison::cases() {
        summary.add(check_poison(&*engine, &case));
    }
    for (op, inputs) in poison::passing_on() {
        summary.add(check_passing_on(&*engine, &op, &inputs));
    }
    summary.finish();
}

#[test]
fn methods() {
    if !has_libtorch() {
        return;
    }
    let summaries = FAMILIES.iter().map(|(family, rows)| {
        let mut summary = Summary::new(format!("methods of {family} on libtorch"));
        for method in rows() {
            summary.add(check_value(&LIBTORCH, &method));
            summary.add(check_gradient(&LIBTORCH, &method));
        }
        summary
    });
    finish(summaries.collect());
}

#[test]
fn the_backend_opens_by_name() {
    if !has_libtorch() {
        return;
    }
    let device = Device::open("libtorch", 0).expect("the processor is there").autodiff();
    assert_eq!(device.inner(), Device::libtorch());
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
    let gradients = (&x * &x).sum().backward();
    assert_eq!(x.grad(&gradients).expect("it requires one").into_data(), [2.0f32, 4.0].into());
    assert_eq!(x.argmax(0).into_data(), [1i64].into(), "PyTorch counts in i64");
    let error = Device::open("libtorch", 1).expect_err("there is one processor").to_string();
    assert!(error.contains("libtorch-cuda"), "{error}");
    let missing = Tensor::<LibTorch, 1>::from_floats([1.0], &LibTorchDevice::Cuda(99)).try_into_data();
    assert!(missing.expect_err("no such GPU").to_string().contains("libtorch:cuda:99"));
}
