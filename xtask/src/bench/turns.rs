//! The table of `bench vulkan`: times, ratios of turns with quartiles, and targets.

use bench_protocol::workloads::{Must, Row};

use super::against::Change;
use super::measure::Outcome;
use super::report::{self, Report, must, reached, time};
use crate::table;

/// The table for the terminal, with notes of missing rows.
pub(super) fn text(report: &Report) -> String {
    format!("\n{}\n\n{}\n{}", heading(report), table::plain(&rows(report)), notes(report))
}

/// The report as a Markdown page.
pub(super) fn page(report: &Report, machine: &str) -> String {
    let notes = notes(report).replace('\n', "\n\n");
    report.page_of(&heading(report), machine, rows(report), &notes)
}

fn heading(report: &Report) -> String {
    format!(
        "Median milliseconds on {}; ratios: the median of the turns of the other's time / Kiln's through Vulkan, with \
        quartiles; more than 1 is faster than the other.",
        report.place
    )
}

fn rows(report: &Report) -> Vec<Vec<String>> {
    let mut head = vec!["workload".to_owned()];
    head.extend(report.peers.iter().map(|(peer, _)| (*peer).to_owned()));
    for (other, _) in report.peers.iter().skip(1) {
        head.extend([format!("{other} / vulkan"), "quartiles".to_owned()]);
    }
    head.extend(["target", "", "Vulkan reaches"].map(str::to_owned));
    let mut rows = vec![head];
    rows.extend(report.results.iter().map(|(row, outcomes)| cells(report, row, outcomes)));
    rows
}

fn cells(report: &Report, row: &Row, outcomes: &[Outcome]) -> Vec<String> {
    let mut cells = vec![row.name.to_owned()];
    cells.extend(outcomes.iter().map(|outcome| time(row, outcome)));
    for other in &outcomes[1..] {
        let change = Change::between(other, &outcomes[0]);
        cells.extend(change.map_or(["-", "-"].map(str::to_owned), |change| change.cells()));
    }
    let least = if matches!(row.must, Must::Ratio(_) | Must::RatioTo(..)) { "≥ " } else { "" };
    cells.push(format!("{least}{}", must(row)));
    cells.push(verdict(report, row, outcomes).to_owned());
    cells.push(outcomes[0].measured().map_or(String::new(), |kiln| reached(row, kiln)));
    cells
}

/// `ok` or `missed`; `-` where the other is not here.
fn verdict(report: &Report, row: &Row, outcomes: &[Outcome]) -> &'static str {
    let ratio = |outcome: &Outcome| Some(Change::between(outcome, &outcomes[0])?.median());
    let place = |name: &str| report.peers.iter().position(|(peer, _)| *peer == name);
    let best = outcomes[1..].iter().filter_map(ratio).min_by(f64::total_cmp);
    report::verdict(row, outcomes, best, |name| ratio(outcomes.get(place(name)?)?), "ok")
}

/// What is left out, what failed, and how many targets are met.
fn notes(report: &Report) -> String {
    let verdicts = |wanted: &str| {
        report.results.iter().filter(|(row, outcomes)| verdict(report, row, outcomes) == wanted).count()
    };
    report.absences("Left out") + &format!("targets: {} ok, {} missed\n", verdicts("ok"), verdicts("missed"))
}

#[cfg(test)]
mod tests {
    use super::super::measure::Measured;
    use super::super::peer::Skipped;
    use super::*;
    use bench_protocol::workloads::of;

    fn turns(of: &[f64]) -> Outcome {
        Outcome::Measured(Measured { times: of.to_vec(), turns: of.to_vec(), ..Measured::default() })
    }

    fn report(results: Vec<(&'static Row, Vec<Outcome>)>) -> Report {
        Report {
            kind: "Vulkan",
            place: "one GPU".into(),
            threads: 1,
            limit: None,
            bandwidth: None,
            peers: vec![("kiln-vulkan", "1".into()), ("kiln-cuda", "1".into()), ("burn", "2".into())],
            skipped: vec![Skipped { name: "torch", reason: "it has no Vulkan".into() }],
            results,
        }
    }

    #[test]
    fn targets_are_ratios_of_turns() {
        let named = |name: &str| of("vulkan").find(|row| row.name == name).unwrap();
        let cold = Outcome::Measured(Measured { times: vec![6000.0], ..Measured::default() });
        let report = report(vec![
            // The machine is slower by half in the second round.
            (named("sum_f32"), vec![turns(&[2.0, 3.0]), turns(&[1.8, 2.7]), turns(&[4.0, 6.0])]),
            (named("matmul_f32_2048"), vec![turns(&[2.0, 2.0]), turns(&[1.0, 1.0]), turns(&[1.9, 1.9])]),
            (
                named("gpt2_train_step_f32"),
                vec![turns(&[10.0]), turns(&[5.0]), Outcome::Unsupported("none".into())],
            ),
            (named("gpt2_first_step_cold"), vec![cold.clone(), cold.clone(), cold]),
        ]);
        let text = text(&report);
        let words = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("sum_f32")[4..8], ["0.900", "0.900", "to", "0.900"]);
        assert!(words("sum_f32").contains(&"ok".to_owned()), "{text}");
        assert!(words("matmul_f32_2048").contains(&"missed".to_owned()), "{text}");
        let training = words("gpt2_train_step_f32");
        assert!(!training.contains(&"ok".to_owned()) && training.contains(&"tokens/s".to_owned()), "{text}");
        assert!(words("gpt2_first_step_cold").contains(&"missed".to_owned()), "{text}");
        assert!(text.contains("Left out: torch: it has no Vulkan."), "{text}");
        assert!(text.ends_with("targets: 1 ok, 2 missed\n"), "{text}");
        assert!(page(&report, "A machine.").contains("| sum_f32 | [16384, 4096], f32 | 3 |"), "{text}");
    }
}
