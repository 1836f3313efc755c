//! The keys, as a table.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A command of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    PreviousMetric,
    NextMetric,
    Up,
    Down,
    PageUp,
    PageDown,
    Window,
    Smoothing,
    Log,
    Focus,
    Help,
    Cancel,
    Redraw,
    Stop,
}

/// The keys without Ctrl.
const KEYS: &[(KeyCode, Command)] = &[
    (KeyCode::Left, Command::PreviousMetric),
    (KeyCode::Right, Command::NextMetric),
    (KeyCode::Up, Command::Up),
    (KeyCode::Down, Command::Down),
    (KeyCode::PageUp, Command::PageUp),
    (KeyCode::PageDown, Command::PageDown),
    (KeyCode::Char('w'), Command::Window),
    (KeyCode::Char('s'), Command::Smoothing),
    (KeyCode::Char('l'), Command::Log),
    (KeyCode::Tab, Command::Focus),
    (KeyCode::BackTab, Command::Focus),
    (KeyCode::Char('?'), Command::Help),
    (KeyCode::Esc, Command::Cancel),
    (KeyCode::Char('q'), Command::Stop),
];

/// The keys with Ctrl.
const CONTROL_KEYS: &[(KeyCode, Command)] =
    &[(KeyCode::Char('c'), Command::Stop), (KeyCode::Char('l'), Command::Redraw)];

/// The lines of the help.
pub(super) const HELP: &[(&str, &str)] = &[
    ("← →", "previous, next metric"),
    ("↑ ↓", "train, valid or both; scroll in the log"),
    ("w", "the whole run, or the last steps"),
    ("s", "smoothing: EMA 0.6, EMA 0.9, or none"),
    ("l", "show or hide the log"),
    ("Tab", "keys go to the chart or to the log"),
    ("q, Ctrl-C", "stop after this step; again: at once"),
    ("Ctrl-L", "draw everything again"),
    ("?, Esc", "close this help"),
    ("mouse", "click a metric; wheel: metric or log"),
];

/// Returns the command of a key.
pub(super) fn command(key: &KeyEvent) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let keys = if key.modifiers.contains(KeyModifiers::CONTROL) { CONTROL_KEYS } else { KEYS };
    keys.iter().find(|(code, _)| *code == key.code).map(|(_, command)| *command)
}
