//! Progress on a terminal: one line of standard error, at most five times a second.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time between two updates.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

/// The line of progress. Dropping it removes the line.
pub(super) struct ProgressLine {
    shown: Option<Instant>,
    is_terminal: bool,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { shown: None, is_terminal: io::stderr().is_terminal() }
    }

    /// Shows this text, unless it is too early.
    pub(super) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.is_terminal && self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.show_now(text());
        }
    }

    /// Shows this text at once, for few steps that may take long each.
    pub(super) fn show_now(&mut self, text: impl Display) {
        if self.is_terminal {
            self.shown = Some(Instant::now());
            // A terminal that is gone is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
