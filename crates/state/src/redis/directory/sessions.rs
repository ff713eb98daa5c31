//! Web sessions. Each is a record in a hash slot by its digest, which Redis deletes when it expires.
//!
//! - Sessions are indexed by their ids, persons and organizations, in one hash slot for all (`session_index`). Index
//!   entries are written before the record and deleted after it, so that every session can be found and ended. Entries
//!   of expired sessions are removed by later sign-ins.
//! - Every look-up reads the session's record, in one round trip: no gateway finds a session that was ended.
//! - The time of the last use is written about once a minute, and only if the record still exists, so that a session
//!   that was ended meanwhile does not come back.
//! - While Redis is unavailable there are no sessions, whatever `on_unavailable` says about keys.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{Instant, timeout_at};

use super::check::Check;
use super::commit_error::CommitError;
use super::read_records::ReadRecords;
use super::record_fields::session_fields;
use super::session_index::SessionIndex;
use super::transaction::CommitResult;
use super::transactions::{Transactions, read_each};
use crate::redis::record_codec::ended_membership;
use crate::redis::revocations::Revocation;
use crate::{Change, ChangeError, Session, Unavailable};
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, SessionId};
use domain::session::TokenDigest;
use redis_client::CommandError;

/// Age of the stored time of the last use from which a use is written.
const SEEN_INTERVAL: Duration = Duration::from_secs(60);
/// Part of the idle time-out by which the stored time may be off, where that is shorter than the interval.
const SEEN_FRACTION: u32 = 4;
/// Sessions that are read at a time.
const CONCURRENT_READS: usize = 256;

/// Web sessions, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Sessions<'a>(pub(crate) &'a Transactions);

