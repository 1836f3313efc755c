//! `kiln dump` on the programs of `filetests/`, and on invalid programs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn kiln(words: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that fails early closes its stdin.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(words: &[&str], input: &str) -> String {
    let output = kiln(words, input);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn error(words: &[&str], input: &str) -> String {
    let output = kiln(words, input);
    assert!(!output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/fuse");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

const CHAIN: &str = "program(%0: f32[8, 16]) {
  %1: f32[8, 16] = exp %0
  %2: f32[8, 16] = add %1, 1.0
  return %2
}
";

#[test]
fn every_stage_of_every_file() {
    for path in files() {
        for stage in ["ops", "plan", "kernel", "cuda", "hip", "wgsl"] {
            for machine in ["cpu", "gpu"] {
                let text = stdout(&["dump", stage, "--machine", machine, path.to_str().unwrap()], "");
                assert!(!text.is_empty(), "{stage} of {} on {machine}", path.display());
            }
        }
    }
}

#[test]
fn stages_of_a_chain() {
    assert_eq!(stdout(&["dump", "ops", "-"], CHAIN).trim(), CHAIN.trim());
    let plan = stdout(&["dump", "plan", "-"], CHAIN);
    assert!(plan.contains("exp, add"), "{plan}");
    assert_eq!(stdout(&["dump", "ops", "--region", "0", "-"], CHAIN).matches("exp").count(), 1);
    let kernel = stdout(&["dump", "kernel", "-"], CHAIN);
    assert!(kernel.contains("kernel map") && kernel.contains("launch [128]"), "{kernel}");
    assert!(stdout(&["dump", "cuda", "-"], CHAIN).contains("__global__"));
    assert!(stdout(&["dump", "hip", "-"], CHAIN).contains("__global__"));
    assert!(stdout(&["dump", "wgsl", "-"], CHAIN).contains("@compute"));
    let none = "program(%0: f32[8]) {\n  %1: f32[8] = exp %0\n  return %1\n}\n";
    assert!(stdout(&["dump", "kernel", "-"], none).contains("no regions"));
}

#[test]
fn dump_for_other_machines() {
    let product = "program(%0: f32[8, 16], %1: f32[16, 4]) {
  %2: f32[8, 4] = matmul %0, %1
  %3: f32[8, 4] = exp %2
  return %3
}
";
    let plan = |options: &[&str]| {
        let words: Vec<&str> = ["dump", "plan"].iter().chain(options).chain(&["-"]).copied().collect();
        stdout(&words, product)
    };
    assert!(plan(&[]).starts_with("1 step, 1 region"), "a processor goes on with a product");
    assert_eq!(plan(&["--machine", "cpu"]), plan(&[]));
    let gpu = plan(&["--machine", "gpu"]);
    assert!(gpu.starts_with("2 steps, 0 regions"), "{gpu}");
    // Kernels depend on the regions of the machine.
    let columns = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/fuse/gpu_columns.ir");
    let columns = columns.to_str().unwrap();
    assert_eq!(stdout(&["dump", "kernel", "--machine", "gpu", columns], "").matches("// region").count(), 1);
    assert!(stdout(&["dump", "cuda", "--machine", "gpu", columns], "").contains("__global__"));
    let other = error(&["dump", "plan", "--machine", "tpu", "-"], product);
    assert!(other.contains("tpu") && other.contains("cpu") && other.contains("gpu"), "{other}");
}

#[test]
fn invalid_programs_and_arguments_are_errors() {
    let missing = error(&["dump", "ops", "no/such/file.ir"], "");
    assert!(missing.contains("cannot read no/such/file.ir: there is no such file or folder"), "{missing}");
    let broken =
        error(&["dump", "ops", "-"], "program(%0: f32[8]) {\n  %1: f32[8] = exq %0\n  return %1\n}\n");
    assert!(broken.contains("line 2") && broken.contains("exq"), "{broken}");
    let invalid =
        error(&["dump", "ops", "-"], "program(%0: f32[8]) {\n  %1: f32[9] = exp %0\n  return %1\n}\n");
    assert!(invalid.contains("exp"), "{invalid}");
    let stage = error(&["dump", "ptx", "-"], CHAIN);
    assert!(stage.contains("ptx") && stage.contains("wgsl"), "{stage}");
    let region = error(&["dump", "kernel", "--region", "3", "-"], CHAIN);
    assert!(region.contains("no region 3") && region.contains("1 region"), "{region}");
    assert!(error(&[], "").contains("dump"));
}
