//! Runs the folders `kernel` and `print` of `filetests`: a program, and its kernel or source.
//!
//! The first line selects the test:
//!
//! * `; test kernel`: kernel and launch of the whole program, for contiguous operands;
//! * `; test kernel-refused`: which instruction cannot join the region, and why;
//! * `; test print cuda`, `; test print hip`, `; test print wgsl`: the source of the kernel with the default schedule;
//!   `wgsl-64` is WGSL with the dtypes of 64 bits;
//! * `; test print-refused wgsl`: the features that the language lacks.
//!
//! Kernels are also run on several layouts and compared with the program on the reference engine. Options are lines
//! below the first: `; numbers 2` makes input 2 a scalar operand, `; ints 10` fills integers with numbers below 10, and
//! `; columns` allows reductions over all rows. `; unroll 2`, `; row_threads 32`, `; resident 16` and `; splits 2`
//! change the schedule. `naga` validates WGSL. If `g++` is installed, it compiles C++ against a stand-in for the GPU
//! compiler's header, which runs threads one by one; the results are compared with the reference too. The expected text
//! follows `; expect:`, each line after `; `. `UPDATE_EXPECT=1` writes it.

mod cpp_runs;
use crate::harness;

use cpp_runs::Run;

use harness::{Fill, Random, Source, check};
use kiln_ir::{DType, DTypeSet, Program, verify};
use kiln_kernel::print::{Dialect, Printed, Target, print};
use kiln_kernel::{GpuSchedule, Lowered, Nest, Slot};
use std::fs;
use std::path::{Path, PathBuf};

const EXPECT: &str = "; expect:";
const FOLDERS: [&str; 2] = ["kernel", "print"];

#[test]
fn filetests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests");
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| collect(&root.join(folder), &mut files));
    files.sort();
    assert!(!files.is_empty(), "no files in {}", root.display());
    let update = std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    let mut runs = Vec::new();
    for path in &files {
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        if let Err(problem) = test(path, update, &name, &mut runs) {
            failures.push(format!("== {name}\n{problem}"));
        }
    }
    failures.extend(cpp_runs::check(&runs));
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

fn test(path: &Path, update: bool, name: &str, runs: &mut Vec<Run>) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (source, expected) = match text.split_once(&format!("\n{EXPECT}\n")) {
        Some((source, expected)) => (source.trim_end(), expected),
        None => (text.trim_end(), ""),
    };
    let result = output(source, name, runs)?;
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

/// The expected output of a test file: the IR, kernel or source that its command names.
fn output(source: &str, name: &str, runs: &mut Vec<Run>) -> Result<String, String> {
    let command = source.lines().next().and_then(|line| line.strip_prefix("; test ")).unwrap_or_default();
    let program = Program::parse(source).map_err(|error| error.to_string())?;
    verify(&program).map_err(|error| error.to_string())?;
    let numbers = option(source, "numbers").map_or_else(Vec::new, |number| {
        (0..program.inputs.len()).map(|input| input == number).collect::<Vec<bool>>()
    });
    if command == "kernel-refused" {
        let (number, refusal) = Nest::of_program(&program, &numbers).err().ok_or("nothing is refused")?;
        return Ok(format!("instruction {number}: {refusal}"));
    }
    let columns =
        source.lines().skip(1).take_while(|line| line.starts_with("; ")).any(|line| line == "; columns");
    let region = if columns { Nest::of_program_with_columns } else { Nest::of_program };
    let region =
        region(&program, &numbers).map_err(|(number, refusal)| format!("instruction {number}: {refusal}"))?;
    let (lowered, sources) = lowered(&program, &region, &numbers, option(source, "ints"))?;
    let mut schedule = GpuSchedule::choose(&lowered.kernel, &lowered.launch);
    let asked = [
        ("unroll", &mut schedule.unroll),
        ("row_threads", &mut schedule.row_threads),
        ("resident", &mut schedule.resident),
        ("splits", &mut schedule.splits),
    ];
    for (name, choice) in asked {
        *choice = option(source, name).map_or(*choice, |number| number as u32);
    }
    if !schedule.suits(&lowered.kernel, &lowered.launch) {
        return Err(format!("the schedule does not suit: {schedule}"));
    }
    let print = |language: &str| print(&lowered.kernel, &schedule, &target(language), &[]);
    match command.split_once(' ') {
        None if command == "kernel" => Ok(format!("{}\n{}", lowered.kernel, lowered.launch)),
        Some(("print", language @ ("cuda" | "hip" | "wgsl" | "wgsl-64"))) => {
            let printed = print(language).map_err(|error| error.to_string())?;
            if print(language).as_ref() != Ok(&printed) {
                return Err("prints another text the second time".into());
            }
            match language {
                "wgsl" | "wgsl-64" => validate(&printed)?,
                _cpp => {
                    let expected = harness::reference(&program, &sources)?;
                    let (printed, lowered) = (printed.clone(), lowered.clone());
                    runs.push(Run { name: name.into(), printed, schedule, lowered, sources, expected });
                }
            }
            let [first, second] = schedule.grid(&lowered.kernel, &lowered.launch);
            Ok(format!("schedule: {schedule}; blocks: {first}, {second}\n\n{}", printed.text))
        }
        Some(("print-refused", language)) => {
            Ok(print(language).err().ok_or("the kernel is printed")?.to_string())
        }
        _ => Err(format!("the first line `; test {command}` asks for nothing known")),
    }
}

