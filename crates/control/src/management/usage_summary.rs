//! Usage as the management API and the command line exchange it.

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyId;
use journal::audit::{
    BillingPeriod, Outcome, PeriodSpan, UsageBy, UsageQuery, UsageReport, UsageRow, UsageSubject, ViewStatus,
};

/// Usage by period and subject, and the gateways whose records were counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSummary {
    /// The subject of each item.
    pub by: UsageBy,
    /// The period of each item.
    pub per: BillingPeriod,
    /// Uses from this time on.
    #[serde(with = "clock::rfc3339::option")]
    pub since: Option<Micros>,
    /// Uses before this time.
    #[serde(with = "clock::rfc3339::option")]
    pub until: Option<Micros>,
    /// The time from which on all records are there; none when they are in the whole range.
    #[serde(with = "clock::rfc3339::option")]
    pub complete_from: Option<Micros>,
    /// Damaged lines of the journal, which are not counted.
    pub damaged_lines: u64,
    /// The gateways whose records were counted.
    pub view: ViewStatus,
    /// Usage by period, gateway and subject.
    pub items: Vec<UsageItem>,
}

/// Usage of one subject within one period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ItemFields", into = "ItemFields")]
pub struct UsageItem {
    /// The numbers.
    pub row: UsageRow,
    /// They cannot change any more, and lack nothing.
    pub is_final: bool,
}

/// Fields of an item in JSON.
#[derive(Serialize, Deserialize)]
struct ItemFields {
    #[serde(with = "clock::rfc3339")]
    start: Micros,
    #[serde(with = "clock::rfc3339")]
    end: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<String>,
    #[serde(flatten)]
    subject: Subject,
    requests: u64,
    refusals: u64,
    open: u64,
    outcomes: Outcomes,
    units: u64,
    request_bytes: u64,
    response_bytes: u64,
    #[serde(rename = "final")]
    is_final: bool,
}

/// The subject, by the names of audit records.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Subject {
    Key {
        org_id: OrgId,
        /// It may be null, and is there: an organization has none.
        #[serde(deserialize_with = "Option::deserialize")]
        key_id: Option<KeyId>,
    },
    Org {
        org_id: OrgId,
    },
    Route {
        route: Option<String>,
    },
}

/// The count of each outcome by its name, in the order of [`Outcome::all`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes(pub Vec<(Outcome, u64)>);

impl UsageSummary {
    /// The reports of gateways as one.
    pub fn new(query: UsageQuery, reports: &[UsageReport], view: ViewStatus) -> Self {
        let items = reports.iter().flat_map(|report| {
            report.rows.iter().map(|row| UsageItem { row: row.clone(), is_final: report.is_final(row) })
        });
        Self {
            by: query.by,
            per: query.per,
            since: query.since,
            until: query.until,
            complete_from: reports.iter().filter_map(|report| report.complete_from).max(),
            damaged_lines: reports.iter().map(|report| report.damaged_lines).sum(),
            view,
            items: items.collect(),
        }
    }
}

impl From<UsageItem> for ItemFields {
    fn from(item: UsageItem) -> Self {
        let UsageItem { row, is_final } = item;
        Self {
            start: row.period.start,
            end: row.period.end,
            gateway: row.gateway,
            subject: match row.subject {
                UsageSubject::Org(org_id) => Subject::Org { org_id },
                UsageSubject::Key(org_id, key_id) => Subject::Key { org_id, key_id },
                UsageSubject::Route(route) => Subject::Route { route },
            },
            requests: row.requests,
            refusals: row.refusals,
            open: row.open,
            outcomes: Outcomes(row.outcomes),
            units: row.units,
            request_bytes: row.request_bytes,
            response_bytes: row.response_bytes,
            is_final,
        }
    }
}

impl From<ItemFields> for UsageItem {
    fn from(fields: ItemFields) -> Self {
        let subject = match fields.subject {
            Subject::Org { org_id } => UsageSubject::Org(org_id),
            Subject::Key { org_id, key_id } => UsageSubject::Key(org_id, key_id),
            Subject::Route { route } => UsageSubject::Route(route),
        };
        let row = UsageRow {
            period: PeriodSpan { start: fields.start, end: fields.end },
            gateway: fields.gateway,
            subject,
            requests: fields.requests,
            refusals: fields.refusals,
            open: fields.open,
            outcomes: fields.outcomes.0,
            units: fields.units,
            request_bytes: fields.request_bytes,
            response_bytes: fields.response_bytes,
        };
        Self { row: row.sorted(), is_final: fields.is_final }
    }
}

impl Serialize for Outcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(outcome, count)| map.serialize_entry(outcome.name(), count))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Outcomes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = std::collections::HashMap::<String, u64>::deserialize(deserializer)?;
        let named = |(name, count): (String, u64)| {
            let outcome = Outcome::from_name(&name);
            outcome.map(|outcome| (outcome, count)).ok_or_else(|| serde::de::Error::custom("an unknown outcome"))
        };
        counts.into_iter().map(named).collect::<Result<_, _>>().map(Self)
    }
}
