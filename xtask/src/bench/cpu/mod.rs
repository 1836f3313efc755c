//! `cargo xtask bench cpu`: Kiln and other frameworks on the same workloads, interleaved in one run.

mod child;
mod measure;
mod peers;
mod report;
mod rows;
mod weights;

use std::path::Path;
use std::process::ExitCode;

use super::{Scratch, machine, write};
use crate::args::{Accepts, Args};
use crate::workspace::Workspace;
use measure::Player;
use peers::{FRAMEWORKS, Peer};
use report::Report;
use rows::{Kind, Row};

const ACCEPTS: Accepts = Accepts {
    flags: &[],
    options: &["--peers", "--only", "--threads", "--repeats", "--kiln-backend", "--record"],
    words: false,
};

/// The folder of the programs, a workspace of its own.
const FOLDER: &str = "bench";
/// From here on a recorded page is written by hand, and kept.
const NOTES: &str = "\n## Notes\n";

const LEAST_REPEATS: usize = 7;
const DEFAULT_REPEATS: usize = 15;
const MOST_REPEATS: usize = 10_000;
const MOST_THREADS: usize = 1024;

/// What was asked for.
struct Options<'a> {
    frameworks: Vec<&'a str>,
    rows: Vec<&'static Row>,
    threads: usize,
    repeats: usize,
    backend: Option<&'a str>,
    record: Option<&'a Path>,
}

/// `cargo xtask bench cpu`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let options = Options::read(&args)?;
    let bench = Workspace::load()?.root.join(FOLDER);
    let kiln = peers::kiln(&bench, options.threads, options.backend)?;
    let (others, skipped) = peers::others(&bench, options.threads, &options.frameworks);
    let mut report =
        Report { threads: options.threads, limit: None, peers: Vec::new(), skipped, results: Vec::new() };
    measure_all(&options, &kiln, &others, &mut report)?;
    print!("{}", report.text());
    if let Some(file) = options.record {
        write(file, &with_notes(report.page(&machine()), file))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts everybody, and measures the rows one by one.
fn measure_all(options: &Options, kiln: &Peer, others: &[Peer], report: &mut Report) -> Result<(), String> {
    let mut players = vec![Player::start(kiln)?];
    for peer in others {
        match Player::start(peer) {
            Ok(player) => players.push(player),
            Err(reason) => report.skipped.push(peers::Skipped { name: peer.name, reason }),
        }
    }
    report.peers = players.iter().map(|player| (player.peer.name, player.version.clone())).collect();
    for (peer, version) in &report.peers {
        eprintln!("{peer} {version}");
    }
    report.limit = players[0].limit();
    let scratch = Scratch::new("cpu")?;
    for row in &options.rows {
        let file = scratch.path.join("weights.safetensors");
        if row.kind == Kind::Load {
            weights::write(&file)?;
        }
        let path = if row.kind == Kind::Load { file.to_string_lossy() } else { "".into() };
        let outcomes = measure::measure(row, &mut players, options.repeats, &path);
        print!("{}", report.json_lines(row, &outcomes));
        report.results.push((row, outcomes));
    }
    Ok(())
}

impl<'a> Options<'a> {
    fn read(args: &'a Args) -> Result<Options<'a>, String> {
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Options {
            frameworks: frameworks(&words_of(args, "--peers"))?,
            rows: rows::select(&words_of(args, "--only"))?,
            threads: number_of(args, "--threads", available, 1, MOST_THREADS)?,
            repeats: number_of(args, "--repeats", DEFAULT_REPEATS, LEAST_REPEATS, MOST_REPEATS)?,
            backend: args.last("--kiln-backend"),
            record: args.last("--record").map(Path::new),
        })
    }
}

/// All values of an option, which may be repeated and may hold several with commas between them.
fn words_of<'a>(args: &'a Args, option: &str) -> Vec<&'a str> {
    args.all(option).into_iter().flat_map(|value| value.split(',')).filter(|word| !word.is_empty()).collect()
}

/// The frameworks with these names; all if none is given, none if `none` is.
fn frameworks<'a>(names: &[&'a str]) -> Result<Vec<&'a str>, String> {
    match names {
        [] => Ok(FRAMEWORKS.to_vec()),
        ["none"] => Ok(Vec::new()),
        names => match names.iter().find(|name| !FRAMEWORKS.contains(name)) {
            Some(unknown) => Err(format!(
                "--peers: `{unknown}` is not known\n  hint: any of {}, or none",
                FRAMEWORKS.join(", ")
            )),
            None => Ok(names.to_vec()),
        },
    }
}

fn number_of(args: &Args, option: &str, default: usize, least: usize, most: usize) -> Result<usize, String> {
    let Some(word) = args.last(option) else { return Ok(default) };
    let number = word.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{option}: `{word}` is not a number from {least} to {most}"))
}

/// The page with the notes that somebody wrote under the one in the file.
fn with_notes(page: String, file: &Path) -> String {
    let old = std::fs::read_to_string(file).unwrap_or_default();
    match old.find(NOTES) {
        Some(start) => page + &old[start..],
        None => page,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(words: &[&str], see: impl Fn(Options) -> T) -> Result<T, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let args = Args::parse(&words, &ACCEPTS)?;
        Options::read(&args).map(see)
    }

    #[test]
    fn options_have_defaults() {
        let see = |options: Options| (options.frameworks.len(), options.rows.len(), options.repeats);
        assert_eq!(read(&[], see), Ok((3, 28, DEFAULT_REPEATS)));
    }

    #[test]
    fn lists_are_split_at_commas_and_may_be_repeated() {
        let words =
            ["--peers", "torch,candle", "--only=softmax", "--only", "sum_all,cumsum", "--threads", "3"];
        let see = |options: Options| (options.frameworks.join(" "), options.rows.len(), options.threads);
        assert_eq!(read(&words, see), Ok(("torch candle".to_owned(), 3, 3)));
        assert_eq!(read(&["--peers", "none"], |options| options.frameworks.len()), Ok(0));
    }

    #[test]
    fn mistakes_say_what_is_possible() {
        let problem = |words: &[&str]| read(words, |_| ()).unwrap_err();
        assert!(problem(&["--peers", "jax"]).contains("any of torch, burn, candle, or none"));
        assert!(problem(&["--only", "conv"]).contains("conv3x3"));
        assert!(problem(&["--repeats", "3"]).contains("from 7"));
        assert!(problem(&["--threads", "0"]).contains("from 1"));
        assert!(problem(&["--threads", "two"]).contains("`two`"));
        assert!(problem(&["softmax"]).contains("softmax"));
    }

    #[test]
    fn notes_written_by_hand_are_kept() {
        let scratch = Scratch::new("notes").unwrap();
        let file = scratch.path.join("RESULTS.md");
        assert_eq!(with_notes("# New\n".into(), &file), "# New\n");
        std::fs::write(&file, "# Old\n\n## Notes\n\nMemory decides.\n").unwrap();
        assert_eq!(with_notes("# New\n".into(), &file), "# New\n\n## Notes\n\nMemory decides.\n");
    }
}
