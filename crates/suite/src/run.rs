//! Running tables against engines.

use crate::case::Case;
use crate::cases::Group;
use crate::check::{Outcome, check_expand, check_grad, check_value, differentiates, expands};
use crate::engines::{Mode, Subject, Tracked};
use std::fmt;

/// What a run of many cases found.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What ran.
    pub title: String,
    /// Cases that ran.
    pub cases: usize,
    /// Comparisons made.
    pub checks: usize,
    /// Names of ignored cases that failed as expected, with the reason.
    pub ignored: Vec<(String, &'static str)>,
    /// What was wrong.
    pub problems: Vec<String>,
}

/// Problems printed; the rest is counted.
const SHOWN: usize = 60;

impl Summary {
    /// An empty summary.
    pub fn new(title: impl Into<String>) -> Summary {
        Summary { title: title.into(), ..Summary::default() }
    }

    /// Adds what one case gave.
    pub fn add(&mut self, outcome: Outcome) {
        self.cases += 1;
        self.checks += outcome.checks;
        self.problems.extend(outcome.problems);
    }

    /// Adds what one case of a subject gave: ignored ones must fail.
    pub fn add_of(&mut self, subject: &Subject, mode: Mode, name: &str, outcome: Outcome) {
        let Some(entry) = subject.ignored(mode, name) else { return self.add(outcome) };
        self.cases += 1;
        self.checks += outcome.checks;
        if outcome.problems.is_empty() {
            let problem = format!(
                "{name}: passes, but `{}` is ignored in mode {mode:?}: remove the entry",
                entry.pattern
            );
            self.problems.push(problem);
        } else {
            self.ignored.push((name.into(), entry.reason));
        }
    }

    /// Prints the summary.
    ///
    /// # Panics
    /// When there are problems, listing them.
    #[track_caller]
    pub fn finish(self) {
        println!("{self}");
        assert!(self.problems.is_empty(), "{self}");
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.problems.len();
        write!(f, "{}: {} cases, {} checks, {failed} problems", self.title, self.cases, self.checks)?;
        for (name, reason) in &self.ignored {
            write!(f, "\n  ignored {name}: {reason}")?;
        }
        for problem in self.problems.iter().take(SHOWN) {
            write!(f, "\n  {problem}")?;
        }
        if failed > SHOWN {
            write!(f, "\n  and {} more", failed - SHOWN)?;
        }
        Ok(())
    }
}

/// Whether an engine is tried alone or under automatic differentiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The engine alone.
    Plain,
    /// Under a layer that records everything.
    Autodiff,
}

/// Mode *value* of one group on one engine.
pub fn values(subject: &Subject, stack: Stack, group: Group) -> Summary {
    let mut summary = Summary::new(format!("value {group:?} on {} ({stack:?})", subject.name));
    let engine = (subject.open)();
    let tracked = Tracked::new(engine.clone());
    for case in group.cases() {
        let outcome = match stack {
            Stack::Plain => check_value(&*engine, &case),
            Stack::Autodiff => check_value(&tracked, &case),
        };
        summary.add_of(subject, Mode::Value, &case.name, outcome);
    }
    summary
}

/// Mode *grad* of one group on one engine.
pub fn grads(subject: &Subject, group: Group) -> Summary {
    let mut summary = Summary::new(format!("grad {group:?} on {}", subject.name));
    let engine = (subject.open)();
    for case in group.cases().iter().filter(|case| differentiates(case)) {
        summary.add_of(subject, Mode::Grad, &case.name, check_grad(engine.clone(), case));
    }
    summary
}

/// Mode *expand* of one group on one engine.
pub fn expansions(subject: &Subject, group: Group) -> Summary {
    let mut summary = Summary::new(format!("expand {group:?} on {}", subject.name));
    let engine = (subject.open)();
    for case in group.cases().iter().filter(|case| expands(case)) {
        summary.add_of(subject, Mode::Expand, &case.name, check_expand(engine.clone(), case));
    }
    summary
}

/// How many cases a group has, for reports.
pub fn count(group: Group) -> usize {
    group.cases().iter().filter(|case: &&Case| case.is_valid()).count()
}
