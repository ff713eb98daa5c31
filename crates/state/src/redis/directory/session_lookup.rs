//! Lookups of web sessions.
//!
//! - Every lookup reads the session's record, in one round trip: no gateway finds a session that was ended.
//! - The time of the last use is written about once a minute, and only if the record still exists, so that a session
//!   that was ended meanwhile does not come back.
//! - While Redis is unavailable there are no sessions, whatever `on_unavailable` says about keys.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{Instant, timeout_at};

use super::records::Directory;
use super::transaction::Check;
use crate::redis::record_names::{sessions_slot, token_digest};
use crate::{Session, Unavailable};
use domain::clock::Micros;
use domain::identity::SessionId;
use domain::session::TokenDigest;
use redis_client::{CommandError, hash_slot};

/// Age of the stored time of the last use from which a use is written.
const SEEN_INTERVAL: Duration = Duration::from_secs(60);
/// Part of the idle time-out by which the stored time may be off, where that is shorter than the interval.
const SEEN_FRACTION: u32 = 4;
/// Sessions that are read at a time.
const CONCURRENT_READS: usize = 256;

impl Directory {
    /// The live session with this digest; it counts as used. See [`crate::State::session`].
    ///
    /// # Errors
    /// [`Unavailable`], within the deadline of decisions.
    pub(crate) async fn use_session(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Session>, Unavailable> {
        let deadline = Instant::now() + self.shared.settings.deadline;
        let read = timeout_at(deadline, self.read_session(digest)).await.map_err(|_| Unavailable::TimedOut)?;
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
    pub(crate) async fn find_session(&self, id: SessionId, now: Micros) -> Result<Option<Session>, CommandError> {
        let Some(digest) = self.find_session_digest(id).await? else { return Ok(None) };
        Ok(self.read_session(&digest).await?.filter(|session| session.is_live(now)))
    }

    /// All live sessions, oldest first.
    pub(crate) async fn list_sessions(&self, now: Micros) -> Result<Vec<Session>, CommandError> {
        let digests = self.read_session_digests().await?;
        let reads = digests.into_iter().map(async |digest| self.read_session(&digest).await);
        let found: Vec<Option<Session>> = stream::iter(reads).buffer_unordered(CONCURRENT_READS).try_collect().await?;
        let mut live: Vec<Session> = found.into_iter().flatten().filter(|session| session.is_live(now)).collect();
        live.sort_by_key(|session| (session.created, session.id));
        Ok(live)
    }

    /// The session with this digest, live or not; `None` once this process knows that it has ended, even where a failover
    /// has brought its record back.
    pub(super) async fn read_session(&self, digest: &TokenDigest) -> Result<Option<Session>, CommandError> {
        let name = self.shared.names.session(digest);
        let fields = self.read_fields(hash_slot(&name), &name).await?;
        let fields = fields.filter(|_| !self.shared.revocations.has_session(digest));
        let Some(mut session) = fields.map(|fields| fields.session()).transpose()? else { return Ok(None) };
        // Without the memberships that this process knows to be ended.
        for org in session.memberships.iter().map(|membership| membership.org).collect::<Vec<_>>() {
            if self.shared.revocations.has_membership(digest, org) {
                session.end_membership(org);
            }
        }
        // Several administrators may have ended the last ones at the same time.
        Ok((!session.memberships.is_empty()).then_some(session))
    }

    /// The digest of the session with this id.
    pub(super) async fn find_session_digest(&self, id: SessionId) -> Result<Option<TokenDigest>, CommandError> {
        let hex = self.read_field(sessions_slot(), &self.shared.names.sessions(), &id.to_string()).await?;
        hex.map(|hex| token_digest(&hex).ok_or(CommandError::UnexpectedReply)).transpose()
    }

    /// Writes the time of the last use, if the session still exists.
    async fn write_last_use(&self, digest: &TokenDigest, now: Micros) -> Result<(), CommandError> {
        let name = self.shared.names.session(digest);
        let slot = hash_slot(&name);
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        transaction.check(Check::Present(record), ());
        transaction.set_field(record, "seen", &now.0.to_string());
        self.commit_without_replicas(slot, transaction).await.map(drop)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
