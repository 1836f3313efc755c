//! Measures the error of every elementary function and writes the record and `docs/accuracy.md`; with `--check`, it
//! writes nothing and fails if the measurement is worse than the record or the page does not match the record.
//! `cargo xtask accuracy` runs it.

#![forbid(unsafe_code)]

use kiln_suite::accuracy::{engine, measure, page, record};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => write(),
        ["--check"] => check(),
        _ => Err("the only option is --check".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("accuracy: {message}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<(), String> {
    let missing: Vec<&str> = engine::SUBJECTS
        .iter()
        .filter(|subject| (subject.open)().is_none())
        .map(|subject| subject.name)
        .collect();
    if !missing.is_empty() {
        return Err(format!("this processor cannot run {}: the record would lack them", missing.join(", ")));
    }
    let rows = measure();
    for (path, text) in [(record::path(), record::print(&rows)), (page::path(), page::print(&rows))] {
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{} rows", rows.len());
    Ok(())
}

fn check() -> Result<(), String> {
    let known = record::read()?;
    let problems = record::problems(&known, &measure());
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    let path = page::path();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if text == page::print(&known) {
        Ok(())
    } else {
        Err(format!("{} is not that of the record\n  hint: run `cargo xtask accuracy`", path.display()))
    }
}
