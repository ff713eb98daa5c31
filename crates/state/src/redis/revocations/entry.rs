//! A kept revocation: which replication histories have it, and when it can be forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::revocation::Revocation;
use redis_client::Replication;

/// Time for which a history must have had a revocation before it is forgotten. A replica that is further behind is not
/// promoted: Sentinel accepts none that was out of touch for ten times `down-after-milliseconds` (30 s by default, so 5
/// minutes), Cluster none that was for ten times `cluster-node-timeout` (15 s, so 2.5 minutes). This is twice as long.
pub(super) const MIN_AGE: Duration = Duration::from_secs(600);
/// Time after which a revocation counts as saved. Without an append-only file a restart loses what came after the last
/// snapshot; Redis takes one at least every hour in which something changed (its default `save 3600 1`), or the
/// operator has decided to do without. This is twice as long.
const MAX_UNSAVED_AGE: Duration = Duration::from_secs(7200);
/// Histories to remember for each entry. More than one are in use only while links lead to an old primary as well as to
/// the new one. A history that is forgotten gets the revocation once more.
const MAX_CONFIRMATIONS: usize = 4;

/// A kept revocation.
pub(super) struct Entry {
    pub(super) revocation: Arc<Revocation>,
    pub(super) slot: u16,
    pub(super) kept: Instant,
    confirmations: Vec<Confirmation>,
}

/// A server had the revocation, in this replication history.
struct Confirmation {
    history: Arc<str>,
    /// Offset of the history by which it was there.
    offset: u64,
    /// The server's clock then, in seconds.
    time: u64,
    /// The same moment by our clock.
    at: Instant,
}

impl Entry {
    pub(super) fn new(revocation: Revocation, slot: u16, now: Instant) -> Self {
        Self { revocation: Arc::new(revocation), slot, kept: now, confirmations: Vec::new() }
    }

    pub(super) fn is_confirmed_in(&self, history: &str) -> bool {
        self.confirmation(history).is_some()
    }

    /// Histories that have confirmed it.
    pub(super) fn histories(&self) -> impl Iterator<Item = &str> {
        self.confirmations.iter().map(|confirmation| &*confirmation.history)
    }

    /// Notes that a server had the revocation when it described itself so.
    pub(super) fn confirm(&mut self, replication: &Replication, now: Instant) {
        if self.is_confirmed_in(&replication.history) {
            return;
        }
        if self.confirmations.len() == MAX_CONFIRMATIONS {
            self.confirmations.remove(0);
        }
        let history = Arc::clone(&replication.history);
        let offset = replication.offset;
        let time = replication.time;
        self.confirmations.push(Confirmation { history, offset, time, at: now });
    }

    /// Returns whether neither a failover nor a restart of this server can lose the revocation any more.
    ///
    /// `most_replicas` is the largest number of replicas that the server had in this history: a primary that was cut
    /// off from some of them does not know what they lack.
    pub(super) fn is_safe(&self, replication: &Replication, most_replicas: usize, now: Instant) -> bool {
        let Some(confirmation) = self.confirmation(&replication.history) else { return false };
        let age = now.saturating_duration_since(confirmation.at);
        let is_replicated = replication.replicas.len() >= most_replicas
            && replication.replicas.iter().all(|offset| *offset >= confirmation.offset);
        // The clock has whole seconds: what came in the second of the snapshot may have come after it.
        let is_saved = replication.saved > confirmation.time || age >= MAX_UNSAVED_AGE;
        age >= MIN_AGE && is_replicated && is_saved
    }

    fn confirmation(&self, history: &str) -> Option<&Confirmation> {
        self.confirmations.iter().find(|confirmation| &*confirmation.history == history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::session::TokenDigest;

    fn replication(history: &str, replicas: &[u64], time: u64) -> Replication {
        let history = history.into();
        let replicas = replicas.to_vec();
        Replication { history, is_primary: true, offset: 100, replicas, time, saved: time }
    }

    fn entry(now: Instant) -> Entry {
        Entry::new(Revocation::Session(TokenDigest::of(b"any")), 0, now)
    }

    #[test]
    fn confirmation_holds_for_its_history_only() {
        let now = Instant::now();
        let mut entry = entry(now);
        assert!(!entry.is_confirmed_in("a"));
        entry.confirm(&replication("a", &[], 0), now);
        assert!(entry.is_confirmed_in("a") && !entry.is_confirmed_in("b"));
        entry.confirm(&replication("b", &[], 0), now);
        assert!(entry.is_confirmed_in("a") && entry.is_confirmed_in("b"), "a link may still lead to the old primary");
        for history in ["c", "d", "e"] {
            entry.confirm(&replication(history, &[], 0), now);
        }
        assert!(entry.is_confirmed_in("e") && !entry.is_confirmed_in("a"), "the number is bounded");
    }

    #[test]
    fn entry_is_safe_once_it_is_old_on_all_replicas_and_on_disk() {
        let now = Instant::now();
        let mut entry = entry(now);
        let later = now + MIN_AGE;
        let safe = |entry: &Entry, replicas: &[u64], most, saved, at| {
            entry.is_safe(&Replication { saved, ..replication("a", replicas, 900) }, most, at)
        };
        assert!(!safe(&entry, &[], 0, 900, later), "no server has confirmed it");
        entry.confirm(&replication("a", &[], 7), now);
        assert!(safe(&entry, &[], 0, 900, later));
        assert!(!safe(&entry, &[], 0, 900, later - Duration::from_secs(1)), "a lagging replica may be promoted");
        assert!(safe(&entry, &[100, 150], 2, 900, later));
        assert!(!safe(&entry, &[100, 99], 2, 900, later), "a replica lacks it");
        assert!(!safe(&entry, &[100], 2, 900, later), "a replica was lost, which may lack it");
        assert!(!safe(&entry, &[], 0, 7, later), "the last snapshot may lack it");
        assert!(safe(&entry, &[], 0, 7, now + MAX_UNSAVED_AGE));
        assert!(!entry.is_safe(&replication("b", &[], 900), 0, later), "another history");
    }
}
