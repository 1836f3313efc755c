//! The suite on candle-core: values alone and under automatic differentiation, gradients, expansions, poison, methods.
//!
//! `cargo test -p kiln-suite --features candle --test candle` runs it; `KILN_SUITE_PART=2/8` in the environment leaves an eighth.

use kiln_backends::{Candle, CandleDevice, Device, Dyn};
use kiln_suite::cases::{Group, poison};
use kiln_suite::check::{check_passing_on, check_poison};
use kiln_suite::engines::CANDLE;
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

macro_rules! groups {
    ($($test:ident $group:ident,)*) => {
        mod value {
            use super::*;

            $(
                #[test]
                fn $test() {
                    let matrix = [(CANDLE, Stack::Plain), (CANDLE, Stack::Autodiff)];
                    finish_with_few_ignored(values(&matrix, Group::$group));
                }
            )*
        }

        mod grad {
            use super::*;

            $(
                #[test]
                fn $test() {
                    finish_with_few_ignored(vec![grads(&CANDLE, Group::$group)]);
                }
            )*
        }

        mod expand {
            use super::*;

            $(
                #[test]
                fn $test() {
                    finish_with_few_ignored(vec![expansions(&CANDLE, Group::$group)]);
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
    let mut summary = Summary::new("poison on candle");
    let engine = (CANDLE.open)();
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
    let summaries = FAMILIES.iter().map(|(family, rows)| {
        let mut summary = Summary::new(format!("methods of {family} on candle"));
        for method in rows() {
            summary.add(check_value(&CANDLE, &method));
            summary.add(check_gradient(&CANDLE, &method));
        }
        summary
    });
    finish(summaries.collect());
}

#[test]
fn the_backend_opens_by_name() {
    let device = Device::open("candle", 0).expect("the processor is there").autodiff();
    assert_eq!(device.inner(), Device::candle());
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
    let gradients = (&x * &x).sum().backward();
    assert_eq!(x.grad(&gradients).expect("it requires one").into_data(), [2.0f32, 4.0].into());
    assert_eq!(x.argmax(0).into_data(), [1i64].into(), "candle counts in i64");
    let error = Device::open("candle", 1).expect_err("there is one processor").to_string();
    assert!(error.contains("candle-cuda"), "{error}");
    let missing = Tensor::<Candle, 1>::from_floats([1.0], &CandleDevice::Metal(99)).try_into_data();
    assert!(missing.expect_err("no such GPU").to_string().contains("candle:metal:99"));
}
