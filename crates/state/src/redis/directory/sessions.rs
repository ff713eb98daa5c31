//! Changes of web sessions. Each session is a record in a hash slot by its digest, which Redis deletes when it expires.
//!
//! Sessions are indexed by their ids, persons and organizations, in one hash slot for all (`session_index`). Index entries
//! are written before the record and deleted after it, so that every session can be found and ended. Entries of expired
//! sessions are removed by later sign-ins.

use super::commit_error::CommitError;
use super::record_fields::session_fields;
use super::records::Directory;
use super::transaction::{Check, CommitResult};
use crate::redis::record_codec::ended_membership;
use crate::redis::revocations::Revocation;
use crate::{ChangeError, Session};
use domain::clock::Micros;
use domain::identity::{OrgId, SessionId};
use domain::session::TokenDigest;
use redis_client::hash_slot;

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
        // The digest is taken. If another session has it, the entry of the index that was written above is removed.
        let other = self.read_session(digest).await?.ok_or(CommitError::Conflict)?;
        if other.id != session.id {
            self.unindex_session(session.id, Some(session)).await?;
        }
        Err(ChangeError::Taken("digest").into())
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
        transaction.check(Check::NoField(record, &ended_membership(org)), ChangeError::NoOrg(org));
        transaction.set_field(record, "chosen", &org.to_string());
        self.commit(slot, transaction).await?.into_replicas()
    }

    /// Ends the membership of a session in an organization, and the session with the last one.
    pub(super) async fn end_membership(&self, session: SessionId, org: OrgId) -> Result<u32, CommitError> {
        let wanted = self.shared.settings.durability.replicas;
        let Some(digest) = self.find_session_digest(session).await? else { return Ok(wanted) };
        let Some(mut stored) = self.read_session(&digest).await? else { return Ok(wanted) };
        stored.end_membership(org);
        if stored.memberships.is_empty() {
            return self.end_session(session).await;
        }
        let name = self.shared.names.session(&digest);
        let slot = hash_slot(&name);
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        // Not written to a session that has ended meanwhile: that would make a record without an end.
        transaction.check(Check::Equal(record, "id", &session.to_string()), ());
        transaction.set_field(record, &ended_membership(org), "1");
        let CommitResult::Written(replicas) = self.commit(slot, transaction).await? else { return Ok(wanted) };
        self.shared.revocations.add(Revocation::Membership(digest, org));
        if replicas >= wanted {
            self.unindex_membership(session, org).await?;
        }
        Ok(replicas)
    }

    pub(super) async fn end_session(&self, session: SessionId) -> Result<u32, CommitError> {
        let wanted = self.shared.settings.durability.replicas;
        let Some(digest) = self.find_session_digest(session).await? else { return Ok(wanted) };
        let stored = self.read_session(&digest).await?;
        let name = self.shared.names.session(&digest);
        let slot = hash_slot(&name);
        let mut transaction = self.withdrawal::<CommitError>();
        let record = transaction.record(name);
        // A write before the deletion, so that there is something for replicas to confirm even if it is gone already.
        transaction.set_field(record, "id", &session.to_string());
        transaction.delete(record);
        let replicas = self.commit(slot, transaction).await?.into_replicas()?;
        self.shared.revocations.add(Revocation::Session(digest));
        // Until replicas have the end, the index entry is needed to end the session again.
        if replicas >= wanted {
            self.unindex_session(session, stored.as_ref()).await?;
        }
        Ok(replicas)
    }
}

/// Whole milliseconds, rounded up: lookups check the expiry to the microsecond.
pub(super) fn milliseconds(time: Micros) -> u64 {
    time.0.div_ceil(1000)
}
