//! Runs tables of cases on engines.

use crate::case::{Case, Layouts};
use crate::cases::Group;
use crate::check::{
    Expected, Outcome, Subnormals, check_expand, check_forward, check_grad, check_vmap, differentiates,
    expands,
};
use crate::engines::{Mode, REFERENCE, Subject, Tracked};
use kiln_ir::{DType, Engine};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The outcome of a run of many cases.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The name of the run.
    pub title: String,
    /// Cases that ran.
    pub cases: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Comparisons made.
    pub checks: usize,
    /// Names of ignored cases that failed as expected, with the reason.
    pub ignored: Vec<(String, &'static str)>,
    /// Number of cases that did not run, by the dtype that the engine lacks.
    pub lacking: BTreeMap<DType, usize>,
    /// Names of cases whose results agree only after subnormal operands are replaced by zeros.
    pub flushed: Vec<String>,
    /// The failures.
    pub problems: Vec<String>,
}

/// Maximum number of printed problems; the rest is counted.
const SHOWN: usize = 100;
const SHOWN_OF_CASE: usize = 2;

impl Summary {
    /// Returns an empty summary.
    pub fn new(title: impl Into<String>) -> Summary {
        Summary { title: title.into(), ..Summary::default() }
    }

    /// Adds the outcome of one case.
    pub fn add(&mut self, outcome: Outcome) {
        self.cases += 1;
        self.checks += outcome.checks;
        let (count, mut problems) = (outcome.problems.len(), outcome.problems.into_iter());
        self.problems.extend(problems.by_ref().take(SHOWN_OF_CASE));
        self.failed += usize::from(count > 0);
        if let Some(last) = self.problems.last_mut()
            && count > SHOWN_OF_CASE
        {
            *last += &format!(" (and {} more of this case)", count - SHOWN_OF_CASE);
        }
    }

    /// Adds the outcome of one case of a subject: ignored ones must fail.
    pub fn add_of(&mut self, subject: &Subject, mode: Mode, name: &str, outcome: Outcome) {
        let Some(entry) = subject.ignored(mode, name) else {
            if outcome.flushes_operands && outcome.problems.is_empty() {
                self.flushed.push(name.into());
            }
            return self.add(outcome);
        };
        self.cases += 1;
        self.checks += outcome.checks;
        if outcome.problems.is_empty() {
            let problem = format!(
                "{name}: passes, but `{}` is ignored in mode {mode:?}: remove the entry",
                entry.pattern
            );
            self.problems.push(problem);
            self.failed += 1;
        } else {
            self.ignored.push((name.into(), entry.reason));
        }
    }

    /// Counts a case with a dtype that the engine lacks. Returns whether it has one.
    fn lacks_dtype(&mut self, engine: &dyn Engine, case: &Case) -> bool {
        let Some(dtype) = lacking(engine, case) else { return false };
        self.cases += 1;
        *self.lacking.entry(dtype).or_default() += 1;
        true
    }

    /// Returns the number of cases that did not run because the engine lacks a dtype.
    pub fn lacking(&self) -> usize {
        self.lacking.values().sum()
    }

