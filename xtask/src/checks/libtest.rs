//! Counts from the lines that Rust's test harness prints.

use std::fmt;

/// The test counts of a step.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Ignored tests with their reasons.
    pub(crate) ignored: Vec<(String, String)>,
    /// The crate or test program of the current lines.
    program: String,
}

impl Tally {
    /// Takes one line of output into account.
    pub(crate) fn see(&mut self, line: &str) {
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
}
