//! Presentation of usage, as a table or as JSON.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde::ser::SerializeMap as _;

use super::names::Names;
use crate::cli::output::{self, or_dash, seconds};
use crate::cli::table::{Column, Table};
use ::control::management::UsageSummary;
use domain::clock::Micros;
use domain::counted::Counted;
use domain::identity::OrgId;
use domain::key::KeyId;
use journal::audit::{Outcome, UsageBy, UsageRow, UsageSubject, ViewStatus};

/// Usage of one subject within one period, as JSON has it.
#[derive(Serialize)]
pub(super) struct UsageItem<'a> {
    period: String,
    #[serde(with = "domain::clock::rfc3339")]
    start: Micros,
    #[serde(with = "domain::clock::rfc3339")]
    end: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<&'a str>,
    #[serde(flatten)]
    subject: SubjectFields<'a>,
    requests: u64,
    refusals: u64,
    open: u64,
    #[serde(serialize_with = "by_name")]
    outcomes: &'a [(Outcome, u64)],
    units: u64,
    request_bytes: u64,
    response_bytes: u64,
}

/// The subject, by the names of audit records.
#[derive(Serialize)]
#[serde(untagged)]
enum SubjectFields<'a> {
    Org { org_id: OrgId },
    Key { org_id: OrgId, key_id: Option<KeyId> },
    Route { route: Option<&'a str> },
}

/// JSON form of usage.
#[derive(Serialize)]
struct ReportFields<'a> {
    by: &'static str,
    per: &'static str,
    #[serde(with = "domain::clock::rfc3339::option")]
    since: Option<Micros>,
    #[serde(with = "domain::clock::rfc3339::option")]
    until: Option<Micros>,
    #[serde(with = "domain::clock::rfc3339::option")]
    complete_from: Option<Micros>,
    damaged_lines: u64,
    view: &'a ViewStatus,
    items: Vec<NamedItem<'a>>,
}

/// An item with the names that its subject has now.
#[derive(Serialize)]
struct NamedItem<'a> {
    #[serde(flatten)]
    item: UsageItem<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    org: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

impl<'a> UsageItem<'a> {
    pub(super) fn new(usage: &UsageSummary, row: &'a UsageRow) -> Self {
        Self {
            period: usage.per.label(row.period.start),
            start: row.period.start,
            end: row.period.end,
            gateway: row.gateway.as_deref(),
            subject: match &row.subject {
                UsageSubject::Org(org_id) => SubjectFields::Org { org_id: *org_id },
                UsageSubject::Key(org_id, key_id) => SubjectFields::Key { org_id: *org_id, key_id: *key_id },
                UsageSubject::Route(route) => SubjectFields::Route { route: route.as_deref() },
            },
            requests: row.requests,
            refusals: row.refusals,
            open: row.open,
            outcomes: &row.outcomes,
            units: row.units,
            request_bytes: row.request_bytes,
            response_bytes: row.response_bytes,
        }
    }
}

impl<'a> NamedItem<'a> {
    fn new(usage: &UsageSummary, row: &'a UsageRow, names: &'a Names) -> Self {
        let (key, user) = names.key(&row.subject).unzip();
        Self { item: UsageItem::new(usage, row), org: names.org(&row.subject), key, user }
    }
}

/// Writes the outcomes as one object: the count of each by its name.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn by_name<S: serde::Serializer>(outcomes: &&[(Outcome, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(outcomes.len()))?;
    for (outcome, count) in *outcomes {
        map.serialize_entry(outcome.name(), count)?;
    }
    map.end()
}

/// Notes on standard error in which part of the range records are missing.
pub(super) fn note_gaps(usage: &UsageSummary) {
    if let Some(from) = usage.complete_from {
        let from = seconds(from);
        output::note(format_args!(
            "incomplete before {from}: records from before that time were removed, and are not counted"
        ));
    }
    if usage.damaged_lines > 0 {
        let lines = usage.damaged_lines;
        output::note(format_args!("{lines} damaged lines of the journal are not counted; run `keygate audit verify`"));
    }
}

pub(super) fn json(usage: &UsageSummary, names: &Names) -> io::Result<()> {
    output::json(&ReportFields {
        by: subject_name(usage.by),
        per: usage.per.name(),
        since: usage.since,
        until: usage.until,
        complete_from: usage.complete_from,
        damaged_lines: usage.damaged_lines,
        view: &usage.view,
        items: usage.items.iter().map(|item| NamedItem::new(usage, &item.row, names)).collect(),
    })
}

/// Shows the rows, and notes which periods have uses that have not ended.
pub(super) fn table(usage: &UsageSummary, names: &Names, is_wide: bool) -> io::Result<()> {
    let lines: Vec<_> = usage.items.iter().map(|item| Line { usage, row: &item.row, names }).collect();
    let columns = columns(usage.by);
    let mut table = Table::new(&columns, is_wide);
    if lines.iter().all(|line| line.row.units == line.row.requests) {
        table = table.without(UNITS);
    }
    table.rows(&lines)?;
    table.end("there are no requests in this time");
    let mut open: BTreeMap<String, u64> = BTreeMap::new();
    for row in usage.items.iter().map(|item| &item.row).filter(|row| row.open > 0) {
        *open.entry(usage.per.label(row.period.start)).or_default() += row.open;
    }
    for (period, count) in open {
        let open = Counted(count, "open request");
        output::note(format_args!("{period}: {open}; what has not ended counts as a request without an outcome"));
    }
    Ok(())
}

/// Title of the column that is there where not every request has cost one unit.
const UNITS: &str = "UNITS";

/// Usage of one subject within one period, as a row.
struct Line<'a> {
    usage: &'a UsageSummary,
    row: &'a UsageRow,
    names: &'a Names,
}

fn columns<'a>(by: UsageBy) -> [Column<Line<'a>>; 11] {
    let subject = match by {
        UsageBy::Org => "ORG",
        UsageBy::Key => "ORG/KEY",
        UsageBy::Route => "ROUTE",
    };
    [
        Column::new("PERIOD", 1, |line| line.usage.per.label(line.row.period.start)),
        Column::new(subject, 2, |line| line.row.subject.to_string()),
        Column::new("REQUESTS", 3, |line| line.row.requests.to_string()),
        Column::new(UNITS, 4, |line| line.row.units.to_string()),
        Column::new("REFUSALS", 5, |line| line.row.refusals.to_string()),
        Column::new("OPEN", 7, |line| line.row.open.to_string()),
        // Uses that have not ended have no outcome; an empty cell would shift the columns of `awk`.
        Column::values("OUTCOMES", 8, |line| {
            line.row.outcomes.iter().map(|(outcome, count)| format!("{}={count}", outcome.name())).collect()
        }),
        Column::new("BYTES IN", 10, |line| line.row.request_bytes.to_string()),
        Column::new("BYTES OUT", 9, |line| line.row.response_bytes.to_string()),
        Column::new("NAME", 4, |line| {
            let subject = &line.row.subject;
            let names = line.names.org(subject).into_iter().chain(line.names.key(subject).map(|(name, _)| name));
            or_dash(Some(names.collect::<Vec<_>>().join("/")).filter(|name| !name.is_empty()))
        }),
        Column::new("USER", 6, |line| or_dash(line.names.key(&line.row.subject).map(|(_, user)| user))),
    ]
}

/// The name of the subject in options and output.
pub(super) fn subject_name(by: UsageBy) -> &'static str {
    match by {
        UsageBy::Org => "org",
        UsageBy::Key => "key",
        UsageBy::Route => "route",
    }
}
