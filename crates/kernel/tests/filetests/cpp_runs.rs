//! Compiles the printed C++ for the CPU, runs it, and compares the results with the reference.

use crate::harness::{Source, difference};
use kiln_ir::{Elements, Scalar, TensorData};
use kiln_kernel::print::{GpuArgument, Printed};
use kiln_kernel::{GpuSchedule, Lowered, ParamKind};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A printed kernel with data.
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) printed: Printed,
    pub(crate) schedule: GpuSchedule,
    pub(crate) lowered: Lowered,
    pub(crate) sources: Vec<Source>,
    pub(crate) expected: Vec<TensorData>,
}

/// Compiles and runs the printed C++ kernels; returns the differences.
pub(crate) fn check(runs: &[Run]) -> Vec<String> {
    if Command::new("g++").arg("--version").output().is_err() {
        println!("C++ is neither compiled nor run: there is no g++");
        return Vec::new();
    }
    let printed = match run(runs) {
        Ok(printed) => printed,
        Err(problem) => return vec![problem],
    };
    let mut lines = printed.lines();
    let mut problems = Vec::new();
    for run in runs {
        for (i, expected) in run.expected.iter().enumerate() {
            let line = lines.next().unwrap_or_default();
            let bytes: Vec<u8> = (0..line.len() / 2)
                .filter_map(|byte| u8::from_str_radix(&line[2 * byte..2 * byte + 2], 16).ok())
                .collect();
            let found = Elements::from_bytes(&bytes, expected.dtype());
            let tolerance = if expected.dtype().size() < 4 { 3e-2 } else { 1e-5 };
            let problem = match found {
                Ok(found) => difference(expected.elements(), &found, tolerance),
                Err(error) => Some(error.to_string()),
            };
            problems.extend(problem.map(|problem| format!("== {}, run\noutput {i}: {problem}", run.name)));
        }
    }
    problems
}

/// The output of one program with all kernels: the bytes of each result, one line each.
fn run(runs: &[Run]) -> Result<String, String> {
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/shim.hpp");
    let mut text = format!("#include \"{}\"\n", shim.display());
    let mut main = String::new();
    for (number, run) in runs.iter().enumerate() {
        let name = &run.name;
        let _ = write!(
            text,
            "#line 1 \"{name}\"\n#define kiln_kernel kernel_{number}\n#define kiln_finish finish_{number}\n"
        );
        let _ = write!(text, "namespace n{number} {{\n{}{}}}\n", run.printed.text, run.memory());
        text.push_str("#undef kiln_kernel\n#undef kiln_finish\n");
        main.push_str(&run.calls(number));
    }
    let _ = write!(text, "int main() {{\n{main}}}\n");
    let folder = std::env::temp_dir();
    let path = |ending: &str| folder.join(format!("kiln_kernel_{}{ending}", std::process::id()));
    let (source, binary) = (path(".cpp"), path(".bin"));
    fs::write(&source, text).map_err(|error| error.to_string())?;
    let warnings = [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unknown-pragmas",
        "-Wno-unused-variable",
        "-Wno-type-limits",
        "-Wno-maybe-uninitialized",
    ];
    let compiled = Command::new("g++")
        .args(["-std=c++17", "-O1", "-fno-strict-aliasing", "-fwrapv"])
        .args(warnings)
        .args(["-Wno-bool-compare", "-Wno-unused-parameter", "-Wno-unused-function", "-o"])
        .arg(&binary)
        .arg(&source)
        .output();
    let ran = compiled.map_err(|error| error.to_string()).and_then(|compiled| {
        if !compiled.status.success() {
            return Err(String::from_utf8_lossy(&compiled.stderr).into_owned());
        }
        Command::new(&binary).output().map_err(|error| error.to_string())
    });
    let _ = (fs::remove_file(&source), fs::remove_file(&binary));
    let ran = ran?;
    if !ran.status.success() {
        return Err(format!("the compiled kernels fail: {}", ran.status));
    }
    String::from_utf8(ran.stdout).map_err(|error| error.to_string())
}

impl Run {
    /// The memory of all operands and results.
    fn memory(&self) -> String {
        let mut text = String::new();
        for (i, (param, binding)) in
            self.lowered.kernel.params.iter().zip(&self.lowered.launch.bindings).enumerate()
        {
            let _ = match param.kind {
                ParamKind::Input => {
                    let bytes: Vec<String> =
                        self.sources[binding.place].elements.bytes().iter().map(u8::to_string).collect();
                    writeln!(text, "alignas(16) static unsigned char m{i}[] = {{{}}};", bytes.join(","))
                }
                ParamKind::Output => {
                    let size = self.expected[binding.place].bytes().len();
                    writeln!(text, "alignas(16) static unsigned char m{i}[{size}];")
                }
                ParamKind::Number => Ok(()),
            };
        }
        let scratch = self.schedule.scratch_len(&self.lowered.kernel, &self.lowered.launch).max(1);
        let _ = writeln!(text, "static double scratch[8][{scratch}];\nstatic unsigned long long failed[64];");
        text
    }

    /// The arguments of an entry point.
    fn arguments(&self, number: usize) -> String {
        let launch = &self.lowered.launch;
        let mut scratch = 0;
        let argument = |argument: &GpuArgument| match *argument {
            GpuArgument::Tensor(param) => format!("ShimMemory{{n{number}::m{param}}}"),
            GpuArgument::Number(param) => match self.sources[launch.bindings[param as usize].place].number {
                Some(Scalar::Float(x)) => format!("{x:?}"),
                Some(scalar) => format!("{scalar}"),
                None => "0".into(),
            },
            GpuArgument::Extent(axis) => launch.extents[axis as usize].to_string(),
            GpuArgument::Stride(param, axis) => {
                launch.bindings[param as usize].strides[axis as usize].to_string()
            }
            GpuArgument::Offset(param) => launch.bindings[param as usize].offset.to_string(),
            GpuArgument::Scratch(_) => {
                scratch += 1;
                format!("ShimMemory{{n{number}::scratch[{}]}}", scratch - 1)
            }
            GpuArgument::Failed => format!("n{number}::failed"),
        };
        self.printed.arguments.iter().map(argument).collect::<Vec<_>>().join(", ")
    }

    /// Runs the entry points and prints the outputs.
    fn calls(&self, number: usize) -> String {
        let mut text = String::from("  {\n");
        let grid = self.schedule.grid(&self.lowered.kernel, &self.lowered.launch);
        for (entry, blocks) in self.printed.entries.iter().zip(grid) {
            let entry = &entry.name;
            let entry = entry.replace("kiln_", "").replace("kernel", "kernel_")
                + if entry.ends_with("finish") { "_" } else { "" };
            let call = format!("n{number}::{entry}{number}({})", self.arguments(number));
            let _ = writeln!(text, "    shim_launch({blocks}, {}, [] {{ {call}; }});", self.schedule.block);
        }
        let mut outputs: Vec<(usize, usize)> = Vec::new();
        for (i, param) in self.lowered.kernel.params.iter().enumerate() {
            if param.kind == ParamKind::Output {
                outputs.push((self.lowered.launch.bindings[i].place, i));
            }
        }
        outputs.sort_unstable();
        for (_, param) in outputs {
            let _ = writeln!(text, "    shim_print(n{number}::m{param}, sizeof n{number}::m{param});");
        }
        text.push_str("  }\n");
        text
    }
}
