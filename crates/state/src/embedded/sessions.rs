//! Web sessions: in memory, where requests find them, and durable in the state file.
//!
//! - Creating, changing and ending a session is committed to the file first, then effective, then acknowledged.
//! - A use of a session is in memory at once, and in the file within about a minute. A crash that loses the last minute
//!   of uses can only shorten the session.
//! - Expired sessions are never found, and are removed within about a minute.

use std::collections::BTreeSet;

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use super::Embedded;
use crate::Session;
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, SessionId};
use domain::session::TokenDigest;

/// All sessions.
///
/// - Only the writer adds and removes sessions and chooses organizations; look-ups change nothing but `seen`.
#[derive(Default)]
pub(super) struct Sessions {
    /// Digests are uniform, so the fastest hash is good enough.
    by_digest: DashMap<TokenDigest, SessionEntry, FxBuildHasher>,
    digest_by_id: DashMap<SessionId, TokenDigest>,
    /// The sessions of each person, and of the members of each organization.
    by_person: DashMap<PersonId, BTreeSet<SessionPosition>>,
    by_org: DashMap<OrgId, BTreeSet<SessionPosition>>,
}

/// Position of a session among others: the time of the sign-in, and its id.
type SessionPosition = (Micros, SessionId);

struct SessionEntry {
    session: Session,
    /// `seen` in the file.
    written: Micros,
}

/// Uses and expiries of sessions that the file lacks.
pub(super) struct SessionUpdates {
    /// Times of the last use.
    pub(super) seen: Vec<(TokenDigest, Micros)>,
    /// Sessions that are no longer live.
    pub(super) expired: Vec<TokenDigest>,
}

impl Embedded {
    /// The live session with this digest. See [`crate::State::session`].
    pub fn session(&self, digest: &TokenDigest, now: Micros) -> Option<Session> {
        self.directory.sessions.find(digest, now)
    }

    /// The live session with this id. See [`crate::State::session_by_id`].
    pub fn session_by_id(&self, id: SessionId, now: Micros) -> Option<Session> {
        self.directory.sessions.find_by_id(id, now)
    }

    /// All live sessions, oldest first. See [`crate::State::sessions`].
    pub fn sessions(&self, now: Micros) -> Vec<Session> {
        self.directory.sessions.list_live(now)
    }

    /// The live sessions of members of an organization. See [`crate::State::sessions_of_org`].
    pub fn sessions_of_org(&self, org: OrgId, now: Micros) -> Vec<Session> {
        let sessions = &self.directory.sessions;
        let positions = sessions.by_org.get(&org).map(|positions| positions.clone()).unwrap_or_default();
        sessions.find_all(&positions).into_iter().filter(|session| session.is_live(now)).collect()
    }

    /// The sessions of a person. See [`crate::State::sessions_of_person`].
    pub fn sessions_of_person(&self, person: &PersonId) -> Vec<Session> {
        let sessions = &self.directory.sessions;
        let positions = sessions.by_person.get(person).map(|positions| positions.clone()).unwrap_or_default();
        sessions.find_all(&positions)
    }
}

impl Sessions {
    /// The live session with this digest. The look-up counts as a use.
    fn find(&self, digest: &TokenDigest, now: Micros) -> Option<Session> {
        let mut entry = self.by_digest.get_mut(digest).filter(|entry| entry.session.is_live(now))?;
        // The later time stays: requests are handled in another order than they read the clock in.
        entry.session.seen = entry.session.seen.max(now);
        Some(entry.session.clone())
    }

    fn find_by_id(&self, id: SessionId, now: Micros) -> Option<Session> {
        let digest = *self.digest_by_id.get(&id)?;
        self.by_digest.get(&digest).map(|entry| entry.session.clone()).filter(|session| session.is_live(now))
    }

    /// The sessions at these positions, live or not.
    fn find_all(&self, positions: &BTreeSet<SessionPosition>) -> Vec<Session> {
        let digests = positions.iter().filter_map(|(_, id)| self.digest_by_id.get(id).map(|digest| *digest));
        digests.filter_map(|digest| self.by_digest.get(&digest).map(|entry| entry.session.clone())).collect()
    }

    fn list_live(&self, now: Micros) -> Vec<Session> {
        let live = self.by_digest.iter().filter(|entry| entry.session.is_live(now));
        let mut sessions: Vec<Session> = live.map(|entry| entry.session.clone()).collect();
        sessions.sort_by_key(|session| (session.created, session.id));
        sessions
    }

    /// Adds a session that the file has.
    pub(super) fn add(&self, session: Session, digest: TokenDigest) {
        let position = (session.created, session.id);
        self.by_person.entry(session.person).or_default().insert(position);
        for membership in &session.memberships {
            self.by_org.entry(membership.org).or_default().insert(position);
        }
        self.digest_by_id.insert(session.id, digest);
        let written = session.seen;
        self.by_digest.insert(digest, SessionEntry { session, written });
    }

    /// Removes a session from the lists of its person and organizations, and lists that are then empty.
    fn remove_from_lists(&self, session: &Session) {
        let position = (session.created, session.id);
        let remove = |positions: &mut BTreeSet<SessionPosition>| {
            positions.remove(&position);
            positions.is_empty()
        };
        self.by_person.remove_if_mut(&session.person, |_, positions| remove(positions));
        for membership in &session.memberships {
            self.by_org.remove_if_mut(&membership.org, |_, positions| remove(positions));
        }
    }

    pub(super) fn end(&self, session: SessionId) {
        if let Some((_, digest)) = self.digest_by_id.remove(&session)
            && let Some((_, entry)) = self.by_digest.remove(&digest)
        {
            self.remove_from_lists(&entry.session);
        }
    }

    /// Replaces a session, which has lost a membership or chosen another organization. Its last use is that of memory.
    pub(super) fn update(&self, next: Session) {
        let Some(digest) = self.digest_by_id.get(&next.id).map(|digest| *digest) else { return };
        let Some(mut entry) = self.by_digest.get_mut(&digest) else { return };
        let seen = entry.session.seen;
        let before = std::mem::replace(&mut entry.session, Session { seen, ..next });
        let left: Vec<OrgId> = entry.session.memberships.iter().map(|membership| membership.org).collect();
        drop(entry);
        let position = (before.created, before.id);
        for membership in before.memberships.iter().filter(|membership| !left.contains(&membership.org)) {
            self.by_org.remove_if_mut(&membership.org, |_, positions| {
                positions.remove(&position);
                positions.is_empty()
            });
        }
    }

    /// Collects the uses and expiries that the file lacks.
    pub(super) fn collect_updates(&self, now: Micros) -> SessionUpdates {
        let mut updates = SessionUpdates { seen: Vec::new(), expired: Vec::new() };
        for entry in &self.by_digest {
            if !entry.session.is_live(now) {
                updates.expired.push(*entry.key());
            } else if entry.session.seen != entry.written {
                updates.seen.push((*entry.key(), entry.session.seen));
            }
        }
        updates
    }

    /// Notes that the file has the updates, and removes the expired sessions.
    pub(super) fn mark_written(&self, updates: &SessionUpdates, now: Micros) {
        for (digest, seen) in &updates.seen {
            if let Some(mut entry) = self.by_digest.get_mut(digest) {
                entry.written = *seen;
            }
        }
        for digest in &updates.expired {
            if let Some((_, entry)) = self.by_digest.remove_if(digest, |_, entry| !entry.session.is_live(now)) {
                self.digest_by_id.remove(&entry.session.id);
                self.remove_from_lists(&entry.session);
            }
        }
    }
}
