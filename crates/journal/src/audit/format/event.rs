//! The events of a use. Uses, outcomes and records of one use are compact lines (`encode`), all others JSON; readers
//! get both by `decode`.
//!
//! In JSON, the field `e` comes first and `id` second: readers that look for one id need not parse the rest.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::escape::{self, escape_capped, escape_text};
use super::line::EventKind;
use super::record::{Outcome, Record, RecordKind, Settled, Use, UseEnd};
use super::route_name::RouteName;
use domain::budget::{BudgetTotal, Cost};
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::TokenId;
use domain::trace_context::TraceId;

/// A use that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenUse {
    pub(crate) id: Uuid,
    /// The segment that holds the event of its beginning.
    pub(crate) segment: u64,
    /// The last header that lists it; 0 when none does.
    #[serde(skip)]
    pub(crate) listed_by: u64,
    /// The caller was authenticated by a key; unknown, and false, where a header or a line lists the use.
    #[serde(skip)]
    pub(crate) is_by_key: bool,
    pub(crate) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) org_id: Option<OrgId>,
    /// A change by management: the state knows whether it was made, also when its gateway died.
    #[serde(default, rename = "change", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_change: bool,
    /// The listed route; unknown, as the units, where a header or a line lists the use.
    #[serde(skip)]
    pub(crate) route: Option<RouteName>,
    /// Units that it has reserved.
    #[serde(skip)]
    pub(crate) units: u32,
}

/// The beginning of a use; together with the end, a `record`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UseEvent<'a> {
    pub(crate) e: EventKind,
    pub(crate) id: Uuid,
    pub(crate) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) org_id: Option<OrgId>,
    pub(crate) auth_method: AuthMethod,
    /// Only of a change by management, as `subject` and `token_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_id: Option<TokenId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<Cow<'a, str>>,
    pub(crate) action: Cow<'a, str>,
    pub(crate) method: Cow<'a, str>,
    pub(crate) path: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) provisional: bool,
    /// Its cost, if that is not one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<Cost>,
    /// Units that its subject had reserved of a budget by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<BudgetTotal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_bytes: Option<u64>,
    /// Of a carried use: the segment that held its beginning before. While that exists, the use is read from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<u64>,
    /// Number of refusals that this record stands for, in a record of several; the fields above are those of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
    /// Time of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Micros>,
    /// Number of addresses from which they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) addresses: Option<u64>,
    /// The first of these addresses, up to four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ips: Vec<IpAddr>,
    /// Trace of the request; of the first refusal, in a record of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<TraceId>,
}

/// The end of a use. Whose use it was is in the line of its beginning only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutcomeEvent {
    pub(crate) id: Uuid,
    pub(crate) outcome: Outcome,
    pub(crate) status: Option<u16>,
    /// `None` when the gateway died, so that no time was measured.
    pub(crate) duration_us: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) response_bytes: Option<u64>,
    /// Its settlement of a budget.
    pub(crate) settled: Option<Settled>,
}

impl<'a> UseEvent<'a> {
    /// The event of a use that ended where it began.
    pub(crate) fn from_use_and_end(opening: &Use<'a>, end: UseEnd) -> Self {
        Self {
            e: EventKind::Record,
            id: opening.id,
            time: opening.time,
            number: opening.number,
            key_id: opening.key_id,
            user_id: opening.user_id,
            org_id: opening.org_id,
            auth_method: opening.auth_method,
            actor: None,
            subject: None,
            token_id: None,
            ip: opening.ip,
            user_agent: opening.user_agent.map(|agent| escape_capped(agent, escape::USER_AGENT_CAP)),
            action: escape_text(opening.action, escape::ACTION_CAP),
            method: escape_text(opening.method, escape::METHOD_CAP),
            path: escape_text(opening.path, escape::PATH_CAP),
            provisional: opening.provisional,
            cost: Some(opening.cost).filter(|cost| cost.units() > 1),
            budget: opening.budget,
            outcome: Some(end.outcome),
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            from: None,
            count: None,
            last: None,
            addresses: None,
            ips: Vec::new(),
            trace_id: opening.trace_id,
        }
    }

