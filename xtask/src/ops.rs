//! `cargo xtask ops`: the coverage table of ops and methods, in the book.

use std::fs;
use std::process::{ExitCode, Stdio};

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &["--check"], options: &[], words: false };

/// The page with the table.
const PAGE: &str = "book/src/operations.md";

/// The suite's program, which prints the table and fails if a cell is empty without a reason.
const PROGRAM: (&str, &str) = ("kiln-suite", "coverage");

/// The features that enable all rows of the suite.
const FEATURES: &str = "linalg";

/// `cargo xtask ops`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let (page, is_complete) = report(&workspace)?;
    let path = workspace.root.join(PAGE);
    if args.has("--check") {
        let committed = fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
        if committed != page {
            return Err(format!("{PAGE} is not what the tables say\n  hint: run `cargo xtask ops`"));
        }
    } else {
        print!("{page}");
        fs::write(&path, page).map_err(|error| format!("{PAGE}: {error}"))?;
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The page, and whether all empty cells have a reason.
fn report(workspace: &Workspace) -> Result<(String, bool), String> {
    let (package, program) = PROGRAM;
    let mut command = process::cargo(&workspace.root);
    command.args(["run", "--quiet", "-p", package, "--features", FEATURES, "--bin", program]);
    command.stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cargo run: {error}"))?;
    let page = String::from_utf8(output.stdout).map_err(|_| format!("{program} printed no text"))?;
    if page.is_empty() {
        return Err(format!("{program} printed nothing"));
    }
    Ok((page, output.status.success()))
}
