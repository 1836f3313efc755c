//! `cargo xtask suite`: the conformance suite on one engine.

use std::process::{Command, ExitCode};

use crate::args::{Accepts, Args};
use crate::engines::{self, Engine};
use crate::process;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--engine", "--part"], words: false };

/// The program of the suite that runs it.
const PROGRAM: (&str, &str) = ("kiln-suite", "conformance");

/// `cargo xtask suite`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let name = args.last("--engine").ok_or("`--engine` is missing\n  hint: such as `--engine cpu`")?;
    let engine = named(name)?;
    let root = Workspace::load()?.root;
    let features: Vec<&str> = engine.feature.into_iter().collect();
    let mut command = conformance(process::cargo(&root), engine.name, &features);
    if let Some(part) = args.last("--part") {
        command.env("KILN_SUITE_PART", checked_part(part)?);
    }
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> Result<&'static Engine, String> {
    engines::named(name, |engine| engine.suite)
}

/// Such as `2/8`.
fn checked_part(text: &str) -> Result<&str, String> {
    let numbers =
        text.split_once('/').and_then(|(k, n)| Some((k.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
    match numbers {
        Some((number, parts)) if (1..=parts).contains(&number) => Ok(text),
        Some(_) | None => Err(format!("`--part {text}`: not a part like 2/8")),
    }
}

/// The command that runs the suite in a build with these features, in the test profile as the tests do.
pub(crate) fn conformance(mut command: Command, engine: &str, features: &[&str]) -> Command {
    let (package, program) = PROGRAM;
    command.args(["run", "--quiet", "-p", package, "--bin", program]);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    command.args(["--", engine]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_handed_on() {
        let command = conformance(Command::new("cargo"), "router", &[]);
        let said = process::describe(&command);
        assert_eq!(said, "cargo run --quiet -p kiln-suite --bin conformance -- router");
        let command = conformance(Command::new("cargo"), "candle", &["candle"]);
        let said = process::describe(&command);
        assert_eq!(said, "cargo run --quiet -p kiln-suite --bin conformance --features candle -- candle");
    }

    #[test]
    fn mistakes_are_named() {
        let said = |words: &[&str]| {
            run(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap_err()
        };
        assert!(said(&[]).contains("`--engine` is missing"));
        assert!(said(&["--engine", "abacus"]).contains("router"));
        assert!(checked_part("3/2").is_err() && checked_part("x").is_err());
        assert_eq!(checked_part("2/8"), Ok("2/8"));
    }
}
