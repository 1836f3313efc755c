//! Runs `filetests/kernel`: programs with the kernels and sources that they become.
//!
//! The first line selects the tests of a program, separated by commas:
//!
//! * `; test kernel`: kernel and launch of the whole program, for contiguous operands;
//! * `; test kernel-refused`: which instruction cannot join the region, and why;
//! * `; test print cuda`, `; test print hip`, `; test print wgsl`: the source of the kernel with the default schedule;
//!   `wgsl-64` is WGSL with the dtypes of 64 bits. `; test print cuda hip` prints both: where the HIP line is not the CUDA
//!   line with [HIP's spelling](hip_spelling), it follows after `// hip: `. `// uses:` names the helper functions at that place of the source; their
//!   definitions are in `filetests/kernel/helpers.*`;
//! * `; test print-refused wgsl`: the features that the language lacks.
//!
//! Kernels are also run on several layouts and compared with the program on the reference engine. Options are lines
//! below the first: `; numbers 2` makes input 2 a scalar operand, `; ints 10` fills integers with numbers below 10, and
//! `; columns` allows reductions over all rows. `; unroll 2`, `; row_threads 32`, `; resident 16` and `; splits 2`
//! change the schedule. `naga` validates WGSL. If `g++` is installed, it compiles C++ against a stand-in for the GPU
//! compiler's header, which runs threads one by one; the results are compared with the reference too. The expected text
//! follows `; expect:`, or `; expect TEST:` where a program has several tests, each line but blank ones
//! after `; `. `UPDATE_EXPECT=1` writes it.

mod cpp_runs;
mod helper_file;

use crate::harness::{self, Fill, Random, Source, check};
use cpp_runs::Run;
use helper_file::HelperFile;
use kiln_ir::{DType, DTypeSet, Program, verify};
use kiln_kernel::print::{Dialect, Printed, Target, print};
use kiln_kernel::{GpuSchedule, Lowered, Nest, Slot};
use std::fs;
use std::path::{Path, PathBuf};

/// The start of a line before an expected text.
const EXPECT: &str = "; expect";

/// Data of all printed kernels.
struct Prints {
    runs: Vec<Run>,
    cpp: HelperFile,
    wgsl: HelperFile,
}

#[test]
fn filetests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/kernel");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    assert!(!files.is_empty(), "no files in {}", root.display());
    let update = std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    let mut prints = Prints {
        runs: Vec::new(),
        cpp: HelperFile::new(Dialect::Cuda, "helpers.cpp"),
        wgsl: HelperFile::new(Dialect::Wgsl, "helpers.wgsl"),
    };
    for path in &files {
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        if let Err(problem) = test(path, update, &name, &mut prints) {
            failures.push(format!("== {name}\n{problem}"));
        }
    }
    failures.extend(cpp_runs::check(&prints.runs));
    failures
        .extend([&prints.cpp, &prints.wgsl].into_iter().filter_map(|file| file.check(&root, update).err()));
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

fn test(path: &Path, update: bool, name: &str, prints: &mut Prints) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let source = text.split_once(&format!("\n{EXPECT}")).map_or(&*text, |(source, _)| source).trim_end();
    let first = source.lines().next().and_then(|line| line.strip_prefix("; test "));
    let tests: Vec<&str> = first.ok_or("the first line selects no test")?.split(", ").collect();
    let mut found = source.to_owned();
    for (test, result) in tests.iter().zip(outputs(source, &tests, name, prints)?) {
        found +=
            &if tests.len() == 1 { format!("\n\n{EXPECT}:\n") } else { format!("\n\n{EXPECT} {test}:\n") };
        let line = |line: &str| if line.is_empty() { String::new() } else { format!("; {line}") };
        found += &result.lines().map(line).collect::<Vec<_>>().join("\n");
    }
    compare(path, &text, &(found + "\n"), update)
}

/// Compares the text of a file with the text found, or writes it.
fn compare(path: &Path, expected: &str, found: &str, update: bool) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    if update {
        return fs::write(path, found).map_err(|error| error.to_string());
    }
    let only_in = |text: &str, other: &str| {
        let parts = text.trim_end().split("\n\n").filter(|part| !other.contains(part));
        parts.collect::<Vec<_>>().join("\n\n")
    };
    let [missing, new] = [only_in(expected, found), only_in(found, expected)];
    Err(format!("UPDATE_EXPECT=1 accepts this.\n-- expected:\n{missing}\n-- found:\n{new}"))
}

