//! Tally of usage: adds uses and their outcomes up by period and subject.

use rustc_hash::FxHashMap;

use super::period::PeriodSpan;
use super::query::{SpentBy, UsageBy, UsageQuery};
use crate::audit::format::event::{OutcomeEvent, UseEvent};
use crate::audit::format::line::EventKind;
use crate::audit::format::record::{Outcome, RecordKind};
use crate::audit::format::route_name::RouteName;
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::KeyId;
use domain::refusal::Refusal;

/// Subject to which usage is attributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageSubject {
    /// An organization.
    Org(OrgId),
    /// A key of an organization; `None` for the web sessions of its users.
    Key(OrgId, Option<KeyId>),
    /// A listed route by its name; `None` for requests of no listed route.
    Route(Option<String>),
}

/// Usage of one subject within one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The period.
    pub period: PeriodSpan,
    /// The gateway that recorded the uses; `None` when usage is added up over all of them.
    pub gateway: Option<String>,
    /// The subject.
    pub subject: UsageSubject,
    /// Admitted uses, whatever became of them.
    pub requests: u64,
    /// Refused uses; see [`Outcome::is_refusal`].
    pub refusals: u64,
    /// Admitted uses that have not ended.
    pub open: u64,
    /// Number of uses by outcome, in the order of [`Outcome::all`]. With `open`, they are all
    /// `requests` and `refusals`.
    pub outcomes: Vec<(Outcome, u64)>,
    /// Units that admitted uses have cost; of those that have not ended, what they have reserved.
    pub units: u64,
    /// Bytes of request bodies, of admitted uses that have ended.
    pub request_bytes: u64,
    /// Bytes of response bodies, of admitted uses that have ended.
    pub response_bytes: u64,
}

/// Place of a row: its period, its gateway by the number of its name, and its subject.
type RowKey = (Micros, u32, SubjectKey);

/// A subject, as it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SubjectKey {
    Org(OrgId),
    Key(OrgId, Option<KeyId>),
    Route(Option<RouteName>),
}

impl SubjectKey {
    /// The subject, as it is shown.
    pub(super) fn subject(self) -> UsageSubject {
        match self {
            Self::Org(org) => UsageSubject::Org(org),
            Self::Key(org, key) => UsageSubject::Key(org, key),
            Self::Route(route) => UsageSubject::Route(route.map(|route| route.as_str().to_owned())),
        }
    }
}

/// Tally of the uses that begin within the range of a query.
///
/// - Memory is bounded by the rows and the uses that are open at a time, not by the number of uses.
/// - Changes by management are no usage. Attempts with unknown keys belong to no subject, and are recorded at a bounded
///   rate: they are left out.
pub(super) struct UsageTally {
    query: UsageQuery,
    /// The period of the last use. Nearly every use is in the period of the one before.
    period: PeriodSpan,
    gateway: u32,
    names: Names,
    rows: Vec<UsageRow>,
    places: FxHashMap<RowKey, usize>,
    /// Rows of the uses that have not ended, and the units that these have reserved, by id.
    open: FxHashMap<u128, (usize, u64)>,
}

impl UsageTally {
    pub(super) fn new(query: UsageQuery) -> Self {
        let mut names = Names::default();
        let gateway = names.number("");
        let period = query.per.containing(Micros(0));
        Self {
            query,
            period,
            gateway,
            names,
            rows: Vec::new(),
            places: FxHashMap::default(),
            open: FxHashMap::default(),
        }
    }

    /// Sets the gateway that recorded what comes next.
    pub(super) fn set_gateway(&mut self, name: &str) {
        if self.query.by_gateway {
            self.gateway = self.names.number(name);
        }
    }

    /// True when a use that was added has not ended.
    pub(super) fn has_open_uses(&self) -> bool {
        !self.open.is_empty()
    }

    /// True when this use was added, and has not ended.
    pub(super) fn is_open(&self, id: u128) -> bool {
        self.open.contains_key(&id)
    }

    /// Adds a use, or a record of one or several.
    pub(super) fn add_use(&mut self, begun: &UseEvent<'_>) {
        let Some(place) = self.place_of(begun) else { return };
        let outcome = begun.outcome.filter(|_| begun.e == EventKind::Record).unwrap_or(Outcome::InProgress);
        if outcome == Outcome::InProgress {
            // Its outcome is in a later line.
            self.open.insert(begun.id.as_u128(), (place, begun.units()));
        }
        let bytes = [begun.request_bytes, begun.response_bytes].map(Option::unwrap_or_default);
        self.rows[place].add(outcome, begun.uses(), begun.units(), bytes);
    }

