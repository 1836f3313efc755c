//! `cargo xtask bench cpu|gpu|vulkan|models`: Kiln and other programs on the same workloads, interleaved in one run.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use bench_protocol::workloads::{self, Kind, Row};

use super::measure::{self, Measured, Outcome, Player, Turns, start_all};
use super::models::Files;
use super::peer::{Peer, Skipped};
use super::peers::{self, Contender, Peers, Program, named};
use super::programs::{self, Build, PACK, PROGRAMS, Programs};
use super::report::Report;
use super::{
    MIN_REPEATS, Scratch, against, frameworks, machine, number_of, turns, with_notes, words_of, write,
};
use crate::args::{Accepts, Args};
use crate::process;

const DEFAULT_REPEATS: usize = 15;
const MAX_REPEATS: usize = 10_000;
const MAX_ROUNDS: usize = 1000;
const MAX_THREADS: usize = 1024;
const MAX_LIMIT: usize = 1_000_000;

/// Leaves out the first steps of fresh processes.
const NO_FIRST_STEP: &str = "--no-first-step";

/// A comparison of Kiln with other programs.
pub(crate) struct Comparison {
    /// The word after `bench`, and that of its workloads.
    pub(crate) name: &'static str,
    /// The name in reports.
    title: &'static str,
    accepts: Accepts,
    pub(super) kiln: Contender,
    /// How the program of another tree is built.
    other_tree: &'static str,
    pub(super) peers: &'static [Contender],
    /// The default number of threads. Without one it is not set: the programs run on a GPU.
    threads: Option<fn() -> usize>,
    /// The default number of repeats; without one, that of the rounds.
    repeats: Option<usize>,
    /// The default number of rounds, every other in reverse order. Without one it is fixed, and all have the same order.
    rounds: Option<usize>,
    /// Milliseconds of a turn. Longer workloads run once in a turn.
    milliseconds: f64,
    /// Variables that name the folder of a program's caches of kernels: those of the frameworks and of the drivers.
    pub(super) caches: &'static [&'static str],
    /// The report as a table for the terminal and as a page.
    text: fn(&Report) -> String,
    page: fn(&Report, &str) -> String,
}

pub(crate) const CPU: Comparison = Comparison {
    name: "cpu",
    title: "CPU",
    accepts: Accepts {
        flags: &[],
        options: &["--peers", "--only", "--threads", "--repeats", "--kiln-backend", "--record", "--against"],
        words: false,
    },
    kiln: named("kiln", Program::Rust(Build::KILN), &[]),
    other_tree: "bench-kiln",
    peers: peers::CPU_PEERS,
    threads: Some(|| std::thread::available_parallelism().map_or(1, usize::from)),
    repeats: Some(DEFAULT_REPEATS),
    rounds: None,
    milliseconds: 15.0,
    caches: &[],
    text: Report::text,
    page: Report::page,
};

/// A machine with a GPU may have no Rust: `--program` names a built `bench-kiln`, and `--scripts` the folder with
/// `pytorch.py`. Their defaults are those of this tree.
pub(crate) const GPU: Comparison = Comparison {
    name: "gpu",
    title: "GPU",
    accepts: Accepts {
        flags: &[NO_FIRST_STEP],
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
    },
    kiln: named("kiln", Program::Rust(Build::KILN_FOR_GPU), peers::ON_CUDA),
    other_tree: "bench-kiln --features gpu",
    peers: peers::GPU_PEERS,
    threads: None,
    caches: &["KILN_CACHE_DIR"],
    ..CPU
};

/// `--pack` makes a folder of all programs for a machine without Rust, and `--programs` names it there.
pub(crate) const VULKAN: Comparison = Comparison {
    name: "vulkan",
    title: "Vulkan",
    accepts: Accepts {
        flags: &[NO_FIRST_STEP, PACK],
        options: &["--peers", "--only", "--rounds", "--repeats", "--record", PROGRAMS],
        words: false,
    },
    kiln: named("kiln-vulkan", Program::Rust(Build::KILN_FOR_GPU), peers::ON_VULKAN),
    other_tree: GPU.other_tree,
    peers: peers::VULKAN_PEERS,
    threads: None,
    repeats: Some(MIN_REPEATS),
    rounds: Some(9),
    milliseconds: 40.0,
    caches: &[
        "KILN_CACHE_DIR",
        "XDG_CACHE_HOME",
        "CUDA_CACHE_PATH",
        "__GL_SHADER_DISK_CACHE_PATH",
        "MESA_SHADER_CACHE_DIR",
    ],
    text: turns::text,
    page: turns::page,
};

