//! `keygate usage`: usage to bill by, from the records of the audit journal.
//!
//! It reads the records of all gateways where the audit is shipped to PostgreSQL, and the journal's files elsewhere,
//! also while a gateway runs; with `--server`, a gateway elsewhere does so. It says whose records it has counted, and
//! up to when.

mod cloudevents;
mod names;
mod present;

use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;

use super::installation::Installation;
use super::remote::{self, RemoteArgs};
use super::show::Format;
use super::{CliError, ExitStatus, audit, audit_filter};
use crate::config::Config;
use ::control::management::{UsageScope, UsageSummary};
use domain::clock::{self, Micros};
use journal::audit::{AuditView, BillingPeriod, Fleet, UsageBy, UsageQuery};
use names::Names;

/// Time that PostgreSQL has to add up the records of all days.
const FLEET_DEADLINE: Duration = Duration::from_secs(3600);

/// Arguments of `keygate usage`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Subject of each row
    #[arg(long, value_enum)]
    by: By,
    /// Period of each row, in UTC
    #[arg(long, value_enum, default_value = "day")]
    per: Per,
    /// Only requests from this time on: RFC 3339, or a duration before now, such as 48h
    #[arg(long, value_name = "TIME", value_parser = audit_filter::time)]
    since: Option<Micros>,
    /// Only requests before this time: RFC 3339, or a duration before now, such as 48h
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
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
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
        if self.since.is_some() && self.until.is_some() && self.since >= self.until {
            let message = anyhow::anyhow!("--since is not before --until; no request can match");
            return Err(CliError::new(ExitStatus::Usage, message));
        }
        let query = self.query();
        let usage = match installation.remote() {
            Some(remote) => remote::usage(remote, query, self.scope())?,
            None => self.read(&installation.config()?, query)?,
        };
        present::note_gaps(&usage);
        if let Some(form) = self.cloudevents {
            cloudevents::print(&usage, form == Form::Batch)?;
        } else {
            let names = Names::fetch(installation, &usage)?;
            if self.format.json {
                present::json(&usage, &names)?
            } else {
                present::table(&usage, &names, self.format.wide)?
            }
        }
        audit::note_status(Some(&usage.view));
        Ok(())
    }

    fn query(&self) -> UsageQuery {
        UsageQuery {
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
            org: None,
            budget: None,
        }
    }

    fn scope(&self) -> Option<UsageScope> {
        if self.own { Some(UsageScope::Gateway) } else { self.fleet.then_some(UsageScope::Fleet) }
    }

    /// Reads the usage of this machine's installation.
    fn read(&self, config: &Config, query: UsageQuery) -> Result<UsageSummary, CliError> {
        let is_fleet = !self.own && (self.fleet || config.shipping.postgresql().is_some());
        let (reports, status) = if is_fleet {
            let view = AuditView::without_journal(&config.audit.path);
            view.set_fleet(Some(Fleet::open(database(config)?, FLEET_DEADLINE).context(NO_FLEET)?));
            view.usage_of_fleet(query).context(NO_FLEET)?
        } else {
            let view = AuditView::of_directory(&config.audit.path);
            let view = view.map_err(|error| audit::unreadable(config, error))?;
            view.usage_of_gateway(query, config.audit.gateway.clone(), clock::now())?
        };
        Ok(UsageSummary::new(query, &reports, status))
    }
}

const NO_FLEET: &str = "the records of all gateways cannot be read; --own counts those of this gateway alone";

/// The database with the records of all gateways.
fn database(config: &Config) -> Result<platform::postgresql::Settings, CliError> {
    let sink = config
        .shipping
        .postgresql()
        .context("--fleet reads the records in PostgreSQL, and `audit.ship` has no such sink")?;
    Ok(sink.database.clone())
}
