//! `cargo xtask bench vulkan`: Kiln through Vulkan, Kiln through CUDA and Burn through Vulkan on the same workloads on one
//! GPU, interleaved in one run.
//!
//! `--pack` makes a folder of all programs for a machine without Rust, and `--programs` names it there.

mod rows;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::gpu::{device, first_step};
use super::measure::{self, Outcome, Turns, start_all};
use super::peer::{Peer, Skipped};
use super::programs::{self, PACK, PROGRAMS, Programs};
use super::report::Report;
use super::row::select;
use super::{LEAST_REPEATS, Scratch, frameworks, machine, number_of, repeats, with_notes, words_of, write};
use crate::args::{Accepts, Args};
use crate::process::at;
use rows::{BURN, CUDA, FIRST_STEP_OF, FIRST_STEPS, ROWS};

const ACCEPTS: Accepts = Accepts {
    flags: &["--no-first-step", PACK],
    options: &["--peers", "--only", "--rounds", "--repeats", "--record", PROGRAMS],
    words: false,
};

/// Kiln through Vulkan.
const KILN: &str = "kiln-vulkan";
const PEERS: &[&str] = &[CUDA, BURN];

const DEFAULT_ROUNDS: usize = 9;
const MOST_ROUNDS: usize = 1000;
/// Milliseconds of a turn.
const TURN: f64 = 40.0;

/// `cargo xtask bench vulkan`: fails if a workload fails. A missed target is told.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let rows = select(ROWS, &words_of(&args, "--only"))?;
    let wanted = frameworks(&words_of(&args, "--peers"), PEERS)?;
    let rounds = number_of(&args, "--rounds", DEFAULT_ROUNDS, 1, MOST_ROUNDS)?;
    let repeats = repeats(&args, LEAST_REPEATS)?;
    let programs = Programs::of(&args)?;
    if args.has(PACK) {
        programs::announce(&programs::pack(&programs)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let scratch = Scratch::new("vulkan")?;
    let contestants = Contestants::find(&programs, &wanted)?;
    let (kiln, others) = contestants.peers(&scratch.path.join("run"))?;
    let mut report = Report {
        kind: "Vulkan",
        place: device(),
        threads: 1,
        limit: None,
        bandwidth: None,
        peers: Vec::new(),
        skipped: contestants.skipped,
        results: Vec::new(),
    };
    let mut players = start_all(&kiln, &others, &mut report)?;
    let turns = Turns { rounds, back_and_forth: true, repeats, milliseconds: TURN };
    for row in rows {
        let outcomes = measure::measure(row, &mut players, turns, "");
        print!("{}", report.json_lines(row, &outcomes));
        report.results.push((row, outcomes));
    }
    let names: Vec<&'static str> = players.iter().map(|player| player.peer.name).collect();
    drop(players);
    if !args.has("--no-first-step") {
        first_steps(&contestants.programs, &names, &scratch.path, &mut report)?;
    }
    print!("{}", table::text(&report));
    if let Some(file) = args.last("--record").map(Path::new) {
        write(file, &with_notes(table::page(&report, &machine()), file))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A name, a program and its arguments.
type Program = (&'static str, PathBuf, &'static [&'static str]);

const ON_VULKAN: &[&str] = &["--device", "vulkan"];
const ON_CUDA: &[&str] = &["--device", "cuda"];
const NOTHING: &[&str] = &[];

/// The programs that take part, Kiln through Vulkan first, and those that cannot.
struct Contestants {
    programs: Vec<Program>,
    skipped: Vec<Skipped>,
}

impl Contestants {
    fn find(programs: &Programs, wanted: &[&str]) -> Result<Contestants, String> {
        let kiln = programs.kiln()?;
        let first: Program = (KILN, kiln.clone(), ON_VULKAN);
        let (mut found, mut skipped) = (vec![first], Vec::new());
        if wanted.contains(&CUDA) {
            found.push((CUDA, kiln, ON_CUDA));
        }
        if wanted.contains(&BURN) {
            match programs.burn() {
                Ok(program) => found.push((BURN, program, NOTHING)),
                Err(reason) => skipped.push(Skipped { name: BURN, reason }),
            }
        }
        Ok(Contestants { programs: found, skipped })
    }

    /// Kiln through Vulkan, and the others. Each has caches of its own below a folder.
    fn peers(&self, caches: &Path) -> Result<(Peer, Vec<Peer>), String> {
        let peers = self.programs.iter().map(|program| peer(program, &caches.join(program.0)));
        let mut peers = peers.collect::<Result<Vec<Peer>, String>>()?;
        let kiln = peers.remove(0);
        Ok((kiln, peers))
    }
}

/// A peer that runs in a folder, with all caches of kernels in it: those of the frameworks and of the drivers.
fn peer((name, program, arguments): &Program, folder: &Path) -> Result<Peer, String> {
    std::fs::create_dir_all(folder).map_err(at(folder))?;
    let variables = [
        "KILN_CACHE_DIR",
        "XDG_CACHE_HOME",
        "CUDA_CACHE_PATH",
        "__GL_SHADER_DISK_CACHE_PATH",
        "MESA_SHADER_CACHE_DIR",
    ];
    let place = folder.to_string_lossy();
    Ok(Peer {
        name,
        measures_memory: false,
        program: program.clone(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: variables.into_iter().map(|variable| (variable, place.clone().into_owned())).collect(),
        folder: folder.to_owned(),
    })
}

/// Measures the first steps of new processes of all that took part, with empty caches, and then with those caches.
fn first_steps(
    programs: &[Program],
    names: &[&'static str],
    scratch: &Path,
    report: &mut Report,
) -> Result<(), String> {
    let caches = scratch.join("first");
    let present = programs.iter().filter(|(name, ..)| names.contains(name));
    let peers = present.map(|program| peer(program, &caches.join(program.0)));
    let peers = peers.collect::<Result<Vec<Peer>, String>>()?;
    for row in FIRST_STEPS {
        let outcomes: Vec<Outcome> = peers.iter().map(|peer| first_step(peer, FIRST_STEP_OF)).collect();
        print!("{}", report.json_lines(row, &outcomes));
        report.results.push((row, outcomes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    #[test]
    fn errors_list_the_valid_values() {
        let problem = |words: &[&str]| run(&owned(words)).unwrap_err();
        assert!(problem(&["--only", "matmul"]).contains("matmul_f32_2048"));
        assert!(problem(&["--peers", "torch"]).contains("kiln-cuda"));
        assert!(problem(&["--programs", "/nowhere"]).contains("/nowhere"));
    }

    #[test]
    fn every_cache_is_in_the_folder_of_a_peer() {
        let folder = std::env::temp_dir().join(format!("kiln-xtask-caches-{}", std::process::id()));
        let peer = peer(&(KILN, "bench-gpu".into(), ON_VULKAN), &folder).unwrap();
        assert!(folder.is_dir());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(peer.arguments, ["--device", "vulkan"]);
        assert!(peer.environment.iter().all(|(_, value)| Path::new(value) == folder));
        assert!(peer.environment.iter().any(|(name, _)| *name == "KILN_CACHE_DIR"));
    }
}
