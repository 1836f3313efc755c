//! Counts from the lines that Rust's test harness prints.

use std::fmt;

/// The maximum number of lines of a failed test in the summary.
const SHOWN_LINES: usize = 8;

/// The test counts of a step.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Ignored tests with their reasons.
    pub(crate) ignored: Vec<(String, String)>,
    /// Failed tests with the first lines of their output.
    pub(crate) failures: Vec<(String, Vec<String>)>,
    /// The failed test whose output the current lines are.
    shown: Option<usize>,
    /// The crate or test program of the current lines.
    program: String,
}

impl Tally {
    /// Takes one line of output into account.
    pub(crate) fn see(&mut self, line: &str) {
        self.see_failure(line);
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
        } else if let Some((name, rest)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored"))
        {
            let reason = rest.strip_prefix(", ").unwrap_or("marked `ignore` without a reason");
            self.ignored.push((format!("{} {name}", self.program).trim().to_owned(), reason.to_owned()));
        } else if let Some(program) = program(line) {
            self.program = program;
        }
    }

    /// Notes the name of a failed test, and the first lines of its output.
    fn see_failure(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        let named = |program: &str, name: &str| format!("{program} {name}").trim().to_owned();
        if let Some(name) = failed {
            self.failures.push((named(&self.program, name), Vec::new()));
        } else if let Some(name) = header {
            let name = named(&self.program, name);
            self.shown = self.failures.iter().position(|(failed, _)| *failed == name);
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.shown = None;
        } else if let Some((_, lines)) = self.shown.and_then(|shown| self.failures.get_mut(shown))
            && !line.trim().is_empty()
            && lines.len() < SHOWN_LINES
        {
            lines.push(line.to_owned());
        }
    }

    /// Whether no test was seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed + self.failed + self.ignored.len() == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.passed + self.failed;
        write!(f, "{}/{run}", self.passed)?;
        if self.ignored.is_empty() { Ok(()) } else { write!(f, ", {} ignored", self.ignored.len()) }
    }
}

/// The test program that cargo announces, such as `kiln_ir` for `target/debug/deps/kiln_ir-0123`. Documentation tests
/// carry their file in their names.
fn program(line: &str) -> Option<String> {
    let line = line.trim_start();
    if line.starts_with("Doc-tests ") {
        return Some(String::new());
    }
    let file = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit('/').next()?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned())
}

/// The number before the word `what` in `ok. 3 passed; 0 failed; …`.
fn count(counts: &str, what: &str) -> usize {
    let mut words = counts.split([' ', ';', '.']).filter(|word| !word.is_empty());
    let mut last = 0;
    words.find_map(|word| {
        if word == what {
            return Some(last);
        }
        last = word.parse().unwrap_or(last);
        None
    });
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_programs_add_up() {
        let mut tally = Tally::default();
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/kiln_ir-0123abc)",
            "running 3 tests",
            "test shape::tests::merge ... ok",
            "test big ... ignored",
            "test slow ... ignored, takes an hour ... or two",
            "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            tally.see(line);
        }
        assert_eq!((tally.passed, tally.failed), (15, 4));
        assert_eq!(tally.ignored[0].1, "marked `ignore` without a reason");
        assert_eq!(tally.ignored[1].0, "kiln_ir slow");
        assert_eq!(tally.to_string(), "15/19, 2 ignored");
    }

    #[test]
    fn failed_tests_keep_the_first_lines_of_their_output() {
        let mut tally = Tally::default();
        for line in [
            "     Running unittests src/lib.rs (target/debug/deps/kiln_ir-0123abc)",
            "test shape::merge ... FAILED",
            "test shape::split ... ok",
            "test shape::wide ... FAILED",
            "failures:",
            "---- shape::merge stdout ----",
            "",
            "thread 'shape::merge' panicked at crates/ir/src/shape.rs:3:5:",
            "left: 1",
            "---- shape::wide stdout ----",
            "too wide",
            "failures:",
            "    shape::merge",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            tally.see(line);
        }
        let lines: Vec<(&str, usize)> =
            tally.failures.iter().map(|(name, lines)| (name.as_str(), lines.len())).collect();
        assert_eq!(lines, [("kiln_ir shape::merge", 2), ("kiln_ir shape::wide", 1)]);
        assert_eq!(tally.failures[0].1[1], "left: 1");
    }
}
