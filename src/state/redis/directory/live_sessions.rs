//! Web sessions and tickets: what requests ask of them.
//!
//! - Every look-up reads the session's record, in one round trip: what was ended is found by no gateway.
//! - That a session was used is written when the record says it is some while ago, about once a minute; only where the
//!   record still is, so that no session comes back that was ended meanwhile.
//! - While Redis is away there are no sessions, whatever the policy for keys is.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{FromRedisValue as _, Value, cmd};
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock::Micros;
use crate::identity::SessionId;
use crate::session::TokenDigest;
use crate::state::redis::Redis;
use crate::state::redis::client::CommandError;
use crate::state::redis::directory::changes;
use crate::state::redis::reading;
use crate::state::redis::record_codec::Fields;
use crate::state::redis::record_names;
use crate::state::{ChangeError, Session, StorageError, Unavailable};

/// How long ago a use of a session may be before another one is written.
const WRITTEN: Duration = Duration::from_secs(60);
/// Which part of the time that a session may go unused its last use may be off by, where that is short.
const PART: u32 = 4;
/// Sessions that are read at a time.
const AT_ONCE: usize = 256;

impl Redis {
    /// The live session with this digest. See [`crate::state::State::session`].
    ///
    /// # Errors
    /// [`Unavailable`], within the deadline of decisions.
    pub async fn session(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Session>, Unavailable> {
        let deadline = Instant::now() + self.shared.settings.deadline;
        let read = timeout_at(deadline, self.read_session(digest)).await.map_err(|_| Unavailable::TimedOut)?;
        let Some(session) = read?.filter(|session| session.is_live(now)) else { return Ok(None) };
        if now.since(session.seen) >= micros(WRITTEN.min(session.idle / PART)) {
            match timeout_at(deadline, self.see_session(digest, now)).await {
                Ok(Ok(())) => {}
                // The next use is written.
                Ok(Err(failure)) => tracing::debug!(%failure, "the use of a session was not written"),
                Err(_) => tracing::debug!("the use of a session was not written in time"),
            }
        }
        Ok(Some(Session { seen: session.seen.max(now), ..session }))
    }

    /// The live session with this id. See [`crate::state::State::session_by_id`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn session_by_id(&self, id: SessionId, now: Micros) -> Result<Option<Session>, Unavailable> {
        reading(async {
            let Some(digest) = self.find_session_digest(id).await? else { return Ok(None) };
            Ok(self.read_session(&digest).await?.filter(|session| session.is_live(now)))
        })
        .await
    }

    /// All live sessions, oldest first. See [`crate::state::State::sessions`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn sessions(&self, now: Micros) -> Result<Vec<Session>, Unavailable> {
        reading(self.live_sessions(now)).await
    }

    /// Takes a ticket. See [`crate::state::State::take_ticket`].
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`]; the ticket may be gone then. Also when too few replicas know that it was taken:
    /// after a failover somebody else could take it.
    pub async fn take_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ChangeError> {
        let patience = changes::PATIENCE + self.shared.settings.durability.timeout;
        let taken = timeout(patience, self.taken_ticket(digest, now)).await;
        taken.unwrap_or(Err(Unavailable::TimedOut)).map_err(|why| ChangeError::Unavailable(StorageError::Redis(why)))
    }

    pub(in crate::state::redis) async fn read_session(
        &self,
        digest: &TokenDigest,
    ) -> Result<Option<Session>, CommandError> {
        let name = self.shared.record_names.session(digest);
        let mut get = cmd("HGETALL");
        get.arg(&name);
        let fields = Fields::read(self.servers.send(record_names::hash_slot(&name), &get).await?)?;
        fields.map(|fields| fields.session()).transpose()
    }

    /// Writes that a session was used, if it is still there.
    async fn see_session(&self, digest: &TokenDigest, now: Micros) -> Result<(), CommandError> {
        let name = self.shared.record_names.session(digest);
        let (slot, mut transaction) = (record_names::hash_slot(&name), self.transaction());
        let record = transaction.record(name);
        transaction.check(("present", record));
        transaction.set(record, &[("seen", now.0.to_string())]);
        self.commit_at_once(slot, &transaction).await.map(drop)
    }

    async fn live_sessions(&self, now: Micros) -> Result<Vec<Session>, CommandError> {
        let mut get = cmd("HGETALL");
        get.arg(self.shared.record_names.sessions());
        let index = self.servers.send(record_names::sessions_slot(), &get).await?;
        let index = HashMap::<String, String>::from_redis_value(index).map_err(|_| CommandError::UnexpectedReply)?;
        let reads = index.into_values().map(async |digest| match record_names::token_digest(&digest) {
            Some(digest) => self.read_session(&digest).await,
            None => Err(CommandError::UnexpectedReply),
        });
        let found: Vec<Option<Session>> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut live: Vec<Session> = found.into_iter().flatten().filter(|session| session.is_live(now)).collect();
        live.sort_by_key(|session| (session.created, session.id));
        Ok(live)
    }

    async fn taken_ticket(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, Unavailable> {
        let name = self.shared.record_names.ticket(digest);
        let take = &self.shared.scripts.take;
        let (answer, replicas) =
            self.run_durably(record_names::hash_slot(&name), take, &[name.as_bytes()], &[]).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        if replicas < self.shared.settings.durability.replicas {
            return Err(Unavailable::TimedOut);
        }
        let (content, expires) =
            <(String, u64)>::from_redis_value(answer).map_err(|_| CommandError::UnexpectedReply)?;
        let content = BASE64.decode(content).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Some(content).filter(|_| now.0 < expires))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
