//! `cargo xtask ops` and `cargo xtask modules`: the suite's coverage tables, in the book.

use std::fs;
use std::process::{ExitCode, Stdio};

use crate::args::{Accepts, Args};
use crate::process;
use crate::programs::Program;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &["--check"], options: &[], words: false };

/// A page of the book that a program of the suite prints. The program fails if a cell is empty without a reason.
struct Table {
    /// The command that writes the page.
    command: &'static str,
    page: &'static str,
    program: Program,
}

const OPS: Table =
    Table { command: "ops", page: "book/src/operations.md", program: Program::Binary("coverage") };

const MODULES: Table =
    Table { command: "modules", page: "book/src/modules.md", program: Program::Binary("modules") };

/// `cargo xtask ops`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    OPS.run(words)
}

/// `cargo xtask modules`.
pub(crate) fn modules(words: &[String]) -> Result<ExitCode, String> {
    MODULES.run(words)
}

impl Table {
    fn run(&self, words: &[String]) -> Result<ExitCode, String> {
        let args = Args::parse(words, &ACCEPTS)?;
        let workspace = Workspace::load()?;
        let (page, is_complete) = self.report(&workspace)?;
        let path = workspace.root.join(self.page);
        if args.has("--check") {
            let committed = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", self.page))?;
            if committed != page {
                let Table { command, page, .. } = self;
                return Err(format!(
                    "{page} is not what the tables say\n  hint: run `cargo xtask {command}`"
                ));
            }
        } else {
            print!("{page}");
            fs::write(&path, page).map_err(|error| format!("{}: {error}", self.page))?;
        }
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The page, and whether all empty cells have a reason.
    fn report(&self, workspace: &Workspace) -> Result<(String, bool), String> {
        let mut launch = self.program.launch(workspace);
        process::run(&mut launch.build)?;
        let name = process::describe(&launch.run);
        let output = launch.run.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| format!("cannot start `{name}`: {error}"))?;
        let page = String::from_utf8(output.stdout).map_err(|_| format!("`{name}` printed no text"))?;
        if page.is_empty() {
            return Err(format!("`{name}` printed nothing"));
        }
        Ok((page, output.status.success()))
    }
}
