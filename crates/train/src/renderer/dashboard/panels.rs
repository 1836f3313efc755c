//! The panels beside the chart.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::draw::Scene;
use super::palette::Palette;
use super::view::{Focus, View};
use crate::record::{DEFAULT_NAME, Level, Split};
use crate::renderer::model::{MetricHistory, Model, Phase, reason_text};
use crate::renderer::{MemoryUse, SystemUse, format};

/// The width of a column of values.
const COLUMN: u16 = 8;

/// The name of the run, its task, and its phase at the right.
pub(super) fn header(frame: &mut Frame, area: Rect, scene: &Scene, view: &View) {
    let run = &scene.model.run;
    let (phase, style) = phase(scene, view.palette);
    let phase = Line::from(Span::styled(format!("{phase} "), style)).right_aligned();
    let width = (phase.width() as u16).min(area.width);
    let name = if run.name == DEFAULT_NAME { String::new() } else { run.name.clone() };
    let mut spans = vec![Span::styled(" Kiln ", view.palette.title()), Span::raw(name)];
    // Of a description such as `Net { conv1: … }`, the row has space for the name alone.
    let task = run.task.split(['{', '\n']).next().unwrap_or_default().trim_end();
    spans.push(Span::styled(format!("  {task}"), view.palette.dim()));
    frame.render_widget(Line::from(spans), Rect { width: area.width - width, ..area });
    frame.render_widget(phase, Rect { x: area.right() - width, width, ..area });
}

fn phase(scene: &Scene, palette: Palette) -> (String, Style) {
    if scene.is_stopping {
        return ("stopping after this step".to_owned(), palette.warning());
    }
    let text = match &scene.model.phase {
        Phase::Starting => "starting".to_owned(),
        Phase::Training => "training".to_owned(),
        Phase::Validating(pass) => format!("validating {} {}", pass.set, of(pass.batch, pass.batches)),
        Phase::Ended { reason, .. } => format!("ended: {}", reason_text(*reason)),
    };
    (text, palette.gauge())
}

/// The names of the metrics in one row, around the selected one where they do not fit.
pub(super) fn metrics(frame: &mut Frame, area: Rect, model: &Model, view: &mut View) {
    let label = " Metrics ";
    frame.render_widget(Span::styled(label, view.palette.title()), area);
    let begin = area.x + label.len() as u16;
    let widths: Vec<u16> = model.metrics.iter().map(|metric| width(&metric.name) + 2).collect();
    let room = area.right().saturating_sub(begin);
    let mut first = 0;
    while first < view.selected && widths[first..=view.selected].iter().sum::<u16>() > room {
        first += 1;
    }
    let mut x = begin;
    for (index, metric) in model.metrics.iter().enumerate().skip(first) {
        let place = Rect { x, width: widths[index].min(area.right().saturating_sub(x)), ..area };
        if place.is_empty() {
            break;
        }
        let style = if index == view.selected { view.palette.selected() } else { Style::new() };
        let mark = mark(index == view.selected);
        frame.render_widget(Span::styled(format!("{mark}{} ", metric.name), style), place);
        view.places.metrics.push((place, index));
        x = place.right();
    }
}

/// The values of all metrics, learning rates and throughput.
pub(super) fn values(frame: &mut Frame, area: Rect, scene: &Scene, view: &mut View) {
    let model = scene.model;
    let block = panel("Values", false, view.palette);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let facts = facts(model);
    let columns = Columns::new(model, inner.width);
    // The facts keep their lines; metrics before the selected one go first.
    let rows = (inner.height as usize).saturating_sub(1 + facts.len() + 1).max(1);
    let first = (view.selected + 1).saturating_sub(rows);
    let shown: Vec<(usize, &MetricHistory)> =
        model.metrics.iter().enumerate().skip(first).take(rows).collect();
    let height = (shown.len() as u16 + 1).min(inner.height);
    let table_area = Rect { height, ..inner };
    let table = Table::new(
        shown.iter().map(|(index, metric)| {
            let style = if *index == view.selected { view.palette.selected() } else { Style::new() };
            Row::new(columns.cells(metric, mark(*index == view.selected))).style(style)
        }),
        columns.widths(),
    )
    .header(Row::new(columns.header()).style(view.palette.dim()));
    frame.render_widget(table, table_area);
    for (row, (index, _)) in shown.iter().enumerate() {
        let place = Rect { y: inner.y + 1 + row as u16, height: 1, ..inner }.intersection(inner);
        view.places.metrics.push((place, *index));
    }
    let lines: Vec<Line> = facts
        .into_iter()
        .map(|(name, value)| {
            Line::from(vec![Span::styled(format!("{name:<14}"), view.palette.dim()), Span::raw(value)])
        })
        .collect();
    let y = (inner.y + height + 1).min(inner.bottom());
    let rest = Rect { y, height: inner.bottom() - y, ..inner };
    frame.render_widget(Paragraph::new(lines), rest);
}

