//! The suite's rows of these functions: values on every engine, gradients against finite differences, and completeness.
//!
//! The tests are here so that those of the suite do not have to compile `faer`.

use kiln_suite::check::Outcome;
use kiln_suite::engines::{CPU_ONE, REFERENCE, SUBJECTS, Subject};
use kiln_suite::methods::{FAMILIES, Method, check_gradient, check_second, check_value, surface};
use kiln_suite::run::Summary;
use std::collections::BTreeSet;

fn rows() -> Vec<Method> {
    let family = FAMILIES.iter().find(|(family, _)| *family == "decompositions");
    family.expect("the suite has the family with its feature `linalg`").1()
}

#[track_caller]
fn on_every_row(title: &str, subjects: &[Subject], check: fn(&Subject, &Method) -> Outcome) {
    let mut summary = Summary::new(title);
    for row in rows() {
        subjects.iter().for_each(|subject| summary.add(check(subject, &row)));
    }
    summary.finish();
}

#[test]
fn values() {
    on_every_row("values of decompositions", &SUBJECTS, check_value);
}

#[test]
fn gradients() {
    on_every_row("gradients of decompositions", &[REFERENCE, CPU_ONE], check_gradient);
}

#[test]
fn second_gradients() {
    on_every_row("second gradients of decompositions", &[REFERENCE, CPU_ONE], check_second);
}

#[test]
fn every_function_has_a_test_row() {
    let rows: BTreeSet<String> = rows().iter().map(|row| row.name.to_owned()).collect();
    let functions: BTreeSet<String> =
        surface().into_iter().filter(|name| name.starts_with("linalg::")).collect();
    assert!(functions.contains("linalg::svd"), "the sources are read");
    let differ: Vec<&String> = functions.symmetric_difference(&rows).collect();
    assert!(differ.is_empty(), "functions without a row, or rows without a function: {differ:?}");
}
