//! The answer on the standard output.

use std::io::{self, Write};

/// The standard output, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Whether the reader is gone, as in `kiln chat MODEL | head -1`.
    is_closed: bool,
    /// Whether the last line has no end.
    is_in_line: bool,
}

impl Output {
    /// Writes text at once. Returns whether the reader is gone.
    pub(super) fn write(&mut self, text: &str) -> bool {
        // Control characters could change the terminal.
        let text: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        if !text.is_empty() && !self.is_closed {
            self.is_in_line = !text.ends_with('\n');
            let mut output = io::stdout().lock();
            self.is_closed = output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err();
        }
        self.is_closed
    }

    /// Ends the last line.
    pub(super) fn end(&mut self) {
        if self.is_in_line {
            self.write("\n");
        }
    }

    /// Returns whether the reader is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}
