//! Every module of `kiln_nn`: values on the engines, gradients by parameters and inputs, and saving.

use kiln_suite::engines::{CPU_ONE, FUSED_ONE, REFERENCE, Subject};
use kiln_suite::methods::{check_gradient, check_second, check_value};
use kiln_suite::modules::{ModuleRow, all, check_saved};
use kiln_suite::run::{Summary, finish};

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
