//! `keygate state`: operations on the state as a whole.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::backup::{self, ExportArgs, ImportArgs};
use super::show::Format;
use super::{CliError, ExitStatus, control, output};
use crate::app;
use crate::config::Config;
use domain::counted::Counted;
use journal::audit;
use platform::telemetry;
use state::migration::{MigrationError, Phase, Progress, Report};
use state::{Settings, embedded, redis};

/// Time between two updates of the progress on a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `keygate state`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy all organizations, users, keys and their buckets to the Redis that several gateways share
    ///
    /// Stop the gateway first. Records that exist in the destination are not changed, so the command can be repeated.
    /// Conflicting records are listed, and the exit code is then 1.
    Copy {
        /// Source: the state file of `state.embedded`
        #[arg(long)]
        from: Origin,
        /// Destination: the Redis of `state.redis`
        #[arg(long)]
        to: Destination,
    },
    /// Write organizations, users, keys by digest, limits, buckets and revocations to a file
    ///
    /// Web sessions are left out. The file opens nothing by itself, but treat it as confidential.
    Export(ExportArgs),
    /// Import a file that `export` wrote, into this or another state
    ///
    /// Missing records are created. Where a record is there already, the stricter wins: an old file brings no revoked
    /// key and no removed user back, and fills no bucket. Repeating it changes nothing. Conflicting records are listed,
    /// and the exit code is then 1.
    Import(ImportArgs),
}

/// Source of a copy.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Origin {
    Embedded,
}

/// Destination of a copy.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Destination {
    Redis,
}

impl Args {
    pub(super) fn run(self, path: &Path, config: &Config) -> Result<(), CliError> {
        match &self.command {
            Command::Copy { from: Origin::Embedded, to: Destination::Redis } => self.copy(path, config),
            Command::Export(args) => backup::export(config, args, self.format.json),
            Command::Import(args) => backup::import(config, args, self.format.json),
        }
    }

    fn copy(&self, path: &Path, config: &Config) -> Result<(), CliError> {
        let (from, to) = both_settings(path, config)?;
        telemetry::init(telemetry::Settings { level: LevelFilter::WARN, ..config.telemetry });
        let progress = Progress::default();
        let copied = control::runtime()?.block_on(async {
            let copying = app::copy_state(from, to, config.bounds, &config.audit, &progress);
            tokio::select! {
                copied = copying => copied,
                never = show_progress(&progress) => match never {},
            }
        });
        clear_progress();
        let report = copied.map_err(copy_error)?;
        if self.format.json {
            output::json(&report)?
        } else {
            show(&report)?
        }
        check_complete(&report)
    }
}

/// The settings of both states; an error shows how to configure the missing one.
fn both_settings<'a>(
    path: &Path,
    config: &'a Config,
) -> Result<(&'a embedded::Settings, &'a redis::Settings), CliError> {
    let (missing, purpose, example) = match (&config.copy_from, &config.state) {
        (Some(from), Settings::Redis(to)) => return Ok((from, to)),
        (_, Settings::Redis(_)) => ("embedded", "which is copied from", "embedded: { path: data/state.db }"),
        (_, Settings::Embedded(_)) => ("redis", "which is copied to", "redis: { url: redis://127.0.0.1:6379 }"),
    };
    let message = format!(
        "{}: state.{missing}: is missing, {purpose}; add it beside the other one, for instance\n  state:\n    \
         {example}",
        path.display()
    );
    Err(CliError::new(ExitStatus::Configuration, anyhow!(message)))
}

/// Shows the progress on a terminal, as long as it is polled.
async fn show_progress(progress: &Progress) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let (phase, done, all) = progress.look();
        let word = if phase == Phase::Verifying { "verified" } else { "copied" };
        if io::stderr().is_terminal() && all > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K{word} {done} of {}", Counted(all, "record"));
        }
    }
}

/// Removes the progress from the terminal.
fn clear_progress() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

/// Classifies an error of copying: a store in use, or Redis unavailable, is a temporary failure.
fn copy_error(error: anyhow::Error) -> CliError {
    let state = matches!(error.downcast_ref(), Some(embedded::OpenError::Locked(_)));
    let journal = matches!(error.downcast_ref(), Some(audit::OpenError::InUse { .. }));
    if state || journal {
        let message =
            "a gateway runs on this state, and its changes during the copy would be lost; stop the gateway first";
        return CliError::new(ExitStatus::Temporary, error.context(message));
    }
    let is_unavailable = error.downcast_ref::<MigrationError>().is_some();
    if is_unavailable { CliError::new(ExitStatus::Temporary, error) } else { error.into() }
}

fn show(report: &Report) -> io::Result<()> {
    backup::show_counts(report, "COPIED")?;
    for finding in &report.in_the_way {
        output::line(format_args!("in the way: {finding}"))?;
    }
    if report.left_out.users + report.left_out.keys > 0 {
        let (users, keys) = (report.left_out.users, report.left_out.keys);
        let (users, keys) = (Counted(users, "user"), Counted(keys, "key"));
        output::line(format_args!("left out, because their organization or user was: {users}, {keys}"))?;
    }
    for finding in &report.differences {
        output::line(format_args!("differs: {finding}"))?;
    }
    if report.is_complete() {
        output::line("all records were read back and are equal")?;
    }
    Ok(())
}

fn check_complete(report: &Report) -> Result<(), CliError> {
    if report.is_complete() {
        return Ok(());
    }
    let (in_the_way, differences) = (report.in_the_way.len(), report.differences.len());
    let (in_the_way, differences) = (Counted(in_the_way, "record"), Counted(differences, "difference"));
    let message = anyhow!("the copy is incomplete: {in_the_way} in the way, {differences}");
    Err(CliError::new(ExitStatus::Failed, message))
}
