//! The events that the journal's lines are.
//!
//! `e` is first and, in the events of a use, `id` second: readers that look for one id need not parse the rest.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::audit::format::escape::{self, visible};
use crate::audit::format::frame;
use crate::audit::format::line::Kind;
use crate::audit::format::record::{Outcome, Record, Use, UseEnd};
use crate::clock::Micros;
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;

/// What the records of changes have for a method: no request was made.
const CHANGE: &str = "ADMIN";

/// The first line of a segment: all that recovery needs to know of the earlier ones.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header<'a> {
    pub(crate) e: Kind,
    pub(crate) segment: u64,
    pub(crate) created: Micros,
    /// The gateway that writes this segment, for the records in it.
    pub(crate) gateway: Cow<'a, str>,
    /// Closed segments whose seal was not written yet.
    pub(crate) unsealed: Cow<'a, [u64]>,
    /// The uses that earlier segments began and that were open when this one began.
    pub(crate) open: Vec<Open>,
}

/// A use that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) id: Uuid,
    /// The segment that its use event is in, which must stay as long as it is open.
    #[serde(default)]
    pub(crate) segment: u64,
    pub(crate) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) org_id: Option<OrgId>,
}

/// The beginning of a use; with its end too, a `record`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UseEvent<'a> {
    pub(crate) e: Kind,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<Cow<'a, str>>,
    pub(crate) action: Cow<'a, str>,
    pub(crate) method: Cow<'a, str>,
    pub(crate) path: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) provisional: bool,
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
}

/// What the index needs to know of a use.
#[derive(Debug, Deserialize)]
pub(crate) struct Glance {
    pub(crate) id: Uuid,
    pub(crate) time: Micros,
    #[serde(default)]
    pub(crate) key_id: Option<KeyId>,
    #[serde(default)]
    pub(crate) user_id: Option<UserId>,
    #[serde(default)]
    pub(crate) org_id: Option<OrgId>,
    auth_method: AuthMethod,
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
}

/// The end of a use. It repeats whose use it was, so that lines can be filtered one by one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct OutcomeEvent {
    pub(crate) e: Kind,
    pub(crate) id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) org_id: Option<OrgId>,
    pub(crate) outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// None when nobody was there to measure it: the gateway died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) response_bytes: Option<u64>,
}

/// The digest of a closed segment, so that a later change of it is found.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal<'a> {
    pub(crate) e: Kind,
    pub(crate) segment: u64,
    pub(crate) lines: u64,
    pub(crate) sha256: Cow<'a, str>,
}

impl<'a> UseEvent<'a> {
    pub(crate) fn opening(opening: &Use<'a>) -> Self {
        Self {
            e: Kind::Use,
            id: opening.id,
            time: opening.time,
            number: opening.number,
            key_id: opening.key_id,
            user_id: opening.user_id,
            org_id: opening.org_id,
            auth_method: opening.auth_method,
            ip: opening.ip,
            user_agent: opening.user_agent.map(|agent| visible(agent, escape::USER_AGENT_CAP)),
            action: visible(opening.action.as_bytes(), escape::ACTION_CAP),
            method: visible(opening.method.as_bytes(), escape::METHOD_CAP),
            path: visible(opening.path.as_bytes(), escape::PATH_CAP),
            provisional: opening.provisional,
            outcome: None,
            status: None,
            duration_us: None,
            request_bytes: None,
            response_bytes: None,
        }
    }

    /// A use and its end in one.
    pub(crate) fn whole(opening: &Use<'a>, end: UseEnd) -> Self {
        Self {
            e: Kind::Record,
            outcome: Some(end.outcome),
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            ..Self::opening(opening)
        }
    }

    /// The record this event, the outcome that ended it and its segment's gateway make.
    pub(crate) fn joined(self, end: Option<&OutcomeEvent>, gateway: &str) -> Record {
        let ended = end.map(|end| end.outcome).or(self.outcome);
        Record {
            id: self.id,
            time: self.time,
            key_id: self.key_id,
            user_id: self.user_id,
            org_id: self.org_id,
            auth_method: self.auth_method,
            ip: self.ip,
            user_agent: self.user_agent.map(Cow::into_owned),
            action: self.action.into_owned(),
            method: self.method.into_owned(),
            path: self.path.into_owned(),
            provisional: self.provisional,
            outcome: ended.unwrap_or(Outcome::InProgress),
            status: end.map_or(self.status, |end| end.status),
            duration_us: end.map_or(self.duration_us, |end| end.duration_us),
            request_bytes: end.map_or(self.request_bytes, |end| end.request_bytes),
            response_bytes: end.map_or(self.response_bytes, |end| end.response_bytes),
            gateway: gateway.to_owned(),
        }
    }
}

impl Glance {
    /// The use that begins in a line, when the line is good.
    pub(crate) fn at(line: &[u8]) -> Option<Self> {
        frame::check(line)?;
        serde_json::from_slice(line).ok()
    }

    /// The key that was used, and whose it is; none for sessions and for changes.
    pub(crate) fn key(&self) -> Option<(OrgId, KeyId)> {
        (self.auth_method == AuthMethod::ApiKey).then_some(())?;
        Some((self.org_id?, self.key_id?))
    }

    /// Whether it was refused where it began.
    pub(crate) fn is_refused(&self) -> bool {
        self.outcome.is_some_and(Outcome::is_refusal)
    }
}

/// Whether it is a change made by management, and no request. Keys change nothing: what one is used for is a request,
/// whatever its client calls the method.
pub(crate) fn is_change(by: AuthMethod, method: &str) -> bool {
    by != AuthMethod::ApiKey && method == CHANGE
}

impl Open {
    /// The use that an opening begins; its segment is set when its line is appended.
    pub(crate) fn of(opening: &Use<'_>) -> Self {
        let Use { id, time, number, key_id, user_id, org_id, .. } = *opening;
        Self { id, segment: 0, time, number, key_id, user_id, org_id }
    }

    pub(crate) fn ended(&self, end: UseEnd) -> OutcomeEvent {
        OutcomeEvent {
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            ..self.aborted(end.outcome)
        }
    }

    /// The end of a use of which nothing is known but that it is over.
    pub(crate) fn aborted(&self, outcome: Outcome) -> OutcomeEvent {
        OutcomeEvent {
            e: Kind::Outcome,
            id: self.id,
            key_id: self.key_id,
            user_id: self.user_id,
            org_id: self.org_id,
            outcome,
            status: None,
            duration_us: None,
            request_bytes: None,
            response_bytes: None,
        }
    }
}
