//! Prints the coverage report as Markdown; see `kiln_suite::report`.
#![forbid(unsafe_code)]

use kiln_suite::report::report;
use std::process::ExitCode;

fn main() -> ExitCode {
    let report = report();
    print!("{}", report.page);
    for cell in &report.missing {
        eprintln!("missing: {cell}");
    }
    if report.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
