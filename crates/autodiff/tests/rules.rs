//! Every gradient rule against finite differences in f64, first and second order, on the reference engine.
//!
//! Each case runs with every float operand tracked, and with each of them alone. The tape then holds only the values
//! that the rule saves, and an engine that gets any other value fails.

mod cases;
mod check;

use cases::Case;

fn run(cases: Vec<Case>) {
    let failures: Vec<String> = cases.iter().filter_map(|case| check::check(case).err()).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn elementwise() {
    run(cases::elementwise());
}

#[test]
fn views() {
    run(cases::views());
}

#[test]
fn reductions_and_order() {
    run(cases::reductions());
}

#[test]
fn indexing() {
    run(cases::index());
}

#[test]
fn contractions() {
    run(cases::contractions());
}

#[test]
fn composites() {
    run(cases::composites());
}
