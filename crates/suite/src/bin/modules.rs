//! Prints the table of modules as Markdown; see `kiln_suite::modules::page`.
#![forbid(unsafe_code)]

use kiln_suite::modules::page;
use std::process::ExitCode;

fn main() -> ExitCode {
    let page = page();
    print!("{}", page.text);
    for cell in &page.missing {
        eprintln!("missing: {cell}");
    }
    if page.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
