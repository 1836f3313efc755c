//! `cargo xtask bench cpu|gpu --against PATH`: compares Kiln's program with one of another tree, interleaved on the
//! same workloads.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench_protocol::quantile;
use bench_protocol::workloads::Row;

use super::geometric_mean;
use super::measure::{Outcome, Player, Turns, start_all};
use super::peer::Peer;
use super::report::{Report, time};
use crate::table;

/// Turns of each program on each workload.
const ROUNDS: usize = 9;
/// Turns of each program in the second measurement of workloads that seem slower.
const AGAIN: usize = 40;
/// Milliseconds of a turn: longer than in comparisons with other frameworks, to detect small differences.
const TURN: f64 = 40.0;
/// A workload is slower if the median ratio is less than this.
const LEAST: f64 = 0.98;

/// The prebuilt program of another tree; `name` is its package name, with features.
pub(super) fn program(path: &Path, name: &str) -> Result<PathBuf, String> {
    let found = std::path::absolute(path).ok().filter(|path| path.is_file());
    found.ok_or_else(|| {
        let built = format!("`cargo build --release -p {name}` in the folder bench of the other tree");
        format!("--against: no program at {}\n  hint: a built {name}: {built}", path.display())
    })
}

/// Compares both programs, prints the table, and fails if a workload is slower or failed.
///
/// `measure` measures a workload; a turn has at most `repeats` repeats.
pub(super) fn run(
    kiln: &Peer,
    before: Peer,
    rows: &[&'static Row],
    repeats: usize,
    mut report: Report,
    mut measure: impl FnMut(&Row, &mut [Player], Turns) -> Result<Vec<Outcome>, String>,
) -> Result<ExitCode, String> {
    let others = [before];
    let mut players = start_all(kiln, &others, &mut report)?;
    if let Some(skipped) = report.skipped.first() {
        return Err(format!("--against: {}", skipped.reason));
    }
    compare(rows, &mut report, |row, rounds| measure(row, &mut players, in_turns(rounds, repeats)))?;
    print!("{}", text(&report));
    let good = slower(&report).is_empty() && report.failures().is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_turns(rounds: usize, repeats: usize) -> Turns {
    Turns { rounds, back_and_forth: true, repeats, milliseconds: TURN }
}

/// Measures all rows with [`ROUNDS`] turns. Measures slower rows again with [`AGAIN`] turns, which replace the first
/// results.
fn compare(
    rows: &[&'static Row],
    report: &mut Report,
    mut measure: impl FnMut(&Row, usize) -> Result<Vec<Outcome>, String>,
) -> Result<(), String> {
    for &row in rows {
        report.add(row, measure(row, ROUNDS)?);
    }
    for place in 0..rows.len() {
        let (row, first) = &report.results[place];
        if Change::of(first).is_some_and(|change| change.is_slower()) {
            let row = *row;
            eprintln!("{} seems slower, again with {AGAIN} turns", row.name);
            let outcomes = measure(row, AGAIN)?;
            print!("{}", report.json_lines(row, &outcomes));
            report.results[place].1 = outcomes;
        }
    }
    Ok(())
}

/// The ratio of the times before and now, per round: more than 1 means faster now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// One ratio per round, sorted.
    ratios: Vec<f64>,
}

impl Change {
    /// The change between the outcomes of Kiln now and before; `None` where one of them has no times.
    fn of(outcomes: &[Outcome]) -> Option<Change> {
        let [now, before] = outcomes else { return None };
        Change::between(before, now)
    }

    /// The change between two outcomes of the same rounds; `None` where one of them has no times.
    pub(super) fn between(before: &Outcome, now: &Outcome) -> Option<Change> {
        let (now, before) = (&now.measured()?.turns, &before.measured()?.turns);
        let mut ratios: Vec<f64> = before.iter().zip(now).map(|(before, now)| before / now).collect();
        ratios.sort_by(f64::total_cmp);
        (!ratios.is_empty()).then_some(Change { ratios })
    }

    /// A quantile of the ratios, with linear interpolation.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.ratios, share).unwrap_or(f64::NAN)
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The median and the quartiles, for a table.
    pub(super) fn cells(&self) -> [String; 2] {
        let quartiles = format!("{:.3} to {:.3}", self.quantile(0.25), self.quantile(0.75));
        [format!("{:.3}", self.median()), quartiles]
    }

    fn is_slower(&self) -> bool {
        self.median() < LEAST
    }
}

/// The names of the workloads that are slower now.
fn slower(report: &Report) -> Vec<&'static str> {
    let is_slower = |outcomes: &[Outcome]| Change::of(outcomes).is_some_and(|change| change.is_slower());
    report.results.iter().filter(|(_, outcomes)| is_slower(outcomes)).map(|(row, _)| row.name).collect()
}

fn cells(row: &Row, outcomes: &[Outcome]) -> Vec<String> {
    let mut cells = vec![row.name.to_owned()];
    cells.extend(outcomes.iter().rev().map(|outcome| time(row, outcome)));
    match Change::of(outcomes) {
        Some(change) => {
            cells.extend(change.cells());
            cells.push(change.ratios.len().to_string());
            cells.push(if change.is_slower() { "slower".to_owned() } else { String::new() });
        }
        None => {
            let unknown = |outcome: Option<&Outcome>| matches!(outcome, Some(Outcome::Unsupported(_)));
            let verdict = match (unknown(outcomes.get(1)), unknown(outcomes.first())) {
                (true, true) => "unknown to both",
                (true, false) => "unknown before",
                (false, true) => "unknown now",
                (false, false) => "failed",
            };
            cells.extend(["-", "-", "-", verdict].map(str::to_owned));
        }
    }
    cells
}

/// The table with the failures under it; the last line is the geometric mean of the ratios.
fn text(report: &Report) -> String {
    let mut rows = vec![table::row(["workload", "before", "now", "before/now", "quartiles", "turns", ""])];
    rows.extend(report.results.iter().map(|(row, outcomes)| cells(row, outcomes)));
    let mut text = format!(
        "\nMedian milliseconds on {}; before/now: the median ratio of the turns, more than 1 is faster now.\n\n{}\n",
        report.place,
        table::plain(&rows)
    );
    for failure in report.failures() {
        text += &format!("Failed: {failure}.\n");
    }
    let slower = slower(report);
    if !slower.is_empty() {
        text += &format!("Below {LEAST} in {AGAIN} turns: {}.\n", slower.join(", "));
    }
    let medians = report.results.iter().filter_map(|(_, outcomes)| Some(Change::of(outcomes)?.median()));
    let mean = match geometric_mean(&medians.collect::<Vec<f64>>()) {
        None => "none, both programs have no workload in common".to_owned(),
        Some(mean) => format!("{mean:.3}"),
    };
    text + &format!("geo-mean before/now: {mean}\n")
}

#[cfg(test)]
mod tests {
    use super::super::measure::{self, Measured};
    use super::*;
    use bench_protocol::workloads::select;

    fn turns(of: &[f64]) -> Outcome {
        Outcome::Measured(Measured { times: of.to_vec(), turns: of.to_vec(), ..Measured::default() })
    }

    fn unknown() -> Outcome {
        Outcome::Unsupported("no workload is called so".into())
    }

    fn rows(names: &[&str]) -> Vec<&'static Row> {
        names.iter().map(|name| select("cpu", &[name]).unwrap()[0]).collect()
    }

    fn report() -> Report {
        Report {
            kind: "CPU",
            place: "2 threads".into(),
            threads: 2,
            limit: None,
            bandwidth: None,
            peers: vec![("kiln", "0.2".into()), ("before", "0.1".into())],
            skipped: Vec::new(),
            results: Vec::new(),
        }
    }

    #[test]
    fn ratios_compare_runs_of_one_round() {
        // The machine is slower by half in the second round; the ratios are unaffected.
        let change = Change::of(&[turns(&[2.0, 3.0, 2.0]), turns(&[1.8, 2.7, 1.8])]).unwrap();
        assert!((change.median() - 0.9).abs() < 1e-12 && change.is_slower(), "{change:?}");
        assert_eq!(Change::of(&[turns(&[1.0]), unknown()]), None);
        let change = Change { ratios: vec![0.9, 1.0, 1.1, 1.4] };
        assert!((change.median() - 1.05).abs() < 1e-12);
        assert!((change.quantile(0.25) - 0.975).abs() < 1e-12);
        assert_eq!((change.quantile(0.0), change.quantile(1.0)), (0.9, 1.4));
    }

    #[test]
    fn slower_rows_are_measured_again_alone() {
        let mut report = report();
        let mut asked = Vec::new();
        compare(&rows(&["matmul_512", "softmax", "maxpool"]), &mut report, |row, rounds| {
            asked.push((row.name.to_owned(), rounds));
            Ok(match (row.name, rounds) {
                ("matmul_512", _) => vec![turns(&[1.0; 9]), turns(&[1.2; 9])],
                // Slower only in the first measurement, and slower in both.
                ("softmax", ROUNDS) => vec![turns(&[1.0; 9]), turns(&[0.9; 9])],
                ("softmax", _) => vec![turns(&[1.0; 40]), turns(&[0.99; 40])],
                _ => vec![turns(&vec![1.0; rounds]), turns(&vec![0.97; rounds])],
            })
        })
        .unwrap();
        let expected = [("matmul_512", 9), ("softmax", 9), ("maxpool", 9), ("softmax", 40), ("maxpool", 40)];
        assert_eq!(asked, expected.map(|(name, rounds)| (name.to_owned(), rounds)));
        assert_eq!(slower(&report), ["maxpool"]);
        let text = text(&report);
        let words = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("matmul_512"), ["matmul_512", "1.2", "1", "1.200", "1.200", "to", "1.200", "9"]);
        assert_eq!(words("softmax")[3..], ["0.990", "0.990", "to", "0.990", "40"]);
        assert_eq!(words("maxpool").last().unwrap(), "slower");
        assert!(text.contains("Below 0.98 in 40 turns: maxpool."), "{text}");
        // The third root of 1.2 * 0.99 * 0.97.
        assert!(text.ends_with("geo-mean before/now: 1.048\n"), "{text}");
    }

    #[test]
    fn rows_of_only_one_program_are_listed() {
        let mut report = report();
        let failed = || Outcome::Failed("gone".into());
        let results = [
            ("softmax", vec![turns(&[1.0]), unknown()]),
            ("maxpool", vec![unknown(), turns(&[1.0])]),
            ("matmul_512", vec![failed(), turns(&[1.0])]),
        ];
        for (name, outcomes) in results {
            report.results.push((rows(&[name])[0], outcomes));
        }
        let text = text(&report);
        assert!(text.contains("unknown before") && text.contains("unknown now"), "{text}");
        assert!(text.contains("Failed: kiln on matmul_512: gone."), "{text}");
        assert!(slower(&report).is_empty());
        assert!(text.ends_with("geo-mean before/now: none, both programs have no workload in common\n"));
    }

    /// A program that answers like bench-kiln, with a fixed time per repeat in milliseconds.
    #[cfg(unix)]
    fn answering(name: &'static str, ms: f64) -> Peer {
        let script = format!(
            r#"while read word rest; do case "$word" in
                hello) echo 'ok {{"version": "1"}}' ;;
                run) echo 'ok {{"ms": [9, {ms}, {ms}, {ms}], "values": [1, 1, 1, 1], "faults": 0}}' ;;
                *) echo 'ok {{}}' ;;
            esac; done"#
        );
        Peer {
            name,
            measures_memory: false,
            program: "sh".into(),
            arguments: vec!["-c".into(), script],
            environment: Vec::new(),
            folder: ".".into(),
        }
    }

    #[test]
    #[cfg(unix)]
    fn two_programs_take_turns() {
        let (kiln, others) = (answering("kiln", 2.0), [answering("before", 1.0)]);
        let mut report = report();
        let mut players: Vec<Player> = start_all(&kiln, &others, &mut report).unwrap();
        let outcomes = measure::measure(rows(&["softmax"])[0], &mut players, in_turns(3, 8), "");
        let change = Change::of(&outcomes).unwrap();
        assert_eq!(change, Change { ratios: vec![0.5; 3] });
    }

    #[test]
    fn a_missing_program_is_named() {
        let problem = program(Path::new("no/bench-gpu"), "bench-gpu").unwrap_err();
        assert!(problem.contains("no/bench-gpu") && problem.contains("-p bench-gpu"), "{problem}");
    }
}
