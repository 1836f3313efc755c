//! Runs the suite on one engine: `cargo xtask suite --engine NAME`. The last line says how many cases passed, failed and were
//! skipped.
#![forbid(unsafe_code)]

use kiln_suite::cases::Group;
use kiln_suite::engines::{NAMED, Subject, named};
use kiln_suite::run::{self, Stack, Summary};
use std::process::ExitCode;

/// Of hundred cases, at most so many may be skipped.
const MOST_SKIPPED: usize = 5;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name] = words.as_slice() else {
        eprintln!("conformance: one word is needed, the name of an engine: {}", names());
        return ExitCode::FAILURE;
    };
    match named(name) {
        Some(subject) => report(&subject),
        None => {
            eprintln!(
                "conformance: no engine of this build is called `{name}`\n  hint: there are {}",
                names()
            );
            ExitCode::FAILURE
        }
    }
}

fn names() -> String {
    NAMED.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn report(subject: &Subject) -> ExitCode {
    let mut counts = Counts::default();
    for group in Group::ALL {
        for summary in all_modes(subject, group) {
            println!("{summary}");
            counts.add(&summary);
        }
    }
    let is_good = counts.are_good();
    if counts.has_too_many_skips() {
        println!("more than {MOST_SKIPPED} of 100 cases are skipped");
    }
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every mode of one group.
fn all_modes(subject: &Subject, group: Group) -> Vec<Summary> {
    let mut summaries = run::values(&[(*subject, Stack::Plain), (*subject, Stack::Autodiff)], group);
    let modes = [run::grads, run::forwards, run::batches, run::expansions];
    summaries.extend(modes.map(|mode| mode(subject, group)));
    summaries
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, summary: &Summary) {
        self.failed += summary.failed;
        self.skipped += summary.ignored.len();
        self.passed += summary.cases - summary.failed - summary.ignored.len();
    }

    fn has_too_many_skips(&self) -> bool {
        self.skipped * 100 > (self.passed + self.failed + self.skipped) * MOST_SKIPPED
    }

    fn are_good(&self) -> bool {
        self.failed == 0 && self.passed > 0 && !self.has_too_many_skips()
    }
}
