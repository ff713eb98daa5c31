//! The kept revocations of this process: looked up by decisions, and asserted on servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use tokio::sync::watch;

use super::entry::Entry;
use super::revocation::{Revocation, Subject, Write};
use crate::FederationRule;
use crate::redis::record_names::RecordNames;
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::management_token::TokenId;
use domain::session::TokenDigest;
use redis_client::Replication;

/// Revocations to keep, some 200 bytes each: more than operators make in the minutes for which they are kept. When
/// there are more, the oldest are forgotten early.
const CAPACITY: usize = 100_000;

/// A revocation that a server may lack.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Hash slot of its records.
    pub slot: u16,
    /// The revocation.
    pub revocation: Arc<Revocation>,
}

/// Revocations that a failover may still undo.
///
/// - While a final one is kept, this process refuses its subject, whatever a server says. One that can be taken back is
///   only written again; once it was taken back, it is kept no longer.
/// - Decisions look it up only when `generation` has changed since they last did.
pub struct KeptRevocations {
    names: RecordNames,
    /// Written by the follower of the log and by changes of this process; read by decisions, and by the tasks that
    /// assert them to servers.
    entries: DashMap<Subject, Entry>,
    /// Sessions and their memberships among the entries.
    sessions: AtomicUsize,
    /// Incremented after every new entry.
    generation: AtomicU64,
    /// The same for the tasks that assert entries.
    added: watch::Sender<u64>,
    /// Servers that may lack entries, each counted by a [`LackingServer`] until its drop. While there are any, nothing
    /// is forgotten: it may be safe on one server only.
    lacking: AtomicUsize,
    /// True once entries were forgotten early: one log line for all of them.
    is_over_capacity: AtomicBool,
}

/// A server that may lack entries, for as long as this lives.
pub(super) struct LackingServer(Arc<KeptRevocations>);

impl LackingServer {
    pub(super) fn new(kept: &Arc<KeptRevocations>) -> Self {
        kept.lacking.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(kept))
    }
}

impl Drop for LackingServer {
    fn drop(&mut self) {
        let before = self.0.lacking.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each server is counted once");
    }
}

/// The revocations, each with the histories that have it.
impl std::fmt::Debug for KeptRevocations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |entry: &Entry| format!("{:?} {:?}", entry.revocation, entry.histories().collect::<Vec<_>>());
        let mut kept: Vec<_> = self.entries.iter().map(|entry| text(&entry)).collect();
        kept.sort_unstable();
        f.debug_tuple("KeptRevocations").field(&kept).finish()
    }
}

impl KeptRevocations {
    /// Nothing kept; the names are those of the records.
    pub fn new(names: RecordNames) -> Self {
        Self {
            names,
            entries: DashMap::new(),
            sessions: AtomicUsize::new(0),
            generation: AtomicU64::new(1),
            added: watch::Sender::new(0),
            lacking: AtomicUsize::new(0),
            is_over_capacity: AtomicBool::new(false),
        }
    }

    /// Keeps an acknowledged revocation. Every decision of this process that begins afterwards obeys it.
    pub fn add(&self, revocation: Revocation) {
        let subject = revocation.subject();
        let slot = revocation.slot(&self.names);
        match self.entries.entry(subject) {
            // Made again: the servers that have the first one have this one.
            MapEntry::Occupied(kept) if kept.get().revocation.number() >= revocation.number() => return,
            MapEntry::Occupied(mut kept) => drop(kept.insert(Entry::new(revocation, slot, Instant::now()))),
            MapEntry::Vacant(vacant) => drop(vacant.insert(Entry::new(revocation, slot, Instant::now()))),
        }
        if subject.is_of_session() {
            self.sessions.fetch_add(1, Ordering::Release);
        }
        self.generation.fetch_add(1, Ordering::Release);
        self.added.send_modify(|added| *added += 1);
        if self.entries.len() > CAPACITY {
            self.forget_oldest();
        }
    }

    /// Keeps what was taken back no longer.
    pub(crate) fn release(&self, subject: Subject) {
        self.entries.remove(&subject);
    }

    /// Changes whenever a revocation is added.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether the revocation of a key is kept.
    pub fn has_key(&self, key: KeyId) -> bool {
        self.entries.contains_key(&Subject::Key(key))
    }

    pub(crate) fn has_user(&self, user: UserId) -> bool {
        self.entries.contains_key(&Subject::User(user))
    }

    /// Returns whether the end of a session is kept.
    pub fn has_session(&self, digest: &TokenDigest) -> bool {
        self.sessions.load(Ordering::Acquire) > 0 && self.entries.contains_key(&Subject::Session(*digest.as_bytes()))
    }

    pub(crate) fn has_membership(&self, digest: &TokenDigest, org: OrgId) -> bool {
        let subject = Subject::Membership(*digest.as_bytes(), org);
        self.sessions.load(Ordering::Acquire) > 0 && self.entries.contains_key(&subject)
    }

    /// Time of the revocation of a management token, if it is kept.
    pub fn token_revoked(&self, token: TokenId) -> Option<Micros> {
        match *self.entries.get(&Subject::Token(token))?.revocation {
            Revocation::Token { at, .. } => Some(at),
            _ => unreachable!("a revocation is kept under its subject"),
        }
    }

    pub(crate) fn has_rule(&self, tag: OrgTag, rule: &FederationRule) -> bool {
        self.entries.contains_key(&Subject::rule(tag, &rule.name, rule.created))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Wakes when a revocation is added.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.added.subscribe()
    }

    /// The writes of the script that makes these revocations.
    pub fn writes(&self, script: &[Kept]) -> Vec<Write> {
        script.iter().flat_map(|kept| kept.revocation.writes(&self.names)).collect()
    }

