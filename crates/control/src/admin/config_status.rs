//! Status of the configuration: the active content, and the error of the last reload.

use std::path::PathBuf;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use domain::clock::{self, Micros};

/// Status of the configuration, shared by the reloader, which updates it, and the admin socket, which reports it.
#[derive(Debug)]
pub struct ConfigStatus(Mutex<ConfigReport>);

/// Status of the configuration at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReport {
    /// The absolute path of the file.
    pub path: PathBuf,
    /// The SHA-256 of the active content, in hexadecimal.
    pub sha256: String,
    /// Time at which the active content was applied last.
    #[serde(with = "clock::rfc3339")]
    pub applied: Micros,
    /// The error of the last reload; none when it succeeded, or there was none.
    pub last_error: Option<RejectedConfig>,
}

/// Content of the file that a reload rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedConfig {
    /// Time of the rejection.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// The SHA-256 of the content; none when the file could not be read.
    pub sha256: Option<String>,
    /// The errors, one on each line, with their places.
    pub error: String,
}

impl ConfigStatus {
    /// The status at the start.
    pub fn new(report: ConfigReport) -> Self {
        Self(Mutex::new(report))
    }

    /// The status now.
    pub fn report(&self) -> ConfigReport {
        self.0.lock().clone()
    }

    /// Records that other content was applied, which clears the error.
    pub fn set_applied(&self, sha256: String, time: Micros) {
        let mut report = self.0.lock();
        report.sha256 = sha256;
        report.applied = time;
        report.last_error = None;
    }

    /// Records that other content was rejected; the active content stays.
    pub fn set_rejected(&self, rejected: RejectedConfig) {
        self.0.lock().last_error = Some(rejected);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_travels_as_the_json_of_the_contract() {
        let json = concat!(
            r#"{"path":"/k.yaml","sha256":"5e","applied":"2026-11-20T21:08:00.000001Z","#,
            r#""last_error":{"time":"2026-11-20T21:09:00.000000Z","sha256":null,"error":"unreadable"}}"#,
        );
        let report: ConfigReport = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), json);
    }
}
