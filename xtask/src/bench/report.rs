//! Formats of measurements: lines of JSON, a table, a page.

use bench_protocol::workloads::{Kind, Must, Row};
use serde_json::{Value, json};

use super::measure::{Measured, Outcome};
use super::peer::Skipped;
use super::{geometric_mean, median, number};
use crate::table;

/// A statistic of a peer's times on a workload.
type Statistic = fn(&Measured) -> f64;

/// The relative difference of the results of models, above which it is told.
const MAX_DIFFERENCE: f64 = 1e-3;

/// All measurements. Outcomes are in the order of `peers`; Kiln is first.
pub(crate) struct Report {
    /// `CPU`, or `GPU`.
    pub(crate) kind: &'static str,
    /// The configuration: `2 threads`.
    pub(crate) place: String,
    pub(crate) threads: usize,
    /// Peak GFLOP/s of the machine.
    pub(crate) limit: Option<f64>,
    /// Peak memory bandwidth in GB/s, if known.
    pub(crate) bandwidth: Option<f64>,
    /// Names and versions.
    pub(crate) peers: Vec<(&'static str, String)>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) results: Vec<(&'static Row, Vec<Outcome>)>,
}

impl Report {
    /// Adds the results of one workload, and prints their lines of JSON.
    pub(crate) fn add(&mut self, row: &'static Row, outcomes: Vec<Outcome>) {
        print!("{}", self.json_lines(row, &outcomes));
        self.results.push((row, outcomes));
    }

