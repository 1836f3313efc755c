//! `cargo xtask bench`: [`core`] measures what a user waits for, [`cpu`] compares with other frameworks.

mod core;
mod cpu;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::process::{self, at};

/// `cargo xtask bench core|cpu`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    match words.split_first() {
        Some((kind, rest)) if kind == "core" => core::run(rest),
        Some((kind, rest)) if kind == "cpu" => cpu::run(rest),
        Some((kind, _)) => Err(format!("`{kind}` cannot be measured\n  hint: {KINDS}")),
        None => Err(format!("say what to measure\n  hint: {KINDS}")),
    }
}

const KINDS: &str = "cargo xtask bench core, or cargo xtask bench cpu";

/// The middle one; of an even number the greater of the two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Three significant digits at most, no trailing zeros.
fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Processor, cores, system and compiler, as a sentence.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let rustc =
        process::output(process::program("rustc", Path::new(".")).arg("--version")).unwrap_or_default();
    format!("Machine: {model}, {cores} cores, {}, {}.\n", std::env::consts::OS, rustc.trim())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(at(path))
}

/// A temporary folder, removed when dropped.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(purpose: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("kiln-bench-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![5.0, 1.0, 2.0, 9.0, 3.0]), 3.0);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(["0.05", "2.5", "12.3", "1235"], [0.05, 2.5, 12.34, 1234.6].map(number)[..]);
    }

    #[test]
    fn an_unknown_kind_gets_a_hint() {
        assert!(run(&["gpu".to_owned()]).unwrap_err().contains("bench cpu"));
        assert!(run(&[]).unwrap_err().contains("bench core"));
    }
}
