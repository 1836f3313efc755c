//! Runs `filetests/fuse`: a program, and its fusion plan when only its outputs are live.
//!
//! The first line is `; test fuse`, which plans for a processor, or `; test fuse gpu`, which plans for [`Machine::gpu`]. Facts of the
//! machine may follow: `bindings=8`, `row_elements=64`, `products=kernels` or
//! `loads=indexed`. The expected text follows `; expect:`, each line behind `; `. `UPDATE_EXPECT=1` writes it.
//! Each program is also valid, and its plan computes the values of its ops.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::Plan;
use kiln_ir::{Engine, Machine, Products, Program, TensorData, TensorType, Values, block_on, verify};
use std::fs;
use std::path::{Path, PathBuf};

const EXPECT: &str = "; expect:";

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/fuse");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no files in {}", folder.display());
    files
}

#[test]
fn plans() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1");
    let mut failures = Vec::new();
    for path in files() {
        if let Err(problem) = check(&path, update) {
            failures.push(format!("== {}\n{problem}", path.display()));
        }
    }
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}

fn check(path: &Path, update: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (source, expected) = match text.split_once(&format!("\n{EXPECT}\n")) {
        Some((source, expected)) => (source.trim_end(), expected),
        None => (text.trim_end(), ""),
    };
    let machine = machine(source.lines().next().unwrap_or_default())?;
    let program = Program::parse(source).map_err(|error| error.to_string())?;
    verify(&program).map_err(|error| error.to_string())?;
    same_values(&program, machine)?;
    let plan = Plan::for_machine(&program, &machine).describe_all();
    let plan: String = plan.lines().map(|line| format!("; {line}\n")).collect();
    if plan == expected {
        return Ok(());
    }
    if update {
        return fs::write(path, format!("{source}\n\n{EXPECT}\n{plan}")).map_err(|error| error.to_string());
    }
    Err(format!("UPDATE_EXPECT=1 accepts this.\n-- expected:\n{expected}-- found:\n{plan}"))
}

/// The machine that the first line selects.
fn machine(line: &str) -> Result<Machine, String> {
    let words = line.strip_prefix("; test fuse").filter(|words| words.is_empty() || words.starts_with(' '));
    let words = words.ok_or("the first line does not begin with `; test fuse`")?;
    let mut words = words.split_whitespace().peekable();
    let mut machine = match words.next_if(|word| !word.contains('=')) {
        None | Some("cpu") => Machine::processor(),
        Some("gpu") => Machine::gpu(),
        Some(word) => return Err(format!("`{word}` is no machine: `cpu` and `gpu` are")),
    };
    for word in words {
        let number = |text: &str| text.parse().map_err(|error| format!("`{word}`: {error}"));
        match word.split_once('=') {
            Some(("bindings", most)) => machine.bindings = Some(number(most)?),
            Some(("row_elements", most)) => machine.row_elements = number(most)?,
            Some(("loads", "indexed")) => machine.indexed_loads = true,
            Some(("products", "kernels")) => machine.products = Products::Kernels,
            Some(_) | None => return Err(format!("`{word}` is no fact of a machine")),
        }
    }
    Ok(machine)
}

#[test]
fn directives_are_parsed() {
    let gpu = Machine::gpu();
    for (line, expected) in [
        ("; test fuse", Machine::processor()),
        ("; test fuse cpu", Machine::processor()),
        ("; test fuse gpu", gpu),
        ("; test fuse gpu bindings=8", Machine { bindings: Some(8), ..gpu }),
        ("; test fuse bindings=3", Machine { bindings: Some(3), ..Machine::processor() }),
        ("; test fuse gpu row_elements=64", Machine { row_elements: 64, ..gpu }),
        ("; test fuse gpu loads=indexed", Machine { indexed_loads: true, ..gpu }),
        ("; test fuse gpu products=kernels", Machine { products: Products::Kernels, ..gpu }),
    ] {
        assert_eq!(machine(line), Ok(expected), "{line}");
    }
    let wrong =
        ["", "; test fused", "; test fuse tpu", "; test fuse gpu gpu", "; test fuse gpu bindings=few"];
    for line in
        wrong.into_iter().chain(["; test fuse gpu bindings", "; test fuse gpu rows=3", "; test vjp gpu"])
    {
        assert!(machine(line).is_err(), "{line}");
    }
}

/// Numbers between 1/4 and 2, and integers of 0 to 7.
fn data(ty: TensorType, seed: usize) -> TensorData {
    let number = |i: usize| ((i * 7 + seed * 3) % 8) as f64;
    let scale = |x: f64| if ty.dtype.is_float() { (x + 1.0) / 4.0 } else { x };
    let list: Vec<f64> = (0..ty.num_elements()).map(|i| scale(number(i))).collect();
    TensorData::new(list, ty.shape).unwrap().convert(ty.dtype)
}

fn values(program: &Program, engine: &dyn Engine) -> Result<Vec<Vec<f64>>, String> {
    let inputs: Values =
        program.inputs.iter().enumerate().map(|(seed, ty)| engine.write(data(*ty, seed))).collect();
    let outputs = program.run(engine, inputs).into_iter();
    let read = |value| block_on(engine.read(value)).map(|data: TensorData| data.to_vec());
    outputs.map(read).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn same_values(program: &Program, machine: Machine) -> Result<(), String> {
    let expected = values(program, &Cpu::with_threads(2))?;
    let found = values(program, &Changed::new(Cpu::with_threads(2)).with_machine(machine).fused())?;
    for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let far = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-3 * (1.0 + a.abs());
        if expected.len() != found.len() || expected.iter().zip(found).any(far) {
            return Err(format!("output {place} differs"));
        }
    }
    Ok(())
}
