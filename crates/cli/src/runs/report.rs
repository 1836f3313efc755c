//! The report of runs: one HTML page without external resources.
//!
//! Tables are HTML; the script draws the curves from JSON in the page. All text of records is escaped, and the script
//! adds text only as text nodes.

mod html;
mod series;

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use html::{escape, json};
use kiln_train::MetricValue;

use super::read::Run;
use super::tables::{compared, differences, facts, level_name};
use super::text::number;

const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/curves.js");

/// Maximum number of rows and columns of a matrix that is shown.
const MAX_MATRIX: usize = 50;

/// Writes the page beside `output` and renames it, so that no reader sees a part.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(runs: &[Run], output: &Path) -> Result<(), String> {
    let mut name = output.file_name().ok_or("the report has no file name")?.to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = Partial(output.with_file_name(name));
    let written = fill(&partial.0, &page(runs)).and_then(|()| fs::rename(&partial.0, output));
    written.map_err(|error| format!("cannot write {}: {error}", output.display()))
}

/// A temporary file, which is removed on drop unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn fill(path: &Path, page: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(page.as_bytes())?;
    file.sync_all()
}

/// The page.
pub(super) fn page(runs: &[Run]) -> String {
    let names: Vec<String> = runs.iter().map(|run| escape(&run.name)).collect();
    let title = names.join(", ");
    let curves = series::curves(runs);
    let charts: String = (0..curves.charts.len())
        .map(|index| format!("<section class=\"chart\" data-chart=\"{index}\"></section>\n"))
        .collect();
    let left_out = match curves.left_out {
        0 => String::new(),
        count => format!("<p class=\"note\">{count} more series are not shown.</p>\n"),
    };
    let body = [
        summary(runs),
        format!(
            "<h2>Curves</h2>\n{left_out}<div id=\"controls\"></div>\n<div id=\"charts\">\n{charts}</div>\n"
        ),
        configuration(runs),
        runs.iter().map(values).collect(),
        runs.iter().map(messages).collect(),
    ];
    let data = json(&curves);
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1><button id=\"theme\" type=\"button\">Light or dark</button></header>\n\
         <main>\n{}</main>\n<noscript><p class=\"note\">The curves need JavaScript.</p></noscript>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        body.concat()
    )
}

/// A table. The first cell of each row is a head.
fn table<'a>(head: &[String], rows: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> String {
    let heads: String = head.iter().map(|cell| format!("<th scope=\"col\">{cell}</th>")).collect();
    let mut table = format!("<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n");
    for (name, cells) in rows {
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let _ = writeln!(table, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escape(name));
    }
    table + "</tbody>\n</table></div>\n"
}

/// A column for each run.
fn heads(runs: &[Run]) -> Vec<String> {
    std::iter::once(String::new()).chain(runs.iter().map(|run| escape(&run.name))).collect()
}

fn summary(runs: &[Run]) -> String {
    let of_runs: Vec<_> = runs.iter().map(facts).collect();
    let fact = |index: usize| {
        let cells: Vec<String> = of_runs.iter().map(|facts| escape(&facts[index].1)).collect();
        (of_runs[0][index].0, cells)
    };
    let count = of_runs.first().map_or(0, |facts| facts.len());
    let metrics = compared(runs);
    let mark = |value: &Option<f64>, is_best: bool| match value {
        Some(value) if is_best => format!("<strong>{}</strong>", number(*value)),
        Some(value) => number(*value),
        None => "–".to_owned(),
    };
    let rows = metrics.iter().map(|metric| {
        let cells = metric.values.iter().enumerate();
        let cells: Vec<String> =
            cells.map(|(index, value)| mark(value, metric.winner == Some(index))).collect();
        (metric.label.as_str(), cells)
    });
    format!("<h2>Summary</h2>\n{}", table(&heads(runs), (0..count).map(fact).chain(rows)))
}

