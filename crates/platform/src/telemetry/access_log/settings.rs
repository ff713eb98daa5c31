//! Settings of the access log.

use std::path::PathBuf;

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Destination of the lines.
    pub sink: SinkSettings,
    /// Requests that have a line.
    pub requests: LoggedRequests,
    /// Name of this gateway.
    pub gateway: String,
}

/// Destination of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkSettings {
    /// A file, which is created when it is missing, and opened again on SIGHUP.
    File(PathBuf),
    /// The standard output of the process.
    Stdout,
}

/// Requests that have a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedRequests {
    /// All requests.
    All,
    /// Requests without a record in the audit journal.
    Unaudited,
}
