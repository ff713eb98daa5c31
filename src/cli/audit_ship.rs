//! `keygate audit ship`: the sinks of the running gateway.

use anyhow::anyhow;
use clap::Subcommand;

use super::installation::Installation;
use super::output::{self, or_dash, seconds};
use super::show::Format;
use super::{CliError, control};
use ::control::admin::SHIPPING_PATH;
use domain::page::Page;
use journal::shipping::{SinkReport, SinkState};

/// Arguments of `keygate audit ship`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the sinks of the running gateway: position, lag and the last failure
    ///
    /// Exit code 0 when no sink fails, else 1; 69 when no gateway runs.
    Status,
}

const HEADER: [&str; 9] =
    ["SINK", "KIND", "STATE", "LINES BEHIND", "SECONDS", "SEGMENT", "DELIVERED", "COMPLETE UNTIL", "TARGET"];

impl Args {
    pub(super) fn run(&self, installation: &Installation, format: Format) -> Result<(), CliError> {
        let Command::Status = self.command;
        let page: Page<SinkReport> = control::fetch(installation, SHIPPING_PATH)?;
        if format.json {
            output::json(&page)?;
        } else {
            let rows: Vec<_> = page.items.iter().map(row).collect();
            output::table(
                &HEADER,
                &rows,
                "no sink is running: `audit.ship` names none, or a reload is replacing them",
            )?;
            for report in &page.items {
                for defect in report.defects() {
                    output::line(format_args!("{}: {defect}", report.sink))?;
                }
            }
        }
        match page.items.iter().filter(|report| report.state == SinkState::Failing).count() {
            0 => Ok(()),
            1 => Err(anyhow!("a sink fails; the journal keeps what it has not taken").into()),
            count => Err(anyhow!("{count} sinks fail; the journal keeps what they have not taken").into()),
        }
    }
}

fn row(report: &SinkReport) -> [String; 9] {
    [
        report.sink.clone(),
        report.kind.clone(),
        report.state.to_string(),
        report.lag_records.to_string(),
        format!("{:.1}", report.lag_seconds),
        report.segment.to_string(),
        report.delivered.to_string(),
        or_dash(report.complete_until.map(seconds)),
        report.target.clone(),
    ]
}