    /// The lines of JSON of the results of one workload.
    pub(crate) fn json_lines(&self, row: &Row, outcomes: &[Outcome]) -> String {
        let line = |(outcome, (peer, _)): (&Outcome, &(&'static str, String))| {
            let value = match outcome {
                Outcome::Measured(measured) => json!({
                    "peer": peer, "workload": row.name, "threads": self.threads,
                    "median_ms": rounded(measured.median_ms()), "min_ms": rounded(measured.min_ms()),
                    "extra": self.extra(row, measured),
                }),
                Outcome::Unsupported(reason) => {
                    json!({"peer": peer, "workload": row.name, "threads": self.threads, "unsupported": reason})
                }
                Outcome::Failed(reason) => {
                    json!({"peer": peer, "workload": row.name, "threads": self.threads, "error": reason})
                }
            };
            format!("{value}\n")
        };
        outcomes.iter().zip(&self.peers).map(line).collect()
    }

    fn extra(&self, row: &Row, measured: &Measured) -> Value {
        let seconds = measured.median_ms() / 1e3;
        let mut extra = measured.extra.clone();
        let mut put = |name: &str, value: f64| extra.insert(name.to_owned(), json!(rounded(value)));
        put("repeats", measured.times.len() as f64);
        put("faults", measured.faults());
        if row.megaflops > 0.0 {
            put("gflops", row.megaflops / 1e3 / seconds);
        }
        if row.megabytes > 0.0 {
            put("gb_per_s", row.megabytes / 1e3 / seconds);
        }
        if let Some((items, _)) = row.items {
            put("per_second", items / seconds);
        }
        if let Some(share) = self.of_limit(row, measured) {
            put("of_limit", share);
        }
        if row.kind == Kind::Overhead {
            put("ns", measured.median_ms() * 1e6);
        }
        Value::Object(extra)
    }

    /// The fraction of the machine's peak throughput or bandwidth.
    fn of_limit(&self, row: &Row, measured: &Measured) -> Option<f64> {
        let share = |millions: f64, limit: Option<f64>| Some(millions / measured.median_ms() / limit?);
        match row.kind {
            Kind::Contraction => share(row.megaflops, self.limit),
            Kind::Plain if row.megabytes > 0.0 => share(row.megabytes, self.bandwidth),
            Kind::Plain | Kind::Training | Kind::Model | Kind::Overhead | Kind::Load | Kind::FirstStep => {
                None
            }
        }
    }

    /// The time of a peer divided by Kiln's.
    fn ratio_to(&self, name: &str, outcomes: &[Outcome]) -> Option<f64> {
        let kiln = outcomes.first()?.measured()?;
        let place = self.peers.iter().position(|(peer, _)| *peer == name)?;
        Some(outcomes[place].measured()?.median_ms() / kiln.median_ms())
    }

    /// The best peer of a row and its time.
    fn best(&self, outcomes: &[Outcome], of: Statistic) -> Option<(&'static str, f64)> {
        let others = self.peers.iter().zip(outcomes).skip(1);
        let measured = others.filter_map(|((peer, _), outcome)| Some((*peer, of(outcome.measured()?))));
        measured.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// The median of the ratios of turns, which runs side by side, of the best peer and Kiln. Models have few and long
    /// repeats, so that the machine changes between them. Other workloads: the ratio of the medians.
    fn median_ratio(&self, row: &Row, outcomes: &[Outcome]) -> Option<f64> {
        let by_medians = self.ratio(outcomes, Measured::median_ms)?;
        if row.kind != Kind::Model {
            return Some(by_medians);
        }
        let (best, _) = self.best(outcomes, Measured::median_ms)?;
        let place = self.peers.iter().position(|(peer, _)| *peer == best)?;
        let (kiln, peer) = (&outcomes.first()?.measured()?.turns, &outcomes[place].measured()?.turns);
        let ratios: Vec<f64> = peer.iter().zip(kiln).map(|(peer, kiln)| peer / kiln).collect();
        Some(if ratios.is_empty() { by_medians } else { median(ratios) })
    }

    /// The time of the best peer divided by Kiln's; `None` if either is missing.
    fn ratio(&self, outcomes: &[Outcome], of: Statistic) -> Option<f64> {
        let kiln = outcomes.first()?.measured()?;
        Some(self.best(outcomes, of)?.1 / of(kiln))
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut head = vec!["workload".to_owned()];
        head.extend(self.peers.iter().map(|(peer, _)| (*peer).to_owned()));
        head.extend(
            ["best peer", "ratio", "must", "", "min ratio", "Kiln reaches", "of limit"].map(str::to_owned),
        );
        let mut rows = vec![head];
        rows.extend(self.results.iter().map(|(row, outcomes)| self.row(row, outcomes)));
        rows
    }

    fn row(&self, row: &Row, outcomes: &[Outcome]) -> Vec<String> {
        let kiln = outcomes.first().and_then(Outcome::measured);
        let ratio = self.median_ratio(row, outcomes);
        let shown = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let share = kiln.and_then(|kiln| self.of_limit(row, kiln));
        let mut cells = vec![row.name.to_owned()];
        cells.extend(outcomes.iter().map(|outcome| time(row, outcome)));
        cells.push(
            self.best(outcomes, Measured::median_ms).map_or("-".to_owned(), |(peer, _)| peer.to_owned()),
        );
        cells.push(shown(ratio));
        cells.push(must(row));
        cells.push(verdict(row, outcomes, ratio, |peer| self.ratio_to(peer, outcomes), "met").to_owned());
        cells.push(shown(self.ratio(outcomes, Measured::min_ms)));
        cells.push(kiln.map_or(String::new(), |kiln| reached(row, kiln)));
        cells.push(share.map_or(String::new(), |share| format!("{:.0} %", share * 100.0)));
        cells
    }

    /// The geometric mean of the ratios of all workloads.
    fn geometric_mean(&self, of: impl Fn(&Row, &[Outcome]) -> Option<f64>) -> Option<f64> {
        let ratios: Vec<f64> = self.results.iter().filter_map(|(row, outcomes)| of(row, outcomes)).collect();
        geometric_mean(&ratios)
    }

    /// The last line.
    fn closing_line(&self) -> String {
        let mean = self.geometric_mean(|row, outcomes| self.median_ratio(row, outcomes));
        let text =
            mean.map_or("none, no row has both Kiln and a peer".to_owned(), |mean| format!("{mean:.2}"));
        format!("geo-mean vs best peer: {text}\n")
    }

    /// The failures of peers on workloads that they support.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (row, outcomes) in &self.results {
            for ((peer, _), outcome) in self.peers.iter().zip(outcomes) {
                if let Outcome::Failed(reason) = outcome {
                    failures.push(format!("{peer} on {}: {reason}", row.name));
                }
            }
        }
        failures
    }

