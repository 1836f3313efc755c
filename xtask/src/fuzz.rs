//! `cargo xtask fuzz`: differential fuzzing with random programs.

use std::process::{Command, ExitCode};

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

/// The fuzzer's package. Its program documents its options.
pub(crate) const PACKAGE: &str = "kiln-fuzz";

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
    let root = Workspace::load()?.root;
    let mut command = fuzzer(process::cargo(&root), words);
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}

/// The features of the package, and the engines that need them.
const FEATURES: &[(&str, &[&str])] = &[
    ("cuda", &["cuda", "nvrtc"]),
    ("candle", &["candle"]),
    ("libtorch", &["libtorch"]),
    ("remote", &["remote"]),
];

/// The command that fuzzes. It uses the test profile: its build outputs exist, the engines' kernels are optimised in
/// it, and overflow and debug assertions are checked.
pub(crate) fn fuzzer(mut command: Command, words: &[String]) -> Command {
    command.args(["run", "--quiet", "-p", PACKAGE]);
    for (feature, engines) in FEATURES {
        let names_one = |word: &String| engines.contains(&word.strip_prefix("--engine=").unwrap_or(word));
        if words.iter().any(names_one) {
            command.args(["--features", feature]);
        }
    }
    command.arg("--");
    for word in words {
        // The program accepts values only as the next argument.
        match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => command.args([option, value]),
            Some(_) | None => command.arg(word),
        };
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_forwarded() {
        let words: Vec<String> = ["--programs=5", "--only", "MatMul"].map(str::to_owned).into();
        let command = fuzzer(Command::new("cargo"), &words);
        let said = process::describe(&command);
        assert_eq!(said, "cargo run --quiet -p kiln-fuzz -- --programs 5 --only MatMul");
        let words: Vec<String> = ["--engine", "cuda"].map(str::to_owned).into();
        let said = process::describe(&fuzzer(Command::new("cargo"), &words));
        assert_eq!(said, "cargo run --quiet -p kiln-fuzz --features cuda -- --engine cuda");
        let words = ["--engine=candle".to_owned()];
        let said = process::describe(&fuzzer(Command::new("cargo"), &words));
        assert_eq!(said, "cargo run --quiet -p kiln-fuzz --features candle -- --engine candle");
        let words = ["--engine=nvrtc".to_owned()];
        let said = process::describe(&fuzzer(Command::new("cargo"), &words));
        assert_eq!(said, "cargo run --quiet -p kiln-fuzz --features cuda -- --engine nvrtc");
    }

    #[test]
    fn unknown_options_are_errors() {
        assert!(run(&["--program".to_owned()]).unwrap_err().contains("--program"));
    }
}
