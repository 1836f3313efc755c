//! The report of runs: one HTML page without external resources.
//!
//! Tables are HTML, and images are in the page as PNG; the script draws the curves from JSON in the page. All text of
//! records is escaped, and the script adds text only as text nodes.

mod html;
mod series;
mod values;

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use html::{escape, json};

use super::read::Run;
use super::tables::{compared, differences, facts, level_name, usage_lines};
use super::text::number;

const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/curves.js");

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
        values::section(runs),
        configuration(runs),
        runs.iter().map(usage).collect(),
        runs.iter().map(messages).collect(),
    ];
    let data = json(&curves);
    let policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
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
    let is_known = |index: &usize| of_runs.iter().any(|facts| !facts[*index].1.is_empty());
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
    format!("<h2>Summary</h2>\n{}", table(&heads(runs), (0..count).filter(is_known).map(fact).chain(rows)))
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

fn usage(run: &Run) -> String {
    let Some(usage) = &run.usage else { return String::new() };
    let (name, table) = (escape(&run.name), escape(&usage_lines(usage).join("\n")));
    format!("<details><summary>Time and memory of {name}</summary>\n<pre>{table}</pre></details>\n")
}

fn messages(run: &Run) -> String {
    if run.messages.is_empty() {
        return String::new();
    }
    let rows = run.messages.iter().map(|(level, text)| (level_name(*level), vec![escape(text)]));
    format!("<details><summary>Messages of {}</summary>\n{}</details>\n", escape(&run.name), table(&[], rows))
}
