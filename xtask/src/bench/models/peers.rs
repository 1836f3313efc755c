//! Finds, builds and starts the measured programs.

use std::path::Path;

use super::super::peer::{Peer, Skipped, python};
use super::Folders;
use crate::process;

/// Programs that `--peers` accepts, as `bench/models.py` names them.
pub(crate) const PEERS: &[&str] = &["llama.cpp", "torch", "onnxruntime"];

/// A statement of Python that fails where a package is missing, and the command that installs them.
struct Needs {
    name: &'static str,
    statement: &'static str,
    install: &'static str,
}

const NEEDS: &[Needs] = &[
    Needs {
        name: "llama.cpp",
        statement: "from importlib.util import find_spec as f; assert f('llama_cpp') or f('xllamacpp')",
        install: "pip install llama-cpp-python gguf",
    },
    Needs {
        name: "torch",
        statement: "import safetensors, torch, transformers",
        install: "pip install torch transformers safetensors",
    },
    Needs {
        name: "onnxruntime",
        statement: "import onnx, onnxruntime, torch, transformers",
        install: "pip install onnxruntime onnx torch transformers",
    },
];

/// Kiln's program, built.
pub(crate) fn kiln(folders: &Folders, threads: usize) -> Result<Peer, String> {
    let bench = &folders.bench;
    let mut command = process::cargo(bench);
    command.args(["build", "--release", "--quiet", "--target-dir", "target", "-p", "bench-models"]);
    process::run(&mut command)?;
    Ok(Peer {
        name: "kiln",
        measures_memory: true,
        program: bench.join("target/release/bench-models"),
        arguments: vec!["--threads".to_owned(), threads.to_string()],
        environment: vec![("KILN_NUM_THREADS", threads.to_string())],
        folder: bench.clone(),
    })
}

/// The other programs of this machine, and those that cannot run here.
pub(crate) fn others(folders: &Folders, threads: usize, wanted: &[&str]) -> (Vec<Peer>, Vec<Skipped>) {
    let (mut peers, mut skipped) = (Vec::new(), Vec::new());
    for needs in NEEDS.iter().filter(|needs| wanted.contains(&needs.name)) {
        let name = needs.name;
        match missing(needs, &folders.bench) {
            None => peers.push(script(name, folders, threads)),
            Some(reason) => skipped.push(Skipped { name, reason }),
        }
    }
    (peers, skipped)
}

/// Why a peer cannot run.
fn missing(needs: &Needs, folder: &Path) -> Option<String> {
    let python = python();
    let python = python.to_string_lossy();
    let mut command = process::program(&python, folder);
    let is_here = process::succeeds(command.args(["-c", needs.statement]));
    (!is_here).then(|| format!("{python} does not have it; `{}`, or set PYTHON", needs.install))
}

fn script(name: &'static str, folders: &Folders, threads: usize) -> Peer {
    let threads = threads.to_string();
    Peer {
        name,
        measures_memory: true,
        program: python(),
        arguments: ["models.py", name, "--threads", &threads].map(str::to_owned).to_vec(),
        environment: vec![
            ("KILN_MODELS_DIR", folders.models.to_string_lossy().into_owned()),
            ("OMP_NUM_THREADS", threads.clone()),
            ("MKL_NUM_THREADS", threads),
        ],
        folder: folders.bench.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_needs() {
        assert!(NEEDS.iter().map(|needs| needs.name).eq(PEERS.iter().copied()));
    }

    #[test]
    fn a_missing_package_is_told_with_the_command_that_installs_it() {
        let needs = Needs { name: "x", statement: "import no_such_package", install: "pip install x" };
        let reason = missing(&needs, Path::new(".")).unwrap();
        assert!(reason.contains("`pip install x`") && reason.contains("PYTHON"), "{reason}");
    }
}