/// The expected outputs of a program's tests: the kernels or sources that they name.
fn outputs(source: &str, tests: &[&str], name: &str, prints: &mut Prints) -> Result<Vec<String>, String> {
    let program = Program::parse(source).map_err(|error| error.to_string())?;
    verify(&program).map_err(|error| error.to_string())?;
    let numbers = option(source, "numbers").map_or_else(Vec::new, |number| {
        (0..program.inputs.len()).map(|input| input == number).collect::<Vec<bool>>()
    });
    if tests == ["kernel-refused"] {
        let (number, refusal) = Nest::of_program(&program, &numbers).err().ok_or("nothing is refused")?;
        return Ok(vec![format!("instruction {number}: {refusal}")]);
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
    let print = |language: &str| {
        let target = target(language).ok_or_else(|| format!("unknown language {language}"))?;
        Ok::<_, String>(print(&lowered.kernel, &schedule, &target, &[]))
    };
    let mut output = |test: &str| match test.split_once(' ') {
        None if test == "kernel" => Ok(format!("{}\n{}", lowered.kernel, lowered.launch)),
        Some(("print", languages)) => {
            let [first, second] = schedule.grid(&lowered.kernel, &lowered.launch);
            let mut text = String::new();
            for language in languages.split(' ') {
                let printed = print(language)?.map_err(|error| error.to_string())?;
                if print(language)?.as_ref() != Ok(&printed) {
                    return Err("prints another text the second time".into());
                }
                let by_name = if language.starts_with("wgsl") {
                    validate(&printed)?;
                    prints.wgsl.by_name(&printed.text)?
                } else {
                    let expected = harness::reference(&program, &sources)?;
                    let (name, by_name) = (format!("{name}, {language}"), prints.cpp.by_name(&printed.text)?);
                    let (lowered, sources) = (lowered.clone(), sources.clone());
                    prints.runs.push(Run { name, printed, schedule, lowered, sources, expected });
                    by_name
                };
                text = if text.is_empty() { by_name } else { with_language(&text, language, &by_name)? };
            }
            Ok(format!("schedule: {schedule}; blocks: {first}, {second}\n\n{text}"))
        }
        Some(("print-refused", language)) => {
            Ok(print(language)?.err().ok_or("the kernel is printed")?.to_string())
        }
        _ => Err(format!("`; test {test}` asks for nothing known")),
    };
    tests.iter().map(|test| output(test)).collect()
}

/// A text with the lines that differ in another language, each below the line that it replaces.
fn with_language(text: &str, language: &str, other: &str) -> Result<String, String> {
    if text.lines().count() != other.lines().count() {
        return Err(format!("{language} has other lines, so that it needs a file of its own:\n{other}"));
    }
    let line = |(line, other): (&str, &str)| {
        let is_known = line == other || (language == "hip" && hip_spelling(line) == other);
        if is_known { format!("{line}\n") } else { format!("{line}\n// {language}: {other}\n") }
    };
    Ok(text.lines().zip(other.lines()).map(line).collect())
}

/// A CUDA line with HIP's shuffles, which have a width instead of a mask, and launch bounds, which have no second number.
fn hip_spelling(line: &str) -> String {
    let shuffles =
        line.split("__shfl_xor_sync(0xffffffffu, ").enumerate().map(|(number, part)| match number {
            0 => part.to_owned(),
            _ => format!("__shfl_xor({}", part.replacen(')', ", 32)", 1)),
        });
    let line: String = shuffles.collect();
    let bounds = line.split_once("__launch_bounds__(").and_then(|(before, bounds)| {
        let (bounds, after) = bounds.split_once(')')?;
        Some(format!("{before}__launch_bounds__({}){after}", bounds.split_once(',')?.0))
    });
    bounds.unwrap_or(line)
}

/// The target of a language. `wgsl-64` has the dtypes of 64 bits, `wgsl` has not, like WebGPU.
fn target(language: &str) -> Option<Target> {
    let short: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.size() < 8).collect();
    match language {
        "cuda" => Some(Target::new(Dialect::Cuda)),
        "hip" => Some(Target::new(Dialect::Hip)),
        "wgsl-64" => Some(Target::new(Dialect::Wgsl)),
        "wgsl" => Some(Target { dtypes: DTypeSet::of(&short), ..Target::new(Dialect::Wgsl) }),
        _other => None,
    }
}

/// The number of an option in the lines before the program.
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
