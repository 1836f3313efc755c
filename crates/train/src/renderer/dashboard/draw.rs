//! The layout of a frame.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::keys::HELP;
use super::view::{Places, View};
use super::{chart, panels};
use crate::renderer::SystemUse;
use crate::renderer::model::Model;

/// The smallest size with panels. Smaller screens have a few lines of text.
const SMALLEST: (u16, u16) = (48, 14);
/// The width from which the panel of values is wide.
const WIDE: u16 = 120;
/// The height from which the log is shown without a key, and from which the use of the system has a panel.
const TALL: u16 = 32;

/// Everything that a frame shows.
pub(super) struct Scene<'a> {
    pub(super) model: &'a Model,
    pub(super) system: Option<&'a SystemUse>,
    pub(super) is_stopping: bool,
    pub(super) now: Instant,
}

/// Draws a frame and records the places that react to the mouse.
pub(super) fn draw(frame: &mut Frame, scene: &Scene, view: &mut View) {
    view.places = Places::default();
    view.selected = view.selected.min(scene.model.metrics.len().saturating_sub(1));
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return small(frame, scene, view);
    }
    let is_tall = area.height >= TALL;
    let has_log = view.log.unwrap_or(is_tall);
    let has_system = scene.system.is_some();
    let log_height = if has_log { log_height(area, scene.model) } else { 0 };
    let [header, metrics, main, log, progress, system, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(5),
        Constraint::Length(log_height),
        Constraint::Length(4),
        Constraint::Length(u16::from(has_system && !is_tall)),
        Constraint::Length(1),
    ])
    .areas(area);
    panels::header(frame, header, scene, view);
    panels::metrics(frame, metrics, scene.model, view);
    let values_width = if area.width >= WIDE { 60 } else { 39.min(area.width / 2) };
    let [curves, side] =
        Layout::horizontal([Constraint::Min(10), Constraint::Length(values_width)]).areas(main);
    chart::draw(frame, curves, scene.model, view);
    let system_height = scene.system.filter(|_| is_tall).map_or(0, |system| 4 + system.devices.len() as u16);
    let [values, system_panel] =
        Layout::vertical([Constraint::Min(5), Constraint::Length(system_height)]).areas(side);
    panels::values(frame, values, scene, view);
    if has_log {
        view.places.log = log;
        panels::log(frame, log, scene.model, view);
    }
    panels::progress(frame, progress, scene, view.palette);
    match scene.system {
        Some(use_) if is_tall => panels::system(frame, system_panel, use_, view.palette),
        Some(use_) => panels::system_line(frame, system, use_, view.palette),
        None => {}
    }
    panels::footer(frame, footer, view);
    if view.help {
        help(frame, view);
    }
}

/// The height of the log with its border: of its messages, and at most a quarter of the screen.
fn log_height(area: Rect, model: &Model) -> u16 {
    let messages = u16::try_from(model.messages().len()).unwrap_or(u16::MAX);
    messages.saturating_add(2).clamp(3, (area.height / 4).max(4))
}

/// Draws lines without panels: progress, then the values of each metric.
fn small(frame: &mut Frame, scene: &Scene, view: &View) {
    let model = scene.model;
    let mut lines = vec![Line::from(panels::short_progress(model, scene.now))];
    let selected = model.metrics.iter().skip(view.selected).chain(model.metrics.iter().take(view.selected));
    for metric in selected {
        let mut line = format!("{}:", metric.name);
        for history in &metric.splits {
            line += &format!(" {} {}", history.split.name(), history.current);
        }
        lines.push(Line::from(line));
    }
    if scene.is_stopping {
        lines.insert(1, Line::from(Span::styled("stopping after this step", view.palette.warning())));
    }
    frame.render_widget(Paragraph::new(lines), frame.area());
}

fn help(frame: &mut Frame, view: &View) {
    let lines: Vec<Line> = HELP
        .iter()
        .map(|(keys, effect)| {
            Line::from(vec![Span::styled(format!(" {keys:<10} "), view.palette.title()), Span::raw(*effect)])
        })
        .collect();
    let size = (54, lines.len() as u16 + 2);
    let area = centered(frame.area(), size);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(Span::styled(" Help ", view.palette.title()));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Returns a rectangle of at most this width and height in the middle of another.
fn centered(area: Rect, (width, height): (u16, u16)) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 2, width, height)
}