fn configuration(runs: &[Run]) -> String {
    let mut text = String::new();
    let mut section = |title: &str, rows: Vec<(&str, Vec<Option<&str>>)>| {
        if rows.is_empty() {
            return;
        }
        let cell = |value: Option<&str>| value.map_or_else(|| "–".to_owned(), escape);
        let rows = rows.into_iter().map(|(name, values)| (name, values.into_iter().map(cell).collect()));
        let _ = write!(text, "<h2>{title}</h2>\n{}", table(&heads(runs), rows));
    };
    if runs.len() > 1 {
        section(
            "Differences of hyper-parameters",
            differences(runs, |run| &run.description.hyper_parameters),
        );
    }
    for run in runs {
        let one = |title: &str, entries: &std::collections::BTreeMap<String, String>| {
            let rows = entries.iter().map(|(name, value)| (name.as_str(), vec![escape(value)]));
            if entries.is_empty() { String::new() } else { format!("<h4>{title}</h4>\n{}", table(&[], rows)) }
        };
        let task = match run.description.task.as_str() {
            "" => String::new(),
            task => format!("<h4>Task</h4>\n<pre>{}</pre>\n", escape(task)),
        };
        let _ = write!(
            text,
            "<details><summary>Configuration and environment of {}</summary>\n{}{}{task}</details>\n",
            escape(&run.name),
            one("Hyper-parameters", &run.description.hyper_parameters),
            one("Environment", &run.description.environment),
        );
    }
    text
}

/// Matrices, histograms and texts of a run.
fn values(run: &Run) -> String {
    let one = |((split, name), value): (&(String, String), &MetricValue)| {
        let title = format!("{}: {} {}", escape(&run.name), escape(split), escape(name));
        format!("<h3>{title}</h3>\n{}", value_html(value))
    };
    run.values.iter().map(one).collect()
}

fn value_html(value: &MetricValue) -> String {
    match value {
        MetricValue::Matrix { rows, columns, elements } if *rows <= MAX_MATRIX && *columns <= MAX_MATRIX => {
            matrix(*columns, elements)
        }
        MetricValue::Matrix { rows, columns, .. } => {
            format!("<p class=\"note\">A matrix of {rows} × {columns}, too large to show.</p>\n")
        }
        MetricValue::Histogram { edges, counts } => histogram(edges, counts),
        MetricValue::Image { height, width, .. } => {
            format!("<p class=\"note\">An image of {height} × {width}, which TensorBoard shows.</p>\n")
        }
        MetricValue::Text(text) => format!("<pre>{}</pre>\n", escape(text)),
        MetricValue::Scalar(value) => format!("<p>{}</p>\n", number(*value)),
        MetricValue::PerClass(values) => {
            format!("<p>{}</p>\n", values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A matrix such as a confusion matrix. The background of a cell is darker for greater elements.
fn matrix(columns: usize, elements: &[f64]) -> String {
    let greatest = elements.iter().copied().filter(|element| element.is_finite()).fold(0.0, f64::max);
    let heads: String = (0..columns).map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
    let mut text = format!("<div class=\"wide\"><table class=\"matrix\">\n<tr><th></th>{heads}</tr>\n");
    for (index, row) in elements.chunks(columns.max(1)).enumerate() {
        let _ = write!(text, "<tr><th scope=\"row\">{index}</th>");
        for element in row {
            let heat = (element / greatest).clamp(0.0, 1.0);
            let heat = if heat.is_nan() { 0.0 } else { heat };
            let _ = write!(text, "<td style=\"--heat:{:.0}%\">{}</td>", heat * 70.0, number(*element));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// A histogram as bars of equal width.
fn histogram(edges: &[f64], counts: &[f64]) -> String {
    /// More bins than pixels cannot be seen.
    const MAX_BINS: usize = 1000;
    let greatest = counts.iter().copied().filter(|count| count.is_finite()).fold(0.0, f64::max);
    let width = 600.0 / counts.len().clamp(1, MAX_BINS) as f64;
    let mut text = String::from("<svg class=\"histogram\" viewBox=\"0 0 600 120\" role=\"img\">");
    for (index, (count, edge)) in counts.iter().zip(edges.windows(2)).take(MAX_BINS).enumerate() {
        let height = (count / greatest * 120.0).clamp(0.0, 120.0);
        let height = if height.is_nan() { 0.0 } else { height };
        let _ = write!(
            text,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\"><title>{} to {}: {}</title></rect>",
            index as f64 * width,
            120.0 - height,
            width * 0.95,
            number(edge[0]),
            number(edge[1]),
            number(*count),
        );
    }
    text + "</svg>\n"
}

fn messages(run: &Run) -> String {
    if run.messages.is_empty() {
        return String::new();
    }
    let rows = run.messages.iter().map(|(level, text)| (level_name(*level), vec![escape(text)]));
    format!("<details><summary>Messages of {}</summary>\n{}</details>\n", escape(&run.name), table(&[], rows))
}
