//! Every method of `AnyTensor`: values on every engine, gradients, and that none is missing.

use kiln_suite::check::Outcome;
use kiln_suite::engines::{CPU_ONE, FUSED_ONE, REFERENCE, SUBJECTS, Subject};
use kiln_suite::methods::{
    EXEMPT, FAMILIES, Method, all, check_gradient, check_second, check_value, surface,
};
use kiln_suite::run::Summary;
use std::collections::BTreeSet;
use std::thread;

/// Runs a check of every row on these engines, a family at a time on its own thread.
#[track_caller]
fn on_every_family(title: &str, subjects: &[Subject], check: fn(&Subject, &Method) -> Outcome) {
    let summaries: Vec<Summary> = thread::scope(|scope| {
        let run = |(family, rows): &(&str, fn() -> Vec<Method>)| {
            let (title, rows) = (format!("{title} of {family}"), *rows);
            scope.spawn(move || {
                let mut summary = Summary::new(title);
                for method in rows() {
                    subjects.iter().for_each(|subject| summary.add(check(subject, &method)));
                }
                summary
            })
        };
        let threads: Vec<_> = FAMILIES.iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("checks catch panics")).collect()
    });
    kiln_suite::run::finish(summaries);
}

#[test]
fn values() {
    on_every_family("method values", &SUBJECTS, check_value);
}

#[test]
fn gradients() {
    on_every_family("method gradients", &SUBJECTS, check_gradient);
}

#[test]
fn second_gradients() {
    on_every_family("method second gradients", &[REFERENCE, CPU_ONE, FUSED_ONE], check_second);
}

#[test]
fn every_method_has_a_test_row() {
    let covered: BTreeSet<String> = all().iter().map(|method| method.name.to_owned()).collect();
    let exempt: BTreeSet<String> = EXEMPT.iter().map(|(name, _)| (*name).to_owned()).collect();
    let surface: BTreeSet<String> = surface().into_iter().collect();
    let missing: Vec<&String> =
        surface.iter().filter(|name| !covered.contains(*name) && !exempt.contains(*name)).collect();
    assert!(missing.is_empty(), "{} methods without a row: {missing:?}", missing.len());
    let unknown: Vec<&String> = exempt.iter().filter(|name| !surface.contains(*name)).collect();
    assert!(unknown.is_empty(), "exempt, but no methods: {unknown:?}");
    let both: Vec<&String> = exempt.iter().filter(|name| covered.contains(*name)).collect();
    assert!(both.is_empty(), "exempt, but with a row: {both:?}");
}

#[test]
fn keys_are_unique_and_rows_have_operands() {
    let mut seen = BTreeSet::new();
    for method in all() {
        assert!(seen.insert(method.key()), "{} stands twice", method.key());
        assert!(!method.cases.is_empty(), "{} has no operands", method.key());
    }
}

/// A gradient that is cut, and a value that depends on the dtype: the checks see both.
#[test]
fn the_checks_detect_wrong_rows() {
    use kiln_suite::methods::{normal, one};
    let cut = Method::new("cut", |x| one(x[0].clone().mul(x[0].clone().detach()))).on(&[normal(&[3])]);
    assert!(!check_gradient(&CPU_ONE, &cut).problems.is_empty());
    let on_cpu_only = Method::new("differs", |x| {
        let is_cpu = format!("{:?}", x[0].stack()).contains("cpu");
        one(x[0].clone().binary_scalar(kiln_ir::Binary::Add, if is_cpu { 1e-3 } else { 0.0 }))
    });
    assert!(!check_value(&CPU_ONE, &on_cpu_only.on(&[normal(&[3])])).problems.is_empty());
    let forgets = Method::new("forgets", |x| {
        let exp = x[0].clone().unary(kiln_ir::Unary::Exp)?;
        let constant = kiln_tensor::AnyTensor::from_data(exp.to_data()?, exp.stack());
        one(constant.mul(x[0].clone()))
    });
    assert!(!check_second(&CPU_ONE, &forgets.on(&[normal(&[3])])).problems.is_empty());
}
