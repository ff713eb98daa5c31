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
    ) -> Result<u32, CommitError> {
        let indexed = self.index_session(session, digest).await?;
        let name = self.shared.record_names.session(digest);
        let (slot, mut transaction) = (record_names::hash_slot(&name), self.transaction());
        let record = transaction.record(name);
        if again {
            // One with this id is of the try whose answer was lost.
            transaction.check(("free", record, "id", session.id.to_string()));
        } else {
            transaction.check(("absent", record));
        }
        transaction.set(record, &fields(session));
        transaction.write(("expire", record, milliseconds(session.expires)));
        if let CommitResult::Written(replicas) = self.commit(slot, &transaction).await? {
            return Ok(replicas.min(indexed));
        }
        let there = self.read_session(digest).await?.ok_or(CommitError::Conflict)?;
        if there.id != session.id {
            self.unindex_session(session.id).await?;
        }
        Err(ChangeError::Taken("digest").into())
    }

    async fn index_session(&self, session: &Session, digest: &TokenDigest) -> Result<u32, CommitError> {
        let (id, hex) = (session.id.to_string(), record_names::hex(digest.as_bytes()));
        let mut transaction = self.transaction();
        let [index, ends] = self.session_index(&mut transaction);
        transaction.check(("free", index, &id, &hex));
        transaction.write(("sweep", ends, index, SWEPT));
        transaction.write(("set", index, &id, &hex));
        transaction.write(("rank", ends, session.expires.0, &id));
        match self.commit(record_names::sessions_slot(), &transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(_) => Err(ChangeError::Taken("id").into()),
        }
    }

    async fn unindex_session(&self, session: SessionId) -> Result<(), CommitError> {
        let id = session.to_string();
        let mut transaction = self.transaction();
        let [index, ends] = self.session_index(&mut transaction);
        transaction.write(("unset", index, &id));
        transaction.write(("unrank", ends, &id));
        Ok(self.commit(record_names::sessions_slot(), &transaction).await.map(drop)?)
    }

    fn session_index(&self, transaction: &mut Transaction) -> [usize; 2] {
        let record_names = &self.shared.record_names;
        [record_names.sessions(), record_names.session_ends()].map(|name| transaction.record(name))
    }

    pub(super) async fn choose_org(&self, session: SessionId, org: OrgId) -> Result<u32, CommitError> {
        let digest = self.find_session_digest(session).await?.ok_or(ChangeError::NoSession(session))?;
        let stored = self.read_session(&digest).await?.ok_or(ChangeError::NoSession(session))?;
        if !stored.memberships.iter().any(|membership| membership.org == org) {
            return Err(ChangeError::NoOrg(org).into());
        }
        let name = self.shared.record_names.session(&digest);
        let (slot, mut transaction) = (record_names::hash_slot(&name), self.transaction());
        let record = transaction.record(name);
        transaction.check(("equal", record, "id", session.to_string()));
        transaction.set(record, &[("chosen", org.to_string())]);
        match self.commit(slot, &transaction).await? {
            CommitResult::Written(replicas) => Ok(replicas),
            CommitResult::Failed(_) => Err(ChangeError::NoSession(session).into()),
        }
    }

    pub(super) async fn end_session(&self, session: SessionId) -> Result<u32, CommitError> {
        let wanted = self.shared.settings.durability.replicas;
        let Some(digest) = self.find_session_digest(session).await? else { return Ok(wanted) };
        let name = self.shared.record_names.session(&digest);
        let (slot, mut transaction) = (record_names::hash_slot(&name), self.transaction());
        let record = transaction.record(name);
        // Written also when it is gone already, so that there is something for replicas to confirm.
        transaction.set(record, &[("id", session.to_string())]);
        transaction.write(("drop", record));
        let replicas = written(self.commit(slot, &transaction).await?)?;
        self.shared.common.revocations.add(Revocation::Session(digest));
        if replicas >= wanted {
            self.unindex_session(session).await?;
        }
        Ok(replicas)
    }

    pub(in crate::state::redis) async fn find_session_digest(
        &self,
        session: SessionId,
    ) -> Result<Option<TokenDigest>, CommandError> {
        let (slot, index) = (record_names::sessions_slot(), self.shared.record_names.sessions());
        let hex = self.read_field(slot, &index, &session.to_string()).await?;
        hex.map(|hex| record_names::token_digest(&hex).ok_or(CommandError::UnexpectedReply)).transpose()
    }

    pub(super) async fn put_ticket(
        &self,
        digest: &TokenDigest,
        content: &[u8],
        expires: Micros,
    ) -> Result<u32, CommitError> {
        let name = self.shared.record_names.ticket(digest);
        let (slot, mut transaction) = (record_names::hash_slot(&name), self.transaction());
        let record = transaction.record(name);
        transaction.set(record, &[("content", BASE64.encode(content)), ("expires", expires.0.to_string())]);
        transaction.write(("expire", record, milliseconds(expires)));
        written(self.commit(slot, &transaction).await?)
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