    /// Peak memory of training steps and models, a line each.
    fn memory_lines(&self) -> String {
        let mut text = String::new();
        for (row, outcomes) in
            self.results.iter().filter(|(row, _)| matches!(row.kind, Kind::Training | Kind::Model))
        {
            let peak = |((peer, _), outcome): (&(&'static str, String), &Outcome)| {
                let extra = &outcome.measured()?.extra;
                let (peak, idle) = (extra.get("peak_mib")?.as_f64()?, extra.get("idle_mib")?.as_f64()?);
                Some(format!("{peer} {} ({} before)", number(peak), number(idle)))
            };
            let peaks: Vec<String> = self.peers.iter().zip(outcomes).filter_map(peak).collect();
            if !peaks.is_empty() {
                text += &format!("Peak memory of {}, MiB: {}.\n", row.name, peaks.join(", "));
            }
        }
        text
    }

    /// The workloads on which a peer computes something else than Kiln, a line each.
    fn differences(&self) -> String {
        let mut text = String::new();
        for (row, outcomes) in &self.results {
            let values = self.peers.iter().zip(outcomes);
            let values: Vec<(&str, f64)> = values
                .filter_map(|((peer, _), outcome)| {
                    Some((*peer, outcome.measured()?.extra.get("value")?.as_f64()?))
                })
                .collect();
            let Some((_, expected)) = values.first().copied() else { continue };
            if values.iter().any(|(_, value)| (value - expected).abs() > MAX_DIFFERENCE * expected.abs()) {
                let told: Vec<String> =
                    values.iter().map(|(peer, value)| format!("{peer} {value}")).collect();
                text += &format!("Results of {} differ: {}.\n", row.name, told.join(", "));
            }
        }
        text
    }

    fn notes(&self) -> String {
        let mut text = self.memory_lines() + &self.differences();
        if let Some(limit) = self.limit {
            text += &format!("Limit of multiply-adds on {}: {} GFLOP/s.\n", self.place, number(limit));
        }
        if let Some(bandwidth) = self.bandwidth {
            text += &format!("Limit of memory: {} GB/s.\n", number(bandwidth));
        }
        if let Some(mean) = self.geometric_mean(|_, outcomes| self.ratio(outcomes, Measured::min_ms)) {
            text += &format!("Geo-mean of the least times, for a machine that is not quiet: {mean:.2}.\n");
        }
        text + &self.absences("Skipped")
    }

    /// The programs that do not take part, and the failures, a line each.
    pub(super) fn absences(&self, word: &str) -> String {
        let skipped = self.skipped.iter();
        let mut text: String =
            skipped.map(|skipped| format!("{word}: {}: {}.\n", skipped.name, skipped.reason)).collect();
        for failure in self.failures() {
            text += &format!("Failed: {failure}.\n");
        }
        text
    }

    /// The table for the terminal with its notes; the last line is the geometric mean.
    pub(crate) fn text(&self) -> String {
        format!(
            "\nMedian milliseconds on {}; ratio: best peer / Kiln.\n\n{}\n{}{}",
            self.place,
            table::plain(&self.rows()),
            self.notes(),
            self.closing_line()
        )
    }

    /// The report as a Markdown page.
    pub(crate) fn page(&self, machine: &str) -> String {
        let heading =
            format!("Median milliseconds on {}, smaller is better; ratio: best peer / Kiln.", self.place);
        let notes = self.notes().replace('\n', "\n\n");
        self.page_of(&heading, machine, self.rows(), &format!("{notes}\n{}", self.closing_line()))
    }

    /// A page with a table, to which the sizes of the workloads are added.
    pub(super) fn page_of(
        &self,
        heading: &str,
        machine: &str,
        mut rows: Vec<Vec<String>>,
        notes: &str,
    ) -> String {
        let shapes = ["shape"].into_iter().chain(self.results.iter().map(|(row, _)| row.shape));
        for (cells, shape) in rows.iter_mut().zip(shapes) {
            cells.insert(1, shape.to_owned());
        }
        let versions = self.peers.iter().map(|(peer, version)| format!("{peer} {version}"));
        format!(
            "# {} benchmarks\n\nMade by `cargo xtask bench {} --record`. {heading} [README.md](README.md) describes \
            the measurements.\n\n{machine}\nVersions: {}.\n\n{}\n{notes}",
            self.kind,
            self.kind.to_lowercase(),
            versions.collect::<Vec<String>>().join(", "),
            table::markdown(&rows),
        )
    }
}

impl Outcome {
    pub(super) fn measured(&self) -> Option<&Measured> {
        match self {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Unsupported(_) | Outcome::Failed(_) => None,
        }
    }
}

/// The target of a workload.
pub(super) fn must(row: &Row) -> String {
    match row.must {
        Must::Ratio(ratio) => format!("{ratio:.2}"),
        Must::RatioTo(peer, ratio) => format!("{ratio:.2} of {peer}"),
        Must::Seconds(most) => format!("≤ {} s", number(most)),
        Must::Nanoseconds(most) => format!("≤ {} ns", number(most)),
    }
}

/// `met`, or `missed`, by the ratio to the best peer and to one of them; `-` where Kiln or the peer is missing.
pub(super) fn verdict(
    row: &Row,
    outcomes: &[Outcome],
    best: Option<f64>,
    to: impl Fn(&str) -> Option<f64>,
    met: &'static str,
) -> &'static str {
    let seconds = outcomes.first().and_then(Outcome::measured).map(|kiln| kiln.median_ms() / 1e3);
    let is_met = match row.must {
        Must::Ratio(least) => best.map(|ratio| ratio >= least),
        Must::RatioTo(peer, least) => to(peer).map(|ratio| ratio >= least),
        Must::Nanoseconds(most) => seconds.map(|seconds| seconds * 1e9 <= most),
        Must::Seconds(most) => seconds.map(|seconds| seconds <= most),
    };
    is_met.map_or("-", |is_met| if is_met { met } else { "missed" })
}

