//! `cargo xtask bench shapes`: the time of a training step when each step has another batch length.

use std::process::ExitCode;

use super::core::{Figure, print, printed};
use crate::args::{Accepts, Args};
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &["--json"], options: &["--backend"], words: false };

/// The suite's program. With `--json`, it prints lines in the format of `cargo xtask bench core`.
const PROGRAM: (&str, &str) = ("kiln-suite", "bench_shapes");

/// `cargo xtask bench shapes`: fails if a target is missed.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let figures = printed(&workspace, &arguments(args.last("--backend")))?;
    print(&figures, args.has("--json"));
    Ok(if misses(&figures) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The words after `cargo run --release --quiet`.
fn arguments(backend: Option<&str>) -> Vec<&str> {
    let (package, program) = PROGRAM;
    let mut words = vec!["-p", package, "--bin", program];
    if backend == Some("cuda") {
        words.extend(["--features", "cuda"]);
    }
    words.extend(["--", "--json"]);
    words.extend(backend.into_iter().flat_map(|backend| ["--backend", backend]));
    words
}

/// Whether a target is missed.
fn misses(figures: &[Figure]) -> bool {
    figures.iter().any(|figure| figure.verdict() == "missed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_over_its_target_misses_it() {
        let figures = |measured: f64| {
            let line = |name: &str, measured: f64, target: &str| {
                format!(r#"{{"name": "{name}", "measured": {measured}, "unit": "x", "target": {target}}}"#)
            };
            let lines = [line("time", 5.0, "null"), line("ratio", measured, "1.3")];
            lines.iter().filter_map(|line| Figure::from_json(line)).collect::<Vec<_>>()
        };
        assert!(!misses(&figures(1.3)));
        assert!(misses(&figures(1.31)));
    }

    #[test]
    fn the_backend_is_forwarded() {
        assert!(arguments(None).ends_with(&["--", "--json"]));
        let words = arguments(Some("cuda")).join(" ");
        assert!(words.ends_with("--features cuda -- --json --backend cuda"), "{words}");
    }
}
