//! The events that the journal's lines are.
//!
//! `e` is first and, in the events of a use, `id` second: readers that look for one id need not parse the rest.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::escape::{self, visible};
use super::frame;
use super::record::{Outcome, Record, Use, UseEnd};
use crate::clock::Micros;
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The first line of a segment.
    Header,
    /// A use began.
    Use,
    /// A use ended.
    Outcome,
    /// A use that ended where it began.
    Record,
    /// The digest of an earlier segment.
    Seal,
}

/// What the records of changes have for a method: no request was made.
const CHANGE: &str = "ADMIN";

/// The first line of a segment: all that recovery needs to know of the earlier ones.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header<'a> {
    pub(super) e: Kind,
    pub(super) segment: u64,
    pub(super) created: Micros,
    /// The gateway that writes this segment, for the records in it.
    pub(super) gateway: Cow<'a, str>,
    /// Closed segments whose seal was not written yet.
    pub(super) unsealed: Cow<'a, [u64]>,
    /// The uses that earlier segments began and that were open when this one began.
    pub(super) open: Vec<Open>,
}

/// A use that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) id: Uuid,
    /// The segment that its use event is in, which must stay as long as it is open.
    #[serde(default)]
    pub(super) segment: u64,
    pub(super) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org_id: Option<OrgId>,
}

/// The beginning of a use; with its end too, a `record`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UseEvent<'a> {
    pub(super) e: Kind,
    pub(super) id: Uuid,
    pub(super) time: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org_id: Option<OrgId>,
    pub(super) auth_method: AuthMethod,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ip: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_agent: Option<Cow<'a, str>>,
    pub(super) action: Cow<'a, str>,
    pub(super) method: Cow<'a, str>,
    pub(super) path: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) provisional: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response_bytes: Option<u64>,
}

/// What the index needs to know of a use.
#[derive(Debug, Deserialize)]
pub(super) struct Glance {
    pub(super) id: Uuid,
    pub(super) time: Micros,
    #[serde(default)]
    pub(super) key_id: Option<KeyId>,
    #[serde(default)]
    pub(super) user_id: Option<UserId>,
    #[serde(default)]
    pub(super) org_id: Option<OrgId>,
    auth_method: AuthMethod,
    #[serde(default)]
    pub(super) outcome: Option<Outcome>,
}

/// The end of a use. It repeats whose use it was, so that lines can be filtered one by one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct OutcomeEvent {
    pub(super) e: Kind,
    pub(super) id: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key_id: Option<KeyId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) org_id: Option<OrgId>,
    pub(super) outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    /// None when nobody was there to measure it: the gateway died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response_bytes: Option<u64>,
}

/// The digest of a closed segment, so that a later change of it is found.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seal<'a> {
    pub(super) e: Kind,
    pub(super) segment: u64,
    pub(super) lines: u64,
    pub(super) sha256: Cow<'a, str>,
}

impl<'a> UseEvent<'a> {
    pub(super) fn opening(opening: &Use<'a>) -> Self {
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
    pub(super) fn whole(opening: &Use<'a>, end: UseEnd) -> Self {
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
    pub(super) fn joined(self, end: Option<&OutcomeEvent>, gateway: &str) -> Record {
        let ended = end.map(|end| end.outcome).or(self.outcome);
        Record {
            id: self.id,
            time: self.time.to_string(),
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
    pub(super) fn at(line: &[u8]) -> Option<Self> {
        frame::check(line)?;
        serde_json::from_slice(line).ok()
    }

    /// The key that was used, and whose it is; none for sessions and for changes.
    pub(super) fn key(&self) -> Option<(OrgId, KeyId)> {
        (self.auth_method == AuthMethod::ApiKey).then_some(())?;
        Some((self.org_id?, self.key_id?))
    }

    /// Whether it was refused where it began.
    pub(super) fn is_refused(&self) -> bool {
        self.outcome.is_some_and(Outcome::is_refusal)
    }
}

/// Whether it is a change made by management, and no request. Keys change nothing: what one is used for is a request,
/// whatever its client calls the method.
pub(super) fn is_change(by: AuthMethod, method: &str) -> bool {
    by != AuthMethod::ApiKey && method == CHANGE
}

impl Open {
    /// The use that an opening begins; its segment is set when its line is appended.
    pub(super) fn of(opening: &Use<'_>) -> Self {
        let Use { id, time, number, key_id, user_id, org_id, .. } = *opening;
        Self { id, segment: 0, time, number, key_id, user_id, org_id }
    }

    pub(super) fn ended(&self, end: UseEnd) -> OutcomeEvent {
        OutcomeEvent {
            status: end.status,
            duration_us: Some(end.duration_us),
            request_bytes: Some(end.request_bytes),
            response_bytes: Some(end.response_bytes),
            ..self.aborted(end.outcome)
        }
    }

    /// The end of a use of which nothing is known but that it is over.
    pub(super) fn aborted(&self, outcome: Outcome) -> OutcomeEvent {
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
