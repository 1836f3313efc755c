//! `cargo xtask attack`: attacks on Kiln by untrusted clients and files.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::programs::{Launch, Program};
use crate::workspace::Workspace;

/// The program, a binary of the package of the same name.
pub(crate) const PROGRAM: &str = "kiln-attack";

/// `cargo xtask attack`. The last line is `N passed, M failed`; it fails unless all pass.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args =
        Args::parse(words, &Accepts { flags: &["--short", "--list"], options: &["--only"], words: false })?;
    if args.all("--only").len() > 1 {
        return Err(
            "--only is given twice\n  hint: it selects the attacks whose names contain one text".to_owned()
        );
    }
    let flags = ["--short", "--list"].into_iter().filter(|flag| args.has(flag));
    let only = args.last("--only").into_iter().flat_map(|text| ["--only", text]);
    attacker(&Workspace::load()?, &flags.chain(only).collect::<Vec<_>>()).start()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs attacks in the test profile: its build outputs exist, and overflow and debug assertions are checked.
pub(crate) fn attacker(workspace: &Workspace, words: &[&str]) -> Launch {
    let mut attacker = Program::Binary(PROGRAM).launch(workspace);
    attacker.run.args(words);
    attacker
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;
    use crate::process;

    #[test]
    fn options_are_forwarded() {
        let attacker = attacker(&Workspace::default(), &["--short", "--only", "server/"]);
        let build = process::describe(&attacker.build);
        assert!(build.ends_with("--bin kiln-attack --example kill"), "{build}");
        let run = process::describe(&attacker.run);
        assert!(run.ends_with("kiln-attack --short --only server/"), "{run}");
    }

    #[test]
    fn unknown_and_repeated_options_are_errors() {
        let error = |words: &[&str]| run(&owned(words)).unwrap_err();
        assert!(error(&["--long"]).contains("--long"));
        assert!(error(&["--only"]).contains("--only needs a value"));
        assert!(error(&["--only", "a", "--only=b"]).contains("given twice"));
    }
}
