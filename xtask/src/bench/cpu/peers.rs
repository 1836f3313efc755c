//! Finds, builds and starts the measured programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::against;
use super::super::peer::{Peer, Skipped};
use crate::process;

/// Frameworks that `--peers` accepts.
pub(crate) const FRAMEWORKS: &[&str] = &["torch", "burn", "candle"];

/// Kiln's program, built.
pub(crate) fn kiln(bench: &Path, threads: usize, backend: Option<&str>) -> Result<Peer, String> {
    let mut command = process::cargo(bench);
    command.args(["build", "--release", "--quiet", "--target-dir", "target", "-p", "bench-kiln"]);
    process::run(&mut command)?;
    Ok(of_kiln("kiln", bench.join("target/release/bench-kiln"), bench, threads, backend))
}

/// Kiln's prebuilt program of another tree.
pub(crate) fn before(
    program: &Path,
    bench: &Path,
    threads: usize,
    backend: Option<&str>,
) -> Result<Peer, String> {
    let program = against::program(program, "bench-kiln")?;
    Ok(of_kiln("before", program, bench, threads, backend))
}

fn of_kiln(
    name: &'static str,
    program: PathBuf,
    bench: &Path,
    threads: usize,
    backend: Option<&str>,
) -> Peer {
    let backend = backend.iter().flat_map(|name| ["--backend".to_owned(), (*name).to_owned()]);
    Peer {
        name,
        measures_memory: true,
        program,
        arguments: ["--threads".to_owned(), threads.to_string()].into_iter().chain(backend).collect(),
        environment: vec![("KILN_NUM_THREADS", threads.to_string())],
        folder: bench.to_owned(),
    }
}

/// The programs of these frameworks, and those that cannot run here.
pub(crate) fn others(bench: &Path, threads: usize, frameworks: &[&str]) -> (Vec<Peer>, Vec<Skipped>) {
    let (mut peers, mut skipped) = (Vec::new(), Vec::new());
    let mut add = |name, peer: Result<Peer, String>| match peer {
        Ok(peer) => peers.push(peer),
        Err(reason) => skipped.push(Skipped { name, reason }),
    };
    for framework in FRAMEWORKS.iter().filter(|framework| frameworks.contains(framework)) {
        match *framework {
            "torch" => {
                add("torch", torch(bench, threads, false));
                add("torch.compile", torch(bench, threads, true));
            }
            name => add(name, rust(name, bench, threads)),
        }
    }
    (peers, skipped)
}

/// A Rust framework, built with `target-cpu=native`, as candle's documentation recommends.
fn rust(name: &'static str, bench: &Path, threads: usize) -> Result<Peer, String> {
    let package = format!("bench-{name}");
    let mut command = process::cargo(bench);
    command.args(["build", "--release", "--quiet", "--target-dir", "target/peers", "-p", &package]);
    process::run(command.env("RUSTFLAGS", "-C target-cpu=native"))?;
    Ok(Peer {
        name,
        measures_memory: true,
        program: bench.join("target/peers/release").join(package),
        arguments: vec!["--threads".to_owned(), threads.to_string()],
        environment: vec![
            ("RAYON_NUM_THREADS", threads.to_string()),
            ("CANDLE_NUM_THREADS", threads.to_string()),
        ],
        folder: bench.to_owned(),
    })
}

fn torch(bench: &Path, threads: usize, compiled: bool) -> Result<Peer, String> {
    if !process::succeeds(process::program("python3", bench).args(["-c", "import torch"])) {
        return Err("Python with PyTorch is not installed; `pip install torch safetensors`".to_owned());
    }
    if compiled && !has_cpp_compiler(bench) {
        return Err("torch.compile needs a C++ compiler, and there is neither g++ nor clang++".to_owned());
    }
    let threads = threads.to_string();
    let mut arguments = vec!["torch_cpu.py".to_owned(), "--threads".to_owned(), threads.clone()];
    arguments.extend(compiled.then(|| "--compile".to_owned()));
    Ok(Peer {
        name: if compiled { "torch.compile" } else { "torch" },
        measures_memory: !compiled,
        program: PathBuf::from("python3"),
        arguments,
        environment: vec![("OMP_NUM_THREADS", threads.clone()), ("MKL_NUM_THREADS", threads)],
        folder: bench.to_owned(),
    })
}

fn has_cpp_compiler(folder: &Path) -> bool {
    let named = std::env::var("CXX").into_iter();
    let mut candidates = named.chain(["g++".to_owned(), "clang++".to_owned()]);
    candidates.any(|compiler| {
        let mut command: Command = process::program(&compiler, folder);
        process::succeeds(command.arg("--version"))
    })
}
