//! `keygate audit`: reads the audit journal: uses of keys, with user, address, time and action.
//!
//! It reads the journal's files directly, also while a gateway runs; where the audit is shipped to PostgreSQL, also the
//! records of all gateways from there. With `--server`, a gateway elsewhere lists them.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;
use serde::Serialize;

use super::audit_filter::FilterArgs;
use super::audit_proofs::RecordCounts;
use super::installation::Installation;
use super::output::{self, or_dash, seconds, word};
use super::remote;
use super::show::Format;
use super::table::{self, Column};
use super::{CliError, ExitStatus, RemoteCommand, audit_proofs, audit_ship, check_proof};
use crate::config::Config;
use journal::audit::{
    AuditView, Filter, Fleet, GatewayFreshness, MissingRecord, Outcome, OwnOnlyReason, Reader, Record, ViewPage,
    ViewScope, ViewStatus,
};

/// Time between two polls for new records: short enough for a person who watches.
const POLL: Duration = Duration::from_millis(200);
/// Time that PostgreSQL has for a part of a list: a command may search all days.
const FLEET_DEADLINE: Duration = Duration::from_secs(60);
/// Error of a command that reads the files of a journal.
const OF_THE_MACHINE: &str = "this reads the files of the journal, or the sinks of the running gateway; run it on the \
                              machine of the gateway, without --server, or use `audit list`";

/// Commands of `keygate audit`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
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
    /// Print all records, one JSON object per line, oldest first, and their number to standard error
    Export {
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// Verify the whole journal; exit code 1 when it has errors
    Verify(audit_proofs::VerifyArgs),
    /// Prove that a record is in the journal, by a signed checkpoint
    Prove(audit_proofs::ProveArgs),
    /// Verify a proof that `audit prove` wrote, and show its record
    ///
    /// Reads nothing but the proof and the key: no journal, no gateway, no configuration. Exit code 1 when it proves
    /// nothing.
    CheckProof(check_proof::Args),
    /// Manage the key that signs checkpoints
    #[command(subcommand)]
    Key(audit_proofs::KeyCommand),
    /// Shipping of the journal to sinks
    Ship(audit_ship::Args),
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        // The sinks are the running gateway's, and a proof is checked where there is no gateway; all else is read from
        // the journal's files.
        match &self.command {
            Command::Ship(ship) if installation.remote().is_none() => return ship.run(installation, self.format),
            Command::CheckProof(args) => return args.run(self.format),
            _ => {}
        }
        if let Some(server) = installation.remote() {
            let Command::List { filter, limit } = self.command else {
                return Err(CliError::new(ExitStatus::Usage, anyhow!(OF_THE_MACHINE)));
            };
            return show_list(&remote::records(server, &filter.resolve(installation)?, limit)?, self.format);
        }
        let config = &installation.config()?;
        match self.command {
            Command::List { filter, limit } => {
                show_list(&page(&open(config)?, &filter.resolve(installation)?, limit)?, self.format)
            }
            Command::Tail { filter, limit } => tail(&open(config)?, filter.resolve(installation)?, limit, self.format),
            Command::Export { filter } => export(&open(config)?, &filter.resolve(installation)?),
            Command::Verify(args) => args.run(&open_journal(config)?, config, self.format),
            Command::Prove(args) => prove(args, config, self.format),
            Command::Key(command) => command.run(config, self.format),
            Command::Ship(_) | Command::CheckProof(_) => unreachable!("they have returned above"),
        }
    }
}

/// JSON form of a list. The fields of each record are in the order of the contract.
#[derive(Serialize)]
pub(super) struct RecordList<'a> {
    records: &'a [Record],
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<&'a ViewStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a MissingRecord>,
}

impl<'a> RecordList<'a> {
    pub(super) fn new(page: &'a ViewPage) -> Self {
        Self { records: &page.records, view: page.status.as_ref(), missing: page.missing.as_ref() }
    }
}

/// Shows a list; of an id that no record has, the records that cover its time, and why there is none of its own.
pub(super) fn show_list(page: &ViewPage, format: Format) -> Result<(), CliError> {
    if format.json {
        return Ok(output::json(&RecordList::new(page))?);
    }
    let covering = page.missing.as_ref().map(|missing| &missing.records);
    show_records(covering.unwrap_or(&page.records), format)?;
    page.missing.iter().for_each(|missing| output::note(&missing.detail));
    note_status(page.status.as_ref());
    Ok(())
}

fn tail(view: &AuditView, filter: Filter, limit: usize, format: Format) -> Result<(), CliError> {
    let mut follow = view.follow(filter, limit)?;
    let mut scope = None;
    loop {
        for record in follow.poll()? {
            if format.json {
                output::json(&record)?;
            } else {
                let cells: Vec<String> = COLUMNS.iter().map(|column| column.text(&record)).collect();
                output::line(cells.join("  "))?;
            }
        }
        // Said when it changes: PostgreSQL has gone, or is back.
        if let Some(status) = follow.status().filter(|status| scope != Some(status.scope)) {
            scope = Some(status.scope);
            note_status(Some(status));
        }
        std::thread::sleep(POLL);
    }
}