    /// Adds the end of a use. The end of any other use is ignored.
    pub(super) fn add_outcome(&mut self, ended: &OutcomeEvent) {
        let Some((place, reserved)) = self.open.remove(&ended.id.as_u128()) else { return };
        let row = &mut self.rows[place];
        row.open -= 1;
        if let Some(settled) = ended.settled {
            row.units = (row.units - reserved).saturating_add(settled.cost);
        }
        row.count_outcome(ended.outcome, 1);
        row.add_bytes([ended.request_bytes, ended.response_bytes].map(Option::unwrap_or_default));
    }

    /// The rows, by period, gateway and subject.
    pub(super) fn into_rows(self) -> Vec<UsageRow> {
        let mut rows: Vec<UsageRow> = self.rows.into_iter().map(UsageRow::sorted).collect();
        rows.sort_by_cached_key(|row| (row.period, row.gateway.clone(), row.subject.to_string()));
        rows
    }

    /// The place of the row to which a use belongs; `None` when it is no usage within the range.
    fn place_of(&mut self, begun: &UseEvent<'_>) -> Option<usize> {
        let UsageQuery { since, until, org: only, budget, .. } = self.query;
        let in_range = since.is_none_or(|since| begun.time >= since) && until.is_none_or(|until| begun.time < until);
        let is_unknown = begun.outcome == Some(Outcome::Refused(Refusal::Unknown));
        let org = begun.org_id.filter(|_| in_range && !is_unknown && begun.kind() == RecordKind::Request)?;
        let has_spent = |budget: SpentBy| begun.budget.is_some_and(|total| budget.has(&total));
        if only.is_some_and(|only| only != org) || !budget.is_none_or(has_spent) {
            return None;
        }
        if !self.period.contains(begun.time) {
            self.period = self.query.per.containing(begun.time);
        }
        let subject = match self.query.by {
            UsageBy::Org => SubjectKey::Org(org),
            UsageBy::Key => SubjectKey::Key(org, begun.key_id),
            UsageBy::Route => SubjectKey::Route(RouteName::of_action(&begun.action)),
        };
        let key = (self.period.start, self.gateway, subject);
        if let Some(place) = self.places.get(&key) {
            return Some(*place);
        }
        self.places.insert(key, self.rows.len());
        self.rows.push(self.new_row(subject));
        Some(self.rows.len() - 1)
    }

    fn new_row(&self, subject: SubjectKey) -> UsageRow {
        let gateway = self.query.by_gateway.then(|| self.names.name(self.gateway));
        UsageRow::empty(self.period, gateway, subject.subject())
    }
}

impl UsageRow {
    /// A row without uses.
    pub fn empty(period: PeriodSpan, gateway: Option<String>, subject: UsageSubject) -> Self {
        Self {
            period,
            gateway,
            subject,
            requests: 0,
            refusals: 0,
            open: 0,
            outcomes: Vec::new(),
            units: 0,
            request_bytes: 0,
            response_bytes: 0,
        }
    }

    /// Adds uses with an outcome, units that they cost together, and the bytes of the bodies of their requests and
    /// responses.
    pub fn add(&mut self, outcome: Outcome, uses: u64, units: u64, bytes: [u64; 2]) {
        if outcome.is_refusal() {
            self.refusals = self.refusals.saturating_add(uses);
            return self.count_outcome(outcome, uses);
        }
        self.requests = self.requests.saturating_add(uses);
        self.units = self.units.saturating_add(units);
        if outcome == Outcome::InProgress {
            self.open = self.open.saturating_add(uses);
        } else {
            self.count_outcome(outcome, uses);
            self.add_bytes(bytes);
        }
    }

    /// The same row, with its outcomes in the order of [`Outcome::all`].
    pub fn sorted(mut self) -> Self {
        let rank = |outcome: Outcome| Outcome::all().position(|other| other == outcome);
        self.outcomes.sort_by_key(|(outcome, _)| rank(*outcome));
        self
    }

    fn count_outcome(&mut self, outcome: Outcome, uses: u64) {
        match self.outcomes.iter_mut().find(|(other, _)| *other == outcome) {
            Some((_, count)) => *count = count.saturating_add(uses),
            None => self.outcomes.push((outcome, uses)),
        }
    }

    fn add_bytes(&mut self, [request, response]: [u64; 2]) {
        self.request_bytes = self.request_bytes.saturating_add(request);
        self.response_bytes = self.response_bytes.saturating_add(response);
    }
}

impl std::fmt::Display for UsageSubject {
    /// The subject as one word; `-` for sessions, and for no listed route.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Org(org) => write!(f, "{org}"),
            Self::Key(org, Some(key)) => write!(f, "{org}/{key}"),
            Self::Key(org, None) => write!(f, "{org}/-"),
            Self::Route(route) => f.write_str(route.as_deref().unwrap_or("-")),
        }
    }
}

/// Names and their numbers: rows of many uses have one copy of each.
#[derive(Default)]
struct Names {
    numbers: FxHashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("there are fewer routes and gateways than 2^32");
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    fn name(&self, number: u32) -> String {
        self.names[number as usize].clone()
    }
}
