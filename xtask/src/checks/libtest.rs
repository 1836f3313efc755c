//! Counts from the lines that Rust's test harness prints.

use std::fmt;

/// What a step's tests came to.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Ignored tests with their reasons.
    pub(crate) ignored: Vec<(String, String)>,
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
            self.ignored.push((name.to_owned(), reason.to_owned()));
        }
    }

    /// Whether no test was seen.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = self.passed + self.failed;
        write!(f, "{}/{run}", self.passed)?;
        if self.ignored.is_empty() { Ok(()) } else { write!(f, ", {} ignored", self.ignored.len()) }
    }
}

/// The number in front of `what` in `ok. 3 passed; 0 failed; …`.
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
    fn several_programs_add_up() {
        let mut tally = Tally::default();
        for line in [
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
        assert_eq!(tally.to_string(), "15/19, 2 ignored");
    }
}
