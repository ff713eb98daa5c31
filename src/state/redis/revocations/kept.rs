//! The kept revocations of this process: looked up by decisions, and asserted on servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use tokio::sync::watch;

use super::entry::Entry;
use super::revocation::{Revocation, Subject};
use crate::identity::UserId;
use crate::key::KeyId;
use crate::session::TokenDigest;
use crate::state::redis::client::{Replication, ServerStatus};
use crate::state::redis::record_names::RecordNames;

/// Revocations to keep, some 200 bytes each: more than operators make in the minutes for which they are kept. When there
/// are more, the oldest are forgotten early.
const CAPACITY: usize = 100_000;

/// A revocation that a server may lack.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) slot: u16,
    pub(super) revocation: Arc<Revocation>,
}

/// Revocations that a failover may still undo.
///
/// - While a revocation is kept, this process refuses its subject, whatever a server says: revocations are final.
/// - Decisions look it up only when `generation` has changed since they last did.
pub(in crate::state::redis) struct KeptRevocations {
    names: RecordNames,
    entries: DashMap<Subject, Entry>,
    /// Sessions among the entries.
    sessions: AtomicUsize,
    /// Incremented after every new entry.
    generation: AtomicU64,
    /// The same for the tasks that assert entries.
    added: watch::Sender<u64>,
    /// True once entries were forgotten early: one log line for all of them.
    is_over_capacity: AtomicBool,
}

impl KeptRevocations {
    pub(in crate::state::redis) fn new(names: RecordNames) -> Self {
        Self {
            names,
            entries: DashMap::new(),
            sessions: AtomicUsize::new(0),
            generation: AtomicU64::new(1),
            added: watch::Sender::new(0),
            is_over_capacity: AtomicBool::new(false),
        }
    }

    /// Keeps an acknowledged revocation. Every decision of this process that begins afterwards obeys it.
    pub(in crate::state::redis) fn add(&self, revocation: Revocation) {
        let subject = revocation.subject();
        let slot = revocation.slot(&self.names);
        match self.entries.entry(subject) {
            // Made again: the servers that have the first one have this one.
            MapEntry::Occupied(_) => return,
            MapEntry::Vacant(vacant) => drop(vacant.insert(Entry::new(revocation, slot, Instant::now()))),
        }
        if matches!(subject, Subject::Session(_)) {
            self.sessions.fetch_add(1, Ordering::Release);
        }
        self.generation.fetch_add(1, Ordering::Release);
        self.added.send_modify(|added| *added += 1);
        if self.entries.len() > CAPACITY {
            self.forget_oldest();
        }
    }

    /// Changes whenever a revocation is added.
    pub(in crate::state::redis) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(in crate::state::redis) fn has_key(&self, key: KeyId) -> bool {
        self.entries.contains_key(&Subject::Key(key))
    }

    pub(in crate::state::redis) fn has_user(&self, user: UserId) -> bool {
        self.entries.contains_key(&Subject::User(user))
    }

    pub(in crate::state::redis) fn has_session(&self, digest: &TokenDigest) -> bool {
        self.sessions.load(Ordering::Acquire) > 0 && self.entries.contains_key(&Subject::Session(*digest.as_bytes()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Wakes when a revocation is added.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.added.subscribe()
    }

    pub(super) fn names(&self) -> &RecordNames {
        &self.names
    }

    /// The revocations in the hash slots of a server that its history has not confirmed, ordered by hash slot.
    pub(super) fn unconfirmed(&self, status: &ServerStatus) -> Vec<Kept> {
        let history = &status.replication.history;
        let is_due = |entry: &Entry| status.serves(entry.slot) && !entry.is_confirmed_in(history);
        let due = self.entries.iter().filter(|entry| is_due(entry));
        let mut due: Vec<Kept> =
            due.map(|entry| Kept { slot: entry.slot, revocation: Arc::clone(&entry.revocation) }).collect();
        due.sort_by_key(|kept| kept.slot);
        due
    }

    /// Notes that a server has these revocations.
    pub(super) fn confirm(&self, revocations: &[Kept], replication: &Replication) {
        let now = Instant::now();
        for kept in revocations {
            if let Some(mut entry) = self.entries.get_mut(&kept.revocation.subject()) {
                entry.confirm(replication, now);
            }
        }
    }

    /// Forgets the revocations in the hash slots of a server that it cannot lose any more.
    pub(super) fn forget_safe(&self, status: &ServerStatus, most_replicas: usize) {
        let now = Instant::now();
        self.forget(|entry| status.serves(entry.slot) && entry.is_safe(&status.replication, most_replicas, now));
    }

    /// Makes room: forgets the oldest hundredth, so that not every new entry has to look for the oldest one.
    fn forget_oldest(&self) {
        let mut kept: Vec<Instant> = self.entries.iter().map(|entry| entry.kept).collect();
        let (_, limit, _) = kept.select_nth_unstable(CAPACITY / 100);
        let limit = *limit;
        self.forget(|entry| entry.kept < limit);
        if !self.is_over_capacity.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "more than {CAPACITY} revocations within minutes: a failover of Redis may undo the oldest; set \
                 durability.replicas"
            );
        }
    }

    fn forget(&self, which: impl Fn(&Entry) -> bool) {
        self.entries.retain(|subject, entry| {
            let forgotten = which(entry);
            if forgotten && matches!(subject, Subject::Session(_)) {
                self.sessions.fetch_sub(1, Ordering::Release);
            }
            !forgotten
        });
    }
}
