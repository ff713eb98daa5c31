//! Replicas and eviction of the primaries at the last look, shared with the thread that renders the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stands for "not known".
const UNKNOWN: u64 = u64::MAX;

/// Replicas and eviction of the primaries, at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Replicas in step, of the primary that has the fewest.
    pub replicas: u64,
    /// Bytes that a replica in step has not confirmed yet, of the one that is farthest behind.
    pub lag_bytes: u64,
    /// True when a primary may evict records.
    pub evicts: bool,
}

/// The last look, shared with the thread that renders the metrics.
#[derive(Debug)]
pub(crate) struct LastReplication {
    replicas: AtomicU64,
    lag_bytes: AtomicU64,
    evicts: AtomicBool,
}

impl LastReplication {
    pub(super) fn new() -> Self {
        Self { replicas: AtomicU64::new(UNKNOWN), lag_bytes: AtomicU64::new(0), evicts: AtomicBool::new(false) }
    }

    /// The replicas at the last look; none when no primary has answered.
    pub(crate) fn status(&self) -> Option<ReplicationStatus> {
        let replicas = self.replicas.load(Ordering::Relaxed);
        let lag_bytes = self.lag_bytes.load(Ordering::Relaxed);
        let evicts = self.evicts.load(Ordering::Relaxed);
        (replicas != UNKNOWN).then_some(ReplicationStatus { replicas, lag_bytes, evicts })
    }

    pub(super) fn set(&self, status: Option<ReplicationStatus>) {
        self.evicts.store(status.is_some_and(|status| status.evicts), Ordering::Relaxed);
        self.lag_bytes.store(status.map_or(0, |status| status.lag_bytes), Ordering::Relaxed);
        self.replicas.store(status.map_or(UNKNOWN, |status| status.replicas), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_look_and_when_no_primary_answers() {
        let last = LastReplication::new();
        assert_eq!(last.status(), None);
        let status = ReplicationStatus { replicas: 1, lag_bytes: 7, evicts: true };
        last.set(Some(status));
        assert_eq!(last.status(), Some(status));
        last.set(None);
        assert_eq!(last.status(), None);
    }
}
