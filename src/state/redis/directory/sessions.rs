//! Changes of web sessions. Each session is a record in a hash slot by its digest, which Redis deletes when it expires.
//!
//! Sessions are indexed by their ids, in one hash slot for all. An index entry is written before its record and deleted
//! after it, so that every session can be found and ended. Entries of expired sessions are removed by later sign-ins.

use super::commit_error::CommitError;
use super::record_fields::session_fields;
use super::records::Directory;
use super::transaction::{Check, CommitResult, Record, Transaction};
use crate::clock::Micros;
use crate::identity::{OrgId, SessionId};
use crate::session::TokenDigest;
use crate::state::redis::client::hash_slot;
use crate::state::redis::record_names::{hex, sessions_slot};
use crate::state::redis::revocations::Revocation;
use crate::state::{ChangeError, Session};

/// Index entries that one sign-in removes at most: more than it adds, and few enough to take no time.
const MAX_SWEPT: usize = 16;

impl Directory {
    pub(super) async fn create_session(
        &self,
        session: &Session,
        digest: &TokenDigest,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let indexed = self.index_session(session, digest).await?;
        let name = self.shared.names.session(digest);
        let (slot, id) = (hash_slot(&name), session.id.to_string());
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        // On a retry, a record with this id was written by the attempt whose reply was lost.
        let check = if is_retry { Check::Free(record, "id", &id) } else { Check::Absent(record) };
        transaction.check(check, ());
        transaction.set(record, &session_fields(session));
        transaction.expire(record, milliseconds(session.expires));
        if let CommitResult::Written(replicas) = self.commit(slot, transaction).await? {
            // Both writes have to be replicated, and they may be on two primaries.
            return Ok(replicas.min(indexed));
        }
        let other = self.read_session(digest).await?.ok_or(CommitError::Conflict)?;
        if other.id != session.id {
            self.unindex_session(session.id).await?;
        }
        Err(ChangeError::Taken("digest").into())
    }

    async fn index_session(&self, session: &Session, digest: &TokenDigest) -> Result<u32, CommitError> {
        let (id, hex) = (session.id.to_string(), hex(digest.as_bytes()));
        let mut transaction = self.transaction();
        let [index, ends] = self.add_index(&mut transaction);
        transaction.check(Check::Free(index, &id, &hex), ChangeError::Taken("id"));
        transaction.sweep(ends, index, MAX_SWEPT);
        transaction.set_field(index, &id, &hex);
        transaction.add_scored(ends, session.expires.0, &id);
        self.commit(sessions_slot(), transaction).await?.into_replicas()
    }

    async fn unindex_session(&self, session: SessionId) -> Result<(), CommitError> {
        let id = session.to_string();
        let mut transaction = self.transaction::<CommitError>();
        let [index, ends] = self.add_index(&mut transaction);
        transaction.unset(index, &[&id]);
        transaction.remove_scored(ends, &id);
        Ok(self.commit(sessions_slot(), transaction).await.map(drop)?)
    }

    /// Adds the two records of the index to a transaction: digests by id, and ends.
    fn add_index<F>(&self, transaction: &mut Transaction<F>) -> [Record; 2] {
        let names = &self.shared.names;
        [names.sessions(), names.session_ends()].map(|name| transaction.record(name))
    }

    pub(super) async fn choose_org(&self, session: SessionId, org: OrgId) -> Result<u32, CommitError> {
        let digest = self.find_session_digest(session).await?.ok_or(ChangeError::NoSession(session))?;
        let stored = self.read_session(&digest).await?.ok_or(ChangeError::NoSession(session))?;
        if !stored.memberships.iter().any(|membership| membership.org == org) {
            return Err(ChangeError::NoOrg(org).into());
        }
        let name = self.shared.names.session(&digest);
        let slot = hash_slot(&name);
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        transaction.check(Check::Equal(record, "id", &session.to_string()), ChangeError::NoSession(session));
        transaction.set_field(record, "chosen", &org.to_string());
        self.commit(slot, transaction).await?.into_replicas()
    }

    pub(super) async fn end_session(&self, session: SessionId) -> Result<u32, CommitError> {
        let wanted = self.shared.settings.durability.replicas;
        let Some(digest) = self.find_session_digest(session).await? else { return Ok(wanted) };
        let name = self.shared.names.session(&digest);
        let slot = hash_slot(&name);
        let mut transaction = self.transaction::<CommitError>();
        let record = transaction.record(name);
        // A write before the deletion, so that there is something for replicas to confirm even if it is gone already.
        transaction.set_field(record, "id", &session.to_string());
        transaction.delete(record);
        let replicas = self.commit(slot, transaction).await?.into_replicas()?;
        self.shared.revocations.add(Revocation::Session(digest));
        // Until replicas have the end, the index entry is needed to end the session again.
        if replicas >= wanted {
            self.unindex_session(session).await?;
        }
        Ok(replicas)
    }
}

/// Whole milliseconds, rounded up: lookups check the expiry to the microsecond.
pub(super) fn milliseconds(time: Micros) -> u64 {
    time.0.div_ceil(1000)
}
