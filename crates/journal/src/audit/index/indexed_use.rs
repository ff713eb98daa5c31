//! The part of a use event that the index needs.

use uuid::Uuid;

use crate::audit::format::event::{OpenUse, UseEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::record::{Outcome, Use};
use crate::audit::format::{decode, frame};
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::KeyId;

/// A key and the organization that owns it.
pub(crate) type KeyOwner = (OrgId, KeyId);

/// The part of a use event that the index needs; the other fields of the line are skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedUse {
    pub(crate) id: Uuid,
    pub(crate) time: Micros,
    pub(crate) key_id: Option<KeyId>,
    pub(crate) user_id: Option<UserId>,
    pub(crate) org_id: Option<OrgId>,
    auth_method: AuthMethod,
    /// The outcome of a use that ended where it began; `None` when a later line has it.
    pub(crate) outcome: Option<Outcome>,
    count: Option<u64>,
}

/// A line, as the index sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexedEvent {
    /// A use that is counted: the line of a use or a record.
    Use(IndexedUse),
    /// A use that was counted where it began, and is found here once the segment in which it began is removed.
    Carried(IndexedUse),
    /// The end of the use with this id.
    Outcome(u128),
}

impl IndexedUse {
    /// Parses the line of a use or record; `None` when its checksum or its JSON is wrong.
    pub(crate) fn from_line(line: &[u8]) -> Option<Self> {
        decode::verified_use(line).as_ref().map(Self::from_event)
    }

    /// The part of a use that ends where it begins.
    pub(crate) fn from_use(opening: &Use<'_>, outcome: Outcome) -> Self {
        let Use { id, time, key_id, user_id, org_id, auth_method, .. } = *opening;
        Self { id, time, key_id, user_id, org_id, auth_method, outcome: Some(outcome), count: None }
    }

    /// The part of an event that was not written yet.
    pub(crate) fn from_event(event: &UseEvent<'_>) -> Self {
        let UseEvent { id, time, key_id, user_id, org_id, auth_method, outcome, count, .. } = *event;
        Self { id, time, key_id, user_id, org_id, auth_method, outcome, count }
    }

    /// The part of a use that begins by a request.
    pub(crate) fn from_open(open: &OpenUse) -> Self {
        let OpenUse { id, time, key_id, user_id, org_id, is_by_key, .. } = *open;
        let auth_method = if is_by_key { AuthMethod::ApiKey } else { AuthMethod::Session };
        Self { id, time, key_id, user_id, org_id, auth_method, outcome: None, count: None }
    }

    /// The key that was used and its organization; `None` for sessions and for changes by management.
    pub(crate) fn key_owner(&self) -> Option<KeyOwner> {
        (self.auth_method == AuthMethod::ApiKey).then_some(())?;
        Some((self.org_id?, self.key_id?))
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
    /// Reads a line; `None` when it is damaged, or the index needs nothing of it.
    pub(crate) fn from_line(line: &[u8]) -> Option<Self> {
        match line::event_kind(line)? {
            EventKind::Use | EventKind::Record => IndexedUse::from_line(line).map(Self::Use),
            EventKind::Carried => IndexedUse::from_line(line).map(Self::Carried),
            EventKind::Outcome => {
                frame::verify_line(line)?;
                line::event_id(line).map(Self::Outcome)
            }
            EventKind::Header | EventKind::Seal | EventKind::Expired | EventKind::Damaged => None,
        }
    }
}