    /// The revocations in the hash slots of a server that its history has not confirmed, ordered by hash slot.
    pub fn unconfirmed(&self, history: &str, serves: impl Fn(u16) -> bool) -> Vec<Kept> {
        let is_due = |entry: &Entry| serves(entry.slot) && !entry.is_confirmed_in(history);
        let due = self.entries.iter().filter(|entry| is_due(entry));
        let mut due: Vec<Kept> =
            due.map(|entry| Kept { slot: entry.slot, revocation: Arc::clone(&entry.revocation) }).collect();
        due.sort_by_key(|kept| kept.slot);
        due
    }

    /// Notes that a server has these revocations.
    pub fn confirm(&self, revocations: &[Kept], replication: &Replication) {
        let now = Instant::now();
        for kept in revocations {
            if let Some(mut entry) = self.entries.get_mut(&kept.revocation.subject()) {
                entry.confirm(replication, now);
            }
        }
    }

    /// Forgets the revocations in the hash slots of a server that it cannot lose any more.
    pub(super) fn forget_safe(&self, replication: &Replication, most_replicas: usize, serves: impl Fn(u16) -> bool) {
        if self.lacking.load(Ordering::Relaxed) > 0 {
            return;
        }
        let now = Instant::now();
        self.forget(|entry| serves(entry.slot) && entry.is_safe(replication, most_replicas, now));
    }

    /// Makes room: forgets the oldest hundredth, so that not every new entry has to look for the oldest one.
    fn forget_oldest(&self) {
        let mut kept: Vec<Instant> = self.entries.iter().map(|entry| entry.kept).collect();
        let (_, limit, _) = kept.select_nth_unstable(CAPACITY / 100);
        let limit = *limit;
        self.forget(|entry| entry.kept <= limit);
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
            if forgotten && subject.is_of_session() {
                self.sessions.fetch_sub(1, Ordering::Release);
            }
            !forgotten
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Arc<KeptRevocations> {
        Arc::new(KeptRevocations::new(RecordNames::new("p")))
    }

    fn revocation() -> (KeyId, Revocation) {
        let key = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        (key, Revocation::Key { key, at: Micros(7) })
    }

    fn replication(history: &str) -> Replication {
        Replication { history: history.into(), is_primary: true, ..Replication::default() }
    }

    #[test]
    fn revocation_is_found_once_it_is_added_and_changes_the_generation_once() {
        let kept = kept();
        let (key, revocation) = revocation();
        let before = kept.generation();
        assert!(!kept.has_key(key));
        kept.add(revocation.clone());
        let after = kept.generation();
        assert!(kept.has_key(key) && after != before);
        kept.add(revocation);
        assert_eq!(kept.generation(), after, "decisions have nothing new to look up");
        let ended = TokenDigest::of(b"ended");
        let other = TokenDigest::of(b"other");
        assert!(!kept.has_session(&ended));
        kept.add(Revocation::Session(ended));
        assert!(kept.has_session(&ended) && !kept.has_session(&other));
    }

    #[test]
    fn later_suspension_takes_the_place_of_an_earlier_one_until_it_is_taken_back() {
        let kept = kept();
        let tag = OrgTag::generate().unwrap();
        let numbers = |kept: &KeptRevocations| -> Vec<u64> {
            kept.unconfirmed("a", |_| true).iter().map(|kept| kept.revocation.number()).collect()
        };
        kept.add(Revocation::SuspendedOrg { tag, number: 2 });
        kept.confirm(&kept.unconfirmed("a", |_| true), &replication("a"));
        kept.add(Revocation::SuspendedOrg { tag, number: 1 });
        assert!(numbers(&kept).is_empty(), "the later one is confirmed");
        kept.add(Revocation::SuspendedOrg { tag, number: 3 });
        assert_eq!(numbers(&kept), [3]);
        kept.release(Subject::SuspendedOrg(tag));
        assert!(kept.is_empty());
    }

    #[test]
    fn revocation_is_unconfirmed_in_every_history_but_those_that_confirmed_it() {
        let kept = kept();
        let first = revocation().1;
        let second = revocation().1;
        kept.add(first);
        let told = kept.unconfirmed("a", |_| true);
        kept.confirm(&told, &replication("a"));
        kept.add(second);
        assert_eq!(told.len(), 1);
        assert_eq!(kept.unconfirmed("a", |_| true).len(), 1, "what one server confirmed is kept for each revocation");
        assert_eq!(kept.unconfirmed("b", |_| true).len(), 2);
        assert_eq!(kept.unconfirmed("b", |slot| slot == told[0].slot).len(), 1, "other hash slots are others' affair");
    }

    #[test]
    fn nothing_is_forgotten_while_a_server_may_lack_it() {
        let kept = kept();
        kept.add(revocation().1);
        let lacking = LackingServer::new(&kept);
        assert_eq!(kept.lacking.load(Ordering::Relaxed), 1);
        drop(lacking);
        assert_eq!(kept.lacking.load(Ordering::Relaxed), 0);
        kept.forget_safe(&replication("a"), 0, |_| true);
        assert!(!kept.is_empty(), "no server has confirmed it");
    }

    #[test]
    fn number_of_kept_revocations_is_bounded_and_the_newest_stay() {
        let kept = kept();
        let tag = OrgTag::generate().unwrap();
        let keys: Vec<KeyId> = (0..=CAPACITY).map(|_| KeyId::generate(tag).unwrap()).collect();
        keys.iter().for_each(|key| kept.add(Revocation::Key { key: *key, at: Micros(7) }));
        assert!(kept.entries.len() <= CAPACITY);
        assert!(keys[CAPACITY / 2..].iter().all(|key| kept.has_key(*key)));
        assert!(kept.entries.len() > CAPACITY / 2);
    }
}
