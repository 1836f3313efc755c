//! Runs as tables on a terminal.

use std::collections::{BTreeMap, BTreeSet};

use kiln_train::{Level, MetricValue, Usage};

use super::read::{Run, Series};
use super::text::{columns, duration, number, printable, time};

/// Maximum number of metrics of a run in the list.
const MAX_BEST: usize = 4;

/// The runs of a folder, one a line. A run that cannot be read has its error below.
pub(super) fn list(runs: &[(String, Result<Run, String>)]) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let mut rows = vec![["NAME", "STATE", "EPOCHS", "STEPS", "DURATION", "BEST"].map(str::to_owned).into()];
    let mut errors = String::new();
    for (name, run) in runs {
        match run {
            Ok(run) => rows.push(list_row(run)),
            Err(error) => {
                rows.push(vec![printable(name), "unreadable".to_owned()]);
                errors += &format!("\n{}: {}\n", printable(name), printable(error));
            }
        }
    }
    columns(&rows) + &errors
}

fn list_row(run: &Run) -> Vec<String> {
    let best = best_values(run).take(MAX_BEST);
    let best: Vec<String> =
        best.map(|(split, name, (_, value))| format!("{split} {name} {}", number(value))).collect();
    vec![
        printable(&run.name),
        run.state.name().to_owned(),
        of(run.epochs, run.description.epochs),
        of(run.steps, run.description.steps),
        duration(run.duration),
        printable(&best.join(", ")),
    ]
}

/// The best values of validation, or of training where there is no validation.
fn best_values(run: &Run) -> impl Iterator<Item = (&str, &str, (u64, f64))> {
    let has_validation = run.metrics().any(|(split, _, _)| split != "train");
    let shown = run.metrics().filter(move |(split, _, _)| !has_validation || *split != "train");
    shown.filter_map(move |(split, name, series)| Some((split, name, run.best(name, series)?)))
}

fn of(done: u64, total: Option<u64>) -> String {
    match total {
        Some(total) => format!("{done}/{total}"),
        None => done.to_string(),
    }
}

/// Everything about a run.
pub(super) fn show(run: &Run) -> String {
    let mut facts: Vec<Vec<String>> =
        facts(run).map(|(name, value)| vec![name.to_owned(), printable(&value)]).into();
    facts.retain(|fact| !fact[1].is_empty());
    let mut text = format!("{}\n\n{}", printable(&run.name), columns(&facts));
    for (title, entries) in [
        ("hyper-parameters", &run.description.hyper_parameters),
        ("environment", &run.description.environment),
    ] {
        let rows: Vec<Vec<String>> =
            entries.iter().map(|(name, value)| vec![printable(name), printable(value)]).collect();
        text += &section(title, &rows);
    }
    let metric = |(split, name, series): (&str, &str, &Series)| {
        let at = |(step, value): (u64, f64)| format!("{} at step {step}", number(value));
        let best = run.best(name, series).map(at).unwrap_or_default();
        let last = series.last().map(|(_, value)| number(*value)).unwrap_or_default();
        vec![format!("{} {}", printable(split), printable(name)), last, best]
    };
    let head = ["", "LAST", "BEST"].map(str::to_owned).to_vec();
    let metrics: Vec<Vec<String>> = std::iter::once(head).chain(run.metrics().map(metric)).collect();
    text += &section("metrics", &metrics);
    for ((split, name), value) in &run.values {
        text += &section(&format!("{} {}", printable(split), printable(name)), &value_rows(value));
    }
    let usage = run.usage.iter().flat_map(usage_lines).map(|line| vec![line]);
    text += &section("time and memory", &usage.collect::<Vec<_>>());
    let message = |(level, text): &(Level, String)| vec![level_name(*level).to_owned(), printable(text)];
    text + &section("messages", &run.messages.iter().map(message).collect::<Vec<_>>())
}

/// The table of times and memory, line by line.
pub(super) fn usage_lines(usage: &Usage) -> Vec<String> {
    usage.to_string().lines().map(printable).collect()
}

fn section(title: &str, rows: &[Vec<String>]) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{title}\n{}", columns(rows)) }
}

pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error => "error",
    }
}

