//! Sessions and tickets. Each is a record of its own, in a slot by its digest, which Redis forgets at its end.
//!
//! Sessions are indexed by their ids, in one slot for all: an index entry comes before its record and goes after it, so
//! that whoever is signed in can be found and signed out. Entries whose time is over go with later sign-ins.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::orgs::written;
use super::*;
use crate::identity::SessionId;
use crate::session::TokenDigest;
use crate::state::Session;

/// Entries of the index that one sign-in removes at most: more than it adds, and little enough to take no time.
const SWEPT: usize = 16;

impl Redis {
    pub(super) async fn create_session(
        &self,
        session: &Session,
        digest: &TokenDigest,
        again: bool,
    ) -> Result<u32, Obstacle> {
        let indexed = self.index_session(session, digest).await?;
        let name = self.shared.layout.session(digest);
        let (slot, mut draft) = (layout::slot(&name), self.draft());
        let record = draft.record(name);
        if again {
            // One with this id is of the try whose answer was lost.
            draft.check(("free", record, "id", session.id.to_string()));
        } else {
            draft.check(("absent", record));
        }
        draft.set(record, &fields(session));
        draft.write(("expire", record, milliseconds(session.expires)));
        if let Committed::Written(replicas) = self.commit(slot, &draft).await? {
            return Ok(replicas.min(indexed));
        }
        let there = self.stored_session(digest).await?.ok_or(Obstacle::Conflict)?;
        if there.id != session.id {
            self.unindex_session(session.id).await?;
        }
        Err(ChangeError::Taken("digest").into())
    }

    async fn index_session(&self, session: &Session, digest: &TokenDigest) -> Result<u32, Obstacle> {
        let (id, hex) = (session.id.to_string(), layout::hex(digest.as_bytes()));
        let mut draft = self.draft();
        let [index, ends] = self.session_index(&mut draft);
        draft.check(("free", index, &id, &hex));
        draft.write(("sweep", ends, index, SWEPT));
        draft.write(("set", index, &id, &hex));
        draft.write(("rank", ends, session.expires.0, &id));
        match self.commit(layout::sessions_slot(), &draft).await? {
            Committed::Written(replicas) => Ok(replicas),
            Committed::Failed(_) => Err(ChangeError::Taken("id").into()),
        }
    }

    async fn unindex_session(&self, session: SessionId) -> Result<(), Obstacle> {
        let id = session.to_string();
        let mut draft = self.draft();
        let [index, ends] = self.session_index(&mut draft);
        draft.write(("unset", index, &id));
        draft.write(("unrank", ends, &id));
        Ok(self.commit(layout::sessions_slot(), &draft).await.map(drop)?)
    }

    fn session_index(&self, draft: &mut Draft) -> [usize; 2] {
        let layout = &self.shared.layout;
        [layout.sessions(), layout.session_ends()].map(|name| draft.record(name))
    }

    pub(super) async fn choose_org(&self, session: SessionId, org: OrgId) -> Result<u32, Obstacle> {
        let digest = self.digest_of_session(session).await?.ok_or(ChangeError::NoSession(session))?;
        let stored = self.stored_session(&digest).await?.ok_or(ChangeError::NoSession(session))?;
        if !stored.memberships.iter().any(|membership| membership.org == org) {
            return Err(ChangeError::NoOrg(org).into());
        }
        let name = self.shared.layout.session(&digest);
        let (slot, mut draft) = (layout::slot(&name), self.draft());
        let record = draft.record(name);
        draft.check(("equal", record, "id", session.to_string()));
        draft.set(record, &[("chosen", org.to_string())]);
        match self.commit(slot, &draft).await? {
            Committed::Written(replicas) => Ok(replicas),
            Committed::Failed(_) => Err(ChangeError::NoSession(session).into()),
        }
    }

    pub(super) async fn end_session(&self, session: SessionId) -> Result<u32, Obstacle> {
        let wanted = self.shared.settings.durability.replicas;
        let Some(digest) = self.digest_of_session(session).await? else { return Ok(wanted) };
        let name = self.shared.layout.session(&digest);
        let (slot, mut draft) = (layout::slot(&name), self.draft());
        let record = draft.record(name);
        // Written also when it is gone already, so that there is something for replicas to confirm.
        draft.set(record, &[("id", session.to_string())]);
        draft.write(("drop", record));
        let replicas = written(self.commit(slot, &draft).await?)?;
        self.shared.common.revocations.add(Revocation::Session(digest));
        if replicas >= wanted {
            self.unindex_session(session).await?;
        }
        Ok(replicas)
    }

    pub(in crate::state::redis) async fn digest_of_session(
        &self,
        session: SessionId,
    ) -> Result<Option<TokenDigest>, Failure> {
        let (slot, index) = (layout::sessions_slot(), self.shared.layout.sessions());
        let hex = self.field(slot, &index, &session.to_string()).await?;
        hex.map(|hex| layout::token_digest(&hex).ok_or(Failure::Nonsense)).transpose()
    }

    pub(super) async fn put_ticket(
        &self,
        digest: &TokenDigest,
        content: &[u8],
        expires: Micros,
    ) -> Result<u32, Obstacle> {
        let name = self.shared.layout.ticket(digest);
        let (slot, mut draft) = (layout::slot(&name), self.draft());
        let record = draft.record(name);
        draft.set(record, &[("content", BASE64.encode(content)), ("expires", expires.0.to_string())]);
        draft.write(("expire", record, milliseconds(expires)));
        written(self.commit(slot, &draft).await?)
    }
}

/// Whole milliseconds, none too few: whoever asks judges to the microsecond.
fn milliseconds(time: Micros) -> u64 {
    time.0.div_ceil(1000)
}

fn fields(session: &Session) -> Vec<(&'static str, String)> {
    let record = serde_json::to_string(session).expect("a session is text, numbers and lists of them");
    vec![
        ("id", session.id.to_string()),
        ("record", record),
        ("chosen", session.chosen.to_string()),
        ("seen", session.seen.0.to_string()),
    ]
}