/// `bench/models.py` finds the models, in the folder that `KILN_MODELS_DIR` names and in installed Python packages.
/// Workloads of a missing model are skipped.
pub(crate) const MODELS: Comparison = Comparison {
    name: "models",
    title: "Models",
    accepts: Accepts {
        flags: &[],
        options: &["--peers", "--only", "--threads", "--rounds", "--record"],
        words: false,
    },
    kiln: named("kiln", Program::Rust(Build::KILN_WITH_MODELS), &[]),
    peers: peers::MODEL_PEERS,
    threads: Some(|| 2),
    repeats: None,
    rounds: Some(5),
    milliseconds: 150.0,
    ..CPU
};

/// The parsed options.
pub(super) struct Options<'a> {
    /// The words of `--peers`.
    pub(super) frameworks: Vec<&'a str>,
    rows: Vec<&'static Row>,
    pub(super) threads: Option<usize>,
    turns: Turns,
    pub(super) backend: Option<&'a str>,
    record: Option<&'a Path>,
    against: Option<&'a Path>,
    /// GFLOP/s and GB/s of the device.
    limits: [Option<f64>; 2],
}

/// Runs a comparison. Fails if a workload fails; a missed target is told.
pub(crate) fn run(comparison: &'static Comparison, words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &comparison.accepts)?;
    let options = Options::read(comparison, &args)?;
    // First, because building takes minutes.
    let before = options.against.map(|path| against::program(path, comparison.other_tree)).transpose()?;
    let programs = Programs::of(&args)?;
    if args.has(PACK) {
        return programs::pack(&programs);
    }
    let scratch = Scratch::new(comparison.name)?;
    let files = Files::find(comparison, &programs, scratch.path.clone());
    let peers = Peers { comparison, options: &options, programs, scratch: &scratch.path };
    let kiln = peers.kiln("run")?;
    let (others, skipped) = if before.is_some() { Default::default() } else { peers.others("run") };
    let [limit, bandwidth] = options.limits;
    let mut report = Report {
        kind: comparison.title,
        place: options.threads.map_or_else(device, |threads| format!("{threads} threads")),
        threads: options.threads.unwrap_or(1),
        limit,
        bandwidth,
        peers: Vec::new(),
        skipped,
        results: Vec::new(),
    };
    if let Some(program) = before {
        let before = peers.before(program)?;
        let repeats = options.turns.repeats;
        return against::run(&kiln, before, &options.rows, repeats, report, |row, players, turns| {
            Ok(measure::measure(row, players, turns, &files.of(row)?))
        });
    }
    let mut players = start_all(&kiln, &others, &mut report)?;
    if comparison.name == "cpu" {
        report.limit = players[0].limit();
    }
    for &row in &options.rows {
        match files.of(row) {
            Ok(file) => report.add(row, measure::measure(row, &mut players, options.turns, &file)),
            Err(reason) => report.skipped.push(Skipped { name: row.name, reason }),
        }
    }
    drop(players);
    if comparison.accepts.flags.contains(&NO_FIRST_STEP) && !args.has(NO_FIRST_STEP) {
        first_steps(&peers, &mut report)?;
    }
    print!("{}", (comparison.text)(&report));
    if let Some(file) = options.record {
        write(file, &with_notes((comparison.page)(&report, &machine()), file))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The name of the first GPU.
fn device() -> String {
    let mut query = process::program("nvidia-smi", Path::new("."));
    query.args(["--query-gpu=name", "--format=csv,noheader", "--id=0"]);
    let name = process::output(&mut query).unwrap_or_default();
    let name = name.lines().next().unwrap_or_default().trim().to_owned();
    if name.is_empty() { "an unknown GPU".to_owned() } else { format!("one {name}") }
}

/// Measures the first steps of new processes of the programs that took part, with empty caches, and then with those
/// caches.
fn first_steps(peers: &Peers, report: &mut Report) -> Result<(), String> {
    let (kiln, others) = (peers.kiln("first")?, peers.others("first").0);
    let took_part = |peer: &&Peer| report.peers.iter().any(|(name, _)| *name == peer.name);
    let present: Vec<&Peer> = [&kiln].into_iter().chain(others.iter().filter(took_part)).collect();
    for row in workloads::of(peers.comparison.name).filter(|row| row.kind == Kind::FirstStep) {
        let first_step = |(place, peer): (usize, &&Peer)| match place == 0 || row.has(peer.name) {
            true => first_step(peer, row.operation),
            false => Outcome::Unsupported("it is measured for Kiln alone".to_owned()),
        };
        report.add(row, present.iter().enumerate().map(first_step).collect());
    }
    Ok(())
}

/// Starts a process and measures its first repeat of a training step.
fn first_step(peer: &Peer, workload: &str) -> Outcome {
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

impl<'a> Options<'a> {
    pub(super) fn read(comparison: &'static Comparison, args: &'a Args) -> Result<Options<'a>, String> {
        let against = args.last("--against").map(Path::new);
        if let Some(other) = ["--peers", "--record"].into_iter().find(|option| args.last(option).is_some())
            && against.is_some()
        {
            return Err(format!(
                "{other} beside --against\n  hint: --against compares two programs of Kiln, without other frameworks"
            ));
        }
        let mut known: Vec<&str> = comparison.peers.iter().map(|peer| peer.option).collect();
        known.dedup();
        let number = |option, default, least, most| number_of(args, option, default, least, most);
        let threads = comparison.threads.map(|default| number("--threads", default(), 1, MAX_THREADS));
        let rounds =
            comparison.rounds.map(|default| number("--rounds", default, 1, MAX_ROUNDS)).transpose()?;
        let repeats =
            comparison.repeats.map(|default| number("--repeats", default, MIN_REPEATS, MAX_REPEATS));
        // Limits are given by options in integers; there is no default per device.
        let limit = |option: &str| -> Result<Option<f64>, String> {
            let given = args.last(option).map(|_| number_of(args, option, 1, 1, MAX_LIMIT)).transpose()?;
            Ok(given.map(|limit| limit as f64))
        };
        let rounds_in_all = rounds.unwrap_or(Turns::FIXED_ROUNDS);
        Ok(Options {
            frameworks: frameworks(&words_of(args, "--peers"), &known)?,
            rows: workloads::select(comparison.name, &words_of(args, "--only"))?,
            threads: threads.transpose()?,
            turns: Turns {
                rounds: rounds_in_all,
                back_and_forth: rounds.is_some(),
                repeats: repeats.transpose()?.unwrap_or(rounds_in_all),
                milliseconds: comparison.milliseconds,
            },
            backend: args.last("--kiln-backend"),
            record: args.last("--record").map(Path::new),
            against,
            limits: [limit("--tflops")?.map(|teraflops| teraflops * 1e3), limit("--gb-per-s")?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    fn read<T>(words: &[&str], see: impl Fn(Options) -> T) -> Result<T, String> {
        let args = Args::parse(&owned(words), &CPU.accepts)?;
        Options::read(&CPU, &args).map(see)
    }

    #[test]
    fn options_have_defaults() {
        let see = |options: Options| (options.frameworks.len(), options.rows.len(), options.turns.repeats);
        assert_eq!(read(&[], see), Ok((3, workloads::of("cpu").count(), DEFAULT_REPEATS)));
    }

    #[test]
    fn lists_are_split_at_commas_and_may_be_repeated() {
        let words =
            ["--peers", "torch,candle", "--only=softmax", "--only", "sum_all,cumsum", "--threads", "3"];
        let see = |options: Options| (options.frameworks.join(" "), options.rows.len(), options.threads);
        assert_eq!(read(&words, see), Ok(("torch candle".to_owned(), 3, Some(3))));
        assert_eq!(read(&["--peers", "none"], |options| options.frameworks.len()), Ok(0));
        let against = |options: Options| options.against.map(Path::to_owned);
        assert_eq!(read(&["--against", "old/bench-kiln"], against), Ok(Some("old/bench-kiln".into())));
    }

    #[test]
    fn errors_list_the_valid_values() {
        let problem = |words: &[&str]| read(words, |_| ()).unwrap_err();
        assert!(problem(&["--peers", "jax"]).contains("any of torch, burn, candle, or none"));
        assert!(problem(&["--only", "conv"]).contains("conv3x3"));
        assert!(problem(&["--repeats", "3"]).contains("from 7"));
        assert!(problem(&["--threads", "0"]).contains("from 1"));
        assert!(problem(&["--threads", "two"]).contains("`two`"));
        assert!(problem(&["softmax"]).contains("softmax"));
        assert!(problem(&["--against", "p", "--peers", "torch"]).contains("--peers beside --against"));
        assert!(problem(&["--record", "f", "--against=p"]).contains("--record beside --against"));
    }

    #[test]
    fn errors_of_gpus_list_the_valid_values() {
        let problem = |words: &[&str]| run(&GPU, &owned(words)).unwrap_err();
        assert!(problem(&["--only", "matmul"]).contains("matmul_bf16_4096"));
        assert!(problem(&["--peers", "burn"]).contains("torch.compile"));
        assert!(problem(&["--tflops", "many"]).contains("`many`"));
        assert!(problem(&["--against", "p", "--record", "f"]).contains("--record beside --against"));
        assert!(problem(&["--program", "/nowhere/bench-gpu", "--scripts", "."]).contains("nowhere"));
    }

    #[test]
    fn errors_of_vulkan_list_the_valid_values() {
        let problem = |words: &[&str]| run(&VULKAN, &owned(words)).unwrap_err();
        assert!(problem(&["--only", "matmul"]).contains("matmul_f32_2048"));
        assert!(problem(&["--peers", "torch"]).contains("kiln-cuda"));
        assert!(problem(&["--programs", "/nowhere"]).contains("/nowhere"));
    }

    #[test]
    fn errors_of_models_list_the_valid_values() {
        let problem = |words: &[&str]| run(&MODELS, &owned(words)).unwrap_err();
        assert!(problem(&["--only", "minilm"]).contains("minilm_32"));
        assert!(problem(&["--peers", "burn"]).contains("llama.cpp"));
        assert!(problem(&["--rounds", "0"]).contains("from 1"));
        assert!(problem(&["--repeats", "9"]).contains("--repeats"));
    }

    #[test]
    fn long_models_run_once_in_a_turn() {
        let turns = Options::read(&MODELS, &Args::default()).unwrap().turns;
        assert_eq!((turns.rounds, turns.repeats.div_ceil(turns.rounds)), (5, 1));
    }

    #[test]
    fn notes_written_by_hand_are_kept() {
        let scratch = Scratch::new("notes").unwrap();
        let file = scratch.path.join("RESULTS.md");
        assert_eq!(with_notes("# New\n".into(), &file), "# New\n");
        std::fs::write(&file, "# Old\n\n## Notes\n\nMemory decides.\n").unwrap();
        assert_eq!(with_notes("# New\n".into(), &file), "# New\n\n## Notes\n\nMemory decides.\n");
    }

    #[test]
    fn workloads_are_chosen_by_name_in_their_own_order() {
        assert_eq!(workloads::select("cpu", &[]).unwrap().len(), workloads::of("cpu").count());
        let chosen = workloads::select("cpu", &["softmax", "matmul_512"]).unwrap();
        assert_eq!(chosen.iter().map(|row| row.name).collect::<Vec<_>>(), ["matmul_512", "softmax"]);
        let error = workloads::select("cpu", &["matmul"]).unwrap_err();
        assert!(error.contains("`matmul`") && error.contains("matmul_512"), "{error}");
    }

    #[test]
    fn names_are_unique_and_peers_are_known() {
        for comparison in [&CPU, &GPU, &VULKAN, &MODELS] {
            let rows: Vec<&Row> = workloads::of(comparison.name).collect();
            for (place, row) in rows.iter().enumerate() {
                assert!(rows[..place].iter().all(|other| other.name != row.name), "{}", row.name);
                let is_first_step = row.kind == Kind::FirstStep;
                assert!(!is_first_step || rows.iter().any(|other| other.name == row.operation));
                assert!(
                    is_first_step || comparison.peers.iter().any(|peer| row.has(peer.name)),
                    "{}",
                    row.name
                );
            }
        }
    }
}