/// The columns of the table of values.
struct Columns {
    splits: Vec<Split>,
    /// The split whose best value is shown.
    best_of: Option<Split>,
    name: u16,
    has_epoch: bool,
}

impl Columns {
    fn new(model: &Model, width: u16) -> Columns {
        let mut splits = model.splits();
        let best_of = splits.iter().find(|split| **split != Split::Train).or(splits.first()).cloned();
        let has_epoch = width >= 54;
        let name_width = model.metrics.iter().map(|metric| self::width(&metric.name)).max().unwrap_or(6);
        let fixed = (COLUMN + 1) * if has_epoch { 2 } else { 1 };
        // A mark precedes the name.
        let name = (name_width + 1).clamp(7, width.saturating_sub(fixed + 2 * (COLUMN + 1)).max(7));
        let room = width.saturating_sub(name + fixed) / (COLUMN + 1);
        splits.truncate(usize::from(room.max(1)));
        Columns { splits, best_of, name, has_epoch }
    }

    fn widths(&self) -> Vec<Constraint> {
        let values = self.splits.len() + 1 + usize::from(self.has_epoch);
        let mut widths = vec![Constraint::Length(self.name)];
        widths.extend(std::iter::repeat_n(Constraint::Length(COLUMN), values));
        widths
    }

    fn header(&self) -> Vec<String> {
        let mut header = vec![" metric".to_owned()];
        header.extend(self.splits.iter().map(|split| split.name().to_owned()));
        header.push("best".to_owned());
        header.extend(self.has_epoch.then(|| "in epoch".to_owned()));
        header
    }

    fn cells(&self, metric: &MetricHistory, mark: char) -> Vec<String> {
        let mut cells = vec![format!("{mark}{}", metric.name)];
        for split in &self.splits {
            cells.push(metric.split(split).map_or("-".to_owned(), |history| history.current.clone()));
        }
        let best = self.best_of.as_ref().and_then(|split| metric.split(split)?.best.as_ref());
        cells.push(best.map_or("-".to_owned(), |best| best.text.clone()));
        if self.has_epoch {
            cells.push(best.map_or("-".to_owned(), |best| (best.epoch + 1).to_string()));
        }
        cells
    }
}

/// Learning rates, throughput and counts, by name.
fn facts(model: &Model) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    match model.learning_rates.as_slice() {
        [(_, rate)] => facts.push(("learning rate".to_owned(), format::number(*rate))),
        rates => facts.extend(rates.iter().map(|(name, rate)| (format!("lr {name}"), format::number(*rate)))),
    }
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), format::count);
    facts.push(("items/s".to_owned(), rate(model.throughput.items_per_second())));
    facts.push((
        "steps/s".to_owned(),
        model.throughput.steps_per_second().map_or("-".to_owned(), format::number),
    ));
    facts.push(("step".to_owned(), model.step.to_string()));
    if model.skipped > 0 {
        facts.push(("skipped steps".to_owned(), model.skipped.to_string()));
    }
    facts
}

/// The gauges of the epoch and the run.
pub(super) fn progress(frame: &mut Frame, area: Rect, scene: &Scene, palette: Palette) {
    let model = scene.model;
    let block = panel("Progress", false, palette);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let left = |left: Option<std::time::Duration>| {
        left.map_or(String::new(), |left| format!("{} left", format::duration(left)))
    };
    let (title, fraction, done, remaining) = match &model.phase {
        Phase::Validating(pass) => {
            let batches = pass.batches.filter(|batches| *batches > 0);
            let fraction = batches.map(|batches| (pass.batch as f64 / batches as f64).min(1.0));
            (pass.set.clone(), fraction, of(pass.batch, pass.batches), String::new())
        }
        Phase::Starting | Phase::Training | Phase::Ended { .. } => (
            "step".to_owned(),
            model.epoch_fraction(),
            of(model.batch, model.batches()),
            left(model.epoch_left()),
        ),
    };
    gauge(frame, inner, 0, palette, &title, fraction, &format!("{done}  {remaining}"));
    let epoch = match model.run.epochs {
        Some(epochs) => format!("epoch {}/{epochs}", (model.epoch + 1).min(epochs.max(1))),
        None => format!("epoch {}", model.epoch + 1),
    };
    let elapsed = format::duration(model.elapsed(scene.now));
    let right = format!("{epoch}  {elapsed}  {}", left(model.run_left(scene.now)));
    gauge(frame, inner, 1, palette, "run", model.run_fraction(), &right);
}