pub(super) fn time(row: &Row, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(measured) if row.kind == Kind::Overhead => {
            format!("{} ns", number(measured.median_ms() * 1e6))
        }
        Outcome::Measured(measured) => number(measured.median_ms()),
        Outcome::Unsupported(_) => "-".to_owned(),
        Outcome::Failed(_) => "failed".to_owned(),
    }
}

/// Formats Kiln's throughput.
pub(super) fn reached(row: &Row, kiln: &Measured) -> String {
    let seconds = kiln.median_ms() / 1e3;
    match (row.items, row.kind) {
        (Some((items, name)), _) => format!("{} {name}/s", number(items / seconds)),
        (None, Kind::Contraction) if row.megaflops > 1e6 => {
            format!("{} TFLOP/s", number(row.megaflops / 1e6 / seconds))
        }
        (None, Kind::Contraction) => format!("{} GFLOP/s", number(row.megaflops / 1e3 / seconds)),
        (None, Kind::Plain) if row.megabytes > 0.0 => {
            format!("{} GB/s", number(row.megabytes / 1e3 / seconds))
        }
        (
            None,
            Kind::Plain | Kind::Training | Kind::Model | Kind::Overhead | Kind::Load | Kind::FirstStep,
        ) => String::new(),
    }
}

/// Rounds to six significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench_protocol::workloads::select;

    fn measured(times: &[f64]) -> Outcome {
        Outcome::Measured(Measured { times: times.to_vec(), ..Measured::default() })
    }

    fn report(results: &[(&str, Vec<Outcome>)]) -> Report {
        let row = |name: &str| select("cpu", &[name]).unwrap()[0];
        Report {
            kind: "CPU",
            place: "2 threads".into(),
            threads: 2,
            limit: Some(200.0),
            bandwidth: None,
            peers: vec![("kiln", "0.1".into()), ("torch", "2".into()), ("burn", "0.22".into())],
            skipped: vec![Skipped { name: "candle", reason: "it does not build".into() }],
            results: results.iter().map(|(name, outcomes)| (row(name), outcomes.clone())).collect(),
        }
    }

    #[test]
    fn the_table_compares_with_the_best_peer() {
        let report = report(&[
            ("matmul_512", vec![measured(&[2.0]), measured(&[4.0, 3.0, 9.0]), measured(&[5.0])]),
            ("maxpool", vec![measured(&[2.0]), Outcome::Unsupported("none".into()), measured(&[1.0])]),
        ]);
        let text = report.text();
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        let words = line("matmul_512");
        let words: Vec<&str> = words.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "matmul_512",
                "2",
                "4",
                "5",
                "torch",
                "2.00",
                "1.00",
                "met",
                "1.50",
                "134",
                "GFLOP/s",
                "67",
                "%"
            ]
        );
        assert!(line("maxpool").contains("burn") && line("maxpool").contains("missed"), "{text}");
        assert!(text.contains("Skipped: candle: it does not build."), "{text}");
        // The square root of 2.0 times 0.5.
        assert!(text.ends_with("\ngeo-mean vs best peer: 1.00\n"), "{text}");
    }

    #[test]
    fn overhead_is_reported_in_nanoseconds() {
        let report =
            report(&[("op_overhead", vec![measured(&[90e-6]), measured(&[900e-6]), measured(&[1.0])])]);
        let text = report.text();
        assert!(text.contains("90 ns") && text.contains("≤ 80 ns") && text.contains("missed"), "{text}");
        assert!(text.ends_with("geo-mean vs best peer: 10.00\n"), "{text}");
    }

    #[test]
    fn failures_are_listed_and_excluded_from_the_mean() {
        let failed = Outcome::Failed("the loss does not fall".into());
        let report = report(&[
            ("mlp_train_step", vec![failed, measured(&[1.0]), measured(&[2.0])]),
            ("softmax", vec![measured(&[1.0]), measured(&[2.0]), measured(&[3.0])]),
        ]);
        assert_eq!(report.failures(), ["kiln on mlp_train_step: the loss does not fall"]);
        assert_eq!(
            report
                .geometric_mean(|_, outcomes| report.ratio(outcomes, Measured::median_ms))
                .map(|mean| format!("{mean:.3}")),
            Some("2.000".into())
        );
        assert!(report.text().contains("failed"));
    }

    #[test]
    fn without_peers_there_is_no_mean() {
        let none = || Outcome::Unsupported("none".into());
        let report = report(&[("softmax", vec![measured(&[1.0]), none(), none()])]);
        assert!(report.text().ends_with("geo-mean vs best peer: none, no row has both Kiln and a peer\n"));
    }

    #[test]
    fn json_lines_have_the_documented_keys() {
        let outcomes = vec![
            measured(&[2.0, 1.0, 3.0]),
            Outcome::Unsupported("none".into()),
            Outcome::Failed("gone".into()),
        ];
        let report = report(&[("matmul_512", outcomes.clone())]);
        let lines = report.json_lines(report.results[0].0, &outcomes);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["peer"], "kiln");
        assert_eq!((&lines[0]["median_ms"], &lines[0]["min_ms"]), (&json!(2.0), &json!(1.0)));
        assert_eq!(lines[0]["extra"]["gflops"], 134.2);
        assert_eq!(lines[0]["extra"]["of_limit"], 0.671);
        assert_eq!((&lines[1]["unsupported"], &lines[2]["error"]), (&json!("none"), &json!("gone")));
    }

    #[test]
    fn models_are_compared_turn_by_turn() {
        let turns = |of: &[f64], value: f64| {
            let mut measured = Measured { times: of.to_vec(), turns: of.to_vec(), ..Measured::default() };
            measured.extra.insert("value".into(), json!(value));
            Outcome::Measured(measured)
        };
        // The machine is slower by half in the second round.
        let outcomes = vec![turns(&[2.0, 3.0, 2.0], 7.0), turns(&[2.2, 3.3, 2.4], 7.001)];
        let mut report =
            Report { results: vec![(select("models", &[]).unwrap()[0], outcomes)], ..report(&[]) };
        assert!(report.text().ends_with("geo-mean vs best peer: 1.10\n"), "{}", report.text());
        assert!(!report.text().contains("differ"), "{}", report.text());
        report.results[0].1[1] = turns(&[2.2], 8.0);
        assert!(report.text().contains("differ: kiln 7, torch 8."), "{}", report.text());
    }

    #[test]
    fn peak_memory_of_training_is_reported() {
        let mut kiln = Measured { times: vec![1.0], ..Measured::default() };
        kiln.extra.insert("peak_mib".into(), json!(150.0));
        kiln.extra.insert("idle_mib".into(), json!(8.0));
        let report = report(&[(
            "transformer_train_step",
            vec![Outcome::Measured(kiln), measured(&[1.0]), measured(&[1.0])],
        )]);
        let page = report.page("A machine.");
        assert!(page.contains("kiln 150 (8 before)"), "{page}");
        assert!(page.contains("| workload | shape | kiln |"), "{page}");
    }
}
