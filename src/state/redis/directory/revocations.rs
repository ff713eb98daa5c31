//! The revocations that this gateway has acknowledged, of keys and sessions, to be asserted again.
//!
//! Replication is asynchronous: a primary that is lost takes along what its replicas have not got yet, and the one that
//! follows it admits a revoked key, or finds an ended session. So every server, before a first connection to it serves, is told the revocations of this
//! process once more. They are final, so that telling them again never undoes what somebody else has changed since.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::Pipeline;
use redis::aio::MultiplexedConnection;

use crate::clock::Micros;
use crate::key::KeyId;
use crate::session::TokenDigest;
use crate::state::redis::client::script::Scripts;
use crate::state::redis::client::{Common, ConnectError};
use crate::state::redis::directory::changes::Transaction;
use crate::state::redis::record_names::RecordNames;

/// How many are kept, the newest. Enough for more than can be revoked in the seconds that a failover loses, and few
/// enough to be told within a fraction of a second.
const KEPT: usize = 10_000;
/// How many servers are remembered as told; beyond that, some are told again.
const SERVERS: usize = 100;
/// How many are told in one round trip.
const AT_ONCE: usize = 500;

/// What was acknowledged.
#[derive(Debug, Default)]
pub(in crate::state::redis) struct Revocations {
    kept: Mutex<VecDeque<Revocation>>,
    /// The servers that were told: they have what was kept then, and acknowledged what came since.
    told: Mutex<HashSet<String>>,
}

/// Something that is refused for good.
#[derive(Clone, Copy, Debug)]
pub(in crate::state::redis) enum Revocation {
    /// A key.
    Key {
        key: KeyId,
        /// The field that says so: `revoked`, or `removed` of its user.
        field: &'static str,
        at: Micros,
    },
    /// A session that was ended.
    Session(TokenDigest),
}

impl Revocations {
    /// Remembers one that was acknowledged.
    pub(in crate::state::redis) fn add(&self, revocation: Revocation) {
        let mut kept = self.kept();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(revocation);
    }

    /// Tells a server all of them, once for each process with its history. What is not this server's, on a Cluster, it
    /// refuses by itself, and what it has already it leaves as it is.
    pub(in crate::state::redis) async fn assert(
        &self,
        common: &Common,
        process: &str,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), ConnectError> {
        let kept: Vec<Revocation> = self.kept().iter().copied().collect();
        if kept.is_empty() || self.told().contains(process) {
            self.note(process);
            return Ok(());
        }
        let (record_names, scripts) = (RecordNames::new(&common.settings.prefix), Scripts::new());
        connection.send_packed_command(&scripts.commit.load()).await?;
        for some in kept.chunks(AT_ONCE) {
            let mut pipeline = Pipeline::with_capacity(some.len());
            for revocation in some {
                let Some(transaction) = transaction(&record_names, *revocation) else { continue };
                pipeline.add_command(transaction.by_digest(&scripts.commit));
            }
            connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
        }
        self.note(process);
        Ok(())
    }

    fn note(&self, process: &str) {
        let mut told = self.told();
        if told.len() >= SERVERS {
            told.clear();
        }
        told.insert(process.to_owned());
    }

    fn told(&self) -> MutexGuard<'_, HashSet<String>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Revocation>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The change that makes it so, where it is not so yet.
fn transaction(record_names: &RecordNames, revocation: Revocation) -> Option<Transaction> {
    let mut transaction = Transaction::new(0);
    match revocation {
        Revocation::Key { key, field, at } => {
            let record = transaction.record(record_names.key(key));
            transaction.check(("present", record));
            transaction.check(("none", record, field));
            transaction.write(("set", record, field, at.0.to_string()));
            transaction.stamp(record).ok()?;
        }
        Revocation::Session(digest) => {
            let record = transaction.record(record_names.session(&digest));
            transaction.check(("present", record));
            transaction.write(("drop", record));
        }
    }
    Some(transaction)
}
