//! Replay of revocations: final refusals that this process has acknowledged are written again to a new primary.
//!
//! Replication is asynchronous. A primary that is lost takes along what its replicas have not got yet, and the one that
//! follows it would admit a revoked key, or find an ended session. So the revocations of this process are written to
//! every server before a first connection to it serves anything else. Being final, they can be repeated without
//! undoing what another gateway has changed since.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError};

use super::transaction::{Check, Transaction};
use crate::clock::Micros;
use crate::identity::UserId;
use crate::key::{KeyId, OrgTag};
use crate::session::TokenDigest;
use crate::state::redis::client::OnConnect;
use crate::state::redis::record_codec::new_version;
use crate::state::redis::record_names::RecordNames;
use crate::state::redis::scripts::Scripts;

/// Revocations to keep, the newest ones. More than can be made in the seconds that a failover loses, and few enough to
/// be written in a fraction of a second.
const CAPACITY: usize = 10_000;
/// Servers to remember as up to date. When there are more, some get the revocations once more.
const SERVERS: usize = 100;
/// Revocations written in one round trip.
const BATCH: usize = 500;

/// Revocations that this process has acknowledged.
pub(in crate::state::redis) struct Revocations {
    names: RecordNames,
    scripts: Arc<Scripts>,
    kept: Mutex<VecDeque<Revocation>>,
    /// Incarnations that have all revocations: those kept at their first connection were replayed, and the later ones
    /// they acknowledged themselves.
    replayed: Mutex<HashSet<String>>,
}

/// A final refusal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Revocation {
    /// Of a key.
    Key { key: KeyId, at: Micros },
    /// Of a user, and so of all keys of the user.
    User { tag: OrgTag, user: UserId, at: Micros },
    /// Of a session.
    Session(TokenDigest),
}

impl Revocations {
    pub(in crate::state::redis) fn new(names: RecordNames, scripts: Arc<Scripts>) -> Self {
        Self { names, scripts, kept: Mutex::default(), replayed: Mutex::default() }
    }

    /// Remembers an acknowledged revocation.
    pub(super) fn add(&self, revocation: Revocation) {
        let mut kept = self.kept();
        if kept.len() == CAPACITY {
            kept.pop_front();
        }
        kept.push_back(revocation);
    }

    /// Writes all revocations, unless this incarnation has them. On a Cluster, the server refuses those of other hash
    /// slots by itself.
    async fn replay(&self, incarnation: &str, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let kept: Vec<Revocation> = self.kept().iter().copied().collect();
        if kept.is_empty() || self.replayed().contains(incarnation) {
            self.mark_replayed(incarnation);
            return Ok(());
        }
        connection.send_packed_command(&self.scripts.commit.load()).await?;
        for batch in kept.chunks(BATCH) {
            let mut pipeline = Pipeline::with_capacity(batch.len());
            for revocation in batch {
                // Without randomness there is no new version for the record: the others are written all the same.
                let Some(transaction) = self.transaction(*revocation) else { continue };
                pipeline.add_command(transaction.by_digest(&self.scripts.commit));
            }
            connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        }
        self.mark_replayed(incarnation);
        Ok(())
    }

    /// The write of a revocation, which changes nothing where the record has it already.
    fn transaction(&self, revocation: Revocation) -> Option<Transaction<()>> {
        let mut transaction = Transaction::new(0);
        match revocation {
            Revocation::Key { key, at } => {
                let record = transaction.record(self.names.key(key));
                transaction.check(Check::Present(record), ());
                transaction.check(Check::NoField(record, "revoked"), ());
                transaction.set_field(record, "revoked", &at.0.to_string());
                transaction.replace_version(record).ok()?;
            }
            Revocation::User { tag, user, at } => {
                let record = transaction.record(self.names.user(tag, user));
                transaction.check(Check::Present(record), ());
                transaction.check(Check::NoField(record, "removed"), ());
                transaction.set(record, &[("removed", at.0.to_string()), ("version", new_version().ok()?)]);
            }
            Revocation::Session(digest) => {
                let record = transaction.record(self.names.session(&digest));
                transaction.check(Check::Present(record), ());
                transaction.delete(record);
            }
        }
        Some(transaction)
    }

    fn mark_replayed(&self, incarnation: &str) {
        let mut replayed = self.replayed();
        if replayed.len() >= SERVERS {
            replayed.clear();
        }
        replayed.insert(incarnation.to_owned());
    }

    fn replayed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.replayed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Revocation>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnConnect for Revocations {
    fn on_connect<'a>(
        &'a self,
        incarnation: &'a str,
        connection: &'a mut MultiplexedConnection,
    ) -> BoxFuture<'a, Result<(), RedisError>> {
        Box::pin(self.replay(incarnation, connection))
    }
}
