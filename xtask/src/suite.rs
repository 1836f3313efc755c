//! `cargo xtask suite`: the conformance suite on one engine.

use std::process::{Command, ExitCode};

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--engine", "--part"], words: false };

/// The program of the suite that runs it.
const PROGRAM: (&str, &str) = ("kiln-suite", "conformance");

/// An engine, and the feature of the suite's package with which it is built.
struct Engine {
    name: &'static str,
    feature: Option<&'static str>,
}

/// The engines, by the names that `kiln_suite::engines::NAMED` has.
const ENGINES: &[Engine] = &[
    Engine { name: "reference", feature: None },
    Engine { name: "flex", feature: None },
    Engine { name: "cpu", feature: None },
    Engine { name: "router", feature: None },
    Engine { name: "remote", feature: Some("remote") },
    Engine { name: "candle", feature: Some("candle") },
    Engine { name: "libtorch", feature: Some("libtorch") },
];

/// `cargo xtask suite`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let name = args.last("--engine").ok_or_else(|| format!("`--engine` is missing\n  hint: {}", names()))?;
    let engine = named(name)?;
    let root = Workspace::load()?.root;
    let mut command = conformance(process::cargo(&root), engine);
    if let Some(part) = args.last("--part") {
        command.env("KILN_SUITE_PART", checked_part(part)?);
    }
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> Result<&'static Engine, String> {
    let found = ENGINES.iter().find(|engine| engine.name == name);
    found.ok_or_else(|| format!("no engine is called `{name}`\n  hint: {}", names()))
}

fn names() -> String {
    let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
    format!("the engines are {}", names.join(", "))
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

/// The command that runs the suite, in the test profile as the tests do.
fn conformance(mut command: Command, engine: &Engine) -> Command {
    let (package, program) = PROGRAM;
    command.args(["run", "--quiet", "-p", package, "--bin", program]);
    if let Some(feature) = engine.feature {
        command.args(["--features", feature]);
    }
    command.args(["--", engine.name]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_handed_on() {
        let command = conformance(Command::new("cargo"), named("router").unwrap());
        let said = process::describe(&command);
        assert_eq!(said, "cargo run --quiet -p kiln-suite --bin conformance -- router");
        let command = conformance(Command::new("cargo"), named("candle").unwrap());
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
