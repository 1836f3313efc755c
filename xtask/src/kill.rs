//! `cargo xtask kill`: crash tests of checkpoints and of training. Kills processes that save a checkpoint while another
//! process reads it, and training runs that are resumed.

use std::process::{Command, ExitCode};

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

/// The program, an example of the package below.
pub(crate) const PROGRAM: &str = "kill";
const PACKAGE: &str = "kiln-store";

/// The program that kills training runs, an example of the package below.
pub(crate) const RUNS_PROGRAM: &str = "kill_runs";
const RUNS_PACKAGE: &str = "kiln-train";

/// `cargo xtask kill`. The last line of the program for saves is `N kills survived, M mixed`, that of the program for runs
/// `N kills survived, M bit-identical`. Each fails unless all are survived, none is mixed and all are identical.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &Accepts { flags: &[], options: &["--saves", "--runs"], words: false })?;
    let number = |option| args.last(option).map(|text| parse(option, text)).transpose();
    let (saves, runs) = (number("--saves")?, number("--runs")?);
    let root = Workspace::load()?.root;
    if let Some(saves) = saves.or(if runs.is_none() { Some(200) } else { None }) {
        process::run(&mut killer(process::cargo(&root), saves))?;
    }
    if let Some(runs) = runs {
        process::run(&mut run_killer(process::cargo(&root), runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        Ok(_) | Err(_) => Err(format!("{option} is `{text}`\n  hint: it is a number from 1 on")),
    }
}

/// The command that kills a number of training runs.
pub(crate) fn run_killer(mut command: Command, runs: usize) -> Command {
    command.args(["run", "--quiet", "-p", RUNS_PACKAGE, "--example", RUNS_PROGRAM, "--", "--runs"]);
    command.arg(runs.to_string());
    command
}

/// The command that kills a number of processes. It uses the test profile, whose build outputs exist.
pub(crate) fn killer(mut command: Command, saves: usize) -> Command {
    command.args(["run", "--quiet", "-p", PACKAGE, "--example", PROGRAM, "--", "--saves"]);
    command.arg(saves.to_string());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_saves_is_forwarded() {
        let said = process::describe(&killer(Command::new("cargo"), 5));
        assert_eq!(said, "cargo run --quiet -p kiln-store --example kill -- --saves 5");
    }

    #[test]
    fn invalid_numbers_of_saves_are_errors() {
        for saves in ["0", "-1", "many", ""] {
            let error = run(&["--saves".to_owned(), saves.to_owned()]).unwrap_err();
            assert!(error.contains(&format!("--saves is `{saves}`")), "{error}");
        }
    }
}
