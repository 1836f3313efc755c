//! The table of `bench vulkan`: times, ratios with quartiles, and targets.

use super::super::against::Change;
use super::super::measure::Outcome;
use super::super::number;
use super::super::report::{Report, reached, time};
use super::super::row::{Must, Row};
use crate::table;

/// The table for the terminal, with notes of missing rows.
pub(super) fn text(report: &Report) -> String {
    format!("\n{}\n\n{}\n{}", heading(report), table::plain(&rows(report)), notes(report))
}

/// The report as a Markdown page.
pub(super) fn page(report: &Report, machine: &str) -> String {
    let versions: Vec<String> =
        report.peers.iter().map(|(peer, version)| format!("{peer} {version}")).collect();
    let mut rows = rows(report);
    let shapes = ["shape"].into_iter().chain(report.results.iter().map(|(row, _)| row.shape));
    for (cells, shape) in rows.iter_mut().zip(shapes) {
        cells.insert(1, shape.to_owned());
    }
    format!(
        "# Vulkan benchmarks\n\nMade by `cargo xtask bench vulkan --record`. {} [README.md](README.md) describes the \
        measurements.\n\n{machine}\nVersions: {}.\n\n{}\n{}",
        heading(report),
        versions.join(", "),
        table::markdown(&rows),
        notes(report).replace('\n', "\n\n")
    )
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
        match Change::between(other, &outcomes[0]) {
            Some(change) => cells.extend([
                format!("{:.3}", change.median()),
                format!("{:.3} to {:.3}", change.quantile(0.25), change.quantile(0.75)),
            ]),
            None => cells.extend(["-", "-"].map(str::to_owned)),
        }
    }
    cells.push(match row.must {
        Must::Ratio(least) => format!("≥ {least:.2}"),
        Must::RatioTo(peer, least) => format!("≥ {least:.2} of {peer}"),
        Must::Seconds(most) => format!("≤ {} s", number(most)),
        Must::Nanoseconds(most) => format!("≤ {} ns", number(most)),
    });
    cells.push(verdict(report, row, outcomes).to_owned());
    cells.push(outcomes[0].measured().map_or(String::new(), |kiln| reached(row, kiln)));
    cells
}

/// `ok` or `missed`; `-` where the other is not here.
fn verdict(report: &Report, row: &Row, outcomes: &[Outcome]) -> &'static str {
    let ratio_to = |name: &str| {
        let place = report.peers.iter().position(|(peer, _)| *peer == name)?;
        Some(Change::between(outcomes.get(place)?, &outcomes[0])?.median())
    };
    let milliseconds = || Some(outcomes[0].measured()?.median_ms());
    let is_met = match row.must {
        Must::Ratio(least) => {
            let others = report.peers.iter().skip(1).filter_map(|(peer, _)| ratio_to(peer));
            others.min_by(f64::total_cmp).map(|ratio| ratio >= least)
        }
        Must::RatioTo(peer, least) => ratio_to(peer).map(|ratio| ratio >= least),
        Must::Seconds(most) => milliseconds().map(|ms| ms / 1e3 <= most),
        Must::Nanoseconds(most) => milliseconds().map(|ms| ms * 1e6 <= most),
    };
    match is_met {
        Some(true) => "ok",
        Some(false) => "missed",
        None => "-",
    }
}

/// What is left out, what failed, and what Kiln alone can do.
fn notes(report: &Report) -> String {
    let mut text = String::new();
    for skipped in &report.skipped {
        text += &format!("Left out: {}: {}.\n", skipped.name, skipped.reason);
    }
    for failure in report.failures() {
        text += &format!("Failed: {failure}.\n");
    }
    let verdicts = |wanted: &str| {
        report.results.iter().filter(|(row, outcomes)| verdict(report, row, outcomes) == wanted).count()
    };
    text + &format!("targets: {} ok, {} missed\n", verdicts("ok"), verdicts("missed"))
}

#[cfg(test)]
mod tests {
    use super::super::super::measure::Measured;
    use super::super::super::peer::Skipped;
    use super::super::rows::{FIRST_STEPS, ROWS};
    use super::*;

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
        let named = |name: &str| ROWS.iter().find(|row| row.name == name).unwrap();
        let cold = Outcome::Measured(Measured { times: vec![6000.0], ..Measured::default() });
        let report = report(vec![
            // The machine is slower by half in the second round.
            (named("sum_f32"), vec![turns(&[2.0, 3.0]), turns(&[1.8, 2.7]), turns(&[4.0, 6.0])]),
            (named("matmul_f32_2048"), vec![turns(&[2.0, 2.0]), turns(&[1.0, 1.0]), turns(&[1.9, 1.9])]),
            (
                named("gpt2_train_step_f32"),
                vec![turns(&[10.0]), turns(&[5.0]), Outcome::Unsupported("none".into())],
            ),
            (&FIRST_STEPS[0], vec![cold.clone(), cold.clone(), cold]),
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
