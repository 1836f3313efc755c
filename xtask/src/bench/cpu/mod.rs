//! `cargo xtask bench cpu`: Kiln and other frameworks on the same workloads, interleaved in one run.

mod peers;
mod rows;
pub(super) mod weights;

use std::path::Path;
use std::process::ExitCode;

use super::against;
use super::measure::{self, Outcome, Player, Turns, start_all};
use super::peer::{Peer, Skipped};
use super::report::Report;
use super::row::{Kind, Row, select};
use super::{DEFAULT_REPEATS, Scratch, frameworks, machine, number_of, repeats, with_notes, words_of, write};
use crate::args::{Accepts, Args};
use crate::workspace::Workspace;
use peers::FRAMEWORKS;
pub(crate) use rows::ROWS;

const ACCEPTS: Accepts = Accepts {
    flags: &[],
    options: &["--peers", "--only", "--threads", "--repeats", "--kiln-backend", "--record", "--against"],
    words: false,
};

/// The folder of the benchmark programs, a separate workspace.
const FOLDER: &str = "bench";

const MOST_THREADS: usize = 1024;

/// The parsed options.
struct Options<'a> {
    frameworks: Vec<&'a str>,
    rows: Vec<&'static Row>,
    threads: usize,
    repeats: usize,
    backend: Option<&'a str>,
    record: Option<&'a Path>,
    against: Option<&'a Path>,
}

/// `cargo xtask bench cpu`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let options = Options::read(&args)?;
    let bench = Workspace::load()?.root.join(FOLDER);
    if let Some(program) = options.against {
        // First, because building takes minutes.
        let before = peers::before(program, &bench, options.threads, options.backend)?;
        let kiln = peers::kiln(&bench, options.threads, options.backend)?;
        let scratch = Scratch::new("against")?;
        let report = report(&options, Vec::new());
        return against::run(&kiln, before, &options.rows, options.repeats, report, |row, players, turns| {
            measure_row(row, players, turns, &scratch)
        });
    }
    let kiln = peers::kiln(&bench, options.threads, options.backend)?;
    let (others, skipped) = peers::others(&bench, options.threads, &options.frameworks);
    let mut report = report(&options, skipped);
    measure_all(&options, &kiln, &others, &mut report)?;
    print!("{}", report.text());
    if let Some(file) = options.record {
        write(file, &with_notes(report.page(&machine()), file))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An empty report.
fn report(options: &Options, skipped: Vec<Skipped>) -> Report {
    Report {
        kind: "CPU",
        place: format!("{} threads", options.threads),
        threads: options.threads,
        limit: None,
        bandwidth: None,
        peers: Vec::new(),
        skipped,
        results: Vec::new(),
    }
}

/// Starts all peers and measures the rows one by one.
fn measure_all(options: &Options, kiln: &Peer, others: &[Peer], report: &mut Report) -> Result<(), String> {
    let mut players = start_all(kiln, others, report)?;
    report.limit = players[0].limit();
    let scratch = Scratch::new("cpu")?;
    for row in &options.rows {
        let outcomes = measure_row(row, &mut players, Turns::of_frameworks(options.repeats), &scratch)?;
        print!("{}", report.json_lines(row, &outcomes));
        report.results.push((row, outcomes));
    }
    Ok(())
}

/// Measures one row, with the weight file if needed.
fn measure_row(
    row: &Row,
    players: &mut [Player],
    turns: Turns,
    scratch: &Scratch,
) -> Result<Vec<Outcome>, String> {
    let file = scratch.path.join("weights.safetensors");
    if row.kind == Kind::Load {
        weights::write(&file)?;
    }
    let path = if row.kind == Kind::Load { file.to_string_lossy() } else { "".into() };
    Ok(measure::measure(row, players, turns, &path))
}

impl<'a> Options<'a> {
    fn read(args: &'a Args) -> Result<Options<'a>, String> {
        let against = args.last("--against").map(Path::new);
        if let Some(other) = ["--peers", "--record"].into_iter().find(|option| args.last(option).is_some())
            && against.is_some()
        {
            return Err(format!(
                "{other} beside --against\n  hint: --against compares two programs of Kiln, without other frameworks"
            ));
        }
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Options {
            frameworks: frameworks(&words_of(args, "--peers"), FRAMEWORKS)?,
            rows: select(ROWS, &words_of(args, "--only"))?,
            threads: number_of(args, "--threads", available, 1, MOST_THREADS)?,
            repeats: repeats(args, DEFAULT_REPEATS)?,
            backend: args.last("--kiln-backend"),
            record: args.last("--record").map(Path::new),
            against,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    fn read<T>(words: &[&str], see: impl Fn(Options) -> T) -> Result<T, String> {
        let args = Args::parse(&owned(words), &ACCEPTS)?;
        Options::read(&args).map(see)
    }

    #[test]
    fn options_have_defaults() {
        let see = |options: Options| (options.frameworks.len(), options.rows.len(), options.repeats);
        assert_eq!(read(&[], see), Ok((3, ROWS.len(), DEFAULT_REPEATS)));
    }

    #[test]
    fn lists_are_split_at_commas_and_may_be_repeated() {
        let words =
            ["--peers", "torch,candle", "--only=softmax", "--only", "sum_all,cumsum", "--threads", "3"];
        let see = |options: Options| (options.frameworks.join(" "), options.rows.len(), options.threads);
        assert_eq!(read(&words, see), Ok(("torch candle".to_owned(), 3, 3)));
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
    fn notes_written_by_hand_are_kept() {
        let scratch = Scratch::new("notes").unwrap();
        let file = scratch.path.join("RESULTS.md");
        assert_eq!(with_notes("# New\n".into(), &file), "# New\n");
        std::fs::write(&file, "# Old\n\n## Notes\n\nMemory decides.\n").unwrap();
        assert_eq!(with_notes("# New\n".into(), &file), "# New\n\n## Notes\n\nMemory decides.\n");
    }
}