impl Sessions<'_> {
    pub(super) async fn create(
        self,
        session: &Session,
        digest: &TokenDigest,
        is_retry: bool,
    ) -> Result<u32, CommitError> {
        let indexed = SessionIndex(self.0).add(session, digest).await?;
        let id = session.id.to_string();
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.session(digest));
        // On a retry, a record with this id was written by the attempt whose reply was lost.
        let check = if is_retry { Check::Free(record, "id", &id) } else { Check::Absent(record) };
        transaction.check(check, ());
        transaction.hset(record, &session_fields(session));
        transaction.pexpireat(record, milliseconds(session.expires));
        if let CommitResult::Written(replicas) = self.0.commit(transaction).await? {
            // Both writes have to be replicated, and they may be on two primaries.
            return Ok(replicas.min(indexed));
        }
        // The digest is taken. If another session has it, the entry of the index that was written above is removed.
        let other = self.read(digest).await?.ok_or(CommitError::Conflict)?;
        if other.id != session.id {
            SessionIndex(self.0).remove(session.id, Some(session)).await?;
        }
        Err(ChangeError::Taken("digest").into())
    }

    /// Chooses another organization, or ends a membership that is not the last one, as it was planned.
    pub(super) async fn update(
        self,
        next: &Session,
        change: &Change,
        records: &ReadRecords,
    ) -> Result<u32, CommitError> {
        let digest = records.digest_of(next.id)?;
        match change {
            Change::EndMembership { org, .. } => self.end_membership(next.id, *org, digest).await,
            _ => self.choose_org(next.id, next.chosen, digest).await,
        }
    }

    async fn choose_org(self, id: SessionId, org: OrgId, digest: &TokenDigest) -> Result<u32, CommitError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.session(digest));
        transaction.check(Check::Equal(record, "id", &id.to_string()), ChangeError::NoSession(id));
        transaction.check(Check::NoField(record, &ended_membership(org)), ChangeError::NoOrg(org));
        transaction.hset_field(record, "chosen", &org.to_string());
        self.0.commit(transaction).await?.into_replicas()
    }

    async fn end_membership(self, id: SessionId, org: OrgId, digest: &TokenDigest) -> Result<u32, CommitError> {
        let wanted = self.0.shared.settings.durability.replicas;
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.session(digest));
        transaction.allow_oom();
        // Not written to a session that has ended meanwhile: that would make a record without an end.
        transaction.check(Check::Equal(record, "id", &id.to_string()), ());
        transaction.hset_field(record, &ended_membership(org), "1");
        let CommitResult::Written(replicas) = self.0.commit(transaction).await? else { return Ok(wanted) };
        self.0.shared.revocations.add(Revocation::Membership(*digest, org));
        if replicas >= wanted {
            SessionIndex(self.0).remove_membership(id, org).await?;
        }
        Ok(replicas)
    }

    pub(super) async fn end(self, session: SessionId) -> Result<u32, CommitError> {
        let wanted = self.0.shared.settings.durability.replicas;
        let Some(digest) = SessionIndex(self.0).find_digest(session).await? else { return Ok(wanted) };
        let stored = self.read(&digest).await?;
        let name = self.0.shared.names.session(&digest);
        let (mut transaction, record) = self.0.transaction_on::<CommitError>(name);
        transaction.allow_oom();
        // A write before the deletion, so that there is something for replicas to confirm even if it is gone already.
        transaction.hset_field(record, "id", &session.to_string());
        transaction.del(record);
        let replicas = self.0.commit(transaction).await?.into_replicas()?;
        self.0.shared.revocations.add(Revocation::Session(digest));
        // Until replicas have the end, the index entry is needed to end the session again.
        if replicas >= wanted {
            SessionIndex(self.0).remove(session, stored.as_ref()).await?;
        }
        Ok(replicas)
    }

    /// The live session with this digest; it counts as used. See [`crate::State::session`].
    ///
    /// # Errors
    /// [`Unavailable`], within the deadline of decisions.
    pub(crate) async fn use_live(self, digest: &TokenDigest, now: Micros) -> Result<Option<Session>, Unavailable> {
        let deadline = Instant::now() + self.0.shared.settings.deadline;
        let read = timeout_at(deadline, self.read(digest)).await.map_err(|_| Unavailable::TimedOut)?;
        let Some(session) = read?.filter(|session| session.is_live(now)) else { return Ok(None) };
        if now.since(session.seen) >= micros(SEEN_INTERVAL.min(session.idle / SEEN_FRACTION)) {
            // A failure is harmless: the next use is written instead.
            match timeout_at(deadline, self.write_last_use(digest, now)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "cannot write the last use of a session"),
                Err(_) => tracing::debug!("timed out writing the last use of a session"),
            }
        }
        Ok(Some(Session { seen: session.seen.max(now), ..session }))
    }

    /// The live session with this id. It does not count as used.
    pub(crate) async fn find(self, id: SessionId, now: Micros) -> Result<Option<Session>, CommandError> {
        let Some(digest) = SessionIndex(self.0).find_digest(id).await? else { return Ok(None) };
        Ok(self.read(&digest).await?.filter(|session| session.is_live(now)))
    }

    /// All live sessions, oldest first.
    pub(crate) async fn list(self, now: Micros) -> Result<Vec<Session>, CommandError> {
        let digests = SessionIndex(self.0).read_digests().await?;
        let reads = digests.into_iter().map(async |digest| self.read(&digest).await);
        let found: Vec<Option<Session>> = stream::iter(reads).buffer_unordered(CONCURRENT_READS).try_collect().await?;
        let mut live: Vec<Session> = found.into_iter().flatten().filter(|session| session.is_live(now)).collect();
        live.sort_by_key(|session| (session.created, session.id));
        Ok(live)
    }

    /// The live sessions of members of an organization, oldest first.
    pub(crate) async fn list_of_org(self, org: OrgId, now: Micros) -> Result<Vec<Session>, CommandError> {
        let mut sessions = self.read_set(&self.0.shared.names.sessions_of_org(org), now).await?;
        // One whose membership was ended is in the set until its entry is removed.
        let is_member = |session: &Session| session.memberships.iter().any(|membership| membership.org == org);
        sessions.retain(|session| session.is_live(now) && is_member(session));
        Ok(sessions)
    }

    /// The sessions of a person, oldest first, also unused ones. Entries of sessions that are gone are removed.
    pub(crate) async fn list_of_person(self, person: &PersonId) -> Result<Vec<Session>, CommandError> {
        self.read_set(&self.0.shared.names.sessions_of_person(person), self.0.now()).await
    }

    /// The sessions of a set that have not reached their end, in pieces; the oldest first.
    async fn read_set(self, name: &str, now: Micros) -> Result<Vec<Session>, CommandError> {
        let mut sessions = Vec::new();
        let mut read = 0;
        loop {
            let ids = SessionIndex(self.0).read_set(name, now, read).await?;
            if ids.is_empty() {
                sessions.sort_by_key(|session: &Session| (session.created, session.id));
                return Ok(sessions);
            }
            read += ids.len();
            let found = read_each(ids.iter().copied().map(async |id| self.read_by_id(id).await)).await?;
            if found.len() < ids.len() {
                let gone = ids.iter().filter(|id| found.iter().all(|session| session.id != **id));
                read -= SessionIndex(self.0).remove_from_set(name, gone).await?;
            }
            sessions.extend(found);
        }
    }

    async fn read_by_id(self, id: SessionId) -> Result<Option<Session>, CommandError> {
        match SessionIndex(self.0).find_digest(id).await? {
            Some(digest) => self.read(&digest).await,
            None => Ok(None),
        }
    }

    /// The session with this digest, live or not; `None` once this process knows that it has ended, even where a
    /// failover has brought its record back.
    pub(super) async fn read(self, digest: &TokenDigest) -> Result<Option<Session>, CommandError> {
        let fields = self.0.read_fields(&self.0.shared.names.session(digest)).await?;
        let fields = fields.filter(|_| !self.0.shared.revocations.has_session(digest));
        let Some(mut session) = fields.map(|fields| fields.session()).transpose()? else { return Ok(None) };
        // Without the memberships that this process knows to be ended.
        for org in session.memberships.iter().map(|membership| membership.org).collect::<Vec<_>>() {
            if self.0.shared.revocations.has_membership(digest, org) {
                session.end_membership(org);
            }
        }
        // Several administrators may have ended the last ones at the same time.
        Ok((!session.memberships.is_empty()).then_some(session))
    }

    /// Writes the time of the last use, if the session still exists.
    async fn write_last_use(self, digest: &TokenDigest, now: Micros) -> Result<(), CommandError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.session(digest));
        // Also while the memory is full: the session of an administrator must not go idle meanwhile.
        transaction.allow_oom();
        transaction.check(Check::Present(record), ());
        transaction.hset_field(record, "seen", &now.0.to_string());
        self.0.commit_without_replicas(transaction).await.map(drop)
    }
}

/// Whole milliseconds, rounded up: lookups check the expiry to the microsecond.
pub(super) fn milliseconds(time: Micros) -> u64 {
    time.0.div_ceil(1000)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