/// The target of a language. `wgsl-64` has the dtypes of 64 bits, `wgsl` has not, like WebGPU.
fn target(language: &str) -> Target {
    let short: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.size() < 8).collect();
    match language {
        "cuda" => Target::new(Dialect::Cuda),
        "hip" => Target::new(Dialect::Hip),
        "wgsl-64" => Target::new(Dialect::Wgsl),
        _wgsl => Target { dtypes: DTypeSet::of(&short), ..Target::new(Dialect::Wgsl) },
    }
}

/// The number of an option in the lines below the first.
fn option(source: &str, name: &str) -> Option<usize> {
    let lines = source.lines().skip(1).take_while(|line| line.starts_with("; "));
    lines.filter_map(|line| line.strip_prefix("; ")?.strip_prefix(name)?.trim().parse().ok()).next()
}

/// The kernel for contiguous operands. It is also run on other layouts and compared.
fn lowered(
    program: &Program,
    (nest, outputs): &(Nest, Vec<Slot>),
    numbers: &[bool],
    ints: Option<usize>,
) -> Result<(Lowered, Vec<Source>), String> {
    let mut first = None;
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let sources: Vec<Source> = program
            .inputs
            .iter()
            .enumerate()
            .map(|(input, ty)| {
                let below = ints.filter(|_| ty.dtype.is_int()).map(Fill::Below);
                let fill = below.unwrap_or(Fill::Quarters);
                match (numbers.get(input), seed) {
                    (Some(true), _) => Source::number(&mut random, ty.dtype),
                    (_, 0) => Source::contiguous(&mut random, *ty, fill),
                    _ => Source::random(&mut random, *ty, fill),
                }
            })
            .collect();
        let types = program.slot_types();
        let tolerance = |output: &kiln_ir::ProgramOperand| match output {
            kiln_ir::ProgramOperand::Slot(slot) if types[*slot].dtype.size() < 4 => 3e-2,
            kiln_ir::ProgramOperand::Slot(_) | kiln_ir::ProgramOperand::Scalar(_) => 2e-5,
        };
        let tolerances: Vec<f64> = program.outputs.iter().map(tolerance).collect();
        let lowered = check(nest, outputs, program, &sources, &tolerances)?;
        first.get_or_insert((lowered, sources));
    }
    first.ok_or_else(|| "no layout".into())
}

fn validate(printed: &Printed) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(&printed.text)
        .map_err(|error| format!("{}\n{}", error.emit_to_string(&printed.text), printed.text))?;
    let flags = naga::valid::ValidationFlags::all();
    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::all());
    validator
        .validate(&module)
        .map(drop)
        .map_err(|error| format!("{}\n{}", error.emit_to_string(&printed.text), printed.text))
}
