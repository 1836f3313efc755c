//! `cargo xtask kill`: crash test of checkpoints. Kills processes that save a checkpoint while another process reads
//! it.

use std::process::{Command, ExitCode};

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

/// The program, an example of the package below.
pub(crate) const PROGRAM: &str = "kill";
const PACKAGE: &str = "kiln-store";

/// `cargo xtask kill`. The program's last line is `N kills survived, M mixed`; it fails unless all are survived and none is
/// mixed.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &Accepts { flags: &[], options: &["--saves"], words: false })?;
    let saves = args.last("--saves").map(parse).transpose()?.unwrap_or(200);
    let root = Workspace::load()?.root;
    process::run(&mut killer(process::cargo(&root), saves))?;
    Ok(ExitCode::SUCCESS)
}

fn parse(saves: &str) -> Result<usize, String> {
    match saves.parse() {
        Ok(saves) if saves > 0 => Ok(saves),
        Ok(_) | Err(_) => Err(format!("--saves is `{saves}`\n  hint: it is a number from 1 on")),
    }
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
