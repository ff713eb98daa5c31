//! Which configuration is in force, and why not a newer one.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// What is said of the configuration; shared by whoever reloads it and whoever tells.
#[derive(Debug)]
pub struct ConfigStatus(Mutex<ConfigReport>);

/// The configuration at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReport {
    /// The file, from the root of the file system.
    pub path: PathBuf,
    /// The SHA-256 of the content in force, in hexadecimal.
    pub sha256: String,
    /// When it was last applied (RFC 3339).
    pub applied: String,
    /// Why the last reload failed; none when it succeeded, or there was none.
    pub last_error: Option<RejectedConfig>,
}

/// A content of the file that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedConfig {
    /// When (RFC 3339).
    pub time: String,
    /// The SHA-256 of the content; none when the file could not be read.
    pub sha256: Option<String>,
    /// Why: every problem on a line of its own, with its place.
    pub error: String,
}

impl ConfigStatus {
    /// In force since the start.
    pub fn new(report: ConfigReport) -> Self {
        Self(Mutex::new(report))
    }

    /// How it stands.
    pub fn report(&self) -> ConfigReport {
        self.locked().clone()
    }

    /// Another content is in force.
    pub fn set_applied(&self, sha256: String, time: String) {
        let mut report = self.locked();
        (report.sha256, report.applied, report.last_error) = (sha256, time, None);
    }

    /// Another content was refused.
    pub fn set_rejected(&self, refusal: RejectedConfig) {
        self.locked().last_error = Some(refusal);
    }

    /// Nothing that holds this lock can leave it half changed: it only assigns.
    fn locked(&self) -> MutexGuard<'_, ConfigReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
