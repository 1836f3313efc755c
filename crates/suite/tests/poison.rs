//! Bad data: results are poisoned, errors name the op, and nothing panics.

use kiln_suite::cases::poison;
use kiln_suite::check::{check_passing_on, check_poison};
use kiln_suite::engines::{SUBJECTS, Subject, Tracked};
use kiln_suite::run::Summary;

/// Such as that of a GPU on a machine without a driver.
#[test]
fn an_engine_that_cannot_be_opened_says_so_in_one_line() {
    let missing = Subject {
        name: "missing",
        open: || panic!("{}", kiln_ir::Error::device("vulkan", "no adapter").hint("install a driver")),
        ignored: &[],
    };
    let problem = missing.opened().map(drop).unwrap_err();
    assert!(problem.contains("no adapter; install a driver") && !problem.contains('\n'), "{problem}");
    assert!(SUBJECTS[0].opened().is_ok());
}

#[test]
fn bad_data_poisons_the_result() {
    for subject in SUBJECTS {
        let mut summary = Summary::new(format!("poison on {}", subject.name));
        let engine = (subject.open)();
        let tracked = Tracked::new(engine.clone());
        for case in poison::cases() {
            summary.add(check_poison(&*engine, &case));
            summary.add(check_poison(&tracked, &case));
        }
        summary.finish();
    }
}

#[test]
fn poison_propagates() {
    for subject in SUBJECTS {
        let mut summary = Summary::new(format!("passing poison on, on {}", subject.name));
        let engine = (subject.open)();
        for (op, inputs) in poison::passing_on() {
            summary.add(check_passing_on(&*engine, &op, &inputs));
        }
        summary.finish();
    }
}
