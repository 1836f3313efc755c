//! `cargo xtask bench gpu`: Kiln and PyTorch on the same workloads on one GPU, interleaved in one run.
//!
//! A machine with a GPU may have no Rust: `--program` names a built `bench-gpu`, and `--scripts` the folder with
//! `torch_gpu.py`. Their defaults are those of this tree. With `--against`, a `bench-gpu` of another tree is compared
//! instead.

mod rows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use super::against;
use super::measure::{self, Measured, Outcome, Player, Turns, start_all};
use super::peer::{Peer, Skipped};
use super::report::Report;
use super::row::select;
use super::{DEFAULT_REPEATS, Scratch, frameworks, machine, number_of, repeats, with_notes, words_of, write};
use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;
use rows::{FIRST_STEP_OF, FIRST_STEPS, ROWS};

const ACCEPTS: Accepts = Accepts {
    flags: &["--no-first-step"],
    options: &[
        "--peers",
        "--only",
        "--repeats",
        "--record",
        "--program",
        "--scripts",
        "--tflops",
        "--gb-per-s",
        "--against",
    ],
    words: false,
};

/// Names and options of the peers: eager PyTorch, `torch.compile`, and CUDA graphs.
const PEERS: &[(&str, Option<&str>)] =
    &[("torch", None), ("torch.compile", Some("--compile")), ("torch.graph", Some("--graph"))];
const MOST_LIMIT: usize = 1_000_000;

