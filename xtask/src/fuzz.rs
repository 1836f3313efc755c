//! `cargo xtask fuzz`: differential fuzzing with random programs.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::engines;
use crate::programs::{Launch, Program};
use crate::workspace::Workspace;

/// The fuzzer's package.
pub(crate) const PACKAGE: &str = "kiln-fuzz";

/// The program of the package. It documents its options.
const PROGRAM: Program = Program::Binary("kiln-fuzz");

const OPTIONS: &[&str] = &[
    "--programs",
    "--seed",
    "--first",
    "--threads",
    "--only",
    "--engine",
    "--ahead",
    "--texts",
    "--failures",
    "--shrink",
    "--file",
];
const FLAGS: &[&str] = &["--print", "--help"];

/// `cargo xtask fuzz`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    Args::parse(words, &Accepts { flags: FLAGS, options: OPTIONS, words: false })?;
    fuzzer(&Workspace::load()?, words).start()?;
    Ok(ExitCode::SUCCESS)
}

/// Fuzzes in the test profile: its build outputs exist, the engines' kernels are optimised in it, and overflow and debug
/// assertions are checked.
pub(crate) fn fuzzer(workspace: &Workspace, words: &[String]) -> Launch {
    let feature = feature(words).map(|name| engines::of_package(PACKAGE, name));
    let features: Vec<&str> = feature.iter().map(String::as_str).collect();
    fuzzer_with(workspace, &features, words)
}

/// The same in a build with these features.
pub(crate) fn fuzzer_with(workspace: &Workspace, features: &[&str], words: &[String]) -> Launch {
    let mut fuzzer = PROGRAM.launch(workspace, features);
    for word in words {
        // The program accepts values only as the next argument.
        match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => fuzzer.run.args([option, value]),
            Some(_) | None => fuzzer.run.arg(word),
        };
    }
    fuzzer
}

/// The feature that the engine of `--engine NAME` or `--engine=NAME` needs. The program reports unknown names.
fn feature(words: &[String]) -> Option<&'static str> {
    let at = words.iter().rposition(|word| word == "--engine" || word.starts_with("--engine="))?;
    let name = words[at].strip_prefix("--engine=").or(words.get(at + 1).map(String::as_str))?;
    engines::named(name, |engine| engine.fuzz).ok()?.feature
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    fn said(words: &[&str]) -> (String, String) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let fuzzer = fuzzer(&Workspace::default(), &words);
        (process::describe(&fuzzer.build), process::describe(&fuzzer.run))
    }

    #[test]
    fn options_are_forwarded() {
        let (build, run) = said(&["--programs=5", "--only", "MatMul"]);
        assert!(build.ends_with("kiln-suite/wgpu,kiln-fuzz/wgpu --bin kiln-fuzz --example kill"), "{build}");
        assert!(run.ends_with("kiln-fuzz --programs 5 --only MatMul"), "{run}");
    }

    #[test]
    fn engines_are_built_with_their_features() {
        for (words, feature, arguments) in [
            (&["--engine", "cuda"][..], "cuda", "--engine cuda"),
            (&["--engine=candle"], "candle", "--engine candle"),
            (&["--engine=nvrtc"], "cuda", "--engine nvrtc"),
        ] {
            let (build, run) = said(words);
            assert!(build.contains(&format!("kiln-fuzz/wgpu,kiln-fuzz/{feature} --bin")), "{build}");
            assert!(run.ends_with(arguments), "{run}");
        }
    }

    #[test]
    fn unknown_options_are_errors() {
        assert!(run(&["--program".to_owned()]).unwrap_err().contains("--program"));
    }
}