    /// Prints the summary.
    ///
    /// # Panics
    /// When there are problems.
    #[track_caller]
    pub fn finish(self) {
        println!("{self}");
        assert!(self.problems.is_empty(), "{}: {} cases failed, see above", self.title, self.failed);
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.problems.len();
        let Summary { title, cases, checks, .. } = self;
        write!(
            f,
            "{title}: {cases} cases, {checks} checks, {} ignored, {} failed",
            self.ignored.len(),
            self.failed
        )?;
        for (dtype, count) in &self.lacking {
            write!(f, "\n  skipped, the device has no {}: {count} cases", dtype.name())?;
        }
        for name in &self.flushed {
            write!(f, "\n  skipped {name}: the device flushes subnormal operands to zero")?;
        }
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

/// Prints summaries.
///
/// # Panics
/// When there are problems in any.
#[track_caller]
pub fn finish(summaries: Vec<Summary>) {
    summaries.iter().for_each(|summary| println!("{summary}"));
    let failed: Vec<&String> = summaries.iter().filter(|s| s.failed > 0).map(|s| &s.title).collect();
    assert!(failed.is_empty(), "cases failed, see above: {failed:?}");
}

/// Whether an engine is tested alone or under automatic differentiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The engine alone.
    Plain,
    /// Under an automatic-differentiation layer that records every op.
    Autodiff,
}

/// Runs mode *value* of one group on several engines. Large cases are not run on the reference, which would be compared
/// with itself.
pub fn values(matrix: &[(Subject, Stack)], group: Group) -> Vec<Summary> {
    let title =
        |(subject, stack): &(Subject, Stack)| format!("value {group:?} on {} ({stack:?})", subject.name);
    let mut summaries: Vec<Summary> = matrix.iter().map(|entry| Summary::new(title(entry))).collect();
    let open = |(subject, stack): &(Subject, Stack)| match stack {
        Stack::Plain => (subject.open)(),
        Stack::Autodiff => Arc::new(Tracked::new((subject.open)())) as Arc<dyn Engine>,
    };
    let engines: Vec<Arc<dyn Engine>> = matrix.iter().map(open).collect();
    let subnormals: Vec<Subnormals> = engines.iter().map(|engine| Subnormals::of(&**engine)).collect();
    for case in cases(group) {
        let expected = Expected::of(&case);
        let runs = matrix.iter().zip(&engines).zip(&subnormals).zip(&mut summaries);
        for ((((subject, _), engine), &subnormals), summary) in runs {
            let is_compared = case.layouts == Layouts::All || subject.name != REFERENCE.name;
            if is_compared && !summary.lacks_dtype(&**engine, &case) {
                let outcome = expected.check_with(&**engine, subnormals);
                summary.add_of(subject, Mode::Value, &case.name, outcome);
            }
        }
    }
    summaries
}

/// Runs mode *grad* of one group on one engine.
pub fn grads(subject: &Subject, group: Group) -> Summary {
    let mut summary = Summary::new(format!("grad {group:?} on {}", subject.name));
    let engine = (subject.open)();
    for case in cases(group).iter().filter(|case| differentiates(case)) {
        if !summary.lacks_dtype(&*engine, case) {
            summary.add_of(subject, Mode::Grad, &case.name, check_grad(engine.clone(), case));
        }
    }
    summary
}

/// Runs mode *forward* of one group on one engine. Cases ignored in mode *grad* are ignored here too.
pub fn forwards(subject: &Subject, group: Group) -> Summary {
    let mut summary = Summary::new(format!("forward {group:?} on {}", subject.name));
    let engine = (subject.open)();
    for case in cases(group).iter().filter(|case| differentiates(case)) {
        if !summary.lacks_dtype(&*engine, case) {
            summary.add_of(subject, Mode::Grad, &case.name, check_forward(&engine, case));
        }
    }
    summary
}

/// Runs mode *vmap* of one group on one engine: small cases only. Cases ignored in mode *value* are ignored here too.
pub fn batches(subject: &Subject, group: Group) -> Summary {
    let mut summary = Summary::new(format!("vmap {group:?} on {}", subject.name));
    let engine = (subject.open)();
    for case in cases(group).iter().filter(|case| case.layouts == Layouts::All) {
        if !summary.lacks_dtype(&*engine, case) {
            summary.add_of(subject, Mode::Value, &case.name, check_vmap(&engine, case));
        }
    }
    summary
}

/// Runs mode *expand* of one group on one engine.
pub fn expansions(subject: &Subject, group: Group) -> Summary {
    let mut summary = Summary::new(format!("expand {group:?} on {}", subject.name));
    let engine = (subject.open)();
    let subnormals = Subnormals::of(&*engine);
    for case in cases(group).iter().filter(|case| expands(case)) {
        if !summary.lacks_dtype(&*engine, case) {
            let outcome = check_expand(engine.clone(), case, subnormals);
            summary.add_of(subject, Mode::Expand, &case.name, outcome);
        }
    }
    summary
}

/// The cases of a group that this process runs. `KILN_SUITE_PART=2/8` in the environment selects shard 2 of 8: every
/// eighth case. Several processes share runs that compile kernels.
///
/// # Panics
/// When the variable is not a valid shard.
fn cases(group: Group) -> Vec<Case> {
    shard(group.cases())
}

/// The items of a list that this process runs, by `KILN_SUITE_PART`.
pub(crate) fn shard<T>(items: Vec<T>) -> Vec<T> {
    let Some((number, parts)) = kiln_ir::setting("KILN_SUITE_PART", "a part like 2/8", part) else {
        return items;
    };
    println!("only part {number} of {parts} runs");
    items.into_iter().skip(number - 1).step_by(parts).collect()
}

/// A dtype of the operands or results of a case that an engine lacks.
fn lacking(engine: &dyn Engine, case: &Case) -> Option<DType> {
    let operands = case.operand_types();
    let results = case.result_types().unwrap_or_default();
    let types = operands.iter().filter_map(|kind| kind.tensor()).chain(&results);
    let mut dtypes = types.map(|ty| ty.dtype);
    dtypes.find(|dtype| may_lack(engine, *dtype))
}

/// Whether an engine lacks a dtype that devices may lack: one of 64 bits. A case of any other missing dtype runs, and
/// fails.
pub(crate) fn may_lack(engine: &dyn Engine, dtype: DType) -> bool {
    dtype.size() == 8 && !engine.caps().dtypes.contains(dtype)
}

/// Parses a shard: `(2, 8)` for `2/8`.
fn part(text: &str) -> Option<(usize, usize)> {
    let (number, parts) = text.split_once('/')?;
    let (number, parts) = (number.parse().ok()?, parts.parse().ok()?);
    (1..=parts).contains(&number).then_some((number, parts))
}

/// Returns the number of cases of a group, for reports.
pub fn count(group: Group) -> usize {
    group.cases().iter().filter(|case: &&Case| case.is_valid()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbered_from_one() {
        assert_eq!(part("2/8"), Some((2, 8)));
        assert_eq!(part("8/8"), Some((8, 8)));
        for text in ["0/8", "9/8", "1", "", "/", "1/0", "a/b", "1/8/2"] {
            assert_eq!(part(text), None, "{text}");
        }
    }
}
