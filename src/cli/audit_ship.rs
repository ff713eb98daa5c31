//! `keygate audit ship`: the sinks of the running gateway.

use anyhow::anyhow;
use clap::Subcommand;

use super::installation::Installation;
use super::output::{self, or_dash, seconds};
use super::show::Format;
use super::table::{self, Column};
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

/// Note for an empty list.
const EMPTY: &str = "no sink is running: `audit.ship` names none, or a reload is replacing them";

const COLUMNS: &[Column<SinkReport>] = &[
    Column::new("SINK", 1, |report| report.sink.clone()),
    Column::new("KIND", 6, |report| report.kind.clone()),
    Column::new("STATE", 2, |report| report.state.to_string()),
    Column::new("LINES BEHIND", 3, |report| report.lag_records.to_string()),
    Column::new("SECONDS", 4, |report| format!("{:.1}", report.lag_seconds)),
    Column::new("SEGMENT", 9, |report| report.segment.to_string()),
    Column::new("DELIVERED", 7, |report| report.delivered.to_string()),
    Column::new("COMPLETE UNTIL", 5, |report| or_dash(report.complete_until.map(seconds))),
    Column::new("TARGET", 8, |report| report.target.clone()),
];

impl Args {
    pub(super) fn run(&self, installation: &Installation, format: Format) -> Result<(), CliError> {
        let Command::Status = self.command;
        let page: Page<SinkReport> = control::fetch(installation, SHIPPING_PATH)?;
        if format.json {
            output::json(&page)?;
        } else {
            table::print(COLUMNS, &page.items, EMPTY, format.wide)?;
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
