//! `keygate usage`: usage to bill by, from the records of the audit journal.
//!
//! It reads the journal's files directly, also while a gateway runs.

mod cloudevents;
mod fleet;
mod present;

use anyhow::Context as _;
use clap::ValueEnum;

use super::show::Format;
use super::{CliError, ExitStatus, audit, audit_filter};
use crate::config::Config;
use domain::clock::{self, Micros};
use journal::audit::{BillingPeriod, Reader, UsageBy, UsageQuery};

/// Arguments of `keygate usage`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Subject of each row
    #[arg(long, value_enum)]
    by: By,
    /// Period of each row, in UTC
    #[arg(long, value_enum, default_value = "day")]
    per: Per,
    /// Only uses from this time on: RFC 3339, or a duration before now, such as 48h
    #[arg(long, value_name = "TIME", value_parser = audit_filter::time)]
    since: Option<Micros>,
    /// Only uses before this time: RFC 3339, or a duration before now, such as 48h
    #[arg(long, value_name = "TIME", value_parser = audit_filter::time)]
    until: Option<Micros>,
    /// Read the records of all gateways in the PostgreSQL of `audit.ship`, and not the journal of this one
    #[arg(long)]
    fleet: bool,
    /// Print CloudEvents 1.0 in JSON, of final rows only: one on each line, or all in one batch
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, default_missing_value = "lines")]
    #[arg(conflicts_with = "json")]
    cloudevents: Option<Form>,
    #[command(flatten)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Organizations
    Org,
    /// Keys; the web sessions of an organization are one row
    Key,
    /// Listed routes; all other requests are one row
    Route,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Per {
    /// Days
    Day,
    /// Calendar months
    Month,
}

/// Form of CloudEvents in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// An event in the structured mode on each line
    Lines,
    /// The JSON batch format: one array
    Batch,
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), CliError> {
        if self.since.is_some() && self.until.is_some() && self.since >= self.until {
            let message = anyhow::anyhow!("--since is not before --until; no use can match");
            return Err(CliError::new(ExitStatus::Usage, message));
        }
        let query = UsageQuery {
            by: match self.by {
                By::Org => UsageBy::Org,
                By::Key => UsageBy::Key,
                By::Route => UsageBy::Route,
            },
            per: match self.per {
                Per::Day => BillingPeriod::Day,
                Per::Month => BillingPeriod::Month,
            },
            since: self.since,
            until: self.until,
            by_gateway: self.cloudevents.is_some(),
        };
        let reports = if self.fleet {
            fleet::read(database(config)?, query)?
        } else {
            vec![journal(config)?.usage(query, clock::now())?]
        };
        reports.iter().for_each(present::note_gaps);
        if let Some(form) = self.cloudevents {
            return Ok(cloudevents::print(&reports, form == Form::Batch)?);
        }
        // Without events there is one report for all gateways.
        for report in &reports {
            if self.format.json { present::json(report)? } else { present::table(report)? }
        }
        Ok(())
    }
}

/// The journal of this machine.
fn journal(config: &Config) -> anyhow::Result<Reader> {
    Reader::open(&config.audit.path).map_err(|error| audit::unreadable(config, error))
}

/// The database with the records of all gateways.
fn database(config: &Config) -> Result<platform::postgresql::Settings, CliError> {
    let sink = config
        .shipping
        .postgresql()
        .context("--fleet reads the records in PostgreSQL, and `audit.ship` has no such sink")?;
    Ok(sink.database.clone())
}
