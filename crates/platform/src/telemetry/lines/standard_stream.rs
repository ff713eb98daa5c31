//! Standard output and standard error as destinations of lines.
//!
//! A write may block for as long as the reader of a pipe does not read: only the thread of the writer waits.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use super::destination::{LineSink, end_of_last_line, note_written, write_some};
use crate::metrics::LineMetrics;
use crate::outbound::delivery::Batch;

/// A standard stream of the process.
#[derive(Debug)]
pub(crate) struct StandardStream {
    /// A copy of the descriptor: who prints to the stream itself does not wait for a lock of this one.
    file: File,
    name: &'static str,
    /// Bytes of the next line that are written already: what goes to a pipe cannot be cut back.
    begun: usize,
}

impl StandardStream {
    pub(crate) fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { file, name: "standard output", begun: 0 })
    }

    pub(crate) fn stderr() -> io::Result<Self> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self { file, name: "standard error", begun: 0 })
    }
}

impl LineSink for StandardStream {
    async fn write(&mut self, batch: &mut Batch<u8>, metrics: &LineMetrics) -> io::Result<()> {
        let (written, result) = write_some(&mut self.file, &batch.rest()[self.begun..]);
        let end = self.begun + written;
        let whole = end_of_last_line(&batch.rest()[..end]);
        self.begun = end - whole;
        note_written(batch, whole, metrics);
        result
    }

    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for StandardStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
