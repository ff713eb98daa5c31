//! `keygate state`: the state as a whole.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::show::Format;
use super::{CliError, ExitStatus, control, output};
use crate::config::Config;
use crate::migration::{Count, MigrationError, Phase, Progress, Report};
use crate::state::{Settings, embedded, redis};
use crate::{app, audit, telemetry};

/// How often a terminal is told how far it is.
const TICK: Duration = Duration::from_millis(200);

/// What can be done with the state.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy everything to the state that several gateways share: organizations, users, keys and their buckets
    ///
    /// Stop the gateway first. What is there already stays as it is, so this can be run again; what is in the way is
    /// told, and then the exit code is 1.
    Copy {
        /// Where everything is: the state file that `state.embedded` names
        #[arg(long)]
        from: Origin,
        /// Where everything is to be: the Redis that `state.redis` names
        #[arg(long)]
        to: Destination,
    },
}

/// What can be copied from.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Origin {
    Embedded,
}

/// What can be copied to.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Destination {
    Redis,
}

impl Args {
    pub(super) fn run(self, path: &Path, config: &Config) -> Result<(), CliError> {
        let Command::Copy { from: Origin::Embedded, to: Destination::Redis } = self.command;
        let (from, to) = both(path, config)?;
        telemetry::init(telemetry::Settings { level: LevelFilter::WARN, ..config.telemetry });
        let progress = Progress::default();
        let copied = control::runtime()?.block_on(async {
            let copying = app::copy_state(from, to, &config.audit, &progress);
            tokio::select! {
                copied = copying => copied,
                never = told(&progress) => match never {},
            }
        });
        clear();
        let report = copied.map_err(failed)?;
        if self.format.json {
            output::json(&report)?
        } else {
            show(&report)?
        }
        ended(&report)
    }
}

/// Both states' settings; or how to configure them.
fn both<'a>(path: &Path, config: &'a Config) -> Result<(&'a embedded::Settings, &'a redis::Settings), CliError> {
    let (missing, purpose, example) = match (&config.copy_from, &config.state) {
        (Some(from), Settings::Redis(to)) => return Ok((from, to)),
        (_, Settings::Redis(_)) => ("embedded", "which is copied from", "embedded: { path: data/state.db }"),
        (_, Settings::Embedded(_)) => ("redis", "which is copied to", "redis: { url: redis://127.0.0.1:6379 }"),
    };
    let told = format!(
        "{}: state.{missing}: is missing, {purpose}; add it beside the other one, for instance\n  state:\n    {example}",
        path.display()
    );
    Err(CliError::new(ExitStatus::Configuration, anyhow!(told)))
}

/// Tells a terminal how far it is, for as long as it is polled.
async fn told(progress: &Progress) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(TICK).await;
        let (phase, done, all) = progress.look();
        let word = if phase == Phase::Verifying { "verified" } else { "copied" };
        if io::stderr().is_terminal() && all > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K{word} {done} of {all} records");
        }
    }
}

/// Leaves no trace of that.
fn clear() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}

/// Tells what is in use, or away for now, from what failed.
fn failed(error: anyhow::Error) -> CliError {
    let state = matches!(error.downcast_ref(), Some(embedded::OpenError::Locked(_)));
    let journal = matches!(error.downcast_ref(), Some(audit::OpenError::InUse { .. }));
    if state || journal {
        let told = "a gateway runs here, and what it does meanwhile would be lost; stop the gateway first";
        return CliError::new(ExitStatus::Temporary, error.context(told));
    }
    let away = error.downcast_ref::<MigrationError>().is_some();
    if away { CliError::new(ExitStatus::Temporary, error) } else { error.into() }
}

fn show(report: &Report) -> io::Result<()> {
    let row = |name: &str, count: Count| [name.to_owned(), count.copied.to_string(), count.already_there.to_string()];
    let rows = [
        row("organizations", report.orgs),
        row("users", report.users),
        row("keys", report.keys),
        row("digests", report.digests),
    ];
    output::table(["", "COPIED", "ALREADY THERE"], &rows, "")?;
    if report.caught_up > 0 {
        output::line(format_args!("{} keys that were there have caught up with their uses", report.caught_up))?;
    }
    for finding in &report.in_the_way {
        output::line(format_args!("in the way: {finding}"))?;
    }
    if report.left_out.users + report.left_out.keys > 0 {
        let (users, keys) = (report.left_out.users, report.left_out.keys);
        output::line(format_args!("left out with what they belong to: {users} users, {keys} keys"))?;
    }
    for finding in &report.differences {
        output::line(format_args!("differs: {finding}"))?;
    }
    if report.is_complete() {
        output::line("all of it was read back and is the same")?;
    }
    Ok(())
}

fn ended(report: &Report) -> Result<(), CliError> {
    if report.is_complete() {
        return Ok(());
    }
    let (in_the_way, differences) = (report.in_the_way.len(), report.differences.len());
    let told = anyhow!("not all is there: {in_the_way} records are in the way, {differences} differ");
    Err(CliError::new(ExitStatus::Failed, told))
}
