//! `cargo xtask dashboard`: tests of the dashboard of training in a real terminal, which tmux provides.

mod checks;
pub(crate) mod tmux;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::args::{Accepts, Args};
use crate::process;
use crate::programs::Program;
use crate::workspace::Workspace;
use checks::{CHECKS, Check, Context};

const ACCEPTS: Accepts =
    Accepts { flags: &["--no-install"], options: &["--only", "--program"], words: false };

/// The example of `kiln-train` that feeds the dashboard.
pub(crate) const PROGRAM: &str = "dashboard_demo";
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// `cargo xtask dashboard`. The last line is `N passed, M failed`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    has_tmux(&workspace.root, !args.has("--no-install"))?;
    let program = match args.last("--program") {
        Some(path) => std::path::absolute(path).map_err(process::at(Path::new(path)))?,
        None => build(&workspace)?,
    };
    let only = args.last("--only").unwrap_or_default();
    let chosen: Vec<&Check> = CHECKS.iter().filter(|check| check.name.contains(only)).collect();
    if chosen.is_empty() {
        return Err(format!("no check contains `{only}`"));
    }
    let failed = run_checks(&chosen, &Context { program });
    println!("{} passed, {failed} failed", chosen.len() - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs checks, prints their results and returns the number of those that failed.
fn run_checks(checks: &[&Check], context: &Context) -> usize {
    let mut failed = 0;
    for check in checks {
        match (check.run)(context) {
            Ok(()) => println!("ok      {}", check.name),
            Err(problem) => {
                failed += 1;
                println!("FAILED  {}\n{problem}", check.name);
            }
        }
    }
    failed
}

/// Builds the example in the test profile and returns its path.
fn build(workspace: &Workspace) -> Result<PathBuf, String> {
    let mut launch = Program::Example(PROGRAM).launch(workspace);
    process::run(&mut launch.build)?;
    Ok(launch.run.get_program().into())
}

/// Returns whether tmux can be used; installs Debian's package where that is allowed and possible.
pub(crate) fn has_tmux(root: &Path, install: bool) -> Result<(), String> {
    let is_installed = || process::succeeds(process::program("tmux", root).arg("-V"));
    if is_installed() {
        return Ok(());
    }
    let advice = "tmux is not installed; `apt-get install tmux` adds it".to_owned();
    let is_root = || process::output(process::program("id", root).arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !install || !is_root() {
        return Err(advice);
    }
    println!("installing Debian's package tmux with apt-get");
    let apt =
        |words: &[&str]| process::run_within(process::program("apt-get", root).args(words), INSTALL_LIMIT);
    apt(&["update"])
        .and_then(|()| apt(&["install", "--yes", "--no-install-recommends", "tmux"]))
        .map_err(|error| format!("{advice} (tried here: {error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checks_are_unique() {
        let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn failed_checks_are_counted() {
        let checks = [
            Check { name: "good", run: |_| Ok(()) },
            Check { name: "bad", run: |_| Err("no text".to_owned()) },
        ];
        let context = Context { program: PathBuf::new() };
        assert_eq!(run_checks(&[&checks[0], &checks[1], &checks[0]], &context), 1);
    }
}
