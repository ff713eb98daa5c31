//! `keygate audit`: reads the audit journal: uses of keys, with user, address, time and action.
//!
//! It reads the journal's files directly, also while a gateway runs.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Subcommand;
use serde::Serialize;
use uuid::Uuid;

use super::key_id::KeyIdParser;
use super::output::{self, or_dash, seconds, word};
use super::show::Format;
use super::{CliError, ExitStatus, control};
use crate::admin::{Operation, Reply};
use crate::audit::{Beginning, Filter, Outcome, Reader, Record, VerifyReport};
use crate::clock::{self, Micros};
use crate::config::Config;
use crate::key::KeyId;
use crate::settings::parse_duration;

/// Time between two polls for new records: short enough for a person who watches.
const POLL: Duration = Duration::from_millis(200);

/// Arguments of `keygate audit`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List records, newest first
    List {
        #[command(flatten)]
        filter: FilterArgs,
        /// Maximum number of records
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Show the last records, and follow new ones as they are completed
    Tail {
        #[command(flatten)]
        filter: FilterArgs,
        /// Number of last records
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
    },
    /// Print all records, one JSON object per line, oldest first
    Export {
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// Verify the whole journal; exit code 1 when it has errors
    Verify,
}

/// Filter options.
#[derive(Debug, clap::Args)]
struct FilterArgs {
    /// Only uses of this key: the nine characters after sk_live_
    #[arg(long, value_name = "KEY_ID", value_parser = KeyIdParser)]
    key: Option<KeyId>,
    /// Only uses by this user: an id, or, with --org, an email address
    #[arg(long)]
    user: Option<String>,
    /// Only uses in this organization: an id or a name
    #[arg(long)]
    org: Option<String>,
    /// Only from this time on: RFC 3339, or a duration before now, such as 1h
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Micros>,
    /// Only before this time: RFC 3339, or a duration before now, such as 1h
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Micros>,
    /// Only the record of this request: the value of X-Request-Id, or request_id of a refusal
    #[arg(long, value_name = "REQUEST_ID")]
    id: Option<Uuid>,
    /// Only uses with this outcome, such as rate_limited or expired
    #[arg(long, value_name = "OUTCOME", value_parser = outcome)]
    outcome: Option<Outcome>,
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), CliError> {
        let reader = open(config)?;
        match self.command {
            Command::List { filter, limit } => list(&reader, &filter.resolve(config)?, limit, self.format),
            Command::Tail { filter, limit } => tail(&reader, filter.resolve(config)?, limit, self.format),
            Command::Export { filter } => export(&reader, &filter.resolve(config)?),
            Command::Verify => verify(&reader, self.format),
        }
    }
}

impl FilterArgs {
    /// The filter, with names and email addresses resolved to ids.
    fn resolve(self, config: &Config) -> Result<Filter, CliError> {
        let Self { key, since, until, id, outcome, .. } = self;
        if since.is_some() && until.is_some() && since >= until {
            return Err(CliError::new(
                ExitStatus::Usage,
                anyhow!("--since is not before --until; no record can match"),
            ));
        }
        let mut filter = Filter { key, since, until, id, outcome, ..Filter::default() };
        if let Some(org) = &self.org {
            filter.org = Some(match org.parse() {
                Ok(id) => id,
                Err(_) => org_id(config, org)?,
            });
        }
        if let Some(user) = &self.user {
            filter.user = Some(match user.parse() {
                Ok(id) => id,
                Err(_) => user_id(config, self.org.as_deref(), user)?,
            });
        }
        Ok(filter)
    }
}

/// The id of an organization given by name.
fn org_id(config: &Config, org: &str) -> Result<crate::identity::OrgId, CliError> {
    match control::perform(config, &Operation::ShowOrg { org: org.to_owned() })? {
        Reply::Org { org } => Ok(org.id),
        _ => Err(anyhow!("the gateway answered something else").into()),
    }
}

/// The id of a user given by email address, also of a removed user; the newest of several that had the address.
fn user_id(config: &Config, org: Option<&str>, user: &str) -> Result<crate::identity::UserId, CliError> {
    let org = org.context("--user takes an id usr_…; for an email address, give --org as well")?;
    let mut found = None;
    control::for_each_page(config, Operation::list_users(org.to_owned()), |reply, _| {
        let Reply::Users(page) = reply else { return Err(anyhow!("the gateway answered something else").into()) };
        let newest = page.items.iter().rfind(|known| known.email.eq_ignore_ascii_case(user));
        found = newest.map(|user| user.id).or(found);
        Ok(())
    })?;
    Ok(found.with_context(|| format!("there is no user `{user}` in this organization"))?)
}

/// JSON form of a list. The fields of each record are in the order of the contract.
#[derive(Serialize)]
struct RecordList<'a> {
    records: &'a [Record],
}