/// The facts of a run, by name. A fact that is not known is empty.
pub(super) fn facts(run: &Run) -> [(&'static str, String); 7] {
    let description = &run.description;
    let started = if description.started == 0 { String::new() } else { time(description.started) };
    let checkpoint = run.last_checkpoint.as_ref();
    [
        ("state", run.state.name().to_owned()),
        ("epochs", of(run.epochs, description.epochs)),
        ("steps", of(run.steps, description.steps)),
        ("duration", duration(run.duration)),
        ("started", started),
        ("checkpoint", checkpoint.map(|(step, folder)| format!("step {step}: {folder}")).unwrap_or_default()),
        ("skipped steps", if run.skipped > 0 { run.skipped.to_string() } else { String::new() }),
    ]
}

/// A value that is not a number, as rows.
fn value_rows(value: &MetricValue) -> Vec<Vec<String>> {
    /// Larger matrices do not fit on a terminal.
    const MAX: usize = 20;
    match value {
        MetricValue::Matrix { rows, columns, elements } if *rows <= MAX && *columns <= MAX => {
            let cells = |row: &[f64]| row.iter().map(|element| number(*element)).collect();
            elements.chunks((*columns).max(1)).map(cells).collect()
        }
        MetricValue::Matrix { rows, columns, .. } => vec![vec![format!("a matrix of {rows} x {columns}")]],
        MetricValue::Histogram { counts, .. } => vec![vec![format!("a histogram of {} bins", counts.len())]],
        MetricValue::Image { height, width, .. } => vec![vec![format!("an image of {height} x {width}")]],
        MetricValue::Text(text) => text.lines().take(MAX).map(|line| vec![printable(line)]).collect(),
        MetricValue::Scalar(value) => vec![vec![number(*value)]],
        MetricValue::PerClass(values) => vec![values.iter().map(|value| number(*value)).collect()],
    }
}

/// Metrics of runs side by side, and their differences.
pub(super) fn compare(runs: &[Run]) -> String {
    let names = || runs.iter().map(|run| printable(&run.name));
    let head = |first: &str| std::iter::once(first.to_owned()).chain(names()).collect::<Vec<_>>();
    let mut rows = vec![head("")];
    for metric in compared(runs) {
        let mark = |(index, value): (usize, &Option<f64>)| match value {
            Some(value) if metric.winner == Some(index) => format!("{} *", number(*value)),
            Some(value) => number(*value),
            None => "-".to_owned(),
        };
        let cells = metric.values.iter().enumerate().map(mark);
        rows.push(std::iter::once(printable(&metric.label)).chain(cells).collect());
    }
    let mut text = columns(&rows);
    for (title, differences) in [
        ("hyper-parameters", differences(runs, |run| &run.description.hyper_parameters)),
        ("environment", differences(runs, |run| &run.description.environment)),
    ] {
        if differences.is_empty() {
            text += &format!("\n{title}: no difference\n");
            continue;
        }
        let mut rows = vec![head("")];
        for (name, values) in differences {
            let cells = values.iter().map(|value| value.map_or_else(|| "-".to_owned(), printable));
            rows.push(std::iter::once(printable(name)).chain(cells).collect());
        }
        text += &section(&format!("{title} that differ"), &rows);
    }
    text
}

/// A metric of several runs.
pub(super) struct Compared {
    /// Split, name, and whether the values are the best or the last.
    pub(super) label: String,
    /// The value of each run.
    pub(super) values: Vec<Option<f64>>,
    /// The run with the best value, if it is known which ones are better.
    pub(super) winner: Option<usize>,
}

/// The metrics of runs: the best values where it is known which ones are better, else the last.
pub(super) fn compared(runs: &[Run]) -> Vec<Compared> {
    let keys = runs.iter().flat_map(Run::metrics).map(|(split, name, _)| (split, name));
    let keys: BTreeSet<(&str, &str)> = keys.collect();
    let compare = |(split, name): (&str, &str)| {
        let higher = runs.iter().find_map(|run| run.higher_is_better(name));
        let value = |run: &Run| {
            let series = run.series.get(&(split.to_owned(), name.to_owned()))?;
            let best = run.best(name, series).filter(|_| higher.is_some());
            best.or_else(|| series.last().copied()).map(|(_, value)| value)
        };
        let values: Vec<Option<f64>> = runs.iter().map(value).collect();
        let winner = higher.and_then(|higher| winner(&values, higher));
        let kind = if higher.is_some() { "best" } else { "last" };
        Compared { label: format!("{split} {name} ({kind})"), values, winner }
    };
    keys.into_iter().map(compare).collect()
}

/// The first of the best values. `None` for a single run.
fn winner(values: &[Option<f64>], higher: bool) -> Option<usize> {
    let numbers = values.iter().enumerate().filter_map(|(index, value)| Some((index, (*value)?)));
    let numbers: Vec<(usize, f64)> = numbers.filter(|(_, value)| !value.is_nan()).collect();
    if numbers.len() < 2 {
        return None;
    }
    let better = |best: (usize, f64), next: (usize, f64)| {
        let is_better = if higher { next.1 > best.1 } else { next.1 < best.1 };
        if is_better { next } else { best }
    };
    numbers.into_iter().reduce(better).map(|(index, _)| index)
}

/// The entries that are not equal in all runs, with the value of each run.
pub(super) fn differences<'a>(
    runs: &'a [Run],
    entries: impl Fn(&'a Run) -> &'a BTreeMap<String, String>,
) -> Vec<(&'a str, Vec<Option<&'a str>>)> {
    let keys: BTreeSet<&str> = runs.iter().flat_map(|run| entries(run).keys()).map(String::as_str).collect();
    let values = |key: &'a str| -> Vec<Option<&'a str>> {
        runs.iter().map(|run| entries(run).get(key).map(String::as_str)).collect()
    };
    let all = keys.into_iter().map(|key| (key, values(key)));
    all.filter(|(_, values)| values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}
