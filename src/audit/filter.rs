//! Filter of records.

use uuid::Uuid;

use crate::audit::format::event::{self, UseEvent};
use crate::audit::format::line;
use crate::audit::format::record::{Outcome, Record};
use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyId;

/// Which records are wanted: those that satisfy all that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Uses of this key.
    pub key: Option<KeyId>,
    /// Uses by this user.
    pub user: Option<UserId>,
    /// Uses within this organization.
    pub org: Option<OrgId>,
    /// Begun at this time or later.
    pub since: Option<Micros>,
    /// Begun before this time.
    pub until: Option<Micros>,
    /// The one with this id, which is that of its request.
    pub id: Option<Uuid>,
    /// Ended, or not yet, like this.
    pub outcome: Option<Outcome>,
    /// Requests, and no changes made by management, on its socket or in a session.
    pub requests_only: bool,
    /// Only those that were refused, or only the others; see [`Outcome::is_refusal`].
    pub refused: Option<bool>,
}

impl Filter {
    /// Whether a use is wanted, as far as its beginning tells.
    pub(crate) fn admits(&self, begun: &UseEvent<'_>) -> bool {
        self.since.is_none_or(|since| begun.time >= since)
            && self.until.is_none_or(|until| begun.time < until)
            && (self.key.is_none() || self.key == begun.key_id)
            && (self.user.is_none() || self.user == begun.user_id)
            && (self.org.is_none() || self.org == begun.org_id)
            && !(self.requests_only && event::is_change(begun.auth_method, &begun.method))
            && self.refused.is_none_or(|refused| refused == begun.outcome.is_some_and(Outcome::is_refusal))
    }

    /// Whether the use in a line can be wanted, by its id alone: for a look that parses nothing.
    pub(crate) fn admits_id(&self, line: &[u8]) -> bool {
        self.id.is_none_or(|id| line::id(line) == Some(id.as_u128()))
    }

    /// Whether a record is wanted, by its end.
    pub(crate) fn admits_end(&self, record: &Record) -> bool {
        self.outcome.is_none_or(|outcome| record.outcome == outcome)
    }
}
