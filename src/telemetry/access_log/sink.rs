//! Destinations of the access log.

use std::fmt;
use std::io;

use super::batch::Batch;
use super::file::{LogFile, Stdout};
use super::settings::SinkSettings;
use super::syslog::Syslog;
use crate::metrics::AccessLogMetrics;

/// A destination.
#[derive(Debug)]
pub(super) enum Sink {
    File(LogFile),
    Stdout(Stdout),
    Syslog(Box<Syslog>),
}

impl Sink {
    /// Opens a destination. A syslog server is connected to when the first line comes; a file that cannot be created for want
    /// of space is tried again then, because a full disk keeps no gateway from starting.
    ///
    /// # Errors
    /// The file cannot be opened or created.
    pub(super) fn open(settings: &SinkSettings, gateway: &str) -> io::Result<Self> {
        Ok(match settings {
            SinkSettings::File(path) => Self::File(LogFile::open(path)?),
            SinkSettings::Stdout => Self::Stdout(Stdout::open()?),
            SinkSettings::Syslog(settings) => Self::Syslog(Box::new(Syslog::new(settings, gateway))),
        })
    }

    /// Writes what is left of a batch, and notes how far it came: whole lines.
    ///
    /// # Errors
    /// Those of the destination.
    pub(super) fn write(&mut self, batch: &mut Batch, metrics: &AccessLogMetrics) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(batch, metrics),
            Self::Stdout(stdout) => stdout.write(batch, metrics),
            Self::Syslog(syslog) => syslog.write(batch, metrics),
        }
    }

    /// Opens the file again by its path, after it was renamed. A syslog server is connected to again.
    ///
    /// # Errors
    /// The file cannot be opened or created; the one of before stays in use.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Stdout(_) => Ok(()),
            Self::Syslog(syslog) => {
                syslog.disconnect();
                Ok(())
            }
        }
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.fmt(f),
            Self::Stdout(_) => f.write_str("standard output"),
            Self::Syslog(syslog) => syslog.fmt(f),
        }
    }
}
