//! Claims of key digests, which are unique over all hash slots.
//!
//! A claim is written before the key, in the hash slot of the digest, and names the key and the time. If the key is
//! never written, because the gateway died in between, the claim can be taken over after [`CLAIM_LIFETIME`].

use std::time::Duration;

use redis::cmd;

use super::check::{Check, Record};
use super::commit_error::CommitError;
use super::transaction::{CommitResult, Transaction};
use super::transactions::{Transactions, parse_id};
use crate::import::DigestOwner;
use crate::{ChangeError, is_session_quota_digest};
use domain::clock::Micros;
use domain::key::{KeyDigest, KeyId};
use redis_client::CommandError;

/// Age from which a claim without a key can be taken over: longer than any change is tried for.
const CLAIM_LIFETIME: Duration = Duration::from_secs(60);
/// Time to wait for a session quota key that another gateway is creating: a few round trips.
const CREATION_PAUSE: Duration = Duration::from_millis(10);

/// Claims of digests, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct DigestClaims<'a>(pub(crate) &'a Transactions);

impl DigestClaims<'_> {
    /// Claims a digest for a key, in a change of this time. A digest that a key has or had is taken, unless it was this
    /// change that claimed it; one that was claimed long ago for a key that was never written is free.
    pub(super) async fn claim(self, digest: &KeyDigest, key: KeyId, time: Micros) -> Result<(), CommitError> {
        let name = self.0.shared.names.digest(digest);
        let id = key.as_str();
        let time = time.0.to_string();
        let (mut transaction, record) = self.0.transaction_on(name.clone());
        transaction.check(Check::Absent(record), ());
        write_claim(&mut transaction, record, id, &time);
        if let CommitResult::Written(_) = self.0.commit(transaction).await? {
            return Ok(());
        }
        let owner = self.0.read_field(&name, "key").await?.ok_or(CommitError::Conflict)?;
        let claimed = self.0.read_field(&name, "at").await?.ok_or(CommitError::Conflict)?;
        // An earlier attempt of this change, whose reply was lost, has claimed it.
        if owner == id && claimed == time {
            return Ok(());
        }
        let claimed = claimed.parse().map_or(Micros(0), Micros);
        if self.0.read_key(parse_id(&owner)?).await?.is_some() {
            return Err(ChangeError::Taken("digest").into());
        }
        if claimed.after(CLAIM_LIFETIME) > self.0.now() {
            return Err(fresh_claim(digest).await);
        }
        let (mut transaction, record) = self.0.transaction_on(name);
        transaction.check(Check::Equal(record, "key", &owner), CommitError::Conflict);
        write_claim(&mut transaction, record, id, &time);
        self.0.commit(transaction).await?.into_replicas().map(drop)
    }

    /// The owner of a digest, as seen from `key`. A claim of the last minute stands, although its key may never be
    /// written.
    pub(crate) async fn find_owner(self, digest: &KeyDigest, key: KeyId) -> Result<DigestOwner, CommandError> {
        let name = self.0.shared.names.digest(digest);
        let (by, at): (Option<String>, Option<u64>) =
            self.0.client.query(cmd("HMGET").arg(name).arg("key").arg("at")).await?;
        let Some(by) = by else { return Ok(DigestOwner::None) };
        let by: KeyId = parse_id(by)?;
        if by == key {
            return Ok(DigestOwner::Itself);
        }
        let fresh = Micros(at.unwrap_or_default()).after(CLAIM_LIFETIME) > self.0.now();
        let held = fresh || self.0.read_key(by).await?.is_some();
        Ok(if held { DigestOwner::Other(by) } else { DigestOwner::Abandoned(by) })
    }

    /// Gives a claim back, after its key was refused.
    pub(super) async fn release(self, digest: &KeyDigest, key: KeyId) -> Result<(), CommandError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.digest(digest));
        transaction.check(Check::Equal(record, "key", key.as_str()), ());
        transaction.del(record);
        // A failed check means that the claim is another key's: nothing to give back.
        self.0.commit(transaction).await.map(drop)
    }
}

fn write_claim<F>(transaction: &mut Transaction<F>, record: Record, key: &str, time: &str) {
    transaction.hset(record, &[("key", key.to_owned()), ("at", time.to_owned())]);
}

/// The error for a claim that is too young to be taken over. For a session quota key, `Taken` would mean that the key
/// is there and can be used, so its record is waited for instead.
async fn fresh_claim(digest: &KeyDigest) -> CommitError {
    if !is_session_quota_digest(digest) {
        return ChangeError::Taken("digest").into();
    }
    tokio::time::sleep(CREATION_PAUSE).await;
    CommitError::Conflict
}
