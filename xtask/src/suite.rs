//! `cargo xtask suite`: the conformance suite on one engine.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::engines::{self, Engine};
use crate::programs::{Launch, Program};
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &[], options: &["--engine", "--part"], words: false };

/// The suite's package.
pub(crate) const PACKAGE: &str = "kiln-suite";

/// The program of the package that runs it.
const PROGRAM: Program = Program::Binary("conformance");

/// `cargo xtask suite`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let name = args.last("--engine").ok_or("`--engine` is missing\n  hint: such as `--engine cpu`")?;
    let engine = named(name)?;
    let feature = engine.feature.map(|name| engines::of_package(PACKAGE, name));
    let features: Vec<&str> = feature.iter().map(String::as_str).collect();
    let mut suite = conformance(&Workspace::load()?, engine.name, &features);
    if let Some(part) = args.last("--part") {
        suite.run.env("KILN_SUITE_PART", checked_part(part)?);
    }
    suite.start()?;
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

/// Runs the suite in a build with these features, in the test profile as the tests do.
pub(crate) fn conformance(workspace: &Workspace, engine: &str, features: &[&str]) -> Launch {
    let mut suite = PROGRAM.launch(workspace, features);
    suite.run.arg(engine);
    suite
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn the_engine_is_handed_on() {
        let suite = conformance(&Workspace::default(), "candle", &["kiln-suite/candle"]);
        let build = process::describe(&suite.build);
        assert!(build.ends_with("models,kiln-suite/candle --bin conformance --example kill"), "{build}");
        assert!(process::describe(&suite.run).ends_with("conformance candle"));
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
