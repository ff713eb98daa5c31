//! Revocation log of this process: what ends the validity of credentials, in the order in which it became effective.
//!
//! - The embedded state appends an entry when a change is effective and before it is acknowledged. A Redis state reads
//!   the log that all gateways share, and appends what it finds.
//! - Every reader has a position of its own and reads on from there. So a reader misses nothing, however late it reads:
//!   when entries were dropped that it has not read, it finds a [`RevocationEntry::Gap`].

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use domain::clock::Micros;
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId};
use domain::quota::EXACT;

/// Entries to keep. A reader that falls behind by more has not run for minutes, and has every exchange checked instead.
const CAPACITY: usize = 10_000;

/// End of the validity of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevocationEntry {
    /// The key was revoked.
    Key(KeyId),
    /// The key was rotated from one secret to another. Those before them have ended; those of later rotations are
    /// valid.
    Secrets {
        /// The key.
        key: KeyId,
        /// SHA-256 of the secret since this rotation.
        current: KeyDigest,
        /// SHA-256 of the secret that it replaced, and the time until which that is valid: [`RevocationEntry::ENDED`]
        /// without an overlap.
        previous: (KeyDigest, Micros),
    },
    /// The policy of the key was changed.
    Policy {
        /// The key.
        key: KeyId,
        /// True when the key is disabled.
        disabled: bool,
        /// Time from which the key is refused; [`Self::FOREVER`] without one.
        expires: Micros,
    },
    /// The user was removed from the organization, or suspended there.
    User(UserId),
    /// The organization was suspended.
    Org(OrgId),
    /// The session was ended.
    Session(SessionId),
    /// The session's membership in the organization was ended.
    Membership {
        /// The session.
        session: SessionId,
        /// The organization.
        org: OrgId,
    },
    /// Entries may be missing here: every open exchange has to be checked against the directory.
    Gap,
}

impl RevocationEntry {
    /// End of a validity without an end. Later than any time that a clock shows, and exact in a double.
    pub const FOREVER: Micros = Micros(EXACT);
    /// End of a secret that was replaced without an overlap: it is over by any clock.
    pub const ENDED: Micros = Micros(0);

    /// The entry for a key that has this policy since a moment ago.
    pub(crate) fn of_policy(key: KeyId, policy: Option<&KeyPolicy>) -> Self {
        let disabled = policy.is_some_and(|policy| policy.disabled.is_some());
        let expires = policy.and_then(|policy| policy.expires).unwrap_or(Self::FOREVER);
        Self::Policy { key, disabled, expires }
    }
}

/// The log. Shared by the state and the workers.
///
/// - The position of an entry is the number of entries before it, plus 1. Position 0 is the beginning.
#[derive(Debug)]
pub struct RevocationLog {
    ring: Mutex<Ring>,
    /// Position of the last entry; wakes the readers.
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The newest entries.
    entries: VecDeque<RevocationEntry>,
    /// Entries that were dropped before them.
    dropped: u64,
}

impl Default for RevocationLog {
    fn default() -> Self {
        Self::new()
    }
}

impl RevocationLog {
    /// An empty log.
    pub fn new() -> Self {
        Self { ring: Mutex::default(), last: watch::Sender::new(0) }
    }

    /// Appends an entry, and wakes the readers.
    pub(crate) fn append(&self, entry: RevocationEntry) {
        let mut ring = self.ring();
        if ring.entries.len() == CAPACITY {
            ring.entries.pop_front();
            ring.dropped += 1;
        }
        ring.entries.push_back(entry);
        // Within the lock, so that positions only grow.
        self.last.send_replace(ring.last());
    }

    /// The position of the last entry, as it changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The entries after one position, up to another. The first one is a gap when some of them were dropped.
    pub fn range(&self, after: u64, last: u64) -> Vec<RevocationEntry> {
        let ring = self.ring();
        let index = |position: u64| usize::try_from(position.saturating_sub(ring.dropped)).unwrap_or(usize::MAX);
        let end = index(last).min(ring.entries.len());
        let kept = ring.entries.range(index(after).min(end)..end).cloned();
        (after < ring.dropped).then_some(RevocationEntry::Gap).into_iter().chain(kept).collect()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

impl Ring {
    fn last(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_reads_on_from_its_position() {
        let log = RevocationLog::new();
        let users: Vec<UserId> = (0..5).map(|_| UserId::generate()).collect();
        users.iter().for_each(|user| log.append(RevocationEntry::User(*user)));
        let entries = |users: &[UserId]| users.iter().copied().map(RevocationEntry::User).collect::<Vec<_>>();
        assert_eq!(*log.subscribe().borrow(), 5);
        assert_eq!(log.range(0, 5), entries(&users));
        assert_eq!(log.range(2, 4), entries(&users[2..4]));
        assert_eq!(log.range(5, 5), []);
    }

    #[test]
    fn reader_that_fell_behind_finds_a_gap() {
        let log = RevocationLog::new();
        let user = UserId::generate();
        (0..CAPACITY + 3).for_each(|_| log.append(RevocationEntry::User(user)));
        let last = *log.subscribe().borrow();
        assert_eq!(last, CAPACITY as u64 + 3);
        assert_eq!(log.range(3, last).len(), CAPACITY);
        let late = log.range(2, last);
        assert_eq!((late.len(), &late[0]), (CAPACITY + 1, &RevocationEntry::Gap));
        assert_eq!(log.range(0, 2), [RevocationEntry::Gap]);
    }
}
