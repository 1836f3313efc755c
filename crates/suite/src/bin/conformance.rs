//! Runs the suite on one engine: `cargo xtask suite --engine NAME`. The last line says how many cases passed, failed and were
//! skipped.
#![forbid(unsafe_code)]

use kiln_suite::cases::Group;
use kiln_suite::engines::{NAMED, Subject, WITH_GOLDENS, named};
use kiln_suite::goldens::{FAMILIES, family_on};
use kiln_suite::run::{self, Stack, Summary};
use std::process::ExitCode;

/// The maximum percentage of ignored cases. Cases of dtypes that the device lacks do not count, nor do cases of subnormal
/// operands that the device flushes to zero.
const MAX_SKIPPED: usize = 5;

/// The exit code where the engine cannot be opened. `cargo xtask suite` knows it.
const MISSING: u8 = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name] = words.as_slice() else {
        eprintln!("conformance: one word is needed, the name of an engine: {}", names());
        return ExitCode::FAILURE;
    };
    match named(name) {
        Some(subject) => match subject.opened() {
            Ok(_) => report(&subject, WITH_GOLDENS.contains(&name.as_str())),
            Err(problem) => {
                eprintln!("conformance: {problem}");
                ExitCode::from(MISSING)
            }
        },
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

fn report(subject: &Subject, with_goldens: bool) -> ExitCode {
    let mut counts = Counts::default();
    for group in Group::ALL {
        for summary in all_modes(subject, group) {
            println!("{summary}");
            counts.add(&summary);
        }
    }
    for family in FAMILIES.iter().filter(|_| with_goldens) {
        let summary = family_on(subject, family);
        println!("{summary}");
        counts.add(&summary);
    }
    let is_good = counts.are_good();
    if counts.has_too_many_skips() {
        println!("more than {MAX_SKIPPED} of 100 cases are on the ignore list");
    }
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped());
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
    ignored: usize,
    lacking: usize,
    flushed: usize,
}

impl Counts {
    fn add(&mut self, summary: &Summary) {
        self.failed += summary.failed;
        self.ignored += summary.ignored.len();
        self.lacking += summary.lacking();
        self.flushed += summary.flushed.len();
        let skipped = summary.ignored.len() + summary.lacking() + summary.flushed.len();
        self.passed += summary.cases - summary.failed - skipped;
    }

    fn skipped(&self) -> usize {
        self.ignored + self.lacking + self.flushed
    }

    fn has_too_many_skips(&self) -> bool {
        self.ignored * 100 > (self.passed + self.failed + self.ignored) * MAX_SKIPPED
    }

    fn are_good(&self) -> bool {
        self.failed == 0 && self.passed > 0 && !self.has_too_many_skips()
    }
}
