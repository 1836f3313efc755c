//! `cargo xtask bench plan`: checks that the planning time of fusion per op does not grow with the number of ops.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--only"], words: false };

/// The package and its benchmark, which fails if the time per op grows.
const BENCHMARK: (&str, &str) = ("kiln-fusion", "plan");

/// `cargo xtask bench plan`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let (package, benchmark) = BENCHMARK;
    if !workspace.has_target("bench", benchmark) {
        return Err(format!("{package} has no benchmark {benchmark}"));
    }
    let mut command = process::cargo(&workspace.root);
    command.args(["bench", "--quiet", "-p", package, "--bench", benchmark, "--"]);
    command.args(args.last("--only"));
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}
