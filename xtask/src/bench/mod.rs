//! `cargo xtask bench`: [`core`] measures compile times and the overhead of eager ops, [`plan`] whether fusion's time
//! per op grows with a program, [`shapes`] the cost of changing shapes; [`compare`] measures Kiln and other programs on the
//! workloads of `bench/workloads.txt`; [`kernels`] compares hand-written kernels with those of all vendors.

mod against;
mod child;
mod compare;
mod core;
mod kernels;
mod measure;
mod models;
mod peer;
mod peers;
mod plan;
mod programs;
mod report;
mod shapes;
mod turns;
mod weights;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::args::Args;
use crate::process::{self, at};

/// `cargo xtask bench core|plan|shapes|cpu|gpu|vulkan|kernels|models`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    match words.split_first() {
        Some((kind, rest)) if kind == "core" => core::run(rest),
        Some((kind, rest)) if kind == "plan" => plan::run(rest),
        Some((kind, rest)) if kind == "kernels" => kernels::run(rest),
        Some((kind, rest)) if kind == "shapes" => shapes::run(rest),
        Some((kind, rest)) => match COMPARISONS.iter().find(|comparison| comparison.name == kind) {
            Some(comparison) => compare::run(comparison, rest),
            None => Err(format!("`{kind}` cannot be measured\n  hint: {KINDS}")),
        },
        None => Err(format!("say what to measure\n  hint: {KINDS}")),
    }
}

const COMPARISONS: &[&compare::Comparison] =
    &[&compare::CPU, &compare::GPU, &compare::MODELS, &compare::VULKAN];

const KINDS: &str = "cargo xtask bench core, or one of bench plan, bench shapes, bench cpu, bench gpu, bench vulkan, \
    bench kernels and bench models";

const MIN_REPEATS: usize = 7;
/// The heading of the hand-written notes of a recorded page, which are kept.
const NOTES: &str = "\n## Notes\n";

/// All values of an option, which may be repeated and may contain comma-separated values.
fn words_of<'a>(args: &'a Args, option: &str) -> Vec<&'a str> {
    args.all(option).into_iter().flat_map(|value| value.split(',')).filter(|word| !word.is_empty()).collect()
}

/// The frameworks with these names; all if none is given, none if `none` is.
fn frameworks<'a>(names: &[&'a str], known: &[&'a str]) -> Result<Vec<&'a str>, String> {
    match names {
        [] => Ok(known.to_vec()),
        ["none"] => Ok(Vec::new()),
        names => match names.iter().find(|name| !known.contains(name)) {
            Some(unknown) => Err(format!(
                "--peers: `{unknown}` is not known\n  hint: any of {}, or none",
                known.join(", ")
            )),
            None => Ok(names.to_vec()),
        },
    }
}

fn number_of(args: &Args, option: &str, default: usize, least: usize, most: usize) -> Result<usize, String> {
    let Some(word) = args.last(option) else { return Ok(default) };
    let number = word.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{option}: `{word}` is not a number from {least} to {most}"))
}

/// The page with the hand-written notes of the existing file.
fn with_notes(page: String, file: &Path) -> String {
    let old = std::fs::read_to_string(file).unwrap_or_default();
    match old.find(NOTES) {
        Some(start) => page + &old[start..],
        None => page,
    }
}

/// The median; for an even number of values, the greater of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The geometric mean; `None` without values.
fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logarithms / values.len() as f64).exp())
}

/// Formats a number with at most three significant digits and no trailing zeros.
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
    fn numbers_are_rounded_for_display() {
        assert_eq!(["0.05", "2.5", "12.3", "1235"], [0.05, 2.5, 12.34, 1234.6].map(number)[..]);
    }

    #[test]
    fn an_unknown_benchmark_gets_a_hint() {
        assert!(run(&["disk".to_owned()]).unwrap_err().contains("bench cpu"));
        assert!(run(&[]).unwrap_err().contains("bench core"));
    }
}
