//! The part of a use event that the index needs.

use uuid::Uuid;

use crate::audit::format::decode;
use crate::audit::format::event::{OpenUse, OutcomeEvent, UseEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::{Outcome, Use, UseEnd};
use crate::audit::format::route_name::RouteName;
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::refusal::Refusal;

/// An organization and a key of it; `None` for the web sessions of its users.
pub(crate) type KeyOwner = (OrgId, Option<KeyId>);

/// The part of a use event that the index needs; the other fields of the line are skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedUse {
    pub(crate) id: Uuid,
    pub(crate) time: Micros,
    pub(crate) key_id: Option<KeyId>,
    pub(crate) user_id: Option<UserId>,
    pub(crate) org_id: Option<OrgId>,
    /// False for changes by management, and attempts with unknown keys.
    is_usage: bool,
    is_by_key: bool,
    /// The listed route.
    pub(crate) route: Option<RouteName>,
    /// Units that it reserves.
    pub(crate) units: u64,
    /// The outcome of a use that ended where it began; `None` when a later line has it.
    pub(crate) outcome: Option<Outcome>,
    /// Bytes of the bodies of request and response of a use that ended where it began.
    pub(crate) bytes: [u64; 2],
    count: Option<u64>,
}

/// The part of an outcome that the index needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedEnd {
    pub(crate) id: u128,
    pub(crate) outcome: Outcome,
    /// Units that the use has cost, when these are not those that it had reserved.
    pub(crate) cost: Option<u64>,
    /// Bytes of the bodies of request and response.
    pub(crate) bytes: [u64; 2],
}

/// A line, as the index sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexedEvent {
    /// A use that is counted: the line of a use or a record.
    Use(IndexedUse),
    /// A use that was counted where it began, and is found here once the segment in which it began is removed.
    Carried(IndexedUse),
    /// The end of a use.
    Outcome(IndexedEnd),
}

/// Error: a line is damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DamagedLine;

impl IndexedUse {
    /// Parses the line of a use or record; `None` when its checksum or its JSON is wrong.
    pub(crate) fn from_line(line: &[u8]) -> Option<Self> {
        decode::verified_use(line).as_ref().map(Self::from_event)
    }

    /// The part of a use that ends where it begins.
    pub(crate) fn from_use(opening: &Use<'_>, end: UseEnd) -> Self {
        let open = OpenUse::from_use(opening);
        let outcome = Some(end.outcome);
        let bytes = [end.request_bytes, end.response_bytes];
        Self { outcome, bytes, ..Self::from_open(&open) }.without_unknown()
    }

    /// The part of an event that was not written yet.
    pub(crate) fn from_event(event: &UseEvent<'_>) -> Self {
        let UseEvent { outcome, count, .. } = *event;
        let bytes = [event.request_bytes, event.response_bytes].map(Option::unwrap_or_default);
        Self { outcome, bytes, count, ..Self::from_open(&OpenUse::from_event(event, 0)) }.without_unknown()
    }

    /// The part of a use that begins by a request.
    pub(crate) fn from_open(open: &OpenUse) -> Self {
        let OpenUse { id, time, key_id, user_id, org_id, is_by_key, is_change, route, units, .. } = *open;
        Self {
            id,
            time,
            key_id,
            user_id,
            org_id,
            is_usage: !is_change,
            is_by_key,
            route,
            units: units.into(),
            outcome: None,
            bytes: [0; 2],
            count: None,
        }
    }

    fn without_unknown(self) -> Self {
        let is_unknown = self.outcome == Some(Outcome::Refused(Refusal::Unknown));
        Self { is_usage: self.is_usage && !is_unknown, ..self }
    }

    /// The organization and the key that it counts for; `None` of changes by management and of unknown keys.
    pub(crate) fn owner(&self) -> Option<KeyOwner> {
        let org = self.org_id.filter(|_| self.is_usage)?;
        Some((org, self.key_id.filter(|_| self.is_by_key)))
    }

    /// Number of uses that the line stands for.
    pub(crate) fn uses(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// True when the use was refused admission; see [`Outcome::is_refusal`].
    pub(crate) fn is_refused(&self) -> bool {
        self.outcome.is_some_and(Outcome::is_refusal)
    }
}

impl IndexedEvent {
    /// The end of a use.
    pub(crate) fn from_outcome(ended: &OutcomeEvent) -> Self {
        Self::Outcome(IndexedEnd {
            id: ended.id.as_u128(),
            outcome: ended.outcome,
            cost: ended.settled.map(|settled| settled.cost),
            bytes: [ended.request_bytes, ended.response_bytes].map(Option::unwrap_or_default),
        })
    }

    /// Reads a line; `None` when the index needs nothing of it.
    ///
    /// # Errors
    /// If it is damaged.
    pub(crate) fn from_line(line: &[u8]) -> Result<Option<Self>, DamagedLine> {
        let event = match line::event_kind(line).ok_or(DamagedLine)? {
            EventKind::Use | EventKind::Record => IndexedUse::from_line(line).map(Self::Use),
            EventKind::Carried => IndexedUse::from_line(line).map(Self::Carried),
            EventKind::Outcome => decode::verified_outcome(line).as_ref().map(Self::from_outcome),
            EventKind::Header | EventKind::Seal | EventKind::Expired | EventKind::Damaged => return Ok(None),
        };
        event.map(Some).ok_or(DamagedLine)
    }
}
