//! Exchange with NumPy and PyTorch, through a library that Python loads.

use std::env;
use std::path::Path;
use std::process::Command;

/// `cargo xtask test` runs this as the step `python` where Python has NumPy.
#[test]
#[ignore = "the step `python` runs it, where Python has NumPy"]
fn python_exchanges_tensors() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = ["build", "--quiet", "--package", "kiln-dlpack", "--example", "python_library"];
    assert!(Command::new(env!("CARGO")).args(build).current_dir(here).status().unwrap().success());
    // Tests are in `deps`, examples beside it.
    let program = env::current_exe().unwrap();
    let examples = program.parent().and_then(Path::parent).unwrap().join("examples");
    let name = format!("{}python_library{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let status =
        Command::new("python3").arg(here.join("tests/python.py")).arg(examples.join(name)).status().unwrap();
    assert!(status.success());
}
