//! Finds, builds and starts the measured programs.

use std::path::{Path, PathBuf};

use super::super::peer::{Peer, Skipped};
use crate::process;

/// Programs that `--peers` accepts, as `bench/models.py` names them.
pub(crate) const PEERS: &[&str] = &["llama.cpp", "torch", "onnxruntime"];

/// The modules that each needs, and the command that installs them.
const NEEDS: &[(&str, &str, &str)] = &[
    ("llama.cpp", "import llama_cpp", "pip install llama-cpp-python"),
    ("torch", "import torch, transformers", "pip install torch transformers"),
    (
        "onnxruntime",
        "import onnxruntime, onnx, torch, transformers",
        "pip install onnxruntime onnx torch transformers",
    ),
];

/// Kiln's program, built.
pub(crate) fn kiln(bench: &Path, threads: usize) -> Result<Peer, String> {
    let mut command = process::cargo(bench);
    command.args(["build", "--release", "--quiet", "--target-dir", "target", "-p", "bench-models"]);
    process::run(&mut command)?;
    Ok(Peer {
        name: "kiln",
        measures_memory: true,
        program: bench.join("target/release/bench-models"),
        arguments: vec!["--threads".to_owned(), threads.to_string()],
        environment: vec![("KILN_NUM_THREADS", threads.to_string())],
        folder: bench.to_owned(),
    })
}

/// The other programs of this machine, and those that cannot run here.
pub(crate) fn others(bench: &Path, threads: usize, wanted: &[&str]) -> (Vec<Peer>, Vec<Skipped>) {
    let (mut peers, mut skipped) = (Vec::new(), Vec::new());
    for &(name, import, install) in NEEDS.iter().filter(|(name, ..)| wanted.contains(name)) {
        if process::succeeds(process::program("python3", bench).args(["-c", import])) {
            peers.push(python(name, bench, threads));
        } else {
            skipped.push(Skipped { name, reason: format!("it is not installed; `{install}`") });
        }
    }
    (peers, skipped)
}

fn python(name: &'static str, bench: &Path, threads: usize) -> Peer {
    let threads = threads.to_string();
    Peer {
        name,
        measures_memory: true,
        program: PathBuf::from("python3"),
        arguments: ["models.py", name, "--threads", &threads].map(str::to_owned).to_vec(),
        environment: vec![("OMP_NUM_THREADS", threads.clone()), ("MKL_NUM_THREADS", threads)],
        folder: bench.to_owned(),
    }
}