fn list(reader: &Reader, filter: &Filter, limit: usize, format: Format) -> Result<(), CliError> {
    let records = records(reader, filter, limit)?;
    if format.json {
        return Ok(output::json(&RecordList { records: &records })?);
    }
    Ok(show_records(&records)?)
}

fn tail(reader: &Reader, filter: Filter, limit: usize, format: Format) -> Result<(), CliError> {
    let mut follow = reader.follow(filter, limit)?;
    loop {
        for record in follow.poll()? {
            if format.json {
                output::json(&record)?;
            } else {
                output::line(row(&record).join("  "))?;
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Buffered: a journal may have millions of records.
fn export(reader: &Reader, filter: &Filter) -> Result<(), CliError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    reader.export(filter, &mut |record| writeln!(out, "{}", serde_json::to_string(&record)?))?;
    Ok(out.flush()?)
}

fn verify(reader: &Reader, format: Format) -> Result<(), CliError> {
    let report = reader.verify()?;
    if format.json {
        output::json(&report)?;
    } else {
        output::line(format_args!(
            "{} segments, {} records ({} open), {} events, {} problems",
            report.segments, report.records, report.open, report.events, report.problem_count
        ))?;
        if let Some(beginning) = beginning(&report) {
            output::line(beginning)?;
        }
        for problem in &report.problems {
            output::line(format_args!("segment {} line {}: {}", problem.segment, problem.line, problem.what))?;
        }
    }
    match report.problem_count {
        0 => Ok(()),
        1 => Err(CliError::new(ExitStatus::Failed, anyhow!("the journal has 1 error"))),
        count => Err(CliError::new(ExitStatus::Failed, anyhow!("the journal has {count} errors"))),
    }
}

/// A line about segments that are no longer there, for people.
fn beginning(report: &VerifyReport) -> Option<String> {
    let first = report.first_segment;
    match report.beginning {
        Beginning::Removed => Some(format!("it begins with segment {first}: retention has removed those before it")),
        Beginning::Unknown => Some(format!(
            "it begins with segment {first}: a version that did not record removals has written it; \
             the next start of the gateway records this beginning"
        )),
        Beginning::Complete | Beginning::Missing => None,
    }
}

/// Opens the journal for reading.
pub(super) fn open(config: &Config) -> anyhow::Result<Reader> {
    let path = &config.audit.path;
    Reader::open(path).map_err(|error| {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let advice = if denied { "; run this as the user that the gateway runs as" } else { "" };
        anyhow!(error).context(format!("{}: cannot be read as a journal{advice}", path.display()))
    })
}

/// The newest records, newest first.
pub(super) fn records(reader: &Reader, filter: &Filter, limit: usize) -> io::Result<Vec<Record>> {
    Ok(reader.list(filter, limit, None)?.records)
}

/// Shows records as a table.
pub(super) fn show_records(records: &[Record]) -> io::Result<()> {
    let rows: Vec<_> = records.iter().map(row).collect();
    let header = ["TIME", "KEY", "OUTCOME", "STATUS", "COUNT", "MS", "ACTION", "IP", "USER"];
    output::table(&header, &rows, "there are no such records")
}

fn row(record: &Record) -> [String; 9] {
    let millis = record.duration_us.map(|micros| format!("{}.{}", micros / 1000, micros % 1000 / 100));
    [
        seconds(record.time),
        or_dash(record.key_id),
        word(record.outcome),
        or_dash(record.status),
        record.uses().to_string(),
        or_dash(millis),
        record.action.clone(),
        or_dash(record.ip),
        or_dash(record.user_id),
    ]
}

/// Parses an outcome by its word in records.
fn outcome(text: &str) -> Result<Outcome, String> {
    let words = || Outcome::all().map(Outcome::name).collect::<Vec<_>>().join(", ");
    Outcome::from_name(text).ok_or_else(|| format!("give one of {}", words()))
}

/// Parses a time, or a duration before now.
fn time(text: &str) -> Result<Micros, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(clock::now().before(ago));
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| {
        "give an RFC 3339 time such as 2026-01-31T12:00:00Z, or a duration before now such as 1h".to_owned()
    })?;
    u64::try_from(time.as_microsecond()).map(Micros).map_err(|_| "is before 1970".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_timestamp_or_a_duration_before_now() {
        assert_eq!(time("1970-01-01T00:00:01Z"), Ok(Micros(1_000_000)));
        assert_eq!(time("1970-01-01T01:00:00.5+01:00"), Ok(Micros(500_000)));
        let ago = time("1h").unwrap();
        assert!(clock::now().since(ago).abs_diff(3_600_000_000) < 60_000_000);
        assert!(time("yesterday").is_err());
        assert!(time("1960-01-01T00:00:00Z").is_err());
    }
}
