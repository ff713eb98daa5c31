//! Web sessions: in memory, where requests find them, and durable in the file.
//!
//! - A session is created, changed and ended as everything else: committed, then effective, then answered.
//! - That one was used is known in memory at once, and in the file within about a minute. A crash that loses the
//!   last minute of it can only shorten the session.
//! - Expired ones are never found, and are removed within about a minute.

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

use super::Embedded;
use crate::clock::Micros;
use crate::identity::{OrgId, SessionId};
use crate::session::TokenDigest;
use crate::state::{Change, Session};

/// All sessions.
///
/// - Only the writer adds and removes sessions and chooses organizations; look-ups change nothing but `seen`.
#[derive(Default)]
pub(super) struct Sessions {
    /// Digests are uniform, so the fastest hash is good enough.
    by_digest: DashMap<TokenDigest, Kept, FxBuildHasher>,
    digest: DashMap<SessionId, TokenDigest>,
}

struct Kept {
    session: Session,
    /// `seen` as the file has it.
    written: Micros,
}

/// What time has changed about sessions and the file does not know.
pub(super) struct Aged {
    /// When they were last used.
    pub(super) seen: Vec<(TokenDigest, Micros)>,
    /// Those that nobody can use any more.
    pub(super) over: Vec<TokenDigest>,
}

impl Embedded {
    /// The live session with this digest. See [`crate::state::State::session`].
    pub fn session(&self, digest: &TokenDigest, now: Micros) -> Option<Session> {
        self.directory.sessions.find(digest, now)
    }

    /// The live session with this id. See [`crate::state::State::session_by_id`].
    pub fn session_by_id(&self, id: SessionId, now: Micros) -> Option<Session> {
        self.directory.sessions.with_id(id, now)
    }

    /// All live sessions, oldest first. See [`crate::state::State::sessions`].
    pub fn sessions(&self, now: Micros) -> Vec<Session> {
        self.directory.sessions.live(now)
    }
}

impl Sessions {
    /// The live one with this digest; it counts as used now.
    fn find(&self, digest: &TokenDigest, now: Micros) -> Option<Session> {
        let mut kept = self.by_digest.get_mut(digest).filter(|kept| kept.session.is_live(now))?;
        kept.session.seen = kept.session.seen.max(now);
        Some(kept.session.clone())
    }

    fn with_id(&self, id: SessionId, now: Micros) -> Option<Session> {
        let digest = *self.digest.get(&id)?;
        self.by_digest.get(&digest).map(|kept| kept.session.clone()).filter(|session| session.is_live(now))
    }

    fn live(&self, now: Micros) -> Vec<Session> {
        let kept = self.by_digest.iter().filter(|kept| kept.session.is_live(now));
        let mut sessions: Vec<Session> = kept.map(|kept| kept.session.clone()).collect();
        sessions.sort_by_key(|session| (session.created, session.id));
        sessions
    }

    /// Makes a committed change effective.
    pub(super) fn apply(&self, change: Change) {
        match change {
            Change::CreateSession { session, digest } => self.add(*session, digest),
            Change::ChooseOrg { session, org } => self.choose(session, org),
            Change::EndSession { session } => {
                if let Some((_, digest)) = self.digest.remove(&session) {
                    self.by_digest.remove(&digest);
                }
            }
            _ => {}
        }
    }

    /// Adds one that the file has.
    pub(super) fn add(&self, session: Session, digest: TokenDigest) {
        self.digest.insert(session.id, digest);
        let written = session.seen;
        self.by_digest.insert(digest, Kept { session, written });
    }

    fn choose(&self, session: SessionId, org: OrgId) {
        let Some(digest) = self.digest.get(&session).map(|digest| *digest) else { return };
        if let Some(mut kept) = self.by_digest.get_mut(&digest) {
            kept.session.chosen = org;
        }
    }

    /// What the file is to be told of.
    pub(super) fn aged(&self, now: Micros) -> Aged {
        let mut aged = Aged { seen: Vec::new(), over: Vec::new() };
        for kept in &self.by_digest {
            if !kept.session.is_live(now) {
                aged.over.push(*kept.key());
            } else if kept.session.seen != kept.written {
                aged.seen.push((*kept.key(), kept.session.seen));
            }
        }
        aged
    }

    /// The file was told.
    pub(super) fn told(&self, aged: &Aged, now: Micros) {
        for (digest, seen) in &aged.seen {
            if let Some(mut kept) = self.by_digest.get_mut(digest) {
                kept.written = *seen;
            }
        }
        for digest in &aged.over {
            if let Some((_, kept)) = self.by_digest.remove_if(digest, |_, kept| !kept.session.is_live(now)) {
                self.digest.remove(&kept.session.id);
            }
        }
    }
}
