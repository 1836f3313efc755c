//! Every module of `kiln_nn`: values on the engines, gradients by parameters and inputs, and saving.

use kiln_backends::Device;
use kiln_suite::engines::{CPU_ONE, FUSED_ONE, REFERENCE, Subject};
use kiln_suite::methods::{check_gradient, check_second, check_value};
use kiln_suite::modules::{
    EXEMPT, ModuleRow, OPTIMIZERS, all, check_optimizer, check_saved, check_tied, surface,
};
use kiln_suite::run::{Summary, finish};
use std::collections::BTreeSet;

const SUBJECTS: [Subject; 3] = [REFERENCE, CPU_ONE, FUSED_ONE];

#[track_caller]
fn on_every_row(title: &str, check: impl Fn(&Subject, &ModuleRow) -> kiln_suite::check::Outcome) {
    let mut summary = Summary::new(title.to_owned());
    for row in all() {
        SUBJECTS.iter().for_each(|subject| summary.add(check(subject, &row)));
    }
    finish(vec![summary]);
}

#[test]
fn values() {
    on_every_row("module values", |subject, row| check_value(subject, &row.method));
}

#[test]
fn gradients() {
    on_every_row("module gradients", |subject, row| check_gradient(subject, &row.method));
}

#[test]
fn second_gradients() {
    on_every_row("module second gradients", |subject, row| check_second(subject, &row.method));
}

#[test]
fn saved_parameters_load_by_name() {
    let mut summary = Summary::new("saved modules".to_owned());
    all().iter().for_each(|row| summary.add(check_saved(row)));
    finish(vec![summary]);
}

#[test]
fn every_module_has_a_test_row() {
    let covered: BTreeSet<&str> = all().iter().map(|row| row.method.name).collect();
    let exempt: BTreeSet<&str> = EXEMPT.iter().map(|(name, _)| *name).collect();
    let surface = surface();
    let missing: Vec<&String> = surface
        .iter()
        .filter(|name| !covered.contains(name.as_str()) && !exempt.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{} modules without a row: {missing:?}", missing.len());
}

#[test]
fn optimizers_are_the_same_with_fusion() {
    let mut summary = Summary::new("optimizers with fusion".to_owned());
    OPTIMIZERS.iter().for_each(|row| summary.add(check_optimizer(row, &Device::cpu())));
    finish(vec![summary]);
}

#[test]
fn tied_weights_train_as_in_pytorch() {
    let mut summary = Summary::new("tied weights".to_owned());
    SUBJECTS.iter().for_each(|subject| summary.add(check_tied(subject)));
    finish(vec![summary]);
}