/// Buffered: a journal may have millions of records.
fn export(view: &AuditView, filter: &Filter) -> Result<(), CliError> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut counts = RecordCounts::default();
    let status = view.export(filter, &mut |record| {
        counts.records += 1;
        counts.open += u64::from(record.outcome == Outcome::InProgress);
        counts.uses = counts.uses.saturating_add(record.uses());
        writeln!(out, "{}", output::json_text(&record)?)
    })?;
    out.flush()?;
    output::note(counts);
    let missing = if counts.records == 0 { view.explain(filter)? } else { None };
    missing.iter().for_each(|missing| output::note(&missing.detail));
    note_status(status.as_ref());
    Ok(())
}

/// Proves a record; of an id that no record has, notes why.
fn prove(args: audit_proofs::ProveArgs, config: &Config, format: Format) -> Result<(), CliError> {
    let filter = Filter { id: Some(args.id), ..Filter::default() };
    let proved = args.run(&open_journal(config)?, format);
    if proved.is_err() {
        let own = AuditView::of_directory(&config.audit.path).map_err(|error| unreadable(config, error))?;
        page(&own, &filter, 1)?.missing.iter().for_each(|missing| output::note(&missing.detail));
    }
    proved
}

/// Opens the audit for reading.
pub(super) fn open(config: &Config) -> anyhow::Result<AuditView> {
    let Some(settings) = config.shipping.postgresql() else {
        return AuditView::of_directory(&config.audit.path).map_err(|error| unreadable(config, error));
    };
    let view = match AuditView::of_directory(&config.audit.path) {
        // An auditor's machine has the configuration, and no journal.
        Err(error) if error.kind() == io::ErrorKind::NotFound => AuditView::without_journal(&config.audit.path),
        view => view.map_err(|error| unreadable(config, error))?,
    };
    view.set_fleet(Some(Fleet::open(settings.database.clone(), FLEET_DEADLINE)?));
    Ok(view)
}

/// Opens the journal of this gateway for reading.
fn open_journal(config: &Config) -> anyhow::Result<Reader> {
    Reader::open(&config.audit.path).map_err(|error| unreadable(config, error))
}

pub(super) fn unreadable(config: &Config, error: io::Error) -> anyhow::Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let advice = if denied { "; run this as the user that the gateway runs as" } else { "" };
    anyhow!(error).context(format!("{}: cannot be read as a journal{advice}", config.audit.path.display()))
}

/// The newest records, newest first.
pub(super) fn page(view: &AuditView, filter: &Filter, limit: usize) -> io::Result<ViewPage> {
    view.list(filter, limit, None, u64::MAX)
}

/// Notes whose records were shown, and how fresh they are.
pub(super) fn note_status(status: Option<&ViewStatus>) {
    let Some(status) = status else { return };
    if status.scope == ViewScope::Fleet {
        let gateway = |gateway: &GatewayFreshness| format!("{} {}", gateway.gateway, seconds(gateway.complete_until));
        let gateways: Vec<String> = status.gateways.iter().map(gateway).collect();
        return output::note(format_args!("records of all gateways, complete up to: {}", gateways.join(", ")));
    }
    let reason = match status.reason {
        Some(OwnOnlyReason::Behind) => "it has too much to ship yet",
        Some(OwnOnlyReason::AddingUp) => "the records of all gateways are being added up",
        Some(_) => "PostgreSQL cannot be read; see `keygate doctor`",
        None => {
            for GatewayFreshness { gateway, complete_until, .. } in &status.gateways {
                output::note(format_args!(
                    "records of gateway {gateway} only, complete up to {}",
                    seconds(*complete_until)
                ));
            }
            return;
        }
    };
    output::note(format_args!("records of this gateway only: {reason}"));
}

/// Shows records as a table.
pub(super) fn show_records(records: &[Record], format: Format) -> io::Result<()> {
    table::print(COLUMNS, records, "there are no such records", format.wide)
}

const COLUMNS: &[Column<Record>] = &[
    Column::new("TIME", 1, |record| seconds(record.time)),
    Column::new("KEY", 4, |record| or_dash(record.key_id)),
    Column::new("OUTCOME", 2, |record| word(record.outcome)),
    Column::new("STATUS", 5, |record| or_dash(record.status)),
    Column::new("COUNT", 8, |record| record.uses().to_string()),
    Column::new("MS", 10, |record| {
        or_dash(record.duration_us.map(|micros| format!("{}.{}", micros / 1000, micros % 1000 / 100)))
    }),
    Column::new("ACTION", 3, |record| record.action.clone()),
    Column::new("IP", 7, |record| or_dash(record.ip)),
    // Of a change, the one who is acted on.
    Column::new("USER", 9, |record| or_dash(record.subject.or(record.user_id))),
    Column::new("BY", 6, |record| or_dash(maker(record))),
];

/// The actor of a change: `token:ID` of a program, else the name that the record has.
fn maker(record: &Record) -> Option<Cow<'_, str>> {
    let program = record.token_id.map(|token| Cow::Owned(format!("token:{token}")));
    program.or_else(|| record.actor.as_deref().map(Cow::Borrowed))
}
