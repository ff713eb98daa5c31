//! Destinations of the access log.

use std::fmt;
use std::io;

use super::file::LogFile;
use super::settings::SinkSettings;
use crate::metrics::LineMetrics;
use crate::outbound::delivery::Batch;
use crate::telemetry::lines::{LineSink, StandardStream};

/// A destination.
pub(super) enum Sink {
    File(LogFile),
    Stdout(StandardStream),
}

impl Sink {
    /// Opens a destination. A file that cannot be created for want of space is tried again when the first line comes,
    /// because a full disk keeps no gateway from starting.
    ///
    /// # Errors
    /// The file cannot be opened or created.
    pub(super) fn open(settings: &SinkSettings) -> io::Result<Self> {
        Ok(match settings {
            SinkSettings::File(path) => Self::File(LogFile::open(path)?),
            SinkSettings::Stdout => Self::Stdout(StandardStream::stdout()?),
        })
    }
}

impl LineSink for Sink {
    async fn write(&mut self, batch: &mut Batch<u8>, metrics: &LineMetrics) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(batch, metrics),
            Self::Stdout(stdout) => stdout.write(batch, metrics).await,
        }
    }

    /// Opens the file again by its path, after it was renamed.
    fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Stdout(stdout) => stdout.reopen(),
        }
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Stdout(stdout) => stdout.fmt(f),
        }
    }
}
