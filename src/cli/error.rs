//! Why a command ended without success, and the exit code that says so to scripts.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::key;

/// How a command ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Refused, failed, not found, not ready.
    Failed = 1,
    /// Wrong usage: what was given is not what it should be.
    Usage = 2,
    /// The configuration has errors (`EX_USAGE` of sysexits.h).
    Configuration = 64,
    /// The gateway cannot be reached (`EX_UNAVAILABLE`).
    Unreachable = 69,
    /// Not now (`EX_TEMPFAIL`).
    Temporary = 75,
}

/// An error with the exit code it ends the process with.
#[derive(Debug)]
pub struct CliError {
    exit: ExitStatus,
    error: anyhow::Error,
}

impl CliError {
    /// A failure that ends the process with this code.
    pub fn new(exit: ExitStatus, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// Tells standard error what was wrong, causes included but no secrets of keys, and returns the exit code. A reader that went away, as in
    /// `keygate audit export | head`, is no failure.
    pub fn report(&self) -> ExitCode {
        let cause = self.error.downcast_ref::<io::Error>();
        if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        // Configuration errors begin with their place in the file, so that editors can go there.
        let prefix = if self.exit == ExitStatus::Configuration { "" } else { "keygate: " };
        // Nobody is left to be told when standard error is closed.
        let told = format!("{prefix}{:#}\n", self.error);
        let _ = io::stderr().write_all(&key::redacted(told.as_bytes()));
        ExitCode::from(self.exit as u8)
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: ExitStatus::Failed, error }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::new(ExitStatus::Failed, error)
    }
}
