//! `cargo xtask test`: every check this machine can run, and a list of those it cannot.

mod libtest;
mod newcomer;
mod steps;

use std::process::ExitCode;
use std::time::Instant;

use crate::args::{Accepts, Args};
use crate::table::{self, row};
use crate::workspace::Workspace;
use libtest::Tally;
use steps::{Context, STEPS, Step};

const ACCEPTS: Accepts = Accepts { flags: &["--list", "--no-install"], options: &["--only"], words: false };

/// The outcome of a step.
enum Outcome {
    /// It ran; `error` is set if it failed.
    Ran { tally: Tally, seconds: f64, error: Option<String> },
    /// This machine cannot run it.
    Skipped { reason: String },
}

/// `cargo xtask test`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let selected = select(&args.all("--only"))?;
    let workspace = Workspace::load()?;
    let context =
        Context { workspace: &workspace, install: !args.has("--no-install") && !args.has("--list") };
    if args.has("--list") {
        print!("{}", list(&selected, &context));
        return Ok(ExitCode::SUCCESS);
    }
    // All before the first build, which then finds all that is installed here.
    let can_run: Vec<_> = selected.into_iter().map(|step| (step, (step.can_run)(&context))).collect();
    let outcomes: Vec<(&Step, Outcome)> =
        can_run.into_iter().map(|(step, can_run)| (step, run_step(step, can_run, &context))).collect();
    print!("{}", summary(&outcomes));
    let failed = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Ran { error: Some(_), .. }));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn select(names: &[&str]) -> Result<Vec<&'static Step>, String> {
    let known = |name: &&str| STEPS.iter().any(|step| step.name == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step is called `{unknown}`\n  hint: the steps are {}", all.join(", ")));
    }
    Ok(STEPS.iter().filter(|step| names.is_empty() || names.contains(&step.name)).collect())
}

fn list(steps: &[&Step], context: &Context) -> String {
    let mut rows = vec![row(["step", "what it does", "here"])];
    for step in steps {
        let here = match (step.can_run)(context) {
            Ok(()) => "runs".to_owned(),
            Err(reason) => format!("skipped: {reason}"),
        };
        rows.push(vec![step.name.to_owned(), step.about.to_owned(), here]);
    }
    table::plain(&rows)
}

fn run_step(step: &Step, can_run: Result<(), String>, context: &Context) -> Outcome {
    println!("\n=== {}: {}", step.name, step.about);
    if let Err(reason) = can_run {
        println!("--- {}: skipped: {reason}", step.name);
        return Outcome::Skipped { reason };
    }
    let started = Instant::now();
    let mut tally = Tally::default();
    let error = (step.run)(context, &mut tally).err();
    let seconds = started.elapsed().as_secs_f64();
    // At once, because a run that is stopped prints no table.
    match &error {
        None => println!("--- {}: ok, {seconds:.1} s", step.name),
        Some(error) => println!("--- {}: FAILED, {seconds:.1} s: {error}", step.name),
    }
    Outcome::Ran { tally, seconds, error }
}

/// The table of steps, the skipped steps with reasons, the failed tests, and the closing line. A step that ran tests counts its tests;
/// any other step counts as one.
fn summary(outcomes: &[(&Step, Outcome)]) -> String {
    let (mut passed, mut failed, mut skipped, mut failures) = (0, 0, Vec::new(), String::new());
    let mut rows = vec![row(["step", "result", "tests", "seconds"])];
    for (step, outcome) in outcomes {
        match outcome {
            Outcome::Ran { tally, seconds, error } => {
                let result = if error.is_some() { "FAILED" } else { "ok" };
                let tests = if tally.is_empty() { "-".to_owned() } else { tally.to_string() };
                rows.push(vec![step.name.to_owned(), result.to_owned(), tests, format!("{seconds:.1}")]);
                passed += if tally.is_empty() { usize::from(error.is_none()) } else { tally.passed };
                failed += if error.is_some() { tally.failed.max(1) } else { 0 };
                failures.extend(tally.failures.iter().map(|(test, lines)| {
                    let lines: String = lines.iter().map(|line| format!("    {line}\n")).collect();
                    format!("  {}: {test}\n{lines}", step.name)
                }));
                skipped
                    .extend(tally.ignored.iter().map(|(test, why)| (format!("{}: {test}", step.name), why)));
            }
            Outcome::Skipped { reason } => {
                rows.push(row([step.name, "skipped", "-", "-"]));
                skipped.push((step.name.to_owned(), reason));
            }
        }
    }
    let mut text = format!("\n{}", table::plain(&rows));
    if !skipped.is_empty() {
        text += "\nskipped\n";
        text.extend(skipped.iter().map(|(what, reason)| format!("  {what}: {reason}\n")));
    }
    if !failures.is_empty() {
        text += &format!("\nfailed\n{failures}");
    }
    text + &format!("\n{passed} passed, {failed} failed, {} skipped\n", skipped.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(lines: &[&str], error: Option<&str>) -> Outcome {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.see(line));
        Outcome::Ran { tally, seconds: 1.25, error: error.map(str::to_owned) }
    }

    #[test]
    fn the_closing_line_counts_tests_and_steps() {
        let result = "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        let outcomes = [
            (&STEPS[0], ran(&["test slow ... ignored, an hour", result], None)),
            (&STEPS[1], ran(&[], None)),
            (&STEPS[2], Outcome::Skipped { reason: "no GPU".to_owned() }),
        ];
        let text = summary(&outcomes);
        assert!(text.ends_with("\n8 passed, 0 failed, 2 skipped\n"), "{text}");
        assert!(text.contains(&format!("  {}: slow: an hour\n", STEPS[0].name)), "{text}");
        assert!(text.contains(&format!("  {}: no GPU\n", STEPS[2].name)), "{text}");
    }

    #[test]
    fn failed_tests_are_listed_before_the_closing_line() {
        let lines = ["test merge ... FAILED", "---- merge stdout ----", "left: 1", "failures:"];
        let text = summary(&[(&STEPS[0], ran(&lines, Some("a test failed")))]);
        let expected = format!("failed\n  {}: merge\n    left: 1\n\n0 passed", STEPS[0].name);
        assert!(text.contains(&expected), "{text}");
    }

    #[test]
    fn a_step_that_fails_before_its_tests_counts_as_failed() {
        let text = summary(&[(&STEPS[0], ran(&[], Some("did not compile")))]);
        assert!(text.contains("FAILED") && text.ends_with("\n0 passed, 1 failed, 0 skipped\n"), "{text}");
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(select(&[]).unwrap().len(), STEPS.len());
        assert_eq!(select(&["docs"]).unwrap()[0].name, "docs");
        let error = select(&["dogs"]).err().unwrap();
        assert!(error.contains("`dogs`") && error.contains("docs"), "{error}");
    }
}