    /// The same event, independent of the request.
    pub(crate) fn into_owned(self) -> UseEvent<'static> {
        UseEvent {
            actor: self.actor.map(|actor| Cow::Owned(actor.into_owned())),
            user_agent: self.user_agent.map(|agent| Cow::Owned(agent.into_owned())),
            action: Cow::Owned(self.action.into_owned()),
            method: Cow::Owned(self.method.into_owned()),
            path: Cow::Owned(self.path.into_owned()),
            ..self
        }
    }

    /// Number of uses that this event stands for.
    pub(crate) fn uses(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// Units that it cost, unless its end says otherwise.
    pub(crate) fn units(&self) -> u64 {
        self.cost.map_or(1, Cost::units).into()
    }

    /// The kind of the record that begins with this event.
    pub(crate) fn kind(&self) -> RecordKind {
        RecordKind::derive(self.auth_method, &self.method)
    }

    /// Joins this event, the outcome that ended it, if any, and the gateway of its segment into a record.
    pub(crate) fn into_record(self, end: Option<&OutcomeEvent>, gateway: &str) -> Record {
        let outcome = end.map(|end| end.outcome).or(self.outcome);
        Record {
            id: self.id,
            time: self.time,
            key_id: self.key_id,
            user_id: self.user_id,
            org_id: self.org_id,
            auth_method: self.auth_method,
            actor: self.actor.map(Cow::into_owned),
            subject: self.subject,
            token_id: self.token_id,
            ip: self.ip,
            user_agent: self.user_agent.map(Cow::into_owned),
            action: self.action.into_owned(),
            method: self.method.into_owned(),
            path: self.path.into_owned(),
            provisional: self.provisional,
            cost: end
                .and_then(|end| end.settled)
                .map(|settled| settled.cost)
                .or(self.cost.map(|cost| cost.units().into())),
            budget: self.budget.map(|total| total.without_units()),
            outcome: outcome.unwrap_or(Outcome::InProgress),
            status: end.map_or(self.status, |end| end.status),
            duration_us: end.map_or(self.duration_us, |end| end.duration_us),
            request_bytes: end.map_or(self.request_bytes, |end| end.request_bytes),
            response_bytes: end.map_or(self.response_bytes, |end| end.response_bytes),
            gateway: gateway.to_owned(),
            count: self.count,
            last_time: self.last,
            addresses: self.addresses,
            ips: self.ips,
            trace_id: self.trace_id,
            test: false,
        }
    }
}

impl OutcomeEvent {
    /// The end of the use with this id.
    pub fn new(id: Uuid, end: UseEnd) -> Self {
        Self {
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            ..Self::bare(id, end.outcome)
        }
    }

    /// The end of a use without a response or a measured duration.
    pub(crate) fn bare(id: Uuid, outcome: Outcome) -> Self {
        Self { id, outcome, status: None, duration_us: None, request_bytes: None, response_bytes: None, settled: None }
    }
}

impl OpenUse {
    /// The open use that begins with `opening`; its segment is set when its line is appended.
    pub fn from_use(opening: &Use<'_>) -> Self {
        let Use { id, time, number, key_id, user_id, org_id, .. } = *opening;
        let is_by_key = opening.auth_method == AuthMethod::ApiKey;
        let is_change = RecordKind::derive(opening.auth_method, opening.method) == RecordKind::Change;
        let (route, units) = (RouteName::of_action(opening.action), opening.cost.units());
        Self { id, segment: 0, listed_by: 0, is_by_key, time, number, key_id, user_id, org_id, is_change, route, units }
    }

    /// The open use that begins with an event in this segment, and that no header lists.
    pub(crate) fn from_event(begun: &UseEvent<'_>, segment: u64) -> Self {
        let UseEvent { id, time, number, key_id, user_id, org_id, .. } = *begun;
        let is_by_key = begun.auth_method == AuthMethod::ApiKey;
        let is_change = begun.kind() == RecordKind::Change;
        let (route, units) = (RouteName::of_action(&begun.action), begun.cost.map_or(1, Cost::units));
        Self { id, segment, listed_by: 0, is_by_key, time, number, key_id, user_id, org_id, is_change, route, units }
    }
}
