//! `cargo xtask bench core`: compile times, and the overhead of an eager operation.

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::{Scratch, machine, median, number, write};
use crate::args::{Accepts, Args};
use crate::process::{self, at};
use crate::table::{self, row};
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &["--json"], options: &["--record"], words: false };

/// The suite's program for the overhead of operations. With `--json` it prints one line for each figure:
/// `{"name": "…", "measured": 98.2, "unit": "ns", "target": 120}`, where `target` may be null.
const OPERATIONS: (&str, &str) = ("kiln-suite", "bench_core");

/// A user's program of about 60 lines. `KILN_EDIT` stands for a number that every round changes.
const USER_PROGRAM: &str = include_str!("../../templates/user_crate/main.rs.txt");
const EDIT_MARK: &str = "KILN_EDIT";
const ROUNDS: usize = 5;

const REBUILD_TARGET_S: f64 = 2.0;
const CLEAN_TARGET_S: f64 = 60.0;

/// One measured number. Smaller is better.
#[derive(Debug, PartialEq)]
pub(super) struct Figure {
    name: String,
    measured: f64,
    unit: String,
    target: Option<f64>,
}

/// `cargo xtask bench core`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let mut figures = Vec::new();
    let mut missing = Vec::new();
    for measure in [operations, clean_build, user_rebuild] {
        match measure(&workspace) {
            Ok(measured) => figures.extend(measured),
            Err(reason) => missing.push(reason),
        }
    }
    print(&figures, args.has("--json"));
    if let Some(file) = args.last("--record") {
        record(Path::new(file), &figures, &missing)?;
    }
    if missing.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(format!("not measured: {}", missing.join("; ")))
    }
}

/// Cost of single operations, measured by the suite's own program.
fn operations(workspace: &Workspace) -> Result<Vec<Figure>, String> {
    let (package, program) = OPERATIONS;
    if !workspace.has_target("bin", program) {
        return Err(format!("{package} has no program {program}"));
    }
    printed(workspace, &["-p", package, "--bin", program, "--", "--json"])
}

/// The figures that a program of this tree prints, which `cargo run` with these words builds and runs.
pub(super) fn printed(workspace: &Workspace, words: &[&str]) -> Result<Vec<Figure>, String> {
    let mut command = process::cargo(&workspace.root);
    let text = process::output(command.args(["run", "--release", "--quiet"]).args(words))?;
    let figures: Vec<Figure> = text.lines().filter_map(Figure::from_json).collect();
    if figures.is_empty() { Err(format!("{} printed no figure", words[3])) } else { Ok(figures) }
}

/// Prints figures as lines of JSON or as a table.
pub(super) fn print(figures: &[Figure], json: bool) {
    if json {
        figures.iter().for_each(|figure| println!("{}", figure.to_json()));
    } else {
        print!("{}", table::plain(&rows(figures)));
    }
}

/// `cargo build -p kiln` with nothing built before. Downloads come first and are not counted.
fn clean_build(workspace: &Workspace) -> Result<Vec<Figure>, String> {
    process::run(process::cargo(&workspace.root).args(["fetch", "--quiet"]))?;
    let folder = Scratch::new("clean")?;
    let mut command = process::cargo(&workspace.root);
    command.args(["build", "--quiet", "-p", "kiln", "--target-dir"]).arg(&folder.path);
    let seconds = timed(&mut command)?;
    Ok(vec![Figure::seconds("cargo build -p kiln, from clean", seconds, Some(CLEAN_TARGET_S))])
}

/// A user's crate: first build in release, then the rebuild after a change of one line.
fn user_rebuild(workspace: &Workspace) -> Result<Vec<Figure>, String> {
    let folder = Scratch::new("user")?;
    write_user_crate(&folder.path, &workspace.root)?;
    let build = |round: usize| {
        write(&folder.path.join("src/main.rs"), &USER_PROGRAM.replace(EDIT_MARK, &round.to_string()))?;
        let mut command = process::cargo(&folder.path);
        command.args(["build", "--release", "--quiet"]).env("CARGO_TARGET_DIR", folder.path.join("target"));
        timed(&mut command)
    };
    let first = build(0)?;
    let mut program =
        process::program(&folder.path.join("target/release/user").to_string_lossy(), &folder.path);
    process::run(program.stdout(Stdio::null()))
        .map_err(|error| format!("the user's program fails: {error}"))?;
    let rounds = (1..=ROUNDS).map(build).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![
        Figure::seconds("user crate, first release build", first, None),
        Figure::seconds("user crate, release rebuild after one edit", median(rounds), Some(REBUILD_TARGET_S)),
    ])
}

