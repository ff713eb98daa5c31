//! `keygate config`: the configuration of the running gateway.

use anyhow::anyhow;
use clap::Subcommand;
use serde::Serialize;

use super::installation::Installation;
use super::show::Format;
use super::{CliError, control, output};
use crate::config::ContentHash;
use ::control::admin::{CONFIG_PATH, ConfigReport};

/// Arguments of `keygate config`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which content of the file is active, since when, and why a newer one was rejected
    ///
    /// Exit code 0 when the content of the file is active and the last reload succeeded, else 1; 69 when no gateway
    /// runs.
    Status,
}

/// Comparison of the active configuration with the file.
#[derive(Debug, Serialize)]
struct Status {
    #[serde(flatten)]
    report: ConfigReport,
    /// SHA-256 of the file's content now; none when it cannot be read.
    on_disk: Option<String>,
    /// True when this content is active.
    current: bool,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let Command::Status = self.command;
        let status = Status::compare(control::fetch(installation, CONFIG_PATH)?);
        if self.format.json {
            output::json(&status)?;
        } else {
            status.show()?;
        }
        status.into_result()
    }
}

impl Status {
    fn compare(report: ConfigReport) -> Self {
        let on_disk = std::fs::read(&report.path).ok().map(|content| ContentHash::from_content(&content).to_string());
        let current = on_disk.as_ref() == Some(&report.sha256);
        Self { report, on_disk, current }
    }

    fn show(&self) -> Result<(), CliError> {
        let Self { report, on_disk, current } = self;
        let on_disk = match on_disk {
            Some(_) if *current => "the same".to_owned(),
            Some(hash) => hash.clone(),
            None => "cannot be read".to_owned(),
        };
        let mut fields = vec![
            ("file", report.path.display().to_string()),
            ("active", report.sha256.clone()),
            ("applied", output::seconds(report.applied)),
            ("on disk", on_disk),
        ];
        if let Some(refusal) = &report.last_error {
            fields.push(("refused", output::or_dash(refusal.sha256.as_ref())));
            fields.push(("at", output::seconds(refusal.time)));
            fields.extend(refusal.error.lines().map(|line| ("because", line.to_owned())));
        }
        Ok(output::fields(&fields)?)
    }

    fn into_result(self) -> Result<(), CliError> {
        let message = match (&self.report.last_error, self.current) {
            (None, true) => return Ok(()),
            (Some(_), _) => "the last reload was rejected; the previous content stays active",
            (None, false) => {
                "the content of the file is not active; the gateway reloads it within a few seconds, or on SIGHUP"
            }
        };
        Err(anyhow!(message).into())
    }
}
