//! `keygate config`: which configuration the running gateway serves by.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Subcommand;
use http::{Method, StatusCode};
use serde::Serialize;

use super::show::Format;
use super::{CliError, ExitStatus, client, control, output};
use crate::admin::{CONFIG_PATH, ConfigReport};
use crate::config::{Config, ContentHash};

/// What can be asked of the configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell which content of the file is in force, since when, and why a newer one was refused
    ///
    /// Exit code 0 when the file's content is in force and the last reload succeeded, else 1; 69 when no gateway runs.
    Status {
        /// The gateway's admin socket; default: the one that the file names, which need not be valid otherwise
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

/// What is in force, beside what is there.
#[derive(Debug, Serialize)]
struct Status {
    #[serde(flatten)]
    report: ConfigReport,
    /// The SHA-256 of the file's content now; none when it cannot be read.
    on_disk: Option<String>,
    /// Whether that is in force.
    current: bool,
}

impl Args {
    pub(super) fn run(self, file: &Path) -> Result<(), CliError> {
        let Command::Status { socket } = self.command;
        let socket = socket.map_or_else(|| named_in(file), Ok)?;
        let status = Status::now(ask(&socket)?);
        if self.format.json {
            output::json(&status)?;
        } else {
            status.show()?;
        }
        status.verdict()
    }
}

/// The socket that a file names, though it may be the very file that the gateway has refused.
fn named_in(file: &Path) -> Result<PathBuf, CliError> {
    Config::admin_socket(file).map_err(|problems| {
        let error = anyhow!(problems).context("the file does not tell where the gateway is; name its --socket");
        CliError::new(ExitStatus::Configuration, anyhow!("{error:#}"))
    })
}

fn ask(socket: &Path) -> Result<ConfigReport, CliError> {
    let shown = socket.display();
    let asked = control::runtime()?.block_on(async {
        let Some(stream) = control::connect(socket).await? else {
            return Err(CliError::new(ExitStatus::Unreachable, anyhow!("{shown}: no gateway listens on this socket")));
        };
        client::exchange(stream, Method::GET, CONFIG_PATH, Vec::new()).await.map_err(|e| {
            CliError::new(ExitStatus::Unreachable, e.context(format!("{shown}: the gateway did not answer")))
        })
    });
    match asked? {
        (StatusCode::OK, body) => {
            Ok(serde_json::from_slice(&body).context("the gateway's answer is of another version")?)
        }
        (status, _) => Err(anyhow!("the gateway answered {status}: it is of an earlier version").into()),
    }
}

impl Status {
    fn now(report: ConfigReport) -> Self {
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
            ("in force", report.sha256.clone()),
            ("applied", output::seconds(&report.applied)),
            ("on disk", on_disk),
        ];
        if let Some(refusal) = &report.last_error {
            fields.push(("refused", output::or_dash(refusal.sha256.as_ref())));
            fields.push(("at", output::seconds(&refusal.time)));
            fields.extend(refusal.error.lines().map(|line| ("because", line.to_owned())));
        }
        Ok(output::fields(&fields)?)
    }

    fn verdict(&self) -> Result<(), CliError> {
        let what = match (&self.report.last_error, self.current) {
            (None, true) => return Ok(()),
            (Some(_), _) => "the last reload was refused, and the content before it is in force",
            (None, false) => "what is in the file is not in force; it is taken within a few seconds, or on SIGHUP",
        };
        Err(anyhow!(what).into())
    }
}
