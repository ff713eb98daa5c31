//! `keygate upgrade`: replaces the running gateway by a new process.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http::StatusCode;

use super::client::ClientRequest;
use super::installation::Installation;
use super::{CliError, ExitStatus, control, output};
use ::control::admin::{UPGRADE_PATH, UpgradeReport, UpgradeRequest};

/// Time-out of an upgrade: longer than that of the gateway, which reports its own.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(75);

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Program of the new process [default: this one]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

impl Args {
    /// Has the running gateway start the program, and reports each step.
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let binary = match self.binary {
            Some(path) => std::path::absolute(&path).with_context(|| format!("{}: no path", path.display()))?,
            None => std::env::current_exe().context("cannot find out the path of this program; give --binary")?,
        };
        let body = serde_json::to_vec(&UpgradeRequest { binary }).context("the path is not Unicode")?;
        let request = ClientRequest::post(UPGRADE_PATH, body).with_timeout(UPGRADE_TIMEOUT);
        let (status, body) = control::send(installation, request)?;
        match status {
            StatusCode::OK => {}
            StatusCode::CONFLICT => {
                return Err(CliError::new(
                    ExitStatus::Temporary,
                    anyhow!("another upgrade is in progress; try again when it finishes"),
                ));
            }
            status => return Err(anyhow!("the gateway responded with {status}; is it of an earlier version?").into()),
        }
        let report: UpgradeReport =
            serde_json::from_slice(&body).context("cannot parse the gateway's response; is it of another version?")?;
        report.steps.iter().for_each(output::note);
        match report.error {
            None => Ok(()),
            Some(error) => {
                Err(CliError::new(ExitStatus::Failed, anyhow!("{error}; the running gateway goes on as before")))
            }
        }
    }
}
