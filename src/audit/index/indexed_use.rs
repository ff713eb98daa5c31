//! The part of a use event that the index needs.

use uuid::Uuid;

use crate::audit::format::decode;
use crate::audit::format::event::UseEvent;
use crate::audit::format::record::Outcome;
use crate::clock::Micros;
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;

/// A key and the organization that owns it.
pub(crate) type KeyOwner = (OrgId, KeyId);

/// The part of a use event that the index needs; the other fields of the line are skipped.
#[derive(Debug)]
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

impl IndexedUse {
    /// Parses the line of a use or record; `None` when its checksum or its JSON is wrong.
    pub(crate) fn from_line(line: &[u8]) -> Option<Self> {
        let UseEvent { id, time, key_id, user_id, org_id, auth_method, outcome, count, .. } =
            decode::verified_use(line)?;
        Some(Self { id, time, key_id, user_id, org_id, auth_method, outcome, count })
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