/// `cargo xtask bench gpu`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let rows = select(ROWS, &words_of(&args, "--only"))?;
    let names: Vec<&str> = PEERS.iter().map(|(name, _)| *name).collect();
    let wanted = frameworks(&words_of(&args, "--peers"), &names)?;
    let repeats = repeats(&args, DEFAULT_REPEATS)?;
    // Limits are given by options in integers; there is no default per device.
    let limit = |option: &str| -> Result<Option<f64>, String> {
        let given = args.last(option).is_some();
        Ok(if given { Some(number_of(&args, option, 1, 1, MOST_LIMIT)? as f64) } else { None })
    };
    let (limit, bandwidth) = (limit("--tflops")?.map(|teraflops| teraflops * 1e3), limit("--gb-per-s")?);
    // First, because building takes minutes.
    let other = other_program(&args)?;
    let scratch = Scratch::new("gpu")?;
    let (program, scripts) = programs(&args)?;
    let kiln = kiln(&program, &scripts, &scratch.path.join("kernels"));
    let before = other.map(|program| {
        let cache = scratch.path.join("kernels-before");
        Peer { name: "before", ..self::kiln(&program, &scripts, &cache) }
    });
    let (others, skipped) = if before.is_some() { (vec![], vec![]) } else { others(&scripts, &wanted) };
    let mut report = Report {
        kind: "GPU",
        place: device(),
        threads: 1,
        limit,
        bandwidth,
        peers: Vec::new(),
        skipped,
        results: Vec::new(),
    };
    if let Some(before) = before {
        return against::run(&kiln, before, &rows, repeats, report, |row, players, turns| {
            Ok(measure::measure(row, players, turns, ""))
        });
    }
    let mut players = start_all(&kiln, &others, &mut report)?;
    for row in rows {
        let outcomes = measure::measure(row, &mut players, Turns::of_frameworks(repeats), "");
        print!("{}", report.json_lines(row, &outcomes));
        report.results.push((row, outcomes));
    }
    drop(players);
    if !args.has("--no-first-step") {
        first_steps(&program, &scripts, &scratch.path.join("first"), &mut report);
    }
    print!("{}", report.text());
    if let Some(file) = args.last("--record").map(Path::new) {
        write(file, &with_notes(report.page(&machine()), file))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The program of another tree to compare with, if one is given.
fn other_program(args: &Args) -> Result<Option<PathBuf>, String> {
    let Some(program) = args.last("--against") else { return Ok(None) };
    if let Some(other) = ["--peers", "--record"].into_iter().find(|option| args.last(option).is_some()) {
        let hint = "--against compares two programs of Kiln, without other frameworks";
        return Err(format!("{other} beside --against\n  hint: {hint}"));
    }
    against::program(Path::new(program), "bench-gpu").map(Some)
}

/// Kiln's program and the folder of the scripts, given or of this tree.
fn programs(args: &Args) -> Result<(PathBuf, PathBuf), String> {
    let given = (args.last("--program").map(PathBuf::from), args.last("--scripts").map(PathBuf::from));
    if let (Some(program), Some(scripts)) = given {
        return Ok((absolute(&program)?, absolute(&scripts)?));
    }
    let bench = Workspace::load()?.root.join("bench");
    let program = match given.0 {
        Some(program) => absolute(&program)?,
        None => {
            process::run(process::cargo(&bench).args(["build", "--release", "--quiet", "-p", "bench-gpu"]))?;
            bench.join("target/release/bench-gpu")
        }
    };
    Ok((program, given.1.map_or(Ok(bench), |scripts| absolute(&scripts))?))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(process::at(path))
}

fn kiln(program: &Path, folder: &Path, cache: &Path) -> Peer {
    Peer {
        name: "kiln",
        measures_memory: false,
        program: program.to_owned(),
        arguments: Vec::new(),
        environment: vec![("KILN_CACHE_DIR", cache.to_string_lossy().into_owned())],
        folder: folder.to_owned(),
    }
}

/// The peers that can run here, and those that cannot.
fn others(scripts: &Path, wanted: &[&str]) -> (Vec<Peer>, Vec<Skipped>) {
    let usable = "import torch; assert torch.cuda.is_available()";
    let torch = process::succeeds(process::program("python3", scripts).args(["-c", usable]));
    let (mut peers, mut skipped) = (Vec::new(), Vec::new());
    for (name, option) in PEERS.iter().filter(|(name, _)| wanted.contains(name)) {
        if !torch {
            let reason = "Python with a PyTorch that sees a GPU is not here".to_owned();
            skipped.push(Skipped { name, reason });
            continue;
        }
        let arguments = ["torch_gpu.py"].into_iter().chain(*option).map(str::to_owned);
        peers.push(Peer {
            name,
            measures_memory: false,
            program: PathBuf::from("python3"),
            arguments: arguments.collect(),
            environment: Vec::new(),
            folder: scripts.to_owned(),
        });
    }
    (peers, skipped)
}

/// The name of the first GPU.
pub(super) fn device() -> String {
    let mut query = process::program("nvidia-smi", Path::new("."));
    query.args(["--query-gpu=name", "--format=csv,noheader", "--id=0"]);
    let name = process::output(&mut query).unwrap_or_default();
    let name = name.lines().next().unwrap_or_default().trim().to_owned();
    if name.is_empty() { "an unknown GPU".to_owned() } else { format!("one {name}") }
}

/// Measures Kiln's first steps in new processes, which share an initially empty cache on disk.
fn first_steps(program: &Path, scripts: &Path, cache: &Path, report: &mut Report) {
    let peer = kiln(program, scripts, cache);
    for row in FIRST_STEPS {
        let mut outcomes = vec![first_step(&peer, FIRST_STEP_OF)];
        outcomes.resize(report.peers.len(), Outcome::Unsupported("it is measured for Kiln alone".to_owned()));
        print!("{}", report.json_lines(row, &outcomes));
        report.results.push((row, outcomes));
    }
}

/// Starts a process and measures its first repeat of a training step.
pub(super) fn first_step(peer: &Peer, workload: &str) -> Outcome {
    let measured = || {
        let mut player = Player::start(peer)?;
        player.request(&format!("prepare {workload}"))?;
        let started = Instant::now();
        player.request("run 1")?;
        Ok::<f64, String>(started.elapsed().as_secs_f64() * 1e3)
    };
    match measured() {
        Ok(ms) => Outcome::Measured(Measured { times: vec![ms], ..Measured::default() }),
        Err(reason) => Outcome::Failed(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    #[test]
    fn errors_list_the_valid_values() {
        let problem = |words: &[&str]| run(&owned(words)).unwrap_err();
        assert!(problem(&["--only", "matmul"]).contains("matmul_bf16_4096"));
        assert!(problem(&["--peers", "burn"]).contains("torch.compile"));
        assert!(problem(&["--tflops", "many"]).contains("`many`"));
        assert!(problem(&["--against", "p", "--record", "f"]).contains("--record beside --against"));
        assert!(problem(&["--program", "/nowhere/bench-gpu", "--scripts", "."]).contains("nowhere"));
    }
}
