//! Identity of a state: tells the true state from one that lost its data, is another one, or is an older copy
//! (lost volume, `FLUSHALL`, wrong database, restored backup, split brain).
//!
//! - A state has a random identity, made once with it, and the number and time of its last change by management.
//! - A gateway remembers both, in memory and in a file beside its journal ([`IdentityGuard`]). What it finds has to
//!   continue what it remembers ([`continuity::ContinuityTracker`]); otherwise it serves nothing, and makes no change.
//! - A state that was accepted in place of another one names that one in `replaces`, so each gateway that remembers the
//!   other one accepts it, too.

pub(crate) mod continuity;
mod guard;
mod memory;

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use domain::clock::Micros;

pub use continuity::{Continuity, ContinuityTracker, Discontinuity};
pub use guard::{IdentityGuard, Reading};
pub use memory::{MEMORY_FILE, Memory};

/// Identities that a state names as replaced: of those before, no gateway has been away for so long.
const MAX_REPLACED: usize = 16;

/// Random identity of a state: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct StateId(Box<str>);

/// Text that is not the identity of a state.
#[derive(Debug, thiserror::Error)]
#[error("the identity of a state has 32 hexadecimal digits")]
pub struct InvalidStateId;

impl StateId {
    /// Generates a random identity.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(HEXLOWER.encode(&bytes).into()))
    }

    /// The 32 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StateId {
    type Err = InvalidStateId;

    fn from_str(text: &str) -> Result<Self, InvalidStateId> {
        match HEXLOWER.decode(text.as_bytes()) {
            Ok(bytes) if bytes.len() == 16 => Ok(Self(text.into())),
            _ => Err(InvalidStateId),
        }
    }
}

impl TryFrom<String> for StateId {
    type Error = InvalidStateId;

    fn try_from(text: String) -> Result<Self, InvalidStateId> {
        text.parse()
    }
}

impl From<StateId> for String {
    fn from(id: StateId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identity of a state, with its last change by management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateIdentity {
    /// Identity, made once.
    pub id: StateId,
    /// Number of changes by management, which only grows.
    pub changes: u64,
    /// Time of the last change, by the state's clock; the epoch before the first.
    pub changed: Micros,
    /// Identities that this one was accepted in place of, oldest first.
    pub replaces: Vec<StateId>,
}

impl StateIdentity {
    /// A new identity without changes.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        Ok(Self { id: StateId::generate()?, changes: 0, changed: Micros(0), replaces: Vec::new() })
    }

    /// The identity of a state that is accepted in place of others: those that it had itself, `found`, and those that a
    /// gateway remembers. Its changes are counted on from the most of both.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn accept(
        found: Option<&Self>,
        remembered: Option<&Memory>,
        source: Option<&StateId>,
    ) -> Result<Self, getrandom::Error> {
        let before = found.iter().flat_map(|found| found.replaces.iter().chain([&found.id]));
        let mut replaces: Vec<StateId> =
            before.chain(remembered.map(|memory| &memory.id)).chain(source).cloned().collect();
        replaces.drain(..replaces.len().saturating_sub(MAX_REPLACED));
        let changes = found.map_or(0, |found| found.changes).max(remembered.map_or(0, |memory| memory.changes));
        let changed = found.map_or(Micros(0), |found| found.changed);
        Ok(Self { id: StateId::generate()?, changes, changed, replaces })
    }

    /// The replaced identities as text, as a state keeps them.
    pub(crate) fn replaces_text(&self) -> String {
        let ids: Vec<&str> = self.replaces.iter().map(StateId::as_str).collect();
        ids.join(" ")
    }

    /// Parses the replaced identities. What is none is left out: it is not remembered by any gateway.
    pub(crate) fn parse_replaces(text: &str) -> Vec<StateId> {
        text.split(' ').filter_map(|id| id.parse().ok()).collect()
    }
}
