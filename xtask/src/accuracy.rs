//! `cargo xtask accuracy`: measures elementary functions against tables of exact values.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &["--check"], options: &[], words: false };

/// The program of the suite that measures. It writes `crates/suite/accuracy/record.json` and `docs/accuracy.md`, or
/// compares with them.
const PROGRAM: (&str, &str) = ("kiln-suite", "accuracy");

/// `cargo xtask accuracy`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let (package, program) = PROGRAM;
    if !workspace.has_target("bin", program) {
        return Err(format!("{package} has no program {program}"));
    }
    let mut command = process::cargo(&workspace.root);
    command.args(["run", "--quiet", "-p", package, "--bin", program]);
    if args.has("--check") {
        command.args(["--", "--check"]);
    }
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}