/// One row: a title, a bar with the percentage, and text at the right.
fn gauge(
    frame: &mut Frame,
    area: Rect,
    row: u16,
    palette: Palette,
    title: &str,
    fraction: Option<f64>,
    right: &str,
) {
    if row >= area.height {
        return;
    }
    let right_width = 34.min(area.width / 2);
    let bar = area.width.saturating_sub(9 + 7 + right_width);
    let done = (f64::from(bar) * fraction.unwrap_or(0.0)).round() as usize;
    let percent = fraction.map_or("   - ".to_owned(), |fraction| format!("{:>3.0} %", 100.0 * fraction));
    let line = Line::from(vec![
        Span::raw(format!(" {title:<8.8}")),
        Span::styled("█".repeat(done), palette.gauge()),
        Span::styled("░".repeat(usize::from(bar) - done), palette.dim()),
        Span::raw(format!(" {percent} ")),
        Span::raw(right.to_owned()),
    ]);
    frame.render_widget(line, Rect { y: area.y + row, height: 1, ..area });
}

/// The use of the system in a panel.
pub(super) fn system(frame: &mut Frame, area: Rect, system: &SystemUse, palette: Palette) {
    let mut lines =
        vec![format!("CPU     {}", percent(system.cpu)), format!("memory  {}", memory(system.memory))];
    lines.extend(
        system.devices.iter().map(|device| {
            format!("{:<7} {}  {}", device.name, percent(device.compute), memory(device.memory))
        }),
    );
    let lines: Vec<Line> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(panel("System", false, palette)), area);
}

/// The use of the system in one line.
pub(super) fn system_line(frame: &mut Frame, area: Rect, system: &SystemUse, palette: Palette) {
    let mut text = format!("CPU {}  memory {}", percent(system.cpu), memory(system.memory));
    for device in &system.devices {
        text += &format!("  {} {} {}", device.name, percent(device.compute), memory(device.memory));
    }
    let line = Line::from(vec![Span::styled(" System ", palette.title()), Span::raw(text)]);
    frame.render_widget(line, area);
}

/// The messages, the last one at the bottom.
pub(super) fn log(frame: &mut Frame, area: Rect, model: &Model, view: &View) {
    let block = panel("Log", view.focus == Focus::Log, view.palette);
    let rows = usize::from(block.inner(area).height);
    let mut lines: Vec<Line> = model
        .messages()
        .rev()
        .skip(view.scroll)
        .take(rows)
        .map(|message| {
            let (word, style) = match message.level {
                Level::Info => ("", Style::new()),
                Level::Warning => ("warning: ", view.palette.warning()),
                Level::Error => ("error: ", view.palette.error()),
            };
            let text = message.text.replace('\n', " ");
            Line::from(vec![
                Span::styled(format!("{:>8}  ", message.step), view.palette.dim()),
                Span::styled(format!("{word}{text}"), style),
            ])
        })
        .collect();
    lines.reverse();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// The keys.
pub(super) fn footer(frame: &mut Frame, area: Rect, view: &View) {
    let text = " ←→ metric  ↑↓ split  w window  s smooth  l log  Tab focus  ? help  q stop";
    frame.render_widget(Span::styled(text, view.palette.dim()), area);
}

/// `epoch 2/10  30/600  9 s left`.
pub(super) fn short_progress(model: &Model, now: Instant) -> String {
    let mut parts = vec![format!("epoch {}", of(model.epoch + 1, model.run.epochs))];
    parts.push(of(model.batch, model.batches()));
    parts.extend(model.run_left(now).map(|left| format!("{} left", format::duration(left))));
    parts.join("  ")
}

/// The sign before the name of a metric: terminals without reversed text also show which one is selected.
fn mark(is_selected: bool) -> char {
    if is_selected { '>' } else { ' ' }
}

fn panel(title: &str, has_focus: bool, palette: Palette) -> Block<'static> {
    let title = Span::styled(format!(" {title} "), palette.title());
    let border = if has_focus { palette.title() } else { palette.dim() };
    Block::bordered().border_style(border).title(title)
}

fn of(done: u64, total: Option<u64>) -> String {
    total.map_or_else(|| done.to_string(), |total| format!("{done}/{total}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn memory(memory: Option<MemoryUse>) -> String {
    memory.map_or("-".to_owned(), |memory| {
        format!("{}/{} GB", format::gigabytes(memory.used), format::gigabytes(memory.total))
    })
}

/// The width of a text on the screen, in columns.
fn width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}
