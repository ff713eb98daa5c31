//! Errors of commands, and the exit codes that report them to scripts.

use std::io::{self, Write as _};
use std::process::ExitCode;

use http::StatusCode;

use super::output::EscapedLines;
use domain::key;

/// Exit code of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Refused, failed, not found, not ready.
    Failed = 1,
    /// Usage error: an argument is invalid.
    Usage = 2,
    /// `apply --dry-run`: there is something to change. `replay`: a request would be decided otherwise.
    Pending = 3,
    /// `convert`: something has no counterpart and was left out; all else was converted. `state import`: records are in
    /// conflict; all else was imported.
    Incomplete = 4,
    /// The configuration has errors (`EX_USAGE` of sysexits.h).
    Configuration = 64,
    /// The state is not the one that was served (`EX_DATAERR`): restarting does not help.
    StateLost = 65,
    /// The gateway cannot be reached (`EX_UNAVAILABLE`).
    Unreachable = 69,
    /// Temporary failure (`EX_TEMPFAIL`); the same command may succeed later.
    Temporary = 75,
}

impl ExitStatus {
    /// The exit code of a command whose call was answered with this status, which is no success.
    pub(super) fn of_response(status: StatusCode) -> Self {
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Self::Temporary,
            StatusCode::BAD_REQUEST => Self::Usage,
            _ => Self::Failed,
        }
    }
}

/// Error of a command, with its exit code.
#[derive(Debug)]
pub struct CliError {
    exit: ExitStatus,
    error: anyhow::Error,
}

impl CliError {
    /// An error that ends the process with this code.
    pub fn new(exit: ExitStatus, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// The same error with what it means for the command.
    #[must_use]
    pub fn context(self, text: String) -> Self {
        Self { exit: self.exit, error: self.error.context(text) }
    }

    /// Returns whether the same command may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        self.exit == ExitStatus::Temporary
    }

    /// The error alone, for a command that ends with another exit code.
    pub(super) fn into_cause(self) -> anyhow::Error {
        self.error
    }

    /// Prints the error with its causes to standard error, without the secrets of API keys, and returns the exit code.
    ///
    /// A closed pipe, as in `keygate audit export | head`, is a success.
    pub fn report(&self) -> ExitCode {
        let cause = self.error.downcast_ref::<io::Error>();
        if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        // Configuration errors begin with `file:line:column`, so that editors can jump there.
        let prefix = if self.exit == ExitStatus::Configuration { "" } else { "keygate: " };
        let message = format!("{prefix}{}\n", EscapedLines(format_args!("{:#}", self.error)));
        // When standard error is closed as well, the exit code alone reports the failure.
        let _ = io::stderr().write_all(&key::redact(message.as_bytes()));
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
