//! `keygate usage`: usage to bill by, from the records of the audit journal.
//!
//! It reads the records of all gateways where the audit is shipped to PostgreSQL, and the journal's files elsewhere,
//! also while a gateway runs. It says whose records it has counted, and up to when.

mod cloudevents;
mod fleet;
mod names;
mod present;

use anyhow::Context as _;
use clap::ValueEnum;

use super::installation::Installation;
use super::show::Format;
use super::{CliError, ExitStatus, audit, audit_filter};
use crate::config::Config;
use domain::clock::{self, Micros};
use journal::audit::{
    BillingPeriod, GatewayFreshness, Reader, UsageBy, UsageQuery, UsageReport, ViewScope, ViewStatus,
};
use names::Names;

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
    /// Count the records of all gateways in the PostgreSQL of `audit.ship`: the default where there is one
    #[arg(long, conflicts_with = "own")]
    fleet: bool,
    /// Count the records of this gateway alone, from its journal
    #[arg(long)]
    own: bool,
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
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let config = &installation.config()?;
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
        let is_fleet = !self.own && (self.fleet || config.shipping.postgresql().is_some());
        let (reports, status) = if is_fleet { fleet::read(database(config)?, query)? } else { own(config, query)? };
        reports.iter().for_each(present::note_gaps);
        if let Some(form) = self.cloudevents {
            cloudevents::print(&reports, form == Form::Batch)?;
            audit::note_status(Some(&status));
            return Ok(());
        }
        // Without events there is one report for all gateways.
        for report in &reports {
            let names = Names::fetch(installation, report)?;
            if self.format.json { present::json(report, &status, &names)? } else { present::table(report, &names)? }
        }
        audit::note_status(Some(&status));
        Ok(())
    }
}

/// The usage in the journal of this gateway.
fn own(config: &Config, query: UsageQuery) -> Result<(Vec<UsageReport>, ViewStatus), CliError> {
    let now = clock::now();
    let report = journal(config)?.usage(query, now)?;
    let gateway = config.audit.gateway.clone();
    let gateways = vec![GatewayFreshness { gateway, complete_until: report.settled_before, updated: now }];
    Ok((vec![report], ViewStatus { scope: ViewScope::Gateway, reason: None, gateways }))
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
