//! The part of the run that the user looks at, changed by keys and the mouse.

use crossterm::event::{Event, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::keys::{self, Command};
use super::palette::Palette;
use crate::record::Split;
use crate::renderer::model::Model;

/// The weights of the smoothing, in the order of the key. The first is TensorBoard's default.
const SMOOTHINGS: [f64; 3] = [0.6, 0.9, 0.0];

/// The state of the view.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) palette: Palette,
    /// The index of the selected metric.
    pub(super) selected: usize,
    pub(super) shown: Shown,
    pub(super) window: Window,
    /// The weight of the exponential moving average that smooths the curves; 0 for none.
    pub(super) smoothing: f64,
    /// Whether the log is shown. `None`: if the screen is tall.
    pub(super) log: Option<bool>,
    pub(super) focus: Focus,
    pub(super) help: bool,
    /// The number of messages below the lowest one that is shown.
    pub(super) scroll: usize,
    /// The places of the last frame.
    pub(super) places: Places,
}

/// The places that react to the mouse.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Names of metrics, with their indices.
    pub(super) metrics: Vec<(Rect, usize)>,
    /// The log. Empty if it is hidden.
    pub(super) log: Rect,
}

/// The splits whose curves are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Both,
    Train,
    Valid,
}

/// The steps that the chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Lifelong,
    Recent,
}

/// The pane that up and down go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Chart,
    Log,
}

/// The effect of an event outside the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing changed.
    Nothing,
    /// The view changed.
    Changed,
    /// The screen is to be cleared.
    Redraw,
    /// The user asked for a stop.
    Stop,
}

impl View {
    pub(super) fn new(palette: Palette) -> View {
        View {
            palette,
            selected: 0,
            shown: Shown::Both,
            window: Window::Lifelong,
            smoothing: SMOOTHINGS[0],
            log: None,
            focus: Focus::Chart,
            help: false,
            scroll: 0,
            places: Places::default(),
        }
    }

    /// Handles an event.
    pub(super) fn handle(&mut self, event: &Event, model: &Model) -> Action {
        if let Event::Key(key) = event {
            keys::command(key).map_or(Action::Nothing, |command| self.command(command, model))
        } else if let Event::Mouse(mouse) = event {
            self.mouse(mouse, model)
        } else if let Event::Resize(..) = event {
            Action::Changed
        } else {
            Action::Nothing
        }
    }

    fn command(&mut self, command: Command, model: &Model) -> Action {
        let in_log = self.focus == Focus::Log;
        match command {
            Command::PreviousMetric => self.change_metric(false, model),
            Command::NextMetric => self.change_metric(true, model),
            Command::Up if in_log => self.scroll_by(1, model),
            Command::Down if in_log => self.scroll_by(-1, model),
            Command::Up => self.shown = self.shown.next().next(),
            Command::Down => self.shown = self.shown.next(),
            Command::PageUp => self.scroll_by(10, model),
            Command::PageDown => self.scroll_by(-10, model),
            Command::Window => {
                self.window = match self.window {
                    Window::Lifelong => Window::Recent,
                    Window::Recent => Window::Lifelong,
                };
            }
            Command::Smoothing => {
                let place = SMOOTHINGS.iter().position(|weight| *weight == self.smoothing).unwrap_or(0);
                self.smoothing = SMOOTHINGS[(place + 1) % SMOOTHINGS.len()];
            }
            Command::Log => self.toggle_log(),
            Command::Focus => {
                self.focus = match self.focus {
                    Focus::Chart if self.is_log_shown() => Focus::Log,
                    Focus::Chart | Focus::Log => Focus::Chart,
                };
            }
            Command::Help => self.help = !self.help,
            Command::Cancel => self.help = false,
            Command::Redraw => return Action::Redraw,
            Command::Stop => return Action::Stop,
        }
        Action::Changed
    }

    fn mouse(&mut self, mouse: &MouseEvent, model: &Model) -> Action {
        let at = Position::new(mouse.column, mouse.row);
        let in_log = self.places.log.contains(at);
        if mouse.kind == MouseEventKind::Down(MouseButton::Left) {
            let clicked = self.places.metrics.iter().find(|(place, _)| place.contains(at));
            if let Some((_, metric)) = clicked {
                self.selected = *metric;
            }
            self.focus = if in_log { Focus::Log } else { Focus::Chart };
        } else if mouse.kind == MouseEventKind::ScrollUp {
            if in_log { self.scroll_by(3, model) } else { self.change_metric(false, model) }
        } else if mouse.kind == MouseEventKind::ScrollDown {
            if in_log { self.scroll_by(-3, model) } else { self.change_metric(true, model) }
        } else {
            return Action::Nothing;
        }
        Action::Changed
    }

    /// Whether the last frame contained the log.
    fn is_log_shown(&self) -> bool {
        !self.places.log.is_empty()
    }

    fn toggle_log(&mut self) {
        self.log = Some(!self.is_log_shown());
        self.focus = Focus::Chart;
        self.scroll = 0;
    }

    fn change_metric(&mut self, forwards: bool, model: &Model) {
        let count = model.metrics.len().max(1);
        let step = if forwards { 1 } else { count - 1 };
        self.selected = (self.selected + step) % count;
    }

    fn scroll_by(&mut self, lines: isize, model: &Model) {
        if !self.is_log_shown() {
            return;
        }
        let last = model.messages().len().saturating_sub(1);
        self.scroll = self.scroll.saturating_add_signed(lines).min(last);
    }
}

impl Shown {
    /// Returns whether the curve of a split is shown.
    pub(super) fn contains(self, split: &Split) -> bool {
        match (self, split) {
            (Shown::Both, _) | (Shown::Train, Split::Train) | (Shown::Valid, Split::Valid(_)) => true,
            (Shown::Train, Split::Valid(_)) | (Shown::Valid, Split::Train) => false,
        }
    }

    fn next(self) -> Shown {
        match self {
            Shown::Both => Shown::Train,
            Shown::Train => Shown::Valid,
            Shown::Valid => Shown::Both,
        }
    }
}