fn write_user_crate(folder: &Path, root: &Path) -> Result<(), String> {
    // A literal string (single quotes) needs no escapes for the path.
    let manifest = format!(
        "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
        [dependencies]\nkiln = {{ path = '{}' }}\n",
        root.join("crates/kiln").display()
    );
    std::fs::create_dir_all(folder.join("src")).map_err(at(folder))?;
    write(&folder.join("Cargo.toml"), &manifest)?;
    let lock = root.join("Cargo.lock");
    if lock.is_file() {
        std::fs::copy(&lock, folder.join("Cargo.lock")).map_err(at(&lock))?;
    }
    Ok(())
}

fn timed(command: &mut std::process::Command) -> Result<f64, String> {
    let started = Instant::now();
    process::run(command)?;
    Ok(started.elapsed().as_secs_f64())
}

impl Figure {
    fn seconds(name: &str, measured: f64, target: Option<f64>) -> Self {
        Self { name: name.to_owned(), measured, unit: "s".to_owned(), target }
    }

    pub(super) fn from_json(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(Self {
            name: value["name"].as_str()?.to_owned(),
            measured: value["measured"].as_f64()?,
            unit: value["unit"].as_str()?.to_owned(),
            target: value["target"].as_f64(),
        })
    }

    fn to_json(&self) -> Value {
        json!({"name": self.name, "measured": self.measured, "unit": self.unit, "target": self.target})
    }

    pub(super) fn verdict(&self) -> &'static str {
        match self.target {
            Some(target) if self.measured <= target => "met",
            Some(_) => "missed",
            None => "-",
        }
    }
}

fn rows(figures: &[Figure]) -> Vec<Vec<String>> {
    let mut rows = vec![row(["figure", "measured", "target", ""])];
    for figure in figures {
        let target =
            figure.target.map_or("-".to_owned(), |target| format!("{} {}", number(target), figure.unit));
        let measured = format!("{} {}", number(figure.measured), figure.unit);
        rows.push(vec![figure.name.clone(), measured, target, figure.verdict().to_owned()]);
    }
    rows
}

fn record(file: &Path, figures: &[Figure], missing: &[String]) -> Result<(), String> {
    let mut page = format!(
        "# Core benchmarks\n\nMade by `cargo xtask bench core --record`. Smaller is better.\n\n{}\n{}",
        machine(),
        table::markdown(&rows(figures))
    );
    for reason in missing {
        page += &format!("\nNot measured: {reason}.\n");
    }
    write(file, &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_round_trip_through_json() {
        let line = r#"{"name": "eager add", "measured": 98.25, "unit": "ns", "target": 120}"#;
        let figure = Figure::from_json(line).unwrap();
        assert_eq!(figure.verdict(), "met");
        assert_eq!(Figure::from_json(&figure.to_json().to_string()), Some(figure));
        assert_eq!(Figure::from_json("warming up"), None);
        assert_eq!(Figure::from_json(r#"{"name": "x"}"#), None);
    }

    #[test]
    fn a_missed_target_is_reported() {
        let figures = [Figure::seconds("rebuild", 2.5, Some(2.0)), Figure::seconds("first", 61.04, None)];
        let text = table::plain(&rows(&figures));
        assert!(text.contains("rebuild  2.5 s     2 s     missed"), "{text}");
        assert!(text.contains("61 s"), "{text}");
    }

    #[test]
    fn the_user_program_has_one_edit_mark_and_a_typical_length() {
        assert_eq!(USER_PROGRAM.matches(EDIT_MARK).count(), 1);
        assert!((50..=70).contains(&USER_PROGRAM.lines().count()));
    }
}
