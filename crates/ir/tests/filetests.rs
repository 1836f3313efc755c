//! Runs the files of `filetests/`: a program, a test mode, and the expected text.
//!
//! The first line names the mode:
//!
//! * `; test expand`: the program with each op expanded until its kind disappears;
//! * `; test expand minimal`: the program in [`MINIMAL`] ops only;
//! * `; test vjp`: the program of the gradients;
//! * `; test roundtrip`: the program as it is printed;
//! * `; test verify-error`: the error of [`verify`];
//! * `; test parse-error`: the error of [`Program::parse`];
//! * `; test run`: here, checks only that the program is valid and round-trips. The tests of `fuzz` run it on every
//!   engine with the inputs that the file specifies.
//!
//! Tests of expansion also run both programs on the reference engine and compare the values. Lines below the first
//! specify the inputs: `; ints 0..3` sets the range of integers, `; positive 1` makes the floats of input 1 positive,
//! `; special` fills floats with NaN, infinities, zeros and equal numbers.
//! The expected text follows `; expect:`, each line behind `; `. `UPDATE_EXPECT=1` writes it.

use crate::numeric;

use kiln_ir::{MINIMAL, OpKind, OpSet, Program, expand_program, gradient_program, verify};
use numeric::Fill;
use std::fs;
use std::path::{Path, PathBuf};

const EXPECT: &str = "; expect:";

/// The folders of `filetests` that are tested here; others belong to the tests of other crates.
const FOLDERS: [&str; 5] = ["expand", "run", "text", "verify", "vjp"];

#[test]
fn filetests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests");
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    files.sort();
    assert!(!files.is_empty(), "no files in {}", root.display());
    let update = std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    for path in &files {
        let name = path.strip_prefix(&root).unwrap_or(path).display();
        if let Err(problem) = check(path, update) {
            failures.push(format!("== {name}\n{problem}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} failed\n{}", failures.len(), files.len(), failures.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "ir") {
            files.push(path);
        }
    }
}

fn check(path: &Path, update: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (source, expected) = match text.split_once(&format!("\n{EXPECT}\n")) {
        Some((source, expected)) => (source.trim_end(), expected),
        None => (text.trim_end(), ""),
    };
    let result = output(source)?;
    let result: String =
        result.lines().map(|line| format!("; {line}").trim_end().to_owned() + "\n").collect();
    if result == expected {
        return Ok(());
    }
    if update {
        return fs::write(path, format!("{source}\n\n{EXPECT}\n{result}")).map_err(|error| error.to_string());
    }
    Err(format!("UPDATE_EXPECT=1 accepts this.\n-- expected:\n{expected}-- found:\n{result}"))
}

/// The output of the test mode on the program of a file.
fn output(source: &str) -> Result<String, String> {
    let command = source.lines().next().and_then(|line| line.strip_prefix("; test ")).unwrap_or_default();
    if command == "parse-error" {
        let error = Program::parse(source).err().ok_or("the program parses")?;
        return Ok(error.to_string());
    }
    let program = Program::parse(source).map_err(|error| error.to_string())?;
    if command == "verify-error" {
        return Ok(verify(&program).err().ok_or("the program is valid")?.to_string());
    }
    verify(&program).map_err(|error| error.to_string())?;
    let result = match command {
        "expand" => {
            let kinds: Vec<OpKind> = program.instructions.iter().map(|i| i.op.kind()).collect();
            expanded(&program, OpSet::ALL.without(&kinds), source)?
        }
        "expand minimal" => expanded(&program, MINIMAL, source)?,
        "vjp" => gradient_program(&program).map_err(|error| error.to_string())?,
        "roundtrip" | "run" => program,
        _ => return Err(format!("the first line `; test {command}` asks for nothing known")),
    };
    let text = result.to_string();
    verify(&result).map_err(|error| format!("{error}\n{text}"))?;
    if Program::parse(&text).as_ref() != Ok(&result) {
        return Err(format!("does not read back as it was:\n{text}"));
    }
    Ok(if command == "run" { String::new() } else { text })
}

fn expanded(program: &Program, native: OpSet, source: &str) -> Result<Program, String> {
    numeric::check(program, &fill(source)?)?;
    expand_program(program, native).map_err(|error| error.to_string())
}

fn fill(source: &str) -> Result<Fill, String> {
    let mut fill = Fill::default();
    for line in source.lines().skip(1) {
        let Some(option) = line.strip_prefix("; ") else { break };
        match option.split_once(' ') {
            None if option == "special" => fill.special = true,
            Some(("positive", inputs)) => {
                let inputs = inputs.split(' ').map(str::parse).collect::<Result<_, _>>();
                fill.positive = inputs.map_err(|error| format!("{line}: {error}"))?;
            }
            Some(("ints", range)) => {
                let (start, end) = range.split_once("..").ok_or_else(|| format!("{line}: no range"))?;
                let number = |text: &str| text.parse::<i64>().map_err(|error| format!("{line}: {error}"));
                fill.ints = number(start)?..number(end)?;
            }
            _ => {}
        }
    }
    Ok(fill)
}
