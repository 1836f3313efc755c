//! `cargo xtask fuzz`: differential fuzzing with random programs.

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process;
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
    "--seconds",
    "--mebibytes",
];
const FLAGS: &[&str] = &["--print", "--help", "--raw", SANITIZER];

/// Builds the fuzzer with AddressSanitizer.
const SANITIZER: &str = "--sanitizer";

/// The target of sanitized builds: naming it keeps build scripts and macros out.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Allocations over 1 GiB fail, as do those of a process beyond its memory; leaks are not looked for, because kernels keep
/// their memory until the end.
const SANITIZER_OPTIONS: &str =
    "allocator_may_return_null=1:max_allocation_size_mb=1024:hard_rss_limit_mb=4096:detect_leaks=0";

/// `cargo xtask fuzz`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    Args::parse(words, &Accepts { flags: FLAGS, options: OPTIONS, words: false })?;
    let workspace = Workspace::load()?;
    match words.iter().any(|word| word == SANITIZER) {
        true => sanitized(&workspace, words)?.start()?,
        false => fuzzer(&workspace, words).start()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Fuzzes in the test profile: its build outputs exist, the engines' kernels are optimised in it, and overflow and debug
/// assertions are checked.
pub(crate) fn fuzzer(workspace: &Workspace, words: &[String]) -> Launch {
    let mut fuzzer = PROGRAM.launch(workspace);
    fuzzer.run.args(raw_first(words));
    fuzzer
}

/// Raw ops in a build with AddressSanitizer, in a target folder of its own. The compiler's unstable option needs no nightly
/// compiler.
///
/// # Errors
/// Without `--raw`: other campaigns compare results, and would only take longer.
fn sanitized(workspace: &Workspace, words: &[String]) -> Result<Launch, String> {
    if !words.iter().any(|word| word == "--raw") {
        return Err(format!("`{SANITIZER}` needs `--raw`"));
    }
    let target = workspace.target.join("sanitizer");
    let mut build = process::cargo(&workspace.root);
    build.args(["build", "--quiet", "-p", PACKAGE, "--bin", PACKAGE, "--target", SANITIZED_TARGET]);
    build.arg("--target-dir").arg(&target);
    build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    let program = target.join(SANITIZED_TARGET).join("debug").join(PACKAGE);
    let mut run = process::program(&program.to_string_lossy(), &workspace.root);
    // The sanitizer reserves more address space than any limit allows.
    run.args(raw_first(words)).args(["--mebibytes", "0"]).env("ASAN_OPTIONS", SANITIZER_OPTIONS);
    Ok(Launch { build, run })
}

/// The words of the program, which expects `--raw` first and each value as the next word.
fn raw_first(words: &[String]) -> Vec<&str> {
    let rest = words.iter().map(String::as_str).filter(|word| !matches!(*word, "--raw" | SANITIZER));
    let split = |word| match str::split_once(word, '=') {
        Some((option, value)) if option.starts_with("--") => vec![option, value],
        Some(_) | None => vec![word],
    };
    let is_raw = words.iter().any(|word| word == "--raw");
    is_raw.then_some("--raw").into_iter().chain(rest.flat_map(split)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    fn said(words: &[&str]) -> (String, String) {
        let fuzzer = fuzzer(&Workspace::default(), &owned(words));
        (process::describe(&fuzzer.build), process::describe(&fuzzer.run))
    }

    #[test]
    fn options_are_forwarded() {
        let (build, run) = said(&["--programs=5", "--only", "MatMul"]);
        assert!(build.ends_with("kiln-fuzz/wgpu,kiln-remote/tls --bin kiln-fuzz --example kill"), "{build}");
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
            assert!(build.contains(&format!(",kiln-fuzz/{feature},")), "{build}");
            assert!(run.ends_with(arguments), "{run}");
        }
    }

    #[test]
    fn raw_ops_run_with_and_without_a_sanitizer() {
        let (_, run) = said(&["--seconds=9", "--raw"]);
        assert!(run.ends_with("kiln-fuzz --raw --seconds 9"), "{run}");
        let words = ["--raw", "--sanitizer", "--seed", "3"].map(str::to_owned);
        let launch = sanitized(&Workspace::default(), &words).unwrap();
        let run = process::describe(&launch.run);
        assert!(run.contains("sanitizer") && run.ends_with("--raw --seed 3 --mebibytes 0"), "{run}");
        assert!(sanitized(&Workspace::default(), &words[1..]).is_err());
    }

    #[test]
    fn unknown_options_are_errors() {
        assert!(run(&["--program".to_owned()]).unwrap_err().contains("--program"));
    }
}
