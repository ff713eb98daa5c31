//! Idempotency records: each is written by the transaction of its change, in the hash slot of the organization; that of
//! a new organization where it enters the list of all.
//!
//! - A record expires by itself. It has the mark of the change that wrote it, so that this change recognizes it when
//!   the reply was lost.
//! - The records of a caller lie in several hash slots, so its live ones are counted in one sorted set. A change enters
//!   it first, by its mark, and is taken out when it was not made; of a gateway that dies in between, the entry stays
//!   until the record would have expired. So there are never more live records than entries. Entries are not waited for
//!   at replicas: a failover may forget the last ones.

use std::time::Duration;

use redis::cmd;
use tokio::time::sleep;

use super::change_steps::ChangeSteps;
use super::check::Check;
use super::commit_error::CommitError;
use super::transactions::Transactions;
use crate::redis::record_names::hex;
use crate::{ChangeError, IdempotencyPlace, IdempotencyRecord, IdempotentRequest};
use domain::clock::Micros;
use domain::key::KeyDigest;
use redis_client::CommandError;

/// Expired entries of a caller that one change removes: more than it adds, so that they become fewer.
const PRUNED_AT_ONCE: usize = 20;
/// Time between two looks for the record of an equal request that is being made.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Looks for it: together longer than the few round trips of a change.
const LOOKS: u32 = 10;

/// A request to be recorded, and the place of its record.
#[derive(Clone, Copy)]
pub(super) struct Once<'a> {
    pub(super) request: &'a IdempotentRequest,
    pub(super) place: IdempotencyPlace,
    /// Time of the attempt, by the clock of the servers.
    pub(super) now: Micros,
}

/// A record, and the mark of the change that wrote it.
pub(super) struct StoredRequest {
    record: IdempotencyRecord,
    mark: String,
}

/// Idempotency records, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(super) struct IdempotencyRecords<'a>(pub(super) &'a Transactions);

impl Once<'_> {
    /// The fields of the record, written by a change with this mark.
    pub(super) fn fields(self, mark: &str) -> [(&'static str, String); 4] {
        let IdempotentRequest { body, status, resource, .. } = self.request;
        [("mark", mark.to_owned()), ("body", hex(body)), ("status", status.to_string()), ("resource", resource.clone())]
    }

    /// The end of the record.
    pub(super) fn expires(self) -> Micros {
        let lifetime = self.request.expires.since(self.request.now).min(IdempotentRequest::MAX_LIFETIME_US);
        Micros(self.now.0.saturating_add(lifetime))
    }

    /// The latest end that a record may have.
    fn latest(self) -> Micros {
        Micros(self.now.0.saturating_add(IdempotentRequest::MAX_LIFETIME_US))
    }

    /// The entry of a change with this mark in the sorted set of the caller.
    fn entry(self, mark: &str) -> String {
        format!("{}:{mark}", hex(&self.request.id))
    }
}

impl Transactions {
    /// The live record of a request.
    pub(crate) async fn read_idempotency_record(
        &self,
        place: IdempotencyPlace,
        id: &[u8; 32],
    ) -> Result<Option<IdempotencyRecord>, CommandError> {
        Ok(IdempotencyRecords(self).find(place, id).await?.map(|stored| stored.record))
    }
}

impl IdempotencyRecords<'_> {
    async fn find(self, place: IdempotencyPlace, id: &[u8; 32]) -> Result<Option<StoredRequest>, CommandError> {
        let name = self.0.shared.names.idempotency(place, id);
        let read = cmd("HMGET").arg(name).arg(&["mark", "body", "status", "resource"]).to_owned();
        let fields: (Option<String>, Option<String>, Option<u16>, Option<String>) = self.0.client.query(&read).await?;
        let (Some(mark), Some(body), Some(status), Some(resource)) = fields else { return Ok(None) };
        let body = KeyDigest::from_hex(&body).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Some(StoredRequest { record: IdempotencyRecord { body: *body.as_bytes(), status, resource }, mark }))
    }

    /// The result of a change whose request is recorded already: success when this change did it, in an attempt whose
    /// reply was lost; else the record. None when there is no record.
    pub(super) async fn resolve(self, once: Once<'_>, mark: &str) -> Result<Option<u32>, CommitError> {
        let Some(stored) = self.find(once.place, &once.request.id).await? else { return Ok(None) };
        if stored.mark == mark {
            return self.confirm(once, &stored.mark).await.map(Some);
        }
        self.leave(once, mark).await?;
        let durability = self.0.shared.settings.durability;
        if durability.replicas > 0 {
            // The other change may have failed to be confirmed.
            ChangeSteps::check_replicated(durability, self.confirm(once, &stored.mark).await?)?;
        }
        Err(ChangeError::Repeated(stored.record).into())
    }

    /// Writes a record again, for replicas to confirm.
    async fn confirm(self, once: Once<'_>, mark: &str) -> Result<u32, CommitError> {
        let (mut transaction, record) =
            self.0.transaction_on(self.0.shared.names.idempotency(once.place, &once.request.id));
        transaction.allow_oom();
        transaction.check(Check::Equal(record, "mark", mark), CommitError::Conflict);
        transaction.hset_field(record, "mark", mark);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Enters a change into the count of its caller; one that withdraws something also while the memory is full.
    ///
    /// # Errors
    /// [`ChangeError::TooManyIdempotencyKeys`].
    pub(super) async fn enter(self, once: Once<'_>, withdraws: bool, mark: &str) -> Result<(), CommitError> {
        let IdempotentRequest { caller, max_live, .. } = once.request;
        let entry = once.entry(mark);
        let (mut transaction, entries) = self.0.transaction_on(self.0.shared.names.idempotency_of(caller));
        if withdraws {
            transaction.allow_oom();
        }
        let too_many = ChangeError::TooManyIdempotencyKeys(*max_live);
        transaction.check(Check::FewerScored(entries, *max_live, &entry), too_many);
        transaction.zadd(entries, once.expires().0, &entry);
        transaction.prune(entries, PRUNED_AT_ONCE);
        // Not before any of its entries.
        transaction.pexpireat(entries, once.latest().0.div_ceil(1000));
        self.0.commit_without_replicas(transaction).await?.into_replicas().map(drop)
    }

    /// Takes a change that was not made out of the count.
    pub(super) async fn leave(self, once: Once<'_>, mark: &str) -> Result<(), CommitError> {
        let name = self.0.shared.names.idempotency_of(&once.request.caller);
        let (mut transaction, entries) = self.0.transaction_on::<CommitError>(name);
        transaction.allow_oom();
        transaction.zrem(entries, &once.entry(mark));
        self.0.commit_without_replicas(transaction).await?.into_replicas().map(drop)
    }

    /// The result of a change that was refused: that of an equal request, if that was made meanwhile.
    pub(super) async fn resolve_refused(
        self,
        once: Once<'_>,
        refused: ChangeError,
        mark: &str,
    ) -> Result<u32, CommitError> {
        // An equal request claims the digest before it makes its change.
        let looks = if matches!(refused, ChangeError::Taken("digest")) { LOOKS } else { 1 };
        for look in 0..looks {
            if look > 0 {
                sleep(LOOK_PAUSE).await;
            }
            if let Some(replicas) = self.resolve(once, mark).await? {
                return Ok(replicas);
            }
        }
        self.leave(once, mark).await?;
        Err(refused.into())
    }
}
