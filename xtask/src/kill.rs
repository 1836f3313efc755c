//! `cargo xtask kill`: crash tests of checkpoints and of training. Kills processes that save a checkpoint while another
//! process reads it, and training runs that are resumed.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::programs::{Launch, Program};
use crate::workspace::Workspace;

/// The program, an example of `kiln-store`.
pub(crate) const PROGRAM: &str = "kill";

/// The program that kills training runs, an example of `kiln-train`.
pub(crate) const RUNS_PROGRAM: &str = "kill_runs";

/// `cargo xtask kill`. The last line of the program for saves is `N kills survived, M mixed`, that of the program for runs
/// `N kills survived, M bit-identical`. Each fails unless all are survived, none is mixed and all are identical.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &Accepts { flags: &[], options: &["--saves", "--runs"], words: false })?;
    let number = |option| args.last(option).map(|text| parse(option, text)).transpose();
    let (saves, runs) = (number("--saves")?, number("--runs")?);
    let workspace = Workspace::load()?;
    if let Some(saves) = saves.or(if runs.is_none() { Some(200) } else { None }) {
        killer(&workspace, saves).start()?;
    }
    if let Some(runs) = runs {
        run_killer(&workspace, runs).start()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(format!("{option} is `{text}`\n  hint: it is a number from 1 on")),
    }
}

/// Kills a number of processes that save. It uses the test profile, whose build outputs exist.
pub(crate) fn killer(workspace: &Workspace, saves: usize) -> Launch {
    launch(PROGRAM, workspace, "--saves", saves)
}

/// Kills a number of training runs.
pub(crate) fn run_killer(workspace: &Workspace, runs: usize) -> Launch {
    launch(RUNS_PROGRAM, workspace, "--runs", runs)
}

fn launch(program: &'static str, workspace: &Workspace, option: &str, number: usize) -> Launch {
    let mut killer = Program::Example(program).launch(workspace);
    killer.run.args([option, &number.to_string()]);
    killer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn numbers_are_forwarded() {
        let said = process::describe(&killer(&Workspace::default(), 5).run);
        assert!(said.ends_with("kill --saves 5"), "{said}");
        let said = process::describe(&run_killer(&Workspace::default(), 3).run);
        assert!(said.ends_with("kill_runs --runs 3"), "{said}");
    }

    #[test]
    fn invalid_numbers_of_saves_are_errors() {
        for saves in ["0", "-1", "many", ""] {
            let error = run(&["--saves".to_owned(), saves.to_owned()]).unwrap_err();
            assert!(error.contains(&format!("--saves is `{saves}`")), "{error}");
        }
    }
}
