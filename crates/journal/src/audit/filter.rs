//! Filter of records.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::format::event::UseEvent;
use super::format::record::{Outcome, Record, RecordKind};
use super::format::{decode, line};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::TokenId;

/// Filter of records: a record matches when it satisfies every condition that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Uses of this key.
    pub key: Option<KeyId>,
    /// Uses and changes by this user.
    pub user: Option<UserId>,
    /// Changes of what belongs to this user: their record, keys and sessions.
    pub subject: Option<UserId>,
    /// Changes by programs with this management token.
    pub token: Option<TokenId>,
    /// Uses within this organization.
    pub org: Option<OrgId>,
    /// Uses that began at this time or later.
    pub since: Option<Micros>,
    /// Uses that began before this time.
    pub until: Option<Micros>,
    /// The use with this id, which is the id of its request.
    pub id: Option<Uuid>,
    /// Records of this action: of a change its operation, of a request its route.
    pub action: Option<ActionName>,
    /// Uses with this outcome.
    pub outcome: Option<Outcome>,
    /// Records of this kind.
    pub kind: Option<RecordKind>,
    /// Refused uses only (`true`), or all other uses only (`false`); see [`Outcome::is_refusal`].
    pub refused: Option<bool>,
    /// Records of several refusals only, whose span has this millisecond, the resolution of the time in an id.
    pub covers: Option<Micros>,
}

/// An action by which records are found: at most [`ActionName::MAX`] bytes, as long as the longest name of a route and
/// some more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ActionName {
    length: u8,
    bytes: [u8; Self::MAX],
}

/// Error: a text is empty, or too long for an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no action, which has 1 to {} bytes", ActionName::MAX)]
pub struct InvalidAction;

impl ActionName {
    /// Bytes at most.
    pub const MAX: usize = 128;

    /// The action.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length.into()]).expect("it was made of a text")
    }
}

impl FromStr for ActionName {
    type Err = InvalidAction;

    fn from_str(text: &str) -> Result<Self, InvalidAction> {
        if text.is_empty() {
            return Err(InvalidAction);
        }
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..text.len()).ok_or(InvalidAction)?.copy_from_slice(text.as_bytes());
        Ok(Self { length: u8::try_from(text.len()).map_err(|_| InvalidAction)?, bytes })
    }
}

impl fmt::Debug for ActionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for ActionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Filter {
    /// Parses the line of a use or record; `None` when the line is damaged, or the filter excludes the use by its
    /// beginning.
    pub(crate) fn parse_use(&self, line: &[u8]) -> Option<UseEvent<'static>> {
        // The id is compared before anything is parsed: a search for one id passes over nearly every line.
        if self.id.is_some_and(|id| line::event_id(line) != Some(id.as_u128())) {
            return None;
        }
        let begun = decode::verified_use(line)?;
        self.matches_use(&begun).then(|| begun.into_owned())
    }

    /// Tests all conditions but the id and the outcome, which [`Filter::matches_outcome`] tests after joining.
    pub(crate) fn matches_use(&self, begun: &UseEvent<'_>) -> bool {
        self.since.is_none_or(|since| begun.time >= since)
            && self.until.is_none_or(|until| begun.time < until)
            && (self.key.is_none() || self.key == begun.key_id)
            && (self.user.is_none() || self.user == begun.user_id)
            && (self.subject.is_none() || self.subject == begun.subject)
            && (self.token.is_none() || self.token == begun.token_id)
            && (self.org.is_none() || self.org == begun.org_id)
            && self.kind.is_none_or(|kind| kind == begun.kind())
            && self.action.is_none_or(|action| action.as_str() == begun.action)
            && self.refused.is_none_or(|refused| refused == begun.outcome.is_some_and(Outcome::is_refusal))
            && self.covers.is_none_or(|time| {
                // Of a count of one, the record has the id.
                begun.uses() > 1 && begun.time.0 / 1000 <= time.0 / 1000 && begun.last >= Some(time)
            })
    }

    /// Tests the outcome of a joined record.
    pub(crate) fn matches_outcome(&self, record: &Record) -> bool {
        self.outcome.is_none_or(|outcome| record.outcome == outcome)
    }
}
