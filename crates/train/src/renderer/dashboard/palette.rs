//! Colours, by the abilities of the terminal.

use ratatui::style::{Color, Modifier, Style};

/// The colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    /// No colours: bold, dim and reversed text.
    Plain,
    /// The 16 colours of the terminal's theme.
    Ansi,
    /// The 256 colours of xterm.
    Full,
}

impl Palette {
    /// Returns the palette for the environment.
    pub(super) fn detect() -> Palette {
        let variable = |name| std::env::var(name).unwrap_or_default();
        Palette::of(&variable("NO_COLOR"), &variable("TERM"), &variable("COLORTERM"))
    }

    /// Returns the palette for the values of `NO_COLOR`, `TERM` and `COLORTERM`; empty where they are unset.
    fn of(no_color: &str, term: &str, color_term: &str) -> Palette {
        if !no_color.is_empty() || term.starts_with("vt") || term.ends_with("-m") || term.ends_with("-mono") {
            Palette::Plain
        } else if term.contains("256color") || term.contains("direct") || !color_term.is_empty() {
            Palette::Full
        } else {
            Palette::Ansi
        }
    }

    /// The style of the curve with this number: 0 is training, validation sets follow.
    pub(super) fn curve(self, number: usize) -> Style {
        let style = Style::new();
        match self {
            Palette::Plain if number == 0 => style,
            Palette::Plain => style.add_modifier(Modifier::BOLD),
            Palette::Ansi => style.fg(pick(&ANSI_CURVES, number)),
            Palette::Full => style.fg(Color::Indexed(pick(&FULL_CURVES, number))),
        }
    }

    /// The style of the curve with this number behind its smoothed curve. A chart has colours alone: `None` without them.
    pub(super) fn raw_curve(self, number: usize) -> Option<Style> {
        match self {
            Palette::Plain => None,
            Palette::Ansi => Some(Style::new().fg(Color::DarkGray)),
            Palette::Full => Some(Style::new().fg(Color::Indexed(pick(&FULL_RAW_CURVES, number)))),
        }
    }

    /// The style of titles of panels.
    pub(super) fn title(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self {
            Palette::Plain => style,
            Palette::Ansi => style.fg(Color::Cyan),
            Palette::Full => style.fg(Color::Indexed(117)),
        }
    }

    /// The style of borders and less important text.
    pub(super) fn dim(self) -> Style {
        match self {
            Palette::Plain => Style::new().add_modifier(Modifier::DIM),
            Palette::Ansi => Style::new().fg(Color::DarkGray),
            Palette::Full => Style::new().fg(Color::Indexed(245)),
        }
    }

    /// The style of the selected metric.
    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    /// The style of the done part of a gauge.
    pub(super) fn gauge(self) -> Style {
        match self {
            Palette::Plain => Style::new(),
            Palette::Ansi => Style::new().fg(Color::Green),
            Palette::Full => Style::new().fg(Color::Indexed(114)),
        }
    }

    /// The style of warnings.
    pub(super) fn warning(self) -> Style {
        match self {
            Palette::Plain => Style::new().add_modifier(Modifier::BOLD),
            Palette::Ansi => Style::new().fg(Color::Yellow),
            Palette::Full => Style::new().fg(Color::Indexed(221)),
        }
    }

    /// The style of errors.
    pub(super) fn error(self) -> Style {
        match self {
            Palette::Plain => Style::new().add_modifier(Modifier::BOLD),
            Palette::Ansi => Style::new().fg(Color::Red),
            Palette::Full => Style::new().fg(Color::Indexed(203)),
        }
    }
}

const ANSI_CURVES: [Color; 5] = [Color::Blue, Color::Yellow, Color::Green, Color::Magenta, Color::Red];
const FULL_CURVES: [u8; 6] = [75, 215, 114, 176, 203, 80];
/// The same colours, darker.
const FULL_RAW_CURVES: [u8; 6] = [24, 94, 65, 96, 88, 30];

/// Returns an element, from the first one again after the last.
fn pick<T: Copy>(colors: &[T], number: usize) -> T {
    colors[number % colors.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_the_palette() {
        assert_eq!(Palette::of("1", "xterm-256color", "truecolor"), Palette::Plain);
        assert_eq!(Palette::of("", "xterm-256color", ""), Palette::Full);
        assert_eq!(Palette::of("", "xterm", "truecolor"), Palette::Full);
        assert_eq!(Palette::of("", "linux", ""), Palette::Ansi);
        assert_eq!(Palette::of("", "vt100", ""), Palette::Plain);
    }
}
